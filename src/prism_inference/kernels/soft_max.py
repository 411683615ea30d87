"""Soft-max of rows, plain or with scale, mask, slopes and sinks, and the way back; the pieces that losses share.

Exponentials are taken in float32 and added up in float64. Threads share the rows.
"""

from __future__ import annotations

import numpy as np

from .jit import helper
from .mathematics import exponential
from .norms import dot
from .operands import address, extent, parameter, parameter_f32, row_address, rows, share, stride
from .simd import (
    fma,
    lane_numbers,
    load_f16x16,
    load_f32,
    load_f32x16,
    load_first,
    load_first_f16,
    max_lanes,
    maximum,
    splat,
    store_f32x16,
    store_first,
    sum_wide,
    where_less,
    widen,
    zeros,
    zeros_f64,
)

RUN = 1024  # values that are added in float32 lanes before the sum goes to float64
_LOWEST = np.float32(-np.inf)
_NOTHING = np.float32(-87)  # below, an exponential is taken for 0: it is smaller than any normal number


# --- Pieces ------------------------------------------------------------------------------------------------


@helper
def largest(a, n):
    """The largest of n values; NaN counts as nothing."""
    low = splat(_LOWEST)
    m0, m1, m2, m3 = low, low, low, low
    i = 0
    while i + 64 <= n:
        m0, m1 = maximum(load_f32x16(a + 4 * i), m0), maximum(load_f32x16(a + 4 * i + 64), m1)
        m2, m3 = maximum(load_f32x16(a + 4 * i + 128), m2), maximum(load_f32x16(a + 4 * i + 192), m3)
        i += 64
    while i < n:
        inside = where_less(lane_numbers(), splat(np.float32(n - i)), load_first(a + 4 * i, n - i), low)
        m0 = maximum(inside, m0)
        i += 16
    return max_lanes(maximum(maximum(m0, m1), maximum(m2, m3)))


@helper
def _weight(x):
    """e^x, 0 where a mask closes; NaN stays NaN."""
    return where_less(x, splat(_NOTHING), zeros(), exponential(x))


def _weights(keep):
    """Make the function for Σ e^(a - top) of n values, in float64; with `keep`, the exponentials are written to y."""

    @helper
    def weight(y, a, top):
        value = _weight(load_f32x16(a) - top)
        if keep:
            store_f32x16(y, value)
        return value

    @helper
    def weights(y, a, n, top):
        total, best = zeros_f64(), splat(top)
        i = 0
        while i + 64 <= n:
            s0, s1, s2, s3 = zeros(), zeros(), zeros(), zeros()
            end = min(n - 63, i + RUN)
            while i < end:
                s0, s1 = s0 + weight(y + 4 * i, a + 4 * i, best), s1 + weight(y + 4 * i + 64, a + 4 * i + 64, best)
                s2 = s2 + weight(y + 4 * i + 128, a + 4 * i + 128, best)
                s3 = s3 + weight(y + 4 * i + 192, a + 4 * i + 192, best)
                i += 64
            total = total + widen((s0 + s1) + (s2 + s3))
        while i < n:
            value = _weight(load_first(a + 4 * i, n - i) - best)
            if keep:
                store_first(y + 4 * i, value, n - i)
            total = total + widen(where_less(lane_numbers(), splat(np.float32(n - i)), value, zeros()))
            i += 16
        return sum_wide(total)

    return weights


added, kept = _weights(False), _weights(True)


@helper
def multiply(y, n, factor):
    """y = y·factor."""
    f, i = splat(factor), 0
    while i + 16 <= n:
        store_f32x16(y + 4 * i, load_f32x16(y + 4 * i) * f)
        i += 16
    if i < n:
        store_first(y + 4 * i, load_first(y + 4 * i, n - i) * f, n - i)


# --- Soft-max ----------------------------------------------------------------------------------------------


def _soft_max(desc, ith, nth):
    """y = e^(a - max) / Σ e^(a - max) of each row."""
    n = extent(desc, 0, 0)
    first, last = share(rows(desc, 0), ith, nth)
    for row in range(first, last):
        y, a = row_address(desc, 0, row), row_address(desc, 1, row)
        multiply(y, n, np.float32(1.0 / kept(y, a, n, largest(a, n))))


def _scores(load, load_some, size):
    """Make the function that writes a·scale + slope·mask to y; masks of `size` bytes a value, 0 for none."""

    @helper
    def write(y, a, mask, n, scale, slope):
        factor, steep = splat(scale), splat(slope)
        i = 0
        while i + 16 <= n:
            value = load_f32x16(a + 4 * i) * factor
            if size > 0:
                value = fma(steep, load(mask + size * i), value)
            store_f32x16(y + 4 * i, value)
            i += 16
        if i < n:
            value = load_first(a + 4 * i, n - i) * factor
            if size > 0:
                value = fma(steep, load_some(mask + size * i, n - i), value)
            store_first(y + 4 * i, value, n - i)

    return write


def _extended(load, load_some, size):
    """Kernel of the soft-max of scale·a + slope·mask, with one more score per head that gives no result.

    Operands: 1 a [n, rows, heads, …], 2 mask (repeated over the batches), 3 slopes float32 [heads], 4 sinks float32
    [heads]. Parameters: 0 scale, 1 whether there are sinks.
    """
    scores = _scores(load, load_some, size)

    def kernel(desc, ith, nth):
        n, scale, sunk = extent(desc, 0, 0), parameter_f32(desc, 0), parameter(desc, 1) != 0
        n1, n2 = extent(desc, 0, 1), extent(desc, 0, 2)
        first, last = share(rows(desc, 0), ith, nth)
        for row in range(first, last):
            y, i1, i2, i3 = row_address(desc, 0, row), row % n1, (row // n1) % n2, row // (n1 * n2)
            mask = address(desc, 2) + i1 * stride(desc, 2, 1) + (i2 % extent(desc, 2, 2)) * stride(desc, 2, 2)
            mask += (i3 % extent(desc, 2, 3)) * stride(desc, 2, 3)
            slope = load_f32(address(desc, 3) + 4 * i2)
            scores(y, row_address(desc, 1, row), mask, n, scale, slope)
            sink = load_f32(address(desc, 4) + stride(desc, 4, 0) * i2) if sunk else _LOWEST
            top = max(largest(y, n), sink)
            total = kept(y, y, n, top)
            if sunk:
                total += np.float64(max_lanes(_weight(splat(sink - top))))
            multiply(y, n, np.float32(1.0 / total))

    return kernel


def _soft_max_back(desc, ith, nth):
    """scale·y·(g - Σ y·g): operand 1 is g, 2 y, parameter 0 the scale."""
    n, scale = extent(desc, 0, 0), splat(parameter_f32(desc, 0))
    first, last = share(rows(desc, 0), ith, nth)
    for row in range(first, last):
        z, g, y = row_address(desc, 0, row), row_address(desc, 1, row), row_address(desc, 2, row)
        level = splat(np.float32(dot(y, g, n)))
        i = 0
        while i + 16 <= n:
            store_f32x16(z + 4 * i, (load_f32x16(g + 4 * i) - level) * load_f32x16(y + 4 * i) * scale)
            i += 16
        if i < n:
            value = (load_first(g + 4 * i, n - i) - level) * load_first(y + 4 * i, n - i)
            store_first(z + 4 * i, value * scale, n - i)


KERNELS = {
    "plain": _soft_max,
    "scaled": _extended(load_f32x16, load_first, 0),
    "masked.f32": _extended(load_f32x16, load_first, 4),
    "masked.f16": _extended(load_f16x16, load_first_f16, 2),
    "back": _soft_max_back,
}
