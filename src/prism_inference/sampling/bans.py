"""What is added to single logits before the chain, and the tokens that a request forbids. Knows ids, not text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from .candidates import Candidates
from .history import History


class Bias:
    """Adds a number to each of some tokens' logits; minus infinity forbids one."""

    def __init__(self, biases: Mapping[int, float]) -> None:
        ids = sorted(biases)
        self._ids = np.array(ids, np.int64)
        self._values = np.array([biases[token] for token in ids], np.float32)

    def __call__(self, candidates: Candidates) -> Candidates:
        logits = candidates.logits.copy()
        places, there = candidates.places(self._ids)
        logits[places[there]] += self._values[there]
        return Candidates(candidates.ids, logits)


class Forbidden:
    """Forbids single tokens, the last tokens of sequences that have begun, and the ends until enough was drawn."""

    def __init__(
        self, history: History, words: Sequence[Sequence[int]], ends: Collection[int], ends_until: float
    ) -> None:
        """Prepare.

        Args:
            history: prompt and answer; a word may begin in the prompt.
            words: sequences of ids, of which none is ever completed.
            ends: ids that are forbidden for a time.
            ends_until: how many tokens must be drawn before an end is allowed.
        """
        self._history = history
        self._singles = {word[0] for word in words if len(word) == 1}
        self._by_last_but_one: dict[int, list[tuple[int, ...]]] = defaultdict(list)
        for word in words:
            if len(word) > 1:
                self._by_last_but_one[word[-2]].append(tuple(word))
        self._ends, self._ends_until = frozenset(ends), ends_until
        self._drawn = 0

    def drawn(self) -> None:
        """Take note that a token was drawn."""
        self._drawn += 1

    def __call__(self, candidates: Candidates) -> Candidates:
        forbidden = set(self._singles)
        if self._drawn < self._ends_until:
            forbidden |= self._ends
        for last in self._history.tail(1).tolist():
            for word in self._by_last_but_one.get(last, ()):
                if tuple(self._history.tail(len(word) - 1).tolist()) == word[:-1]:
                    forbidden.add(word[-1])
        if not forbidden:
            return candidates
        places, there = candidates.places(np.array(sorted(forbidden), np.int64))
        logits = candidates.logits.copy()
        logits[places[there]] = -np.inf
        return Candidates(candidates.ids, logits)
