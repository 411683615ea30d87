"""One request's sampler: the steps of the chain in their order, then a draw from a stream of random numbers of its own.

Bias and forbidden tokens come first. Then the chain, by default llama.cpp's: penalties, DRY, top-nσ, top-k, typical,
top-p, min-p, XTC, temperature. So the filters see the model's own probabilities, and the temperature only weighs what
they left. Mirostat comes instead of the chain, behind the temperature; adaptive-p behind the chain.
"""

from __future__ import annotations

import copy
import secrets
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import SamplingError
from . import filters
from .bans import Bias, Forbidden
from .candidates import Candidates, Logits, all_tokens, weights
from .dry import Breakers, Dry
from .history import History
from .params import SEED_LIMIT, SamplingParams
from .penalties import Penalties
from .surprise import AdaptiveP, Mirostat1, Mirostat2, Steering

DRAW_BLOCK = 512
NEW_SEED_BITS = 32  # enough to tell requests apart, short enough to type again

Step = Callable[[Candidates], Candidates]


class _Xtc:
    """XTC for a part of the draws."""

    def __init__(self, probability: float, threshold: float, random: np.random.Generator) -> None:
        self._probability, self._threshold, self._random = probability, threshold, random

    def __call__(self, candidates: Candidates) -> Candidates:
        if self._random.random() >= self._probability:
            return candidates
        return filters.xtc(candidates, self._threshold)


class _Row(NamedTuple):
    """A step of the chain: whether parameters want it, how it is made, and whether it may lose the likeliest token or
    make another one it (then a greedy choice needs it too)."""

    wanted: Callable[[SamplingParams], bool]
    make: Callable[[SamplingParams, Sampler], Step]
    matters_to_greedy: bool = False


_STEPS: dict[str, _Row] = {
    "penalties": _Row(
        lambda p: p.repeat_last_n != 0 and (p.repeat_penalty, p.frequency_penalty, p.presence_penalty) != (1, 0, 0),
        lambda p, s: Penalties(s.history, p.repeat_last_n, p.repeat_penalty, p.frequency_penalty, p.presence_penalty),
        matters_to_greedy=True,
    ),
    "dry": _Row(
        lambda p: p.dry_multiplier > 0 and p.dry_penalty_last_n != 0,
        lambda p, s: Dry(
            s.history, p.dry_penalty_last_n, p.dry_multiplier, p.dry_base, p.dry_allowed_length, s.breakers
        ),
        matters_to_greedy=True,
    ),
    "top_n_sigma": _Row(lambda p: p.top_n_sigma > 0, lambda p, s: partial(filters.top_n_sigma, n=p.top_n_sigma)),
    "top_k": _Row(lambda p: p.top_k > 0, lambda p, s: partial(filters.top_k, k=p.top_k)),
    "typ_p": _Row(lambda p: p.typical_p < 1, lambda p, s: partial(filters.typical, p=p.typical_p), True),
    "top_p": _Row(lambda p: p.top_p < 1, lambda p, s: partial(filters.top_p, p=p.top_p)),
    "min_p": _Row(lambda p: p.min_p > 0, lambda p, s: partial(filters.min_p, p=p.min_p)),
    "xtc": _Row(
        lambda p: p.xtc_probability > 0 and p.xtc_threshold <= 0.5,
        lambda p, s: _Xtc(p.xtc_probability, p.xtc_threshold, s.random),
        matters_to_greedy=True,
    ),
    "temperature": _Row(lambda p: p.dynatemp_range > 0 or p.temperature != 1, lambda p, s: _temperature(p)),
}


def _temperature(params: SamplingParams) -> Step:
    if params.dynatemp_range > 0:
        return partial(
            filters.dynamic_temperature,
            middle=params.temperature,
            spread=params.dynatemp_range,
            exponent=params.dynatemp_exponent,
        )
    return partial(filters.temperature, value=params.temperature)


class Sampler:
    """Chooses token ids for one request.

    Attributes:
        params: the parameters.
        seed: the seed in use: the one given, or the one taken at random.
        history: prompt and answer so far.
        random: the request's stream of random numbers.
        breakers: DRY's sequence breakers as ids.
    """

    history: History
    random: np.random.Generator
    breakers: Breakers

    def __init__(
        self,
        params: SamplingParams,
        end_ids: Collection[int] = (),
        breakers: Breakers | None = None,
        number: int = 0,
    ) -> None:
        """Start the request's stream of random numbers.

        Args:
            params: the parameters.
            end_ids: ids that end an answer, for `min_tokens` and `ignore_eos`.
            breakers: DRY's sequence breakers as ids; default: none.
            number: of this answer among several of one request; each has a seed of its own, seed + number.
        """
        self.params = params
        seed = new_seed() if params.seed is None else params.seed
        self.seed = (seed + number) % SEED_LIMIT
        self.random = np.random.Generator(np.random.PCG64(self.seed))
        self.history = History()
        self.breakers = breakers or Breakers()
        self._forbidden: Forbidden | None = None
        self._steering: Steering | None = None
        self._bans = self._make_bans(end_ids)
        self._steps = self._make_chain()
        self._noting = [step for step in self._steps if isinstance(step, Penalties | Dry)]

    def _make_bans(self, end_ids: Collection[int]) -> list[Step]:
        """Make the steps for bias and forbidden tokens, as far as they are wanted."""
        params, steps = self.params, list[Step]()
        if params.logit_bias:
            steps.append(Bias(params.logit_bias))
        ends_until = float("inf") if params.ignore_eos else params.min_tokens
        if params.bad_words or (ends_until and end_ids):
            self._forbidden = Forbidden(self.history, params.bad_words, end_ids, ends_until)
            steps.append(self._forbidden)
        return steps

    def _make_chain(self) -> list[Step]:
        """Make the steps in their order. Mirostat is made at the first draw, which tells the vocabulary's size."""
        params = self.params
        names = ("temperature",) if params.mirostat else params.samplers
        rows = [_STEPS[name] for name in names if name in _STEPS]
        if params.adaptive_target is not None and not params.mirostat and not params.greedy:
            self._steering = AdaptiveP(params.adaptive_target, params.adaptive_decay)
        return [
            row.make(params, self)
            for row in rows
            if row.wanted(params) and (row.matters_to_greedy or not params.greedy or params.mirostat)
        ]

    def copy(self) -> Sampler:
        """Return a sampler that will choose as this one would from here on: kept aside, it undoes what follows."""
        return copy.deepcopy(self)

    def accept(self, ids: Sequence[int]) -> None:
        """Take note of tokens that were not drawn here: the prompt, or what a grammar forces."""
        self.history.extend(ids)
        for step in self._noting:
            step.accept(ids)

    def candidates(self, logits: Logits) -> Candidates:
        """Return what the chain leaves of the logits; their soft-max is what `sample` draws from.

        Args:
            logits: float32 [vocabulary]; they are not changed.

        Raises:
            SamplingError: as `sample`.
        """
        _check(logits)
        candidates = all_tokens(logits)
        for step in self._bans:
            candidates = step(candidates)
        if self._bans:
            _check_any_left(candidates.logits)
        for step in self._steps:
            candidates = step(candidates)
        if self.params.mirostat and self._steering is None:
            tau, eta = self.params.mirostat_tau, self.params.mirostat_eta
            self._steering = Mirostat1(tau, eta, logits.size) if self.params.mirostat == 1 else Mirostat2(tau, eta)
        return candidates if self._steering is None else self._steering(candidates)

    def sample(self, logits: Logits) -> int:
        """Choose a token, and take note of it.

        Greedy choice takes the lowest id among equal logits (-0.0 equals 0.0). Minus infinity forbids a token. A draw
        takes one random number, two with XTC, whatever the other parameters.

        Args:
            logits: float32 [vocabulary].

        Raises:
            SamplingError: the logits are empty, hold NaN or plus infinity, or every token is forbidden. The sampler is
                as before.
        """
        candidates = self.candidates(logits)
        return self.take(candidates, self.pick(candidates))

    def pick(self, candidates: Candidates) -> int:
        """Draw a place among the candidates."""
        if self.params.greedy:
            return int(candidates.logits.argmax())
        return draw(weights(candidates), self.random.random())

    def take(self, candidates: Candidates, place: int) -> int:
        """Take note that the candidate at a place was drawn; return its id."""
        if self._steering is not None:
            self._steering.drawn(candidates, place)
        if self._forbidden is not None:
            self._forbidden.drawn()
        token = int(candidates.ids[place])
        self.accept([token])
        return token


def new_seed() -> int:
    """Return a seed taken at random."""
    return secrets.randbits(NEW_SEED_BITS)


def draw(weights: npt.NDArray[np.float32], uniform: float) -> int:
    """Return the index at which the running sum of `weights` passes `uniform` times the whole sum.

    Sums of blocks come first, so that only one block's running sum is made: a whole vocabulary's would take most of the
    time. Weights are 0 or above, not all 0; `uniform` is from 0 to below 1.
    """
    if weights.size <= DRAW_BLOCK:
        parts = weights.astype(np.float64)
        return _pass(parts, uniform * float(parts.sum()))[0]
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


def _check(logits: npt.NDArray[Any]) -> None:
    """Refuse logits that leave no choice."""
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


def _check_any_left(logits: Logits) -> None:
    if logits.max() == -np.inf:
        raise SamplingError(
            "every token is forbidden",
            expected="at least one token that may come",
            hint="Forbid fewer tokens: see logit_bias, bad_words, min_tokens and ignore_eos.",
        )
