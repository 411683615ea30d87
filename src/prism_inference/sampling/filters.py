"""The filters of the sampling chain, each a function from candidates to fewer candidates.

A filter knows logits and ids. It does not know parameters' ranges, the order of the chain, or random numbers.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

# Probabilities come from float32 logits, so a sum that should meet top_p exactly may miss it by their rounding.
ROUNDING = 1e-6
# How many of the likeliest tokens top-p looks at before it sorts them all: a peaked distribution needs no more.
FIRST_LOOK = 2_048


class Candidates(NamedTuple):
    """Tokens that may still be chosen: rising ids [n] and their logits [n] in float32."""

    ids: npt.NDArray[np.int64]
    logits: npt.NDArray[np.float32]


def all_tokens(logits: npt.NDArray[np.float32]) -> Candidates:
    """Every token of a vocabulary."""
    return Candidates(_ids(logits.size), logits)


@lru_cache(maxsize=4)
def _ids(count: int) -> npt.NDArray[np.int64]:
    """0 to count - 1, made once for each vocabulary: fresh memory for it would cost more than a draw."""
    ids = np.arange(count, dtype=np.int64)
    ids.flags.writeable = False
    return ids


def top_k(candidates: Candidates, k: int) -> Candidates:
    """Keep the `k` highest logits; of equal ones the lower ids. 0 keeps all."""
    size = candidates.logits.size
    if k == 0 or k >= size:
        return candidates
    return _highest(candidates, k, np.partition(candidates.logits, size - k)[size - k])


def top_p(candidates: Candidates, p: float) -> Candidates:
    """Keep the likeliest tokens up to the one with which their probabilities reach `p`; at least one."""
    if p >= 1:
        return candidates
    logits = candidates.logits
    peak = logits.max()
    goal = (p - ROUNDING) * float(np.exp(logits - peak).sum(dtype=np.float64))
    for look in (FIRST_LOOK, logits.size):
        head = logits if look >= logits.size else np.partition(logits, logits.size - look)[logits.size - look :]
        falling = np.sort(head)[::-1]
        reached = np.cumsum(np.exp(falling - peak).astype(np.float64))  # the cast first: three times as fast
        if reached[-1] >= goal:
            keep = int(np.searchsorted(reached, goal)) + 1
            return _highest(candidates, keep, falling[keep - 1])
    return candidates  # p is 1 but for rounding, and so is the sum


def min_p(candidates: Candidates, p: float) -> Candidates:
    """Keep tokens with at least `p` times the likeliest one's probability; at least that one."""
    if p <= 0:
        return candidates
    # Probabilities p_i >= p * p_max, taken as logits: l_i >= l_max + ln p. A p above 1 would leave none.
    keep = candidates.logits >= candidates.logits.max() + min(math.log(p), 0.0)
    return Candidates(candidates.ids[keep], candidates.logits[keep])


def weights(candidates: Candidates, temperature: float = 1.0) -> npt.NDArray[np.float32]:
    """Return exp((logits - highest) / temperature) in float32, one for each candidate: the softmax before its division.

    `temperature` is above 0.
    """
    shifted: npt.NDArray[np.float32] = candidates.logits - candidates.logits.max()
    if temperature != 1:
        with np.errstate(over="ignore"):  # a tiny temperature drives all but the peak to minus infinity: rightly 0
            shifted = (shifted / np.float64(temperature)).astype(np.float32)
    np.exp(shifted, out=shifted)
    return shifted


def _highest(candidates: Candidates, count: int, border: np.float32) -> Candidates:
    """The `count` highest logits, of which `border` is the lowest."""
    logits = candidates.logits
    above = logits > border
    level = np.flatnonzero(logits == border)[: count - int(np.count_nonzero(above))]
    above[level] = True
    return Candidates(candidates.ids[above], logits[above])
