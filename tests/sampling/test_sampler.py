"""The sampler: greedy rules, seeds, roll-back, refusals, and that draws follow the distribution."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prism_inference.errors import SamplingError
from prism_inference.sampling import Breakers, Sampler, SamplingParams
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


@pytest.mark.parametrize(
    "params",
    [
        {"logit_bias": {0: -math.inf, 1: -math.inf, 2: -math.inf}},
        {"bad_words": [[0], [1], [2]]},
        {"ignore_eos": True, "bad_words": [[0], [1]]},
        {"min_tokens": 1, "bad_words": [[0], [1]]},
    ],
)
def test_s04_refuses_to_choose_when_everything_is_forbidden(params: dict[str, Any]) -> None:
    sampler = Sampler(SamplingParams(temperature=1.0, seed=1, **params), end_ids=[2])
    for _ in range(2):
        with pytest.raises(SamplingError, match="every token is forbidden"):
            sampler.sample(f32(1, 2, 3))
    assert sampler.sample(f32(1, 2, 3, 50)) == 3, "the sampler works on after a refusal"


def test_a_greedy_choice_is_made_of_the_penalized_logits() -> None:
    sampler = Sampler(SamplingParams(repeat_penalty=2.0, repeat_last_n=2))
    assert [sampler.sample(f32(1, 3, 2)) for _ in range(4)] == [1, 2, 1, 1]
    sampler = Sampler(SamplingParams(frequency_penalty=1.2, top_k=1, top_p=0.1))
    assert [sampler.sample(f32(1, 3, 2)) for _ in range(5)] == [1, 2, 1, 0, 2]
    sampler = Sampler(SamplingParams(xtc_probability=1.0, xtc_threshold=0.1, seed=1))
    assert sampler.sample(f32(1, 3, 2)) == 2, "1 has less than 0.1: of the two that reach it, the less likely one"


def test_greedy_needs_no_temperature_in_the_chain() -> None:
    assert Sampler(SamplingParams(samplers=["penalties", "top_k"])).sample(f32(1, 3, 2)) == 1
    assert Sampler(SamplingParams(adaptive_target=0.01)).sample(f32(1, 3, 2)) == 1
    assert Sampler(SamplingParams(mirostat=2)).sample(f32(1, 3, 2)) == 1


def test_s02_a_window_of_0_is_off_and_of_minus_1_the_whole_context() -> None:
    logits = f32(*range(100))
    history = [99, *range(98), 5]
    for window, expected in ((0, 99), (-1, 98), (64, 99), (100, 98), (99, 99)):
        sampler = Sampler(SamplingParams(repeat_penalty=1000.0, repeat_last_n=window))
        sampler.accept(history)
        assert sampler.sample(logits) == expected, window
    # 7 8 9 stand at places 50 to 52 of 80; 9 would lengthen the repetition that begins 30 tokens before the end.
    repeating = [*range(50), 7, 8, 9, *range(20, 45), 7, 8]
    for window, expected in ((0, 9), (-1, 99), (30, 99), (29, 9)):
        sampler = Sampler(SamplingParams(dry_multiplier=200.0, dry_penalty_last_n=window))
        sampler.accept(repeating)
        assert sampler.sample(np.where(np.arange(100) == 9, 200, logits).astype(np.float32)) == expected, window


def test_tokens_drawn_count_as_seen_like_those_of_the_prompt(rng: np.random.Generator) -> None:
    logits = rng.standard_normal((60, 8)).astype(np.float32)
    params = SamplingParams(
        temperature=1.0, seed=1, repeat_penalty=1.2, frequency_penalty=0.2, repeat_last_n=10, dry_multiplier=1.0,
        dry_allowed_length=1, dry_penalty_last_n=20,
    )  # fmt: skip
    growing = Sampler(params, breakers=Breakers([[3], [1, 2]]))
    history: list[int] = []
    for row in logits:
        anew = Sampler(params, breakers=Breakers([[3], [1, 2]]))
        anew.accept(history)
        np.testing.assert_array_equal(growing.candidates(row).logits, anew.candidates(row).logits)
        history.append(growing.sample(row))


def naive_dry(history: list[int], allowed: int, window: int, breakers: list[list[int]]) -> dict[int, int]:
    """For each token, the length of the longest run of the last tokens that it followed before."""
    tokens = history[-window:]
    limit = len(tokens)
    for start in reversed(range(len(tokens))):  # the breaker that begins last
        lengths = [len(b) for b in breakers if tokens[start : start + len(b)] == b]
        if lengths:
            limit = len(tokens) - start - max(lengths)
            break
    runs: dict[int, int] = {}
    for place in range(1, len(tokens)):
        for length in range(min(place, limit), allowed - 1, -1):
            if tokens[place - length : place] == tokens[len(tokens) - length :]:
                if [tokens[place]] not in breakers:
                    runs[tokens[place]] = max(runs.get(tokens[place], 0), length)
                break
    return runs


@given(
    st.lists(st.integers(0, 3), max_size=60),
    st.lists(st.integers(0, 3), max_size=10),
    st.integers(1, 4),
    st.integers(1, 70),
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3), max_size=3),
)
def test_dry_is_its_naive_twin(
    prompt: list[int], drawn: list[int], allowed: int, window: int, breakers: list[list[int]]
) -> None:
    params = SamplingParams(
        temperature=1.0, dry_multiplier=1.0, dry_base=2.0, dry_allowed_length=allowed, dry_penalty_last_n=window
    )
    sampler = Sampler(params, breakers=Breakers(breakers))
    sampler.accept(prompt)
    for token in drawn:
        sampler.accept([token])
    runs = naive_dry(prompt + drawn, allowed, window, breakers)
    expected = [-(2.0 ** (runs[token] - allowed)) if token in runs else 0.0 for token in range(4)]
    np.testing.assert_array_equal(sampler.candidates(np.zeros(4, np.float32)).logits, expected)


def test_dry_takes_linear_time_whatever_the_tokens() -> None:
    """Equal tokens and alternating ones: a quadratic search would take minutes."""
    for history in ([5] * 300_000, [1, 2] * 150_000):
        sampler = Sampler(SamplingParams(dry_multiplier=1.0, dry_base=1.0001, dry_penalty_last_n=-1))
        sampler.accept(history)
        assert sampler.sample(np.zeros(8, np.float32)) == 0


def test_bad_words_never_come_whole() -> None:
    sampler = Sampler(SamplingParams(bad_words=[[1, 2], [3], [2, 1, 1]]))
    sampler.accept([0, 2])
    assert sampler.sample(f32(0, 5, 4, 9)) == 1, "3 never comes"
    assert sampler.sample(f32(0, 5, 6, 9)) == 0, "neither 1 2 nor 2 1 1"
    assert sampler.sample(f32(0, 5, 6, 9)) == 2


def test_ends_are_forbidden_until_enough_is_drawn() -> None:
    sampler = Sampler(SamplingParams(min_tokens=2), end_ids=[1, 3])
    sampler.accept([0, 0, 0])
    assert [sampler.sample(f32(0, 9, 4, 5)) for _ in range(3)] == [2, 2, 1]


def test_a_bias_is_added_before_the_chain() -> None:
    sampler = Sampler(SamplingParams(logit_bias={0: 3.0, 1: -math.inf}, top_k=1, temperature=1.0, seed=1))
    assert sampler.sample(f32(0, 9, 2)) == 0


def test_each_answer_has_a_seed_of_its_own() -> None:
    params = SamplingParams(temperature=1.0, seed=2**64 - 1)
    assert [Sampler(params, number=number).seed for number in range(3)] == [2**64 - 1, 0, 1]


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


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"repeat_penalty": 1.3, "dry_multiplier": 1.0, "xtc_probability": 0.5, "min_tokens": 5},
        {"mirostat": 1},
        {"mirostat": 2},
        {"adaptive_target": 0.2},
    ],
)
def test_a_copy_goes_on_from_the_same_place(rng: np.random.Generator, params: dict[str, Any]) -> None:
    logits = rng.standard_normal(500).astype(np.float32)
    sampler = Sampler(SamplingParams(temperature=1.0, seed=1, **params), end_ids=[int(logits.argmax())])
    sampler.accept([1, 2, 3])
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
