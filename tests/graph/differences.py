"""Numerical derivatives of a graph by its NumPy twins, in float64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from prism_inference.graph import Graph, Tensor
from prism_inference.graph.interpret import interpret

# f'(x) from values at x + k·h: the central difference with four points, its error of order h⁴.
STENCIL = ((-2, 1 / 12), (-1, -8 / 12), (1, 8 / 12), (2, -1 / 12))


def numeric_gradient(graph: Graph, loss: Tensor, leaf: Tensor, step: float = 1e-3) -> npt.NDArray[np.float64]:
    """Return d loss / d leaf, in the leaf's four-dimensional NumPy order."""
    start = leaf.numpy().reshape(tuple(reversed(leaf.ne))).astype(np.float64)
    result = np.zeros(start.size)
    for i in range(start.size):
        for k, factor in STENCIL:
            moved = start.copy()
            moved.reshape(-1)[i] += k * step
            result[i] += factor / step * float(value(graph, loss, {leaf.index: moved}))
    return result.reshape(start.shape)


def value(graph: Graph, loss: Tensor, leaves: dict[int, npt.NDArray[np.float64]]) -> float:
    """Return the loss with other values of some leaves."""
    return float(interpret(graph, wide=True, leaves=leaves)[loss.index].reshape(()))


def mean_absolute_asymmetry(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """mean |a - b| / |a + b|, ggml's measure of two gradients; places where both are (nearly) zero count nothing."""
    x, y = np.asarray(a, np.float64).reshape(-1), np.asarray(b, np.float64).reshape(-1)
    scale = max(float(np.abs(y).max(initial=0.0)), 1e-30)
    total = np.abs(x + y)
    ratio = np.abs(x - y) / np.maximum(total, 1e-4 * scale)
    return float(ratio.mean())


def weighted_sum(graph: Graph, result: Tensor, seed: int = 7) -> Tensor:
    """Return a loss: the sum of the result times random weights, so that every value's gradient differs."""
    rng = np.random.default_rng(seed)
    shape: Sequence[int] = tuple(int(extent) for extent in reversed(result.ne))
    weights = graph.context.tensor("F32", result.ne).set(rng.uniform(0.5, 1.5, shape).astype(np.float32))
    return result.mul(weights).sum().mark_loss()
