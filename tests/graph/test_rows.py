"""What the cases of rows do not show: ties, NaN and infinities, sizes, and that no number of threads changes a result.

Ties and NaN are kept out of the cases because libggml leaves their order open.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

from prism_inference.graph import Context, Graph, Order, Tensor

MANY = 200_000


def computed(result: Tensor, threads: int = 2) -> np.ndarray:
    graph = Graph(result.context)
    graph.expand(result)
    graph.compute(threads=threads)
    return result.numpy()


def leaf(values: object, ctx: Context | None = None) -> Tensor:
    array = np.asarray(values, np.float32)
    return (ctx or Context()).tensor("F32", tuple(reversed(array.shape))).set(array)


def integers(values: object, ctx: Context) -> Tensor:
    array = np.asarray(values, np.int32)
    return ctx.tensor("I32", tuple(reversed(array.shape))).set(array)


# --- Order ------------------------------------------------------------------------------------------------------

SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, -np.nan, 1e-45, -1e-45, 3.4e38, -3.4e38]


def rows_with_ties(rng: np.random.Generator) -> np.ndarray:
    return rng.choice(np.array(SPECIAL, np.float32), (40, 57))


@pytest.mark.parametrize("order", Order)
def test_sorting_is_stable_and_puts_nan_last(order: Order, rng: np.random.Generator) -> None:
    values = rows_with_ties(rng)
    expected = np.argsort(-values if order is Order.DESC else values, axis=-1, kind="stable")
    np.testing.assert_array_equal(computed(leaf(values).argsort(order)), expected)


@pytest.mark.parametrize("count", [1, 2, 16, 56, 57])
def test_the_largest_are_the_first_of_a_stable_sorting(count: int, rng: np.random.Generator) -> None:
    values = rows_with_ties(rng)
    expected = np.argsort(-values, axis=-1, kind="stable")[:, :count]
    np.testing.assert_array_equal(computed(leaf(values).top_k(count)).reshape(expected.shape), expected)


def test_the_largest_of_equals_is_the_first() -> None:
    """libggml takes the last of equals; NumPy and torch take the first."""
    values = np.zeros((5, 100))
    values[0, [3, 70]] = values[1, [99, 20]] = 2.0
    values[2] = -np.inf
    values[3] = -5.0
    values[3, [0, 8, 9]] = np.nan, -1.0, -1.0
    values[4] = np.nan
    np.testing.assert_array_equal(computed(leaf(values).argmax()), [3, 20, 0, 8, 0])


ARRANGED: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "random": lambda rng: rng.standard_normal(MANY),
    "ascending": lambda rng: np.arange(MANY, dtype=np.float32),
    "descending": lambda rng: -np.arange(MANY, dtype=np.float32),
    "equal": lambda rng: np.ones(MANY, np.float32),
    "two values": lambda rng: rng.integers(0, 2, MANY),
    "up and down": lambda rng: np.abs(np.arange(MANY) - MANY // 2),
}


@pytest.mark.parametrize("name", ARRANGED)
def test_long_rows_are_sorted_in_no_more_than_n_log_n(name: str, rng: np.random.Generator) -> None:
    """A vocabulary takes some hundredths of a second; by a quadratic method half a minute."""
    values = ARRANGED[name](rng).astype(np.float32)
    for result, expected in (
        (leaf(values).argsort(), np.argsort(values, kind="stable")),
        (leaf(values).top_k(MANY // 2), np.argsort(-values, kind="stable")[: MANY // 2]),
    ):
        computed(result)  # compiles
        start = time.perf_counter()
        found = computed(result)
        assert time.perf_counter() - start < 3.0
        np.testing.assert_array_equal(found, expected)


# --- Soft-max -----------------------------------------------------------------------------------------------------


def test_what_a_mask_closes_is_exactly_zero() -> None:
    ctx = Context()
    mask = np.where(np.arange(40) % 3 == 1, -np.inf, 0.0)
    y = computed(leaf(np.zeros((2, 40)), ctx).soft_max(leaf([mask, mask], ctx)))
    np.testing.assert_array_equal(y == 0.0, np.isinf([mask, mask]))
    np.testing.assert_allclose(y.sum(-1), 1.0, rtol=1e-6)


def test_rows_that_are_no_distributions_become_nan_and_no_others() -> None:
    """As in libggml: NaN must not look like a result."""
    values = np.zeros((5, 37))
    values[0, 36] = values[1, 0] = np.nan
    values[2, 20] = np.inf
    values[3] = -np.inf
    y = computed(leaf(values).soft_max())
    np.testing.assert_array_equal(np.isnan(y).any(-1), [True, True, True, True, False])
    np.testing.assert_array_equal(np.isnan(y[3]), True)


def test_scores_far_apart_stay_finite() -> None:
    values = np.array([[3e38, -3e38, 3e38], [-3e38, -3e38, -3e38], [1e4, 0.0, -1e4]])
    expected = [[0.5, 0.0, 0.5], [1 / 3, 1 / 3, 1 / 3], [1.0, 0.0, 0.0]]
    np.testing.assert_allclose(computed(leaf(values).soft_max()), expected, rtol=1e-6)


# --- Norms ----------------------------------------------------------------------------------------------------------

SCALES = [1e-15, 1e-6, 1.0, 1e6, 1e18]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", ["rms_norm", "norm", "l2_norm"])
def test_norms_do_not_care_for_the_scale(name: str, scale: float, rng: np.random.Generator) -> None:
    """The result of a row is that of any multiple of it, where eps is small beside it; squares must not overflow."""
    values = rng.standard_normal((3, 57))
    x = (values * scale).astype(np.float32).astype(np.float64)
    centred = x - x.mean(-1, keepdims=True) if name == "norm" else x
    power = (centred**2).sum(-1, keepdims=True)
    expected = centred / np.sqrt(power if name == "l2_norm" else power / 57)
    found = computed(getattr(leaf(x), name)(1e-38))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


# --- Any number of threads --------------------------------------------------------------------------------------------


def uneven(rng: np.random.Generator, *ne: int) -> np.ndarray:
    """Values of very different sizes: any other order of additions gives another sum."""
    return rng.standard_normal(tuple(reversed(ne))) * 10.0 ** rng.integers(-6, 6, tuple(reversed(ne)))


SUMS: dict[str, Callable[[np.random.Generator], Tensor]] = {
    "SUM": lambda rng: leaf(uneven(rng, 1030, 201)).sum(),
    "SUM permuted": lambda rng: leaf(uneven(rng, 103, 20, 100)).permute(2, 0, 1, 3).sum(),
    "REPEAT_BACK to a row": lambda rng: leaf(uneven(rng, 331, 500)).repeat_back(331),
    "REPEAT_BACK to one": lambda rng: leaf(uneven(rng, 331, 500)).repeat_back(1),
    "REPEAT_BACK to a column": lambda rng: leaf(uneven(rng, 331, 50)).repeat_back(1, 50),
    "GET_ROWS_BACK": lambda rng: _embedding(rng, 40, 900, 37),
    "GET_ROWS_BACK of one value": lambda rng: _embedding(rng, 1, 900, 37),
    "RMS_NORM": lambda rng: leaf(uneven(rng, 331, 50)).rms_norm(1e-6),
    "SOFT_MAX": lambda rng: leaf(rng.standard_normal((50, 331))).soft_max(),
}


def _embedding(rng: np.random.Generator, width: int, tokens: int, rows: int) -> Tensor:
    g = leaf(uneven(rng, width, tokens))
    index = integers(rng.integers(0, rows, tokens), g.context)
    return g.get_rows_back(index, g.context.tensor("F32", (width, rows)))


@pytest.mark.parametrize("name", SUMS)
def test_no_number_of_threads_changes_a_bit(name: str, rng: np.random.Generator) -> None:
    seed = int(rng.integers(1 << 30))
    first = computed(SUMS[name](np.random.default_rng(seed)), 1)
    assert np.isfinite(first).all()
    for threads in (2, 3, 5):
        np.testing.assert_array_equal(computed(SUMS[name](np.random.default_rng(seed)), threads), first)


@pytest.mark.parametrize("width", [1, 5, 40])
def test_an_index_beyond_the_table_adds_nothing(width: int) -> None:
    ctx = Context()
    g = leaf(np.ones((5, width)), ctx)
    back = g.get_rows_back(integers([1, -1, 3, 1 << 30, 1], ctx), ctx.tensor("F32", (width, 3)))
    expected = np.zeros((3, width))
    expected[1] = 2.0
    np.testing.assert_array_equal(computed(back).reshape(3, width), expected)
