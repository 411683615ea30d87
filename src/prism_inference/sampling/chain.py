"""One request's sampler: the filters in their order, then a draw from a stream of random numbers of its own.

The order is llama.cpp's: top-k, top-p, min-p, temperature, draw. So top-p and min-p see the model's own probabilities,
and the temperature only weighs what they left.
"""

from __future__ import annotations

import copy
import secrets
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import SamplingError
from . import filters
from .params import SamplingParams

DRAW_BLOCK = 512
NEW_SEED_BITS = 32  # enough to tell requests apart, short enough to type again


class Sampler:
    """Chooses token ids for one request.

    Attributes:
        params: the parameters.
        seed: the seed in use: the one given, or the one taken at random.
    """

    def __init__(self, params: SamplingParams) -> None:
        """Start the request's stream of random numbers."""
        self.params = params
        self.seed = secrets.randbits(NEW_SEED_BITS) if params.seed is None else params.seed
        self._random = np.random.Generator(np.random.PCG64(self.seed))

    def copy(self) -> Sampler:
        """Return a sampler that will choose as this one would from here on: kept aside, it undoes what follows."""
        twin = copy.copy(self)
        twin._random = copy.deepcopy(self._random)
        return twin

    def sample(self, logits: npt.NDArray[np.float32]) -> int:
        """Choose a token.

        Greedy choice takes the lowest id among equal logits (-0.0 equals 0.0). Minus infinity forbids a token. A draw
        takes one random number, whatever the parameters.

        Args:
            logits: float32 [vocabulary].

        Raises:
            SamplingError: the logits are empty, hold NaN or plus infinity, or forbid every token.
        """
        best = _best(logits)
        if self.params.temperature == 0:
            return best
        candidates = filters.top_k(filters.all_tokens(logits), self.params.top_k)
        candidates = filters.top_p(candidates, self.params.top_p)
        candidates = filters.min_p(candidates, self.params.min_p)
        place = draw(filters.weights(candidates, self.params.temperature), self._random.random())
        return int(candidates.ids[place])


def draw(weights: npt.NDArray[np.float32], uniform: float) -> int:
    """Return the index at which the running sum of `weights` passes `uniform` times the whole sum.

    Sums of blocks come first, so that only one block's running sum is made: a whole vocabulary's would take most of the
    time. Weights are 0 or above, not all 0; `uniform` is from 0 to below 1.
    """
    starts = np.arange(0, weights.size, DRAW_BLOCK)
    sums = np.add.reduceat(weights, starts, dtype=np.float64)
    block, rest = _pass(sums, uniform * float(sums.sum()))
    start = block * DRAW_BLOCK
    place, _ = _pass(weights[start : start + DRAW_BLOCK].astype(np.float64), rest)
    return start + place


def _pass(parts: npt.NDArray[np.float64], goal: float) -> tuple[int, float]:
    """Return the index where the running sum exceeds `goal`, and how much of `goal` is left for that part.

    Where rounding has put the goal at the sum itself, it is the last part above 0.
    """
    reached = np.cumsum(parts)
    place = int(min(np.searchsorted(reached, goal, side="right"), np.searchsorted(reached, reached[-1])))
    return place, goal - float(reached[place - 1]) if place else goal


def _best(logits: npt.NDArray[Any]) -> int:
    """Return the lowest id with the highest logit; refuse logits that leave no choice."""
    if logits.ndim != 1 or logits.size == 0:
        raise SamplingError("no logits to choose from", expected="[vocabulary]", found=f"shape {list(logits.shape)}")
    best = int(logits.argmax())  # argmax returns a NaN's place where there is one
    value = float(logits[best])
    if not np.isfinite(value):
        found = "only -inf" if value == -np.inf else f"{value} for token {best}"
        raise SamplingError(
            "the logits leave no choice",
            expected="finite numbers (-inf forbids a token)",
            found=found,
            hint="The model's weights or its arithmetic are at fault, or every token was forbidden.",
        )
    return best
