"""Rounding to a tensor type of few bits: the bits of the codecs, and a gradient that passes straight through."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from prism_inference import codecs
from prism_inference.graph import Context, Graph, Tensor

BLOCKS = {"Q1_0": 128, "Q2_0": 64}
KINDS = pytest.mark.parametrize("kind", BLOCKS)


def rounded(values: npt.NDArray[np.float32], kind: str, threads: int) -> npt.NDArray[np.float32]:
    context = Context()
    result = context.tensor("F32", tuple(reversed(values.shape))).set(values).round_to(kind).mark_output()
    graph = Graph(context)
    graph.expand(result)
    graph.compute(threads)
    return result.numpy()


def hard_rows(block: int, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """Blocks of every magnitude that a float16 scale can hold and below, of ties, zeros and outliers."""
    x = rng.standard_normal((60, 3 * block)).astype(np.float32)
    x *= (10.0 ** rng.uniform(-9, 4, (60, 1))).astype(np.float32)
    x[0] = 0
    x[1] = -0.0
    x[2] = 1e-42  # the quotient 1 / d is infinite
    x[3, ::2] = 1.0  # half the largest: a tie
    x[3, 1::2] = rng.choice(np.array([0.5, -0.5, 0.49999997, -0.49999997, 0.50000006], np.float32), x[3, 1::2].size)
    x[4, ::5] *= 300
    x[5] = rng.choice(np.array([2.0**-24, -(2.0**-25), 3 * 2.0**-26], np.float32), x[5].size)
    return x


@pytest.mark.parametrize("threads", [1, 2])
@KINDS
def test_rounding_has_the_bits_of_the_codec(kind: str, threads: int, rng: np.random.Generator) -> None:
    x = hard_rows(BLOCKS[kind], rng)
    raw = np.frombuffer(codecs.encode(kind, x), np.uint8)
    expected = codecs.decode(kind, raw, x.size).reshape(x.shape)
    np.testing.assert_array_equal(rounded(x, kind, threads).view(np.uint32), expected.view(np.uint32))


def _loss(weights: Tensor) -> Tensor:
    return weights.token_loss(weights.context.tensor("I32", (2,)).set([3, 50])).mark_loss()


def _gradient(values: npt.NDArray[np.float32], kind: str | None) -> npt.NDArray[np.float32]:
    context = Context()
    weights = context.tensor("F32", (values.shape[1], 2)).set(values).mark_parameter()
    graph = Graph(context, gradients=True)
    graph.expand(_loss(weights.round_to(kind) if kind else weights))
    graph.build_backward()
    graph.reset()
    graph.compute(2)
    gradient = graph.gradient(weights)
    assert gradient is not None
    return gradient.numpy()


@KINDS
def test_gradients_pass_straight_through(kind: str, rng: np.random.Generator) -> None:
    """The gradient by the values is that by the rounded ones, bit for bit."""
    x = rng.standard_normal((2, 2 * BLOCKS[kind])).astype(np.float32)
    expected = _gradient(rounded(x, kind, 1), None)
    assert np.abs(expected).max() > 0.01
    np.testing.assert_array_equal(_gradient(x, kind), expected)
