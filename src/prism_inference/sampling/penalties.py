"""Linear penalties on tokens that were seen lately. Knows the history, not what tokens mean."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .candidates import Candidates
from .history import WHOLE, History

LARGEST = 1e30  # a penalty alone never forbids a token, and none leaves float32


class Penalties:
    """Makes each token of the last `window` less likely.

    A logit l of a token seen c times becomes l / r (l · r if it is not above 0), less c · frequency + presence. Keskar
    and others, "CTRL" (2019), for r; the case of l ≤ 0 and the others as OpenAI and llama.cpp have them.
    """

    def __init__(self, history: History, window: int, repeat: float, frequency: float, presence: float) -> None:
        self._history, self._window = history, window
        self._repeat = np.float32(min(max(repeat, 1 / LARGEST), LARGEST))
        self._frequency, self._presence = (
            np.float32(min(max(value, -LARGEST), LARGEST)) for value in (frequency, presence)
        )
        self._counts: npt.NDArray[np.int32] | None = None  # of each token in the window; made when first wanted

    def accept(self, ids: Sequence[int]) -> None:
        """Take note that ids have been appended to the history."""
        if self._counts is None:
            return
        if len(ids) != 1 or ids[0] >= self._counts.size:
            self._counts = None  # counted anew when wanted
            return
        self._counts[ids[0]] += 1
        if self._window != WHOLE and self._history.length > self._window:
            self._counts[self._history.tail(self._window + 1)[0]] -= 1

    def __call__(self, candidates: Candidates) -> Candidates:
        """Return the candidates with penalties taken off."""
        tail = self._history.tail(self._window)
        if tail.size == 0:
            return candidates
        if self._counts is None or self._counts.size <= candidates.ids[-1]:
            self._counts = np.bincount(tail, minlength=int(candidates.ids[-1]) + 1).astype(np.int32)
        # A token that comes twice is set twice to the same value.
        if candidates.ids.size > tail.size:
            places, there = candidates.places(tail)
            places = places[there]
        else:
            places = np.flatnonzero(self._counts[candidates.ids])
        logits = candidates.logits.copy()
        old = logits[places]
        counts = self._counts[candidates.ids[places]].astype(np.float32)
        with np.errstate(over="ignore"):
            new = np.where(old > 0, old / self._repeat, old * self._repeat)
            new -= counts * self._frequency + self._presence
        logits[places] = np.where(old == -np.inf, old, np.clip(new, -LARGEST, LARGEST))
        return Candidates(candidates.ids, logits)
