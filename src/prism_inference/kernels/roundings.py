"""Values as a tensor type of few bits stores them, in float32: what encoding and decoding a row would give.

Bit for bit that of the codecs. A scale beyond float16 becomes infinite, where the codec refuses it.
"""

from __future__ import annotations

import numpy as np

from .operands import extent, row_address, rows, share
from .simd import (
    absolute,
    copy_sign,
    load_f32,
    load_f32x16,
    max_lanes,
    maximum,
    round_f16,
    splat,
    store_f32x16,
    where_less,
    zeros,
)

ONE_BIT, TWO_BITS = 128, 64  # values of a block of Q1_0 and of Q2_0
_ZERO, _ONE, _HALF = np.float32(0), np.float32(1), np.float32(0.5)
_INFINITE = np.float32(np.inf)


def _q1_0(desc, ith, nth):
    """±d in each block, d = the mean magnitude, added one after another as the codec does."""
    blocks = extent(desc, 0, 0) // ONE_BIT
    first, last = share(rows(desc, 0) * blocks, ith, nth)
    for item in range(first, last):
        row, at = item // blocks, 4 * ONE_BIT * (item % blocks)
        y, a = row_address(desc, 0, row) + at, row_address(desc, 1, row) + at
        total = _ZERO
        for i in range(ONE_BIT):
            total += abs(load_f32(a + 4 * i))
        d = round_f16(total / np.float32(ONE_BIT))
        for i in range(0, 4 * ONE_BIT, 64):
            store_f32x16(y + i, where_less(load_f32x16(a + i), zeros(), splat(-d), splat(d)))


def _q2_0(desc, ith, nth):
    """-d, 0 or d in each block: d = the largest magnitude, and x / d rounded to an integer, ties away from zero."""
    blocks = extent(desc, 0, 0) // TWO_BITS
    first, last = share(rows(desc, 0) * blocks, ith, nth)
    for item in range(first, last):
        row, at = item // blocks, 4 * TWO_BITS * (item % blocks)
        y, a = row_address(desc, 0, row) + at, row_address(desc, 1, row) + at
        most = zeros()
        for i in range(0, 4 * TWO_BITS, 64):
            most = maximum(absolute(load_f32x16(a + i)), most)
        largest = max_lanes(most)
        inverse = _ONE / largest
        factor, d = splat(inverse if inverse < _INFINITE else _ZERO), splat(round_f16(largest))
        for i in range(0, 4 * TWO_BITS, 64):
            value = load_f32x16(a + i)
            below = where_less(absolute(value * factor), splat(_HALF), zeros(), copy_sign(d, value))
            store_f32x16(y + i, below)


KERNELS = {"q1_0": _q1_0, "q2_0": _q2_0}
