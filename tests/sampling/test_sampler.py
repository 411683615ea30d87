"""The sampler: greedy rules, seeds, roll-back, refusals, and that draws follow the distribution."""

from __future__ import annotations

import numpy as np
import pytest

from prism_inference.errors import SamplingError
from prism_inference.sampling import Sampler, SamplingParams
from prism_inference.sampling.chain import DRAW_BLOCK, draw

Logits = np.ndarray


def f32(*values: float) -> Logits:
    return np.array(values, dtype=np.float32)


@pytest.mark.parametrize(
    ("logits", "expected"),
    [
        (f32(1, 3, 2), 1),
        (f32(3, 1, 3), 0),
        (f32(-1, -0.0, 0.0), 1),
        (f32(-1, 0.0, -0.0), 1),
        (f32(-np.inf, -5, -np.inf), 1),
        (f32(-7), 0),
    ],
)
def test_greedy_takes_the_highest_and_of_equals_the_first(logits: Logits, expected: int) -> None:
    assert Sampler(SamplingParams()).sample(logits) == expected


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    ("logits", "found"),
    [
        (f32(), "shape"),
        (np.zeros((1, 3), np.float32), "shape"),
        (f32(-np.inf, -np.inf), "only -inf"),
        (f32(0, np.nan, 1), "nan for token 1"),
        (f32(9, 8, np.nan), "nan for token 2"),
        (f32(0, np.inf), "inf for token 1"),
        (f32(np.inf, np.nan), "nan for token 1"),
    ],
)
def test_refuses_logits_without_a_choice(temperature: float, logits: Logits, found: str) -> None:
    sampler = Sampler(SamplingParams(temperature=temperature, seed=1))
    with pytest.raises(SamplingError) as caught:
        sampler.sample(logits)
    assert found in str(caught.value.found)
    assert sampler.sample(f32(0, 50)) == 1, "the sampler works on after a refusal"


def test_a_given_seed_repeats_and_another_one_does_not(rng: np.random.Generator) -> None:
    logits = rng.standard_normal(1_000).astype(np.float32)

    def draws(seed: int) -> list[int]:
        sampler = Sampler(SamplingParams(temperature=1.0, seed=seed))
        assert sampler.seed == seed
        return [sampler.sample(logits) for _ in range(20)]

    assert draws(5) == draws(5)
    assert draws(5) != draws(6)
    assert len(draws(2**64 - 1)) == 20


def test_an_unset_seed_is_new_each_time_and_reported(rng: np.random.Generator) -> None:
    logits = rng.standard_normal(1_000).astype(np.float32)
    samplers = [Sampler(SamplingParams(temperature=1.0)) for _ in range(4)]
    texts = [[sampler.sample(logits) for _ in range(20)] for sampler in samplers]
    assert len({sampler.seed for sampler in samplers}) == 4
    again = Sampler(SamplingParams(temperature=1.0, seed=samplers[0].seed))
    assert [again.sample(logits) for _ in range(20)] == texts[0]


def test_a_copy_goes_on_from_the_same_place(rng: np.random.Generator) -> None:
    logits = rng.standard_normal(500).astype(np.float32)
    sampler = Sampler(SamplingParams(temperature=1.0, seed=1))
    sampler.sample(logits)
    kept = sampler.copy()
    after = [sampler.sample(logits) for _ in range(10)]
    assert [kept.sample(logits) for _ in range(10)] == after
    assert kept.seed == sampler.seed


def test_draws_follow_the_probabilities() -> None:
    probabilities = np.array([0.5, 0.25, 0.15, 0.1])
    sampler = Sampler(SamplingParams(temperature=2.0, seed=7))
    # At temperature 2 the probabilities are the square roots of the given ones, made to sum to 1.
    expected = np.sqrt(probabilities) / np.sqrt(probabilities).sum()
    count = 20_000
    logits = np.log(probabilities).astype(np.float32)
    seen = np.bincount([sampler.sample(logits) for _ in range(count)], minlength=4)
    chi_square = float(((seen - count * expected) ** 2 / (count * expected)).sum())
    assert chi_square < 16.27  # the 0.1 % point of three degrees of freedom; the seed is fixed


def test_filters_come_before_the_temperature() -> None:
    # At temperature 100 all four would be drawn, were the nucleus taken after it.
    logits = np.log(np.array([0.6, 0.3, 0.06, 0.04])).astype(np.float32)
    sampler = Sampler(SamplingParams(temperature=100.0, top_p=0.9, seed=3))
    assert {sampler.sample(logits) for _ in range(200)} == {0, 1}
    sampler = Sampler(SamplingParams(temperature=100.0, min_p=0.4, seed=3))
    assert {sampler.sample(logits) for _ in range(200)} == {0, 1}


def test_top_p_sees_what_top_k_left() -> None:
    # The first has 0.4 of all, but 0.533 of the two that top-k leaves: enough for 0.53, not for 0.55.
    logits = np.log(np.array([0.4, 0.35, 0.25])).astype(np.float32)
    sampler = Sampler(SamplingParams(temperature=1.0, top_k=2, top_p=0.53, seed=3))
    assert {sampler.sample(logits) for _ in range(100)} == {0}
    sampler = Sampler(SamplingParams(temperature=1.0, top_k=2, top_p=0.55, seed=3))
    assert {sampler.sample(logits) for _ in range(100)} == {0, 1}


def test_a_forbidden_token_is_never_drawn() -> None:
    logits = f32(-np.inf, 0, -np.inf, 0, -np.inf)
    sampler = Sampler(SamplingParams(temperature=5.0, seed=3))
    assert {sampler.sample(logits) for _ in range(200)} == {1, 3}


@pytest.mark.parametrize("size", [1, DRAW_BLOCK - 1, DRAW_BLOCK, DRAW_BLOCK + 1, 5 * DRAW_BLOCK + 3])
def test_a_draw_by_blocks_is_a_draw_by_the_running_sum(size: int, rng: np.random.Generator) -> None:
    weights = rng.random(size).astype(np.float32)
    weights[rng.random(size) < 0.3] = 0
    weights[size // 2] = 1
    reached = np.cumsum(weights.astype(np.float64))
    for uniform in [0.0, *rng.random(50), np.nextafter(1.0, 0.0)]:
        place = draw(weights, float(uniform))
        goal = uniform * reached[-1]
        assert weights[place] > 0
        # Within the rounding of two ways to add the same numbers.
        assert reached[place] >= goal - 1e-9
        assert reached[place] - weights[place] <= goal + 1e-9
