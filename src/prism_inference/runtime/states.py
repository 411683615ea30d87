"""The memory of a sequence: keys and values of attending blocks, states of recurrent ones, copies of the latter.

Keys and values beyond a position are simply not read, so going back costs nothing. A recurrent state cannot be cut:
going back means restoring a copy. Knows no graph's meaning.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..graph import Storage, Tensor
from ..limits import STATE_COPIES
from ..models import Batch, Cache, State


def _leaves(part: Cache | State) -> tuple[Tensor, Tensor]:
    return (part.keys, part.values) if isinstance(part, Cache) else (part.inputs, part.matrices)


class States:
    """Storage for the states of all blocks, zeros at first; the system backs it page by page as it fills."""

    def __init__(self, batch: Batch) -> None:
        self._storages = [[Storage.allocate(leaf.nbytes) for leaf in _leaves(part)] for part in batch.caches]
        self._recurrent = [
            storage
            for part, pair in zip(batch.caches, self._storages, strict=True)
            if isinstance(part, State)
            for storage in pair
        ]
        self._copies: dict[int, list[npt.NDArray[np.uint8]]] = {}
        self._most = STATE_COPIES

    @staticmethod
    def needed(batch: Batch) -> int:
        """Return the bytes that a batch's states take, without copies."""
        return sum(leaf.nbytes for part in batch.caches for leaf in _leaves(part))

    @property
    def recurrent(self) -> bool:
        """Whether any block has a state that cannot be cut."""
        return bool(self._recurrent)

    def attach(self, batch: Batch) -> None:
        """Give a graph's leaves their storage."""
        for part, pair in zip(batch.caches, self._storages, strict=True):
            for leaf, storage in zip(_leaves(part), pair, strict=True):
                leaf.storage = storage

    def bound_copies(self, spare: int) -> None:
        """Let copies take no more than `spare` bytes; the oldest go if they do."""
        if self._recurrent:
            self._most = min(STATE_COPIES, spare // sum(storage.nbytes for storage in self._recurrent))
            self._drop(self._most)

    def _drop(self, most: int) -> None:
        """Forget the oldest copies until `most` are left."""
        while len(self._copies) > most:
            del self._copies[next(iter(self._copies))]

    def save(self, position: int) -> None:
        """Keep a copy of the recurrent state; the oldest goes where there are too many."""
        if not self._recurrent or self._most == 0 or position == 0:
            return
        self._copies.pop(position, None)
        self._drop(self._most - 1)
        self._copies[position] = [storage.array.copy() for storage in self._recurrent]

    def restore(self, position: int) -> int:
        """Bring back the state of the last kept position up to `position` and return that; later copies are dropped."""
        if not self._recurrent:
            return position
        self._copies = {kept: copy for kept, copy in self._copies.items() if kept <= position}
        found = max(self._copies, default=0)
        for number, storage in enumerate(self._recurrent):
            storage.array[:] = self._copies[found][number] if found else 0
        return found
