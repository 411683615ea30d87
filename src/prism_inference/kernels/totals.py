"""Sums in float64, of which float32 is left at the end: of each row, and of a whole tensor.

The latter by one thread for small tensors, and in two steps for others: parts of fixed size by the threads, then their
sum by one. The parts do not depend on the threads, so neither does the result; operands must be contiguous.
"""

from __future__ import annotations

import numpy as np

from ..plan.layouts import TOTAL_PART
from .jit import helper
from .norms import row_sum
from .operands import address, extent, parameter, row_address, rows, share
from .simd import (
    load_f32,
    load_f32x16,
    load_f64,
    load_first,
    load_i32,
    store_f32,
    store_f64,
    store_i64,
    sum_wide,
    widen,
    zeros_f64,
)


@helper
def _itself(value):
    return value


@helper
def _square(value):
    return value * value


def _sums(function):
    """Kernels of one function: (parts, alone).

    Parts: operand 0 is float64, one number for each TOTAL_PART values of operand 1. Alone: operand 0 is the sum, by the
    thread whose turn it is (parameter 0), so that the sums of several tensors need not wait for each other.
    """

    @helper
    def run(a, count):
        one, other, i = zeros_f64(), zeros_f64(), 0
        while i + 32 <= count:
            one = one + function(widen(load_f32x16(a + 4 * i)))
            other = other + function(widen(load_f32x16(a + 4 * i + 64)))
            i += 32
        while i < count:
            one = one + function(widen(load_first(a + 4 * i, count - i)))
            i += 16
        return sum_wide(one + other)

    def parts(desc, ith, nth):
        count = extent(desc, 1, 0) * rows(desc, 1)
        first, last = share((count + TOTAL_PART - 1) // TOTAL_PART, ith, nth)
        for part in range(first, last):
            start = TOTAL_PART * part
            store_f64(address(desc, 0) + 8 * part, run(address(desc, 1) + 4 * start, min(TOTAL_PART, count - start)))

    def alone(desc, ith, nth):
        if parameter(desc, 0) % nth == ith:
            total = run(address(desc, 1), extent(desc, 1, 0) * rows(desc, 1))
            store_f32(address(desc, 0), np.float32(total))

    return {"parts": parts, "alone": alone}


def _finish(desc, ith, nth):
    """Operand 0: the sum of the float64 numbers of operand 1."""
    if ith == 0:
        total = 0.0
        for i in range(extent(desc, 1, 0)):
            total += load_f64(address(desc, 1) + 8 * i)
        store_f32(address(desc, 0), np.float32(total))


def _rows(desc, ith, nth):
    """y = the sum of each row, or its mean if parameter 0 is 1."""
    n = extent(desc, 1, 0)
    divisor = n if parameter(desc, 0) == 1 else 1
    first, last = share(rows(desc, 1), ith, nth)
    for row in range(first, last):
        store_f32(row_address(desc, 0, row), np.float32(row_sum(row_address(desc, 1, row), n) / divisor))


def _running(desc, ith, nth):
    """y = sums of the first 1, 2, … values of each row."""
    n = extent(desc, 1, 0)
    first, last = share(rows(desc, 1), ith, nth)
    for row in range(first, last):
        a, y = row_address(desc, 1, row), row_address(desc, 0, row)
        so_far = 0.0
        for i in range(n):
            so_far += np.float64(load_f32(a + 4 * i))
            store_f32(y + 4 * i, np.float32(so_far))


def _count_equal(desc, ith, nth):
    """Operand 0, int64: how many int32 of operands 1 and 2 are equal."""
    if ith == 0:
        total = 0
        for i in range(extent(desc, 1, 0) * rows(desc, 1)):
            if load_i32(address(desc, 1) + 4 * i) == load_i32(address(desc, 2) + 4 * i):
                total += 1
        store_i64(address(desc, 0), total)


KERNELS = {
    "rows": _rows,
    "running": _running,
    **{f"sum.{name}": kernel for name, kernel in _sums(_itself).items()},
    **{f"squares.{name}": kernel for name, kernel in _sums(_square).items()},
    "finish": _finish,
    "count_equal": _count_equal,
}
