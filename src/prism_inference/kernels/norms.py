"""Norms of rows and the way back through them: root-mean-square with or without a weight, mean and variance, length.

Sums are taken in float64, as the reference does. Operands of the way back: 0 result, 1 gradient g, 2 what the norm
read. Parameter 0 is eps. Threads share the rows.
"""

from __future__ import annotations

import numpy as np

from .elementwise import broadcast_row
from .jit import helper
from .operands import extent, parameter_f32, row_address, rows, share
from .simd import (
    fma,
    lane_numbers,
    load_f32x16,
    load_first,
    splat,
    square_root,
    store_f32x16,
    store_first,
    sum_wide,
    where_less,
    widen,
    zeros,
    zeros_f64,
)

_ZERO, _ONE = np.float32(0), np.float32(1)


# --- Sums of a row -----------------------------------------------------------------------------------------


@helper
def dot(a, b, n):
    """Σ a·b of two rows of n values."""
    even, odd = zeros_f64(), zeros_f64()
    i = 0
    while i + 32 <= n:
        even = even + widen(load_f32x16(a + 4 * i)) * widen(load_f32x16(b + 4 * i))
        odd = odd + widen(load_f32x16(a + 4 * i + 64)) * widen(load_f32x16(b + 4 * i + 64))
        i += 32
    while i < n:
        even = even + widen(load_first(a + 4 * i, n - i)) * widen(load_first(b + 4 * i, n - i))
        i += 16
    return sum_wide(even + odd)


@helper
def row_sum(a, n):
    """Σ a of a row of n values."""
    even, odd = zeros_f64(), zeros_f64()
    i = 0
    while i + 32 <= n:
        even, odd = even + widen(load_f32x16(a + 4 * i)), odd + widen(load_f32x16(a + 4 * i + 64))
        i += 32
    while i < n:
        even = even + widen(load_first(a + 4 * i, n - i))
        i += 16
    return sum_wide(even + odd)


@helper
def _powers(x, g, n):
    """Σ x² and Σ x·g."""
    power, product = zeros_f64(), zeros_f64()
    i = 0
    while i + 16 <= n:
        value = widen(load_f32x16(x + 4 * i))
        power, product = power + value * value, product + value * widen(load_f32x16(g + 4 * i))
        i += 16
    if i < n:
        value = widen(load_first(x + 4 * i, n - i))
        power, product = power + value * value, product + value * widen(load_first(g + 4 * i, n - i))
    return sum_wide(power), sum_wide(product)


@helper
def _spread(x, n, centre):
    """Σ (x - centre)²."""
    level, power = splat(centre), zeros_f64()
    i = 0
    while i + 16 <= n:
        value = widen(load_f32x16(x + 4 * i) - level)
        power = power + value * value
        i += 16
    if i < n:
        rest = load_first(x + 4 * i, n - i) - level
        value = widen(where_less(lane_numbers(), splat(np.float32(n - i)), rest, zeros()))
        power = power + value * value
    return sum_wide(power)


@helper
def _moments(x, n, eps):
    """The mean in two float32 parts, so that x less the first is exact where rows lie far from 0, and the inverse of
    the root of variance + eps."""
    mean = row_sum(x, n) / n
    centre = np.float32(mean)
    rest = mean - np.float64(centre)
    variance = max(_spread(x, n, centre) / n - rest * rest, 0.0)
    return centre, np.float32(rest), _ONE / square_root(np.float32(variance) + eps)


# --- What is written of a row ------------------------------------------------------------------------------


@helper
def _scaled(y, x, n, factor):
    """y = x·factor."""
    f = splat(factor)
    i = 0
    while i + 16 <= n:
        store_f32x16(y + 4 * i, load_f32x16(x + 4 * i) * f)
        i += 16
    if i < n:
        store_first(y + 4 * i, load_first(x + 4 * i, n - i) * f, n - i)


@helper
def _combined(y, g, x, n, of_g, of_x):
    """y = g·of_g + x·of_x."""
    p, q = splat(of_g), splat(of_x)
    i = 0
    while i + 16 <= n:
        store_f32x16(y + 4 * i, fma(load_f32x16(x + 4 * i), q, load_f32x16(g + 4 * i) * p))
        i += 16
    if i < n:
        store_first(y + 4 * i, fma(load_first(x + 4 * i, n - i), q, load_first(g + 4 * i, n - i) * p), n - i)


@helper
def _negative_cube(value):
    """-value³, in float64: float32 would overflow where eps is very small."""
    wide = np.float64(value)
    return -(wide * wide * wide)


# --- Root mean square --------------------------------------------------------------------------------------


@helper
def _inverse_rms(a, n, eps):
    """1 / sqrt(mean(a²) + eps) of n float32 values."""
    return _ONE / square_root(np.float32(dot(a, a, n) / n) + eps)


def _rms_norm(desc, ith, nth):
    """y = a / sqrt(mean(a²) + eps)."""
    n, eps = extent(desc, 0, 0), parameter_f32(desc, 0)
    first, last = share(rows(desc, 0), ith, nth)
    for row in range(first, last):
        a = row_address(desc, 1, row)
        _scaled(row_address(desc, 0, row), a, n, _inverse_rms(a, n, eps))


def _rms_norm_mul(desc, ith, nth):
    """y = (a / sqrt(mean(a²) + eps)) · w, w repeated to a's shape."""
    n, eps = extent(desc, 0, 0), parameter_f32(desc, 0)
    first, last = share(rows(desc, 0), ith, nth)
    for row in range(first, last):
        y, a, w = row_address(desc, 0, row), row_address(desc, 1, row), broadcast_row(desc, 2, row)
        factor = splat(_inverse_rms(a, n, eps))
        i = 0
        while i + 16 <= n:
            store_f32x16(y + 4 * i, load_f32x16(a + 4 * i) * factor * load_f32x16(w + 4 * i))
            i += 16
        if i < n:
            value = load_first(a + 4 * i, n - i) * factor * load_first(w + 4 * i, n - i)
            store_first(y + 4 * i, value, n - i)


def _rms_norm_back(desc, ith, nth):
    """r·g - x·r³·mean(x·g) with r = (mean(x²) + eps)^-1/2."""
    n, eps = extent(desc, 0, 0), parameter_f32(desc, 0)
    first, last = share(rows(desc, 0), ith, nth)
    for row in range(first, last):
        g, x = row_address(desc, 1, row), row_address(desc, 2, row)
        power, product = _powers(x, g, n)
        r = _ONE / square_root(np.float32(power / n) + eps)
        _combined(row_address(desc, 0, row), g, x, n, r, np.float32(product / n * _negative_cube(r)))


# --- Mean and variance -------------------------------------------------------------------------------------


def _norm(desc, ith, nth):
    """y = (x - mean) / sqrt(variance + eps)."""
    n, eps = extent(desc, 0, 0), parameter_f32(desc, 0)
    first, last = share(rows(desc, 0), ith, nth)
    for row in range(first, last):
        y, x = row_address(desc, 0, row), row_address(desc, 1, row)
        centre, rest, inverse = _moments(x, n, eps)
        high, low, factor = splat(centre), splat(rest), splat(inverse)
        i = 0
        while i + 16 <= n:
            store_f32x16(y + 4 * i, ((load_f32x16(x + 4 * i) - high) - low) * factor)
            i += 16
        if i < n:
            store_first(y + 4 * i, ((load_first(x + 4 * i, n - i) - high) - low) * factor, n - i)


@helper
def _meeting(g, x, n, centre, rest):
    """Σ g·(x - centre - rest)."""
    high, low, product = splat(centre), splat(rest), zeros_f64()
    i = 0
    while i + 16 <= n:
        product = product + widen(load_f32x16(g + 4 * i)) * widen((load_f32x16(x + 4 * i) - high) - low)
        i += 16
    if i < n:  # what lies beyond the row meets zeros of g
        product = product + widen(load_first(g + 4 * i, n - i)) * widen((load_first(x + 4 * i, n - i) - high) - low)
    return sum_wide(product)


def _norm_back(desc, ith, nth):
    """((g - mean g) - z·mean(g·z)) / σ with z = (x - mean x) / σ, σ² = variance + eps."""
    n, eps = extent(desc, 0, 0), parameter_f32(desc, 0)
    first, last = share(rows(desc, 0), ith, nth)
    for row in range(first, last):
        y, g, x = row_address(desc, 0, row), row_address(desc, 1, row), row_address(desc, 2, row)
        centre, rest, inverse = _moments(x, n, eps)
        high, low, factor = splat(centre), splat(rest), splat(inverse)
        level = splat(np.float32(row_sum(g, n) / n))
        slope = splat(np.float32(_meeting(g, x, n, centre, rest) / n) * inverse * inverse)
        i = 0
        while i + 16 <= n:
            z = (load_f32x16(x + 4 * i) - high) - low
            store_f32x16(y + 4 * i, ((load_f32x16(g + 4 * i) - level) - z * slope) * factor)
            i += 16
        if i < n:
            z = (load_first(x + 4 * i, n - i) - high) - low
            store_first(y + 4 * i, ((load_first(g + 4 * i, n - i) - level) - z * slope) * factor, n - i)


# --- Length ------------------------------------------------------------------------------------------------


def _l2_norm(desc, ith, nth):
    """y = x / max(|x|, eps)."""
    n, eps = extent(desc, 0, 0), parameter_f32(desc, 0)
    first, last = share(rows(desc, 0), ith, nth)
    for row in range(first, last):
        x = row_address(desc, 1, row)
        length = max(square_root(np.float32(dot(x, x, n))), eps)
        _scaled(row_address(desc, 0, row), x, n, _ONE / length)


def _l2_norm_back(desc, ith, nth):
    """(g - z·Σ g·z) / |x| with z = x / |x|; g / eps where |x| ≤ eps."""
    n, eps = extent(desc, 0, 0), parameter_f32(desc, 0)
    first, last = share(rows(desc, 0), ith, nth)
    for row in range(first, last):
        g, x = row_address(desc, 1, row), row_address(desc, 2, row)
        power, product = _powers(x, g, n)
        length = square_root(np.float32(power))
        inverse = _ONE / max(length, eps)
        along = np.float32(product * _negative_cube(inverse)) if length > eps else _ZERO
        _combined(row_address(desc, 0, row), g, x, n, inverse, along)


KERNELS = {
    "rms_norm": _rms_norm,
    "rms_norm_mul": _rms_norm_mul,
    "rms_norm_back": _rms_norm_back,
    "norm": _norm,
    "norm_back": _norm_back,
    "l2_norm": _l2_norm,
    "l2_norm_back": _l2_norm_back,
}
