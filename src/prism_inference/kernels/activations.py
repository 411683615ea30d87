"""Activations rounded to eight bits, in the layout that the quantized products read.

A row of K values becomes K/64 (rounded up) chunks of `CHUNK_BYTES`: 64 bytes value + 128 (unsigned, for the unsigned
side of the byte product), 16 float32 scales (one per lane of the product, that is per 4 values) and 16 float32 sums
scale·Σvalues (for weights with minima). Values beyond K are zeros. Rounding follows the reference's Q8_0 blocks, so
that logits can be compared; its Q8_1 differs in the sums alone, which it keeps in float16 and which overflow there.
"""

from __future__ import annotations

import numpy as np

from ..plan.layouts import CHUNK_BYTES
from .jit import helper
from .operands import extent, row_address, rows, share
from .simd import (
    absolute,
    halves,
    load_first,
    max_lanes,
    maximum,
    round_even,
    round_f16,
    splat,
    splat_i32,
    store_f32,
    store_f32x16,
    store_low_bytes,
    sum_lanes,
    to_float,
    zeros,
)

SCALES, SUMS = 64, 128  # byte offsets within a chunk
_HALF_SMALLEST, _HALF_LARGEST = np.float32(2.0**-14), np.float32(65504)  # normal numbers of float16


@helper
def _round_half_chunk(chunk, a, count, inverse):
    """Round 32 values (zeros beyond `count`) to bytes + 128; return the sum of the rounded values as float32."""
    factor = splat(inverse)
    low = round_even(load_first(a, count) * factor)
    high = round_even(load_first(a + 64, count - 16) * factor)
    store_low_bytes(chunk, low + splat_i32(128))
    store_low_bytes(chunk + 16, high + splat_i32(128))
    return sum_lanes(to_float(low + high))


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
    """Round one block; return (scale, sum of the rounded values)."""
    largest = _largest(a, count)
    inverse = np.float32(127) / largest if largest > np.float32(0) else np.float32(0)
    total = _round_half_chunk(chunk, a, count, inverse)
    return _stored_scale(largest / np.float32(127)), total


@helper
def round_chunk(chunk, a, count):
    """Round up to 64 values at `a` to one chunk."""
    scale0, total0 = _block_of_32(chunk, a, count)
    scale1, total1 = _block_of_32(chunk + 32, a + 128, count - 32)
    store_f32x16(chunk + SCALES, halves(scale0, scale1))
    store_f32x16(chunk + SUMS, zeros())
    store_f32(chunk + SUMS, scale0 * total0)
    store_f32(chunk + SUMS + 32, scale1 * total1)


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
