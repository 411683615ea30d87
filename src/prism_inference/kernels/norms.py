"""What concerns whole rows: root-mean-square norm with or without a weight, soft-max, sum. Threads share the rows."""

from __future__ import annotations

import numpy as np

from .elementwise import broadcast_row
from .jit import helper
from .mathematics import exponential
from .operands import extent, parameter_f32, row_address, rows, share
from .simd import (
    load_f32,
    load_first,
    splat,
    square_root,
    store_f32,
    store_first,
    sum_lanes,
    sum_wide,
    widen,
    zeros_f64,
)


@helper
def _inverse_rms(a, n, eps):
    """1 / sqrt(mean(a²) + eps) of n float32 values; the mean is summed in float64, as the reference does."""
    total = zeros_f64()
    for i in range(0, n, 16):
        value = widen(load_first(a + 4 * i, n - i))
        total = total + value * value
    mean = np.float32(sum_wide(total) / n)
    return np.float32(1) / square_root(mean + eps)


def _rms_norm(desc, ith, nth):
    """y = a / sqrt(mean(a²) + eps)."""
    n = extent(desc, 0, 0)
    eps = parameter_f32(desc, 0)
    first, last = share(rows(desc, 0), ith, nth)
    for row in range(first, last):
        y, a = row_address(desc, 0, row), row_address(desc, 1, row)
        factor = splat(_inverse_rms(a, n, eps))
        for i in range(0, n, 16):
            store_first(y + 4 * i, load_first(a + 4 * i, n - i) * factor, n - i)


def _rms_norm_mul(desc, ith, nth):
    """y = (a / sqrt(mean(a²) + eps)) · w, w repeated to a's shape."""
    n = extent(desc, 0, 0)
    eps = parameter_f32(desc, 0)
    first, last = share(rows(desc, 0), ith, nth)
    for row in range(first, last):
        y, a, w = row_address(desc, 0, row), row_address(desc, 1, row), broadcast_row(desc, 2, row)
        factor = splat(_inverse_rms(a, n, eps))
        for i in range(0, n, 16):
            value = load_first(a + 4 * i, n - i) * factor * load_first(w + 4 * i, n - i)
            store_first(y + 4 * i, value, n - i)


def _soft_max(desc, ith, nth):
    """y = e^(a - max) / Σ e^(a - max) of each row."""
    n = extent(desc, 0, 0)
    first, last = share(rows(desc, 0), ith, nth)
    for row in range(first, last):
        y, a = row_address(desc, 0, row), row_address(desc, 1, row)
        top = load_f32(a)
        for i in range(n):
            top = max(top, load_f32(a + 4 * i))
        total = np.float32(0)
        for i in range(0, n, 16):
            value = exponential(load_first(a + 4 * i, n - i) - splat(top))
            store_first(y + 4 * i, value, n - i)
            total += sum_lanes(load_first(y + 4 * i, n - i))
        factor = splat(np.float32(1) / total)
        for i in range(0, n, 16):
            store_first(y + 4 * i, load_first(y + 4 * i, n - i) * factor, n - i)


def _sum_rows(desc, ith, nth):
    """y = the sum of each row, in float64."""
    n = extent(desc, 1, 0)
    first, last = share(rows(desc, 1), ith, nth)
    for row in range(first, last):
        a = row_address(desc, 1, row)
        total = zeros_f64()
        for i in range(0, n, 16):
            total = total + widen(load_first(a + 4 * i, n - i))
        store_f32(row_address(desc, 0, row), np.float32(sum_wide(total)))


KERNELS = {
    "rms_norm": _rms_norm,
    "rms_norm_mul": _rms_norm_mul,
    "soft_max": _soft_max,
    "sum_rows": _sum_rows,
}
