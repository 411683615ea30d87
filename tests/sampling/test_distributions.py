"""100,000 draws of each sampler against the distribution that its definition gives, by the chi-square test.

The definitions are written out here once more, in float64 and without any of the package's filters.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from prism_inference.sampling import Sampler, SamplingParams
from prism_inference.sampling.candidates import probabilities

DRAWS = 100_000
LOGITS = np.array([1.2, -0.4, 2.1, 0.3, -1.5, 1.9, 0.8, -0.1, 1.4, -2.2, 0.0, 0.6], np.float32)
SEEN = [2, 5, 2, 8]
Shares = np.ndarray


def soft_max(logits: np.ndarray) -> Shares:
    parts = np.exp(logits.astype(np.float64) - logits.max())
    return parts / parts.sum()


def only(keep: np.ndarray, shares: Shares) -> Shares:
    left = np.where(keep, shares, 0)
    return left / left.sum()


PLAIN = soft_max(LOGITS)
FALLING = np.argsort(-PLAIN)


def first(count: int) -> np.ndarray:
    return np.isin(np.arange(LOGITS.size), FALLING[:count])


def nucleus(p: float) -> Shares:
    return only(first(int(np.searchsorted(np.cumsum(PLAIN[FALLING]), p)) + 1), PLAIN)


def locally_typical(p: float) -> Shares:
    surprise = -np.log(PLAIN)
    order = np.argsort(np.abs(surprise - (PLAIN * surprise).sum()))
    count = int(np.searchsorted(np.cumsum(PLAIN[order]), p, side="right")) + 1
    return only(np.isin(np.arange(LOGITS.size), order[:count]), PLAIN)


def without_top_choices(probability: float, threshold: float) -> Shares:
    reaching = threshold <= PLAIN
    least = np.flatnonzero(reaching)[np.argmin(PLAIN[reaching])]
    keep = ~reaching
    keep[least] = True
    return probability * only(keep, PLAIN) + (1 - probability) * PLAIN


def warmed(spread: float, exponent: float) -> Shares:
    entropy = -(PLAIN * np.log(PLAIN)).sum() / math.log(LOGITS.size)
    return soft_max(LOGITS / (1 - spread + 2 * spread * entropy**exponent))


def penalized(repeat: float, frequency: float, presence: float) -> Shares:
    logits = LOGITS.astype(np.float64)
    for token in set(SEEN):
        logits[token] = logits[token] / repeat if logits[token] > 0 else logits[token] * repeat
        logits[token] -= SEEN.count(token) * frequency + presence
    return soft_max(logits)


def biased() -> Shares:
    logits = LOGITS.astype(np.float64)
    logits[0] += 1.5
    logits[2] = -np.inf
    return soft_max(logits)


CASES: dict[str, tuple[dict[str, Any], Shares]] = {
    "plain": ({}, PLAIN),
    "top_k": ({"top_k": 4}, only(first(4), PLAIN)),
    "top_p": ({"top_p": 0.7}, nucleus(0.7)),
    "min_p": ({"min_p": 0.2}, only(0.2 * PLAIN.max() <= PLAIN, PLAIN)),
    "typical": ({"typical_p": 0.6}, locally_typical(0.6)),
    "top_n_sigma": ({"top_n_sigma": 1.0}, only(LOGITS.max() - LOGITS.std() <= LOGITS, PLAIN)),
    "xtc": ({"xtc_probability": 0.4, "xtc_threshold": 0.12}, without_top_choices(0.4, 0.12)),
    "temperature": ({"temperature": 1.7}, soft_max(LOGITS / 1.7)),
    "dynatemp": ({"dynatemp_range": 0.6, "dynatemp_exponent": 1.5}, warmed(0.6, 1.5)),
    "penalties": (
        {"repeat_penalty": 1.4, "frequency_penalty": 0.3, "presence_penalty": 0.2, "repeat_last_n": 4},
        penalized(1.4, 0.3, 0.2),
    ),
    "logit_bias": ({"logit_bias": {0: 1.5, 2: -math.inf}}, biased()),
}


# The 0.1 % points of chi-square by degrees of freedom, from tables.
QUANTILES = {
    2: 13.816, 3: 16.266, 4: 18.467, 5: 20.515, 6: 22.458, 7: 24.322, 8: 26.124, 9: 27.877, 10: 29.588, 11: 31.264,
    19: 43.820,
}  # fmt: skip


def chi_square(seen: np.ndarray, shares: Shares) -> None:
    assert seen.sum() == DRAWS
    assert (seen[shares == 0] == 0).all(), "a token was drawn that cannot come"
    expected = DRAWS * shares[shares > 0]
    statistic = float(((seen[shares > 0] - expected) ** 2 / expected).sum())
    assert statistic < QUANTILES[expected.size - 1]


@pytest.mark.parametrize("name", CASES)
def test_draws_follow_the_definition(name: str) -> None:
    params, shares = CASES[name]
    assert abs(shares.sum() - 1) < 1e-12
    assert name == "plain" or np.abs(shares - PLAIN).max() > 0.01, "a case that tests nothing"
    sampler = Sampler(SamplingParams(**{"temperature": 1.0, **params}, seed=11))
    sampler.accept(SEEN)
    seen = np.zeros(LOGITS.size, np.int64)
    for _ in range(DRAWS):
        seen[sampler.sample(LOGITS)] += 1
        if name == "penalties":
            sampler.accept(SEEN)  # so that each draw is behind the same four tokens
    chi_square(seen, shares)


# Samplers whose distribution changes with what was drawn: each draw's place in the running sum of its own distribution,
# spread evenly over the token's share, is uniform.
STEERED: dict[str, dict[str, Any]] = {
    "dry": {"dry_multiplier": 0.8, "dry_allowed_length": 1},
    "mirostat 1": {"mirostat": 1, "mirostat_tau": 2.0},
    "mirostat 2": {"mirostat": 2, "mirostat_tau": 2.0},
    "adaptive-p": {"adaptive_target": 0.2},
    "penalties": {"repeat_penalty": 1.3, "frequency_penalty": 0.02, "repeat_last_n": 32},
}


@pytest.mark.parametrize("name", STEERED)
def test_draws_follow_a_distribution_that_changes(name: str, rng: np.random.Generator) -> None:
    sampler = Sampler(SamplingParams(temperature=1.0, **STEERED[name], seed=5))
    cells = 20
    seen = np.zeros(cells, np.int64)
    spread = rng.random(DRAWS)
    changes = 0
    last: Shares = PLAIN
    for step in range(DRAWS):
        candidates = sampler.candidates(LOGITS)
        shares = probabilities(candidates)
        changes += shares.size != last.size or bool(np.abs(shares - last).max() > 1e-6)
        last = shares
        place = sampler.pick(candidates)
        sampler.take(candidates, place)
        seen[int((shares[:place].sum() + spread[step] * shares[place]) * cells)] += 1
    assert changes > DRAWS // 10, "it should change"
    chi_square(seen, np.full(cells, 1 / cells))
