"""Metadata values as they lie in the file: strings decoded on demand, and texts of a file made fit for a message.

Knows nothing of keys, nor of how values are found in the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

_SHOWN_CHARACTERS = 80
_SHOWN_ITEMS = 3


def text(raw: bytes) -> str:
    """Decode UTF-8; bytes that are not stay as surrogate escapes, so that nothing is lost."""
    return raw.decode("utf-8", "surrogateescape")


def shown(value: object) -> str:
    """Return a value of a file for a message: on one line, of bounded length, without control characters."""
    if isinstance(value, np.ndarray):
        return f"an array of {value.size} {value.dtype}"
    if isinstance(value, str | bytes) and len(value) > _SHOWN_CHARACTERS:
        return f"{value[:_SHOWN_CHARACTERS]!r} … ({len(value)} long)"
    line = repr(value)
    return line if isinstance(value, str | bytes | StringArray) else line[:_SHOWN_CHARACTERS]


class StringArray(Sequence[str]):
    """Strings of an array, sliced from the mapped file when asked for.

    `starts` and `ends` are the byte positions of each string in `data`, ascending.
    """

    def __init__(self, data: memoryview, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> None:
        self._data = data
        self._starts = starts
        self._ends = ends

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        return text(bytes(self._data[int(self._starts[index]) : int(self._ends[index])]))

    def __iter__(self) -> Iterator[str]:
        return map(text, self.raw())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str | bytes):
            return NotImplemented
        return list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # a sequence that compares by value

    def __repr__(self) -> str:
        head = ", ".join(shown(item) for item in self[:_SHOWN_ITEMS])
        return f"<{len(self)} strings: {head}{', …' if len(self) > _SHOWN_ITEMS else ''}>"

    def raw(self) -> list[bytes]:
        """Return all strings as bytes."""
        if len(self) == 0:
            return []
        # One copy of the whole stretch, then cheap slices of it.
        base = int(self._starts[0])
        block = bytes(self._data[base : int(self._ends[-1])])
        starts, ends = (self._starts - base).tolist(), (self._ends - base).tolist()
        return [block[start:end] for start, end in zip(starts, ends, strict=True)]
