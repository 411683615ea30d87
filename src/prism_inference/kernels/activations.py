"""Activations rounded to eight bits, in the layout that the quantized products read.

A row of K values becomes K/64 (rounded up) chunks of `CHUNK_BYTES`: 64 signed bytes; the float32 scales of both blocks
of 32, each four times; in the same way their float32 sums scale·Σvalues (for weights with minima); and the int32 sums
of each 16 values, four times (for codes with an offset). Values beyond K are zeros. Rounding follows the reference's
Q8_0 blocks, so that logits can be compared; its Q8_1 differs in the sums alone, which it keeps in float16 and which
overflow there.
"""

from __future__ import annotations

import numpy as np

from ..plan.layouts import CHUNK_BYTES
from ..plan.layouts import CHUNK_SCALES as SCALES
from ..plan.layouts import CHUNK_TOTALS as TOTALS
from .jit import helper
from .operands import extent, row_address, rows, share
from .simd import (
    absolute,
    from_bits,
    load_first,
    max_lanes,
    maximum,
    quarters,
    round_even,
    round_f16,
    splat,
    store_f32x16,
    store_low_bytes,
    sum_lanes,
    to_float,
    truncate,
)

_HALF_SMALLEST, _HALF_LARGEST = np.float32(2.0**-14), np.float32(65504)  # normal numbers of float16


@helper
def _round_block(chunk, a, count, inverse):
    """Round 32 values (zeros beyond `count`) to bytes; return the sums of the first and the second 16, in float32."""
    factor = splat(inverse)
    first = round_even(load_first(a, count) * factor)
    second = round_even(load_first(a + 64, count - 16) * factor)
    store_low_bytes(chunk, first)
    store_low_bytes(chunk + 16, second)
    return sum_lanes(to_float(first)), sum_lanes(to_float(second))


@helper
def _largest(a, count):
    """Largest magnitude of 32 values."""
    return max_lanes(maximum(absolute(load_first(a, count)), absolute(load_first(a + 64, count - 16))))


@helper
def _stored_scale(exact):
    """The scale as the reference stores it, in float16; exact where float16 has no normal number for it."""
    normal = exact >= _HALF_SMALLEST and exact <= _HALF_LARGEST
    return round_f16(exact) if normal else exact


@helper
def _block_of_32(chunk, a, count):
    """Round one block; return its scale and the sums of its halves."""
    largest = _largest(a, count)
    inverse = np.float32(127) / largest if largest > np.float32(0) else np.float32(0)
    first, second = _round_block(chunk, a, count, inverse)
    return _stored_scale(largest / np.float32(127)), first, second


@helper
def round_chunk(chunk, a, count):
    """Round up to 64 values at `a` to one chunk."""
    scale0, t0, t1 = _block_of_32(chunk, a, count)
    scale1, t2, t3 = _block_of_32(chunk + 32, a + 128, count - 32)
    store_f32x16(chunk + SCALES, quarters(scale0, scale1, scale0 * (t0 + t1), scale1 * (t2 + t3)))
    store_f32x16(chunk + TOTALS, from_bits(truncate(quarters(t0, t1, t2, t3))))


def _round(desc, ith, nth):
    """Round the rows of operand 1, in blocks of 32."""
    n = extent(desc, 1, 0)
    chunks = (n + 63) // 64
    first, last = share(rows(desc, 1) * chunks, ith, nth)
    for item in range(first, last):
        row, c = item // chunks, item % chunks
        a = row_address(desc, 1, row) + 256 * c
        round_chunk(row_address(desc, 0, row) + CHUNK_BYTES * c, a, n - 64 * c)


KERNELS = {"round": _round}
