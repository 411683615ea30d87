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

from prism_inference.sampling import SamplingParams, filters
from prism_inference.sampling.candidates import SEARCHED_WHOLE, Candidates, all_tokens, highest, probabilities
from prism_inference.sampling.chain import Sampler
from prism_inference.sampling.filters import min_p, temperature, top_k, top_n_sigma, top_p, typical, xtc
from prism_inference.sampling.params import DEFAULT_ORDER

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
TOP_N_SIGMA = [
    (1.0, [0.571429, 0.428571]),
    (0.0, [0.4, 0.3, 0.2, 0.1]),
    (3.0, [0.4, 0.3, 0.2, 0.1]),
]
# After XTC the vectors are not made to sum to 1 again.
XTC = [
    (0.09, [1.0]),
    (0.19, [0.2 / 0.3, 0.1 / 0.3]),
    (0.29, [0.3 / 0.6, 0.2 / 0.6, 0.1 / 0.6]),
    (0.39, [0.4, 0.3, 0.2, 0.1]),
]
TEMPERATURE = [(1.0, [0.4, 0.3, 0.2, 0.1]), (0.0, [1.0])]
TABLES = ((top_k, TOP_K), (top_p, TOP_P), (min_p, MIN_P), (top_n_sigma, TOP_N_SIGMA), (xtc, XTC))
VECTORS = [
    (function, value, expected) for function, rows in (*TABLES, (temperature, TEMPERATURE)) for value, expected in rows
]
assert VECTORS

Filter = Callable[[Candidates, float], Candidates]


def logits_of(probabilities: npt.ArrayLike) -> npt.NDArray[np.float32]:
    with np.errstate(divide="ignore"):  # a probability of 0 is a logit of minus infinity
        return np.log(np.asarray(probabilities, dtype=np.float32))


def falling_probabilities(candidates: Candidates) -> npt.NDArray[np.float64]:
    return np.sort(probabilities(candidates))[::-1]


@pytest.mark.parametrize(("function", "value", "expected"), VECTORS)
def test_published_vectors(function: Filter, value: float, expected: list[float]) -> None:
    left = function(all_tokens(logits_of(PROBABILITIES)), value)
    np.testing.assert_allclose(falling_probabilities(left), expected, atol=TOLERANCE)


@pytest.mark.parametrize(
    ("shares", "left"), [([0.97, 0.01, 0.01, 0.01], [1.0]), ([0.4, 0.2, 0.2, 0.2], [1 / 3, 1 / 3, 1 / 3])]
)
def test_published_vectors_of_typical(shares: list[float], left: list[float]) -> None:
    np.testing.assert_allclose(falling_probabilities(typical(all_tokens(logits_of(shares)), 0.5)), left, atol=TOLERANCE)


EQUAL = [0.2] * 5
PENALTIES = [
    ([0], (50.0, 0.0, 0.0), [0, 0.25, 0.25, 0.25, 0.25]),
    ([0, 1, 2], (50.0, 0.0, 0.0), [0, 0, 0, 0.5, 0.5]),
    ([0, 1, 2, 0, 0], (50.0, 0.0, 0.0), [0, 0, 0, 0.5, 0.5]),
    ([0], (1.0, 5.0, 5.0), [0.000011, 0.249997, 0.249997, 0.249997, 0.249997]),
    ([0, 1, 2], (1.0, 5.0, 5.0), [0.000023, 0.000023, 0.000023, 0.499966, 0.499966]),
    ([0, 1, 2, 0, 0], (1.0, 5.0, 5.0), [0.0, 0.000023, 0.000023, 0.499977, 0.499977]),
]


@pytest.mark.parametrize(("seen", "values", "expected"), PENALTIES)
def test_published_vectors_of_penalties(
    seen: list[int], values: tuple[float, float, float], expected: list[float]
) -> None:
    repeat, frequency, presence = values
    params = SamplingParams(
        temperature=1.0, repeat_penalty=repeat, frequency_penalty=frequency, presence_penalty=presence
    )
    sampler = Sampler(params)
    sampler.accept(seen)
    np.testing.assert_allclose(probabilities(sampler.candidates(logits_of(EQUAL))), expected, atol=TOLERANCE)


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


@pytest.mark.parametrize("count", [1, 3, 40, 200, 3_000, 20_000])
def test_the_highest_are_found_without_a_sort(count: int, rng: np.random.Generator) -> None:
    size = 5 * SEARCHED_WHOLE + 3
    for logits in (
        rng.standard_normal(size).astype(np.float32),
        np.arange(size, dtype=np.float32),
        rng.integers(0, 3, size).astype(np.float32),
        np.where(rng.random(size) < 0.999, -np.inf, 1).astype(np.float32),
    ):
        order = np.lexsort((np.arange(size), -logits))
        np.testing.assert_array_equal(highest(all_tokens(logits), count).ids, np.sort(order[:count]))


def test_top_p_looks_beyond_its_first_looks() -> None:
    for look in filters.FIRST_LOOKS:
        left = top_p(all_tokens(np.zeros(4 * look, dtype=np.float32)), 0.75)
        np.testing.assert_array_equal(left.ids, np.arange(3 * look))


def test_forbidden_tokens_weigh_nothing() -> None:
    logits = np.array([-np.inf, 1.0, -np.inf, 1.0], dtype=np.float32)
    np.testing.assert_array_equal(probabilities(temperature(all_tokens(logits), 0.5)), [0, 0.5, 0, 0.5])
    for left in (
        min_p(all_tokens(logits), 0.1),
        top_p(all_tokens(logits), 0.999),
        typical(all_tokens(logits), 0.999),
        top_n_sigma(all_tokens(logits), 1.0),
    ):
        np.testing.assert_array_equal(left.ids, [1, 3])
    left = filters.dynamic_temperature(all_tokens(logits), 1.0, 0.5, 1.0)
    np.testing.assert_array_equal(probabilities(left), [0, 0.5, 0, 0.5])


def test_temperature_divides_the_logits() -> None:
    logits = np.array([0.0, 1.0, 3.0], dtype=np.float32)
    np.testing.assert_allclose(temperature(all_tokens(logits), 2.0).logits, logits / 2, rtol=1e-6)
    for tiny in (1e-20, 1e-30, 1e-310):
        np.testing.assert_array_equal(probabilities(temperature(all_tokens(logits), tiny)), [0, 0, 1])
        np.testing.assert_array_equal(probabilities(temperature(all_tokens(logits - 3), tiny)), [0, 0, 1])
    np.testing.assert_array_equal(probabilities(temperature(all_tokens(logits), 1e300)), [1 / 3] * 3)


def test_dynamic_temperature_follows_its_formula() -> None:
    shares = np.array(PROBABILITIES)
    entropy = -(shares * np.log(shares)).sum() / np.log(4)
    for middle, spread, exponent in ((1.0, 0.5, 1.0), (0.3, 0.8, 2.5), (2.0, 2.0, 0.0)):
        lowest = max(0.0, middle - spread)
        heat = lowest + (middle + spread - lowest) * entropy**exponent
        left = filters.dynamic_temperature(all_tokens(logits_of(PROBABILITIES)), middle, spread, exponent)
        expected = shares ** (1 / heat)
        np.testing.assert_allclose(probabilities(left), expected / expected.sum(), atol=TOLERANCE)


numbers = st.floats(-40, 40, width=32) | st.just(-np.inf)


@given(
    st.lists(numbers, min_size=1, max_size=30).filter(lambda values: max(values) > -np.inf),
    st.permutations(DEFAULT_ORDER),
    st.fixed_dictionaries(
        {
            "temperature": st.sampled_from([0.0, 1e-40, 0.7, 50.0]),
            "dynatemp_range": st.sampled_from([0.0, 0.5, 3.0]),
            "top_k": st.integers(0, 40),
            "top_p": st.floats(0.001, 1),
            "min_p": st.floats(0, 0.999),
            "typical_p": st.floats(0.001, 1),
            "top_n_sigma": st.floats(0, 5),
            "xtc_probability": st.sampled_from([0.0, 1.0]),
            "xtc_threshold": st.floats(0.001, 0.5),
            "repeat_penalty": st.sampled_from([1e-300, 0.5, 1.0, 1e300]),
            "frequency_penalty": st.sampled_from([-1e300, 0.0, 1e300]),
            "dry_multiplier": st.sampled_from([0.0, 1.0, 1e300]),
            "mirostat": st.sampled_from([0, 0, 0, 1, 2]),
            "adaptive_target": st.sampled_from([None, 0.0, 0.4]),
        }
    ),
    st.lists(st.integers(0, 29), max_size=20),
)
def test_something_is_always_left_whatever_the_chain(
    values: list[float], order: list[str], params: dict[str, float], seen: list[int]
) -> None:
    logits = np.array(values, np.float32)
    sampler = Sampler(SamplingParams(**params, samplers=order, seed=1))
    sampler.accept(seen)
    for _ in range(3):
        left = sampler.candidates(logits)
        assert left.ids.size == left.logits.size > 0
        assert (np.diff(left.ids) > 0).all()
        shares = probabilities(left)
        assert np.isfinite(shares).all()
        assert abs(shares.sum() - 1) < 1e-6
        assert logits[sampler.sample(logits)] > -np.inf, "a forbidden token was drawn"
