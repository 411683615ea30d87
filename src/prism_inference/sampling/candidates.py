"""Tokens that may still be chosen, and what every step of the chain needs of them.

Knows ids and logits. Knows no parameters, no order of steps and no random numbers.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Logits = npt.NDArray[np.float32]

# A search for the k highest first takes the highest of each of that many groups a wanted token, so that most of a
# vocabulary is read once and never sorted.
GROUPS_PER_TOKEN = 16
SEARCHED_WHOLE = 4_096  # below this, groups cost more than they save


class Candidates(NamedTuple):
    """Tokens that may still be chosen: rising ids int64 [n] and logits float32 [n]; minus infinity forbids one."""

    ids: npt.NDArray[np.int64]
    logits: Logits

    def kept(self, places: npt.NDArray[np.intp]) -> Candidates:
        """The candidates at rising places."""
        return Candidates(self.ids[places], self.logits[places])

    def places(self, tokens: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
        """Return where tokens stand among the candidates, and which of them are there at all."""
        if self.ids.size and self.ids[-1] == self.ids.size - 1:  # rising from 0 without a gap
            return tokens, tokens < self.ids.size
        places = np.searchsorted(self.ids, tokens)
        return places, self.ids[np.minimum(places, self.ids.size - 1)] == tokens


def all_tokens(logits: Logits) -> Candidates:
    """Every token of a vocabulary; the logits are not copied."""
    return Candidates(_ids(logits.size), logits)


@lru_cache(maxsize=4)
def _ids(count: int) -> npt.NDArray[np.int64]:
    """0 to count - 1, made once for each vocabulary: fresh memory for it would cost more than a draw."""
    ids = np.arange(count, dtype=np.int64)
    ids.flags.writeable = False
    return ids


def highest(candidates: Candidates, count: int) -> Candidates:
    """The `count` highest logits, at least one; of equal ones those of lower ids."""
    if count >= candidates.logits.size:
        return candidates
    candidates = _reaching(candidates, count)
    border = np.partition(candidates.logits, candidates.logits.size - count)[candidates.logits.size - count]
    return down_to(candidates, count, border)


def falling(candidates: Candidates, count: int) -> Logits:
    """The `count` highest logits, the highest first; fewer if there are no more."""
    logits = highest(candidates, count).logits
    return np.sort(logits)[::-1]


def down_to(candidates: Candidates, count: int, border: np.float32) -> Candidates:
    """The `count` highest logits, of which `border` is the lowest."""
    above = candidates.logits > border
    level = (candidates.logits == border).nonzero()[0][: count - int(np.count_nonzero(above))]
    above[level] = True
    return candidates.kept(above.nonzero()[0])


def _reaching(candidates: Candidates, count: int) -> Candidates:
    """A small part of the candidates in which the `count` highest are.

    The count-th highest of the groups' peaks is reached by at least `count` logits, so what lies below it is not among
    the highest.
    """
    logits = candidates.logits
    groups = count * GROUPS_PER_TOKEN
    if logits.size < SEARCHED_WHOLE or groups > logits.size // 2:
        return candidates
    rows = logits.size // groups
    peaks = logits[: rows * groups].reshape(rows, groups).max(axis=0)
    return candidates.kept((logits >= np.partition(peaks, groups - count)[groups - count]).nonzero()[0])


def weights(candidates: Candidates) -> Logits:
    """Return exp(logits - highest) in float32, one for each candidate: the soft-max before its division."""
    shifted: Logits = candidates.logits - candidates.logits.max()
    np.exp(shifted, out=shifted)
    return shifted


def probabilities(candidates: Candidates) -> npt.NDArray[np.float64]:
    """Return the soft-max of the logits in float64."""
    parts = weights(candidates).astype(np.float64)
    parts /= parts.sum()
    return parts
