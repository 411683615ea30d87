"""Steps of optimizers: parameters and their moments are read and overwritten in one pass.

All operands but the numbers of the step lie in memory without gaps; threads share runs of values.
"""

from __future__ import annotations

import numpy as np

from .elementwise import PIECE, pieces
from .jit import helper
from .operands import address, extent, parameter, rows, share
from .simd import fma, load_f32, load_f32x16, load_first, splat, square_roots, store_f32x16, store_first

_ONE = np.float32(1)


@helper
def _number(desc, k, i):
    """Number i of operand k."""
    return load_f32(address(desc, k) + 4 * i)


@helper
def _factor(desc, k):
    """The one number of operand k, if parameter 0 says that it is there; else 1."""
    return load_f32(address(desc, k)) if parameter(desc, 0) == 1 else _ONE


@helper
def _run(desc, ith, nth):
    """This thread's first value, and the one past its last: whole pieces, so that no two threads share a cache line."""
    count = extent(desc, 0, 0) * rows(desc, 0)
    first, last = share(pieces(count), ith, nth)
    return first * PIECE, min(count, last * PIECE)


@helper
def _moments(g, m, v, b1, c1, b2, c2):
    """β1·m + (1 - β1)·g and β2·v + (1 - β2)·g²."""
    return fma(m, b1, g * c1), fma(v, b2, g * g * c2)


def _adamw(desc, ith, nth):
    """Operands: 0 parameters w, 1 and 2 moments m and v, 3 gradient, 4 α, β1, β2, ε, λ, 1/(1-β1^t), 1/(1-β2^t), 5 the
    gradient's factor."""
    w, m, v, gradient = address(desc, 0), address(desc, 1), address(desc, 2), address(desc, 3)
    alpha, beta1, beta2, eps = _number(desc, 4, 0), _number(desc, 4, 1), _number(desc, 4, 2), splat(_number(desc, 4, 3))
    keep, step = splat(_ONE - alpha * _number(desc, 4, 4)), splat(-alpha * _number(desc, 4, 5))
    bias, factor = splat(_number(desc, 4, 6)), splat(_factor(desc, 5))
    b1, c1, b2, c2 = splat(beta1), splat(_ONE - beta1), splat(beta2), splat(_ONE - beta2)
    i, last = _run(desc, ith, nth)
    while i + 16 <= last:
        at = 4 * i
        g = load_f32x16(gradient + at) * factor
        mean, square = _moments(g, load_f32x16(m + at), load_f32x16(v + at), b1, c1, b2, c2)
        change = step * mean / (square_roots(square * bias) + eps)
        store_f32x16(m + at, mean)
        store_f32x16(v + at, square)
        store_f32x16(w + at, fma(load_f32x16(w + at), keep, change))
        i += 16
    if i < last:
        n, at = last - i, 4 * i
        g = load_first(gradient + at, n) * factor
        mean, square = _moments(g, load_first(m + at, n), load_first(v + at, n), b1, c1, b2, c2)
        change = step * mean / (square_roots(square * bias) + eps)
        store_first(m + at, mean, n)
        store_first(v + at, square, n)
        store_first(w + at, fma(load_first(w + at, n), keep, change), n)


def _sgd(desc, ith, nth):
    """Operands: 0 parameters w, 1 gradient, 2 α, λ, 3 the gradient's factor."""
    w, gradient = address(desc, 0), address(desc, 1)
    alpha = _number(desc, 2, 0)
    keep, step = splat(_ONE - alpha * _number(desc, 2, 1)), splat(-alpha * _factor(desc, 3))
    i, last = _run(desc, ith, nth)
    while i + 16 <= last:
        at = 4 * i
        store_f32x16(w + at, fma(load_f32x16(w + at), keep, load_f32x16(gradient + at) * step))
        i += 16
    if i < last:
        n, at = last - i, 4 * i
        store_first(w + at, fma(load_first(w + at, n), keep, load_first(gradient + at, n) * step), n)


KERNELS = {"adamw": _adamw, "sgd": _sgd}
