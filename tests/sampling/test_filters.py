"""The filters against published vectors, a formula for graded vocabularies, and a slow twin.

The vectors are those of llama.cpp's own sampler tests: four tokens with probabilities 0.1 to 0.4, and what is left of
them after the filter and a new softmax.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prism_inference.sampling import filters
from prism_inference.sampling.filters import Candidates, all_tokens, min_p, top_k, top_p

PROBABILITIES = [0.1, 0.2, 0.3, 0.4]
TOLERANCE = 1e-5  # as the vectors are given

TOP_K = [
    (1, [1.0]),
    (3, [0.44444, 0.33333, 0.22222]),
    (4, [0.4, 0.3, 0.2, 0.1]),
    (0, [0.4, 0.3, 0.2, 0.1]),
]
TOP_P = [
    (0.0, [1.0]),
    (0.7, [0.571429, 0.428571]),
    (0.8, [0.44444, 0.33333, 0.22222]),
    (1.0, [0.4, 0.3, 0.2, 0.1]),
]
MIN_P = [
    (0.00, [0.4, 0.3, 0.2, 0.1]),
    (0.24, [0.4, 0.3, 0.2, 0.1]),
    (0.26, [0.4 / 0.9, 0.3 / 0.9, 0.2 / 0.9]),
    (0.49, [0.4 / 0.9, 0.3 / 0.9, 0.2 / 0.9]),
    (0.51, [0.4 / 0.7, 0.3 / 0.7]),
    (0.74, [0.4 / 0.7, 0.3 / 0.7]),
    (0.76, [1.0]),
    (1.00, [1.0]),
    (1.05, [1.0]),
]
VECTORS = [
    (function, value, expected)
    for function, rows in ((top_k, TOP_K), (top_p, TOP_P), (min_p, MIN_P))
    for value, expected in rows
]
assert VECTORS

Filter = Callable[[Candidates, float], Candidates]


def logits_of(probabilities: npt.ArrayLike) -> npt.NDArray[np.float32]:
    with np.errstate(divide="ignore"):  # a probability of 0 is a logit of minus infinity
        return np.log(np.asarray(probabilities, dtype=np.float32))


def falling_probabilities(candidates: Candidates) -> npt.NDArray[np.float64]:
    weights = filters.weights(candidates).astype(np.float64)
    return np.sort(weights / weights.sum())[::-1]


@pytest.mark.parametrize(("function", "value", "expected"), VECTORS)
def test_published_vectors(function: Filter, value: float, expected: list[float]) -> None:
    left = function(all_tokens(logits_of(PROBABILITIES)), value)
    np.testing.assert_allclose(falling_probabilities(left), expected, atol=TOLERANCE)


# Chains over 10,000 tokens in which token n has weight n: how many each filter leaves follows from sums of integers.
COUNT = 10_000
QUEUES = [
    ("k", 10_000, 1.0, 0.9),
    ("k", 1, 1.0, 0.9),
    ("p", 10_000, 0.0, 0.9),
    ("m", 10_000, 1.0, 1e-12),
    ("k", 100, 1.0, 0.9),
    ("p", 10_000, 0.0003, 0.9),
    ("p", 10_000, 0.8, 0.9),
    ("m", 10_000, 1.0, 9997.9 / 9999.0),
    ("m", 10_000, 1.0, 0.1),
    *[
        (order, 100, 0.8, 0.1)
        for order in ("kp", "km", "pk", "pm", "mk", "mp", "kpm", "kmp", "pkm", "pmk", "mkp", "mpk")
    ],
    ("mp", 100, 0.8, 9997.9 / 9999.0),
]
assert QUEUES


@pytest.mark.parametrize(("order", "k", "p", "share"), QUEUES)
def test_chains_leave_the_number_that_the_weights_say(order: str, k: int, p: float, share: float) -> None:
    candidates = all_tokens(logits_of(np.arange(COUNT)))
    lowest = 0
    for letter in order:
        weights = range(COUNT - 1, lowest - 1, -1)
        if letter == "k":
            candidates = top_k(candidates, k)
            lowest = max(lowest, COUNT - k)
        elif letter == "p":
            candidates = top_p(candidates, p)
            if p < 1:
                goal, reached = p * sum(weights), 0
                for weight in weights:
                    reached += weight
                    lowest = weight
                    if reached >= goal:
                        break
        else:
            candidates = min_p(candidates, share)
            lowest = max(lowest, math.ceil(share * (COUNT - 1)))
        np.testing.assert_array_equal(candidates.ids, np.arange(lowest, COUNT))


def twin(probabilities: npt.NDArray[np.float64], order: list[int], p: float) -> set[int]:
    """Top-p word for word: go down the ranking until the sum is reached."""
    kept: set[int] = set()
    reached = 0.0
    for token in order:
        kept.add(token)
        reached += probabilities[token]
        if reached >= p:
            break
    return kept


@given(st.lists(st.floats(-20, 20, width=32), min_size=1, max_size=40), st.integers(1, 50), st.floats(0.01, 0.99))
def test_agrees_with_the_slow_twin(values: list[float], k: int, p: float) -> None:
    logits = np.array(values, dtype=np.float32)
    exact = np.exp(logits.astype(np.float64) - logits.max())
    exact /= exact.sum()
    order = sorted(range(len(values)), key=lambda token: (-logits[token], token))

    assert set(top_k(all_tokens(logits), k).ids) == set(order[:k])
    # The sum may be met within rounding: then one token more or less is right too.
    assert set(top_p(all_tokens(logits), p).ids) in [twin(exact, order, p + slack) for slack in (-2e-6, 0.0, 1e-6)]
    share = exact / exact.max()
    kept = set(min_p(all_tokens(logits), p).ids)
    assert set(np.flatnonzero(share > p * (1 + 1e-5))) <= kept <= set(np.flatnonzero(share >= p * (1 - 1e-5)))


def test_equal_logits_keep_the_lower_ids() -> None:
    level = np.zeros(1_000, dtype=np.float32)
    np.testing.assert_array_equal(top_k(all_tokens(level), 3).ids, [0, 1, 2])
    np.testing.assert_array_equal(top_p(all_tokens(level), 0.004).ids, [0, 1, 2, 3])


def test_top_p_looks_beyond_its_first_look() -> None:
    count = 4 * filters.FIRST_LOOK
    left = top_p(all_tokens(np.zeros(count, dtype=np.float32)), 0.75)
    np.testing.assert_array_equal(left.ids, np.arange(3 * filters.FIRST_LOOK))


def test_forbidden_tokens_weigh_nothing() -> None:
    logits = np.array([-np.inf, 1.0, -np.inf, 1.0], dtype=np.float32)
    np.testing.assert_array_equal(filters.weights(all_tokens(logits), 0.5), [0, 1, 0, 1])
    np.testing.assert_array_equal(min_p(all_tokens(logits), 0.1).ids, [1, 3])
    np.testing.assert_array_equal(top_p(all_tokens(logits), 0.999).ids, [1, 3])


def test_temperature_divides_the_logits() -> None:
    logits = np.array([0.0, 1.0, 3.0], dtype=np.float32)
    np.testing.assert_allclose(filters.weights(all_tokens(logits), 2.0), np.exp([-1.5, -1.0, 0.0]), rtol=1e-6)
    np.testing.assert_array_equal(filters.weights(all_tokens(logits), 1e-310), [0, 0, 1])
    np.testing.assert_array_equal(filters.weights(all_tokens(logits), 1e300), [1, 1, 1])
