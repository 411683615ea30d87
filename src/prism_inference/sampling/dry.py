"""DRY ("Don't Repeat Yourself"): penalties on tokens that would go on with a repetition. Knows ids, not text."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .candidates import Candidates
from .history import History

LARGEST = 1e30  # so that no penalty forbids a token
LARGEST_POWER = 3.4e38  # as float32 has it: exponents beyond it change nothing


class Breakers:
    """Sequences of ids across which no repetition is looked for; shared by samplers and never changed."""

    def __init__(self, sequences: Iterable[Sequence[int]] = ()) -> None:
        listed = {tuple(sequence) for sequence in sequences if len(sequence)}
        self.singles = frozenset(sequence[0] for sequence in listed if len(sequence) == 1)
        self.single_ids = np.array(sorted(self.singles), np.int64)
        # The longer ones by their last token, the longest first.
        self.by_last: dict[int, list[tuple[int, ...]]] = defaultdict(list)
        for sequence in sorted(listed, key=len, reverse=True):
            if len(sequence) > 1:
                self.by_last[sequence[-1]].append(sequence)

    def __deepcopy__(self, memo: dict[int, Any]) -> Breakers:
        return self


class Dry:
    """Takes multiplier · base^(n - allowed) off tokens that would lengthen a repetition of n ≥ allowed tokens.

    For every place of the last `window` tokens, it keeps how many tokens up to there are the same as the last tokens of
    all. One more token lengthens these runs by one where it stands again, and ends the others: one pass over an array.
    """

    def __init__(
        self, history: History, window: int, multiplier: float, base: float, allowed: int, breakers: Breakers
    ) -> None:
        self._history, self._window = history, window
        self._multiplier, self._base, self._allowed = multiplier, base, allowed
        self._breakers = breakers
        self._most = math.log(LARGEST_POWER) // math.log(base) if base > 1.000001 else math.inf
        # runs[i]: for the i-th token of the window. The last, which is the same as itself, is not used.
        self._runs = np.zeros(0, np.int64)
        self._head, self._tail = -1, 0  # the last breaker: place of its first token, number of the others

    def accept(self, ids: Sequence[int]) -> None:
        """Take note that ids have been appended to the history."""
        window = self._history.tail(self._window)
        if len(ids) == 1 and self._runs.size:
            runs = np.zeros(window.size, np.int64)
            before = self._runs[self._runs.size + 1 - window.size :]  # what was before the window's second token
            runs[1:] = before
            runs += 1
            runs *= window == window[-1]
            self._runs = runs
        else:
            self._runs = suffix_runs(window)
        first = self._history.length - min(len(ids), window.size)
        for place, token in enumerate(window[first - self._history.length :].tolist(), first):
            self._note_breaker(place, token)

    def _note_breaker(self, place: int, token: int) -> None:
        """See whether a token completes a breaker: the one that begins last counts, and of those the longest."""
        if token in self._breakers.singles and place > self._head:
            self._head, self._tail = place, 0
        for sequence in self._breakers.by_last.get(token, ()):
            head = place - len(sequence) + 1
            if head < self._head or head < 0:
                continue
            seen = self._history.tail(self._history.length - head)[: len(sequence)]
            if tuple(seen.tolist()) == sequence and (head, len(sequence) - 1) > (self._head, self._tail):
                self._head, self._tail = head, len(sequence) - 1

    def __call__(self, candidates: Candidates) -> Candidates:
        """Return the candidates with penalties taken off."""
        tokens, penalties = self.penalties()
        if tokens.size == 0:
            return candidates
        places, there = candidates.places(tokens)
        places = places[there]
        logits = candidates.logits.copy()
        logits[places] -= penalties[there]
        return Candidates(candidates.ids, logits)

    def penalties(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Return the tokens that are penalized, each once, and by how much."""
        none = np.zeros(0, np.int64), np.zeros(0, np.float32)
        window = self._history.tail(self._window)
        limit = window.size
        if limit <= self._allowed:
            return none
        if self._head >= self._history.length - limit:
            limit = self._history.length - 1 - self._head - self._tail
        if limit < self._allowed:
            return none
        # A run cannot begin before the window.
        runs = np.minimum(self._runs[:-1], np.arange(1, window.size))
        repeating = np.flatnonzero(runs >= self._allowed)
        if self._breakers.single_ids.size and repeating.size:
            repeating = repeating[~np.isin(window[repeating + 1], self._breakers.single_ids)]
        if repeating.size == 0:
            return none
        tokens, index = np.unique(window[repeating + 1], return_inverse=True)
        longest = np.zeros(tokens.size, np.int64)
        np.maximum.at(longest, index, np.minimum(runs[repeating], limit))
        exponents = np.minimum(longest - self._allowed, self._most)
        penalties = np.minimum(self._multiplier * np.power(float(self._base), exponents), LARGEST)
        return tokens, penalties.astype(np.float32)


def suffix_runs(ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return for each place how many ids up to it are the same as the last ones of all.

    The Z-function of the reversed sequence (Gusfield, "Algorithms on Strings, Trees and Sequences", 1.3): linear time
    whatever the ids.
    """
    text = ids[::-1].tolist()
    count = len(text)
    lengths = [0] * count
    if count:
        lengths[0] = count
    left = right = 0  # text[left:right] is the match that reaches farthest
    for place in range(1, count):
        length = min(right - place, lengths[place - left]) if place < right else 0
        while place + length < count and text[length] == text[place + length]:
            length += 1
        lengths[place] = length
        if place + length > right:
            left, right = place, place + length
    return np.array(lengths[::-1], np.int64)
