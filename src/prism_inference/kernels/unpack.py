"""Quantized rows, 64 weights at a time: one function per tensor type, the only place where kernels know block layouts.

Each takes (address of the row, chunk number, blocks in the row) and returns (signed bytes [64], scale [16 lanes],
minimum [16 lanes]): weight = byte·scale + minimum, where lane l holds for the weights 4·l … 4·l+3. The order of
operations is the reference decoder's, so that decoded rows are equal bit for bit. Types with blocks of 32 take two
blocks a chunk; where the row ends after the first, the second repeats it (the activations there are zeros), so that
nothing beyond the row is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .jit import helper
from .simd import (
    expand_pairs,
    halves,
    interleave16,
    join16,
    join32,
    load_f16,
    load_i8,
    load_i8x16,
    load_i8x32,
    load_i8x64,
    load_i64,
    load_u8,
    load_u32,
    ptq1_0_high,
    ptq1_0_low,
    quarters,
    select_bits,
    splat,
    splat_i8x32,
    splat_i8x64,
    tq1_0_quarter0,
    tq1_0_quarter1,
    tq1_0_quarter2,
    tq1_0_quarter3,
    zeros,
)


@helper
def _block_pair(row, chunk, blocks, size):
    """Addresses of the two blocks of 32 of a chunk."""
    return row + size * (2 * chunk), row + size * min(2 * chunk + 1, blocks - 1)


@helper
def _nibbles(p0, p1):
    """Two blocks of 16 bytes to 64 codes 0 … 15, each block's low nibbles first."""
    packed = join16(load_i8x16(p0), load_i8x16(p1))
    return interleave16(packed & splat_i8x32(15), (packed >> 4) & splat_i8x32(15))


@helper
def _fifth_bits(p0, p1):
    """Bits of two 32-bit fields as 64 bytes 0 or 16."""
    return select_bits(load_u32(p0) | (load_u32(p1) << 32), 16, 0)


@helper
def _q4_0(row, chunk, blocks):
    p0, p1 = _block_pair(row, chunk, blocks, 18)
    return _nibbles(p0 + 2, p1 + 2) - splat_i8x64(8), halves(load_f16(p0), load_f16(p1)), zeros()


@helper
def _q4_1(row, chunk, blocks):
    p0, p1 = _block_pair(row, chunk, blocks, 20)
    return _nibbles(p0 + 4, p1 + 4), halves(load_f16(p0), load_f16(p1)), halves(load_f16(p0 + 2), load_f16(p1 + 2))


@helper
def _q5_0(row, chunk, blocks):
    p0, p1 = _block_pair(row, chunk, blocks, 22)
    codes = (_nibbles(p0 + 6, p1 + 6) | _fifth_bits(p0 + 2, p1 + 2)) - splat_i8x64(16)
    return codes, halves(load_f16(p0), load_f16(p1)), zeros()


@helper
def _q5_1(row, chunk, blocks):
    p0, p1 = _block_pair(row, chunk, blocks, 24)
    codes = _nibbles(p0 + 8, p1 + 8) | _fifth_bits(p0 + 4, p1 + 4)
    return codes, halves(load_f16(p0), load_f16(p1)), halves(load_f16(p0 + 2), load_f16(p1 + 2))


@helper
def _q8_0(row, chunk, blocks):
    p0, p1 = _block_pair(row, chunk, blocks, 34)
    return join32(load_i8x32(p0 + 2), load_i8x32(p1 + 2)), halves(load_f16(p0), load_f16(p1)), zeros()


@helper
def _q1_0(row, chunk, blocks):
    p = row + 18 * (chunk // 2)
    return select_bits(load_i64(p + 2 + 8 * (chunk % 2)), 1, -1), splat(load_f16(p)), zeros()


@helper
def _q2_0(row, chunk, blocks):
    p = row + 18 * chunk
    return expand_pairs(load_i8x16(p + 2)) - splat_i8x64(1), splat(load_f16(p)), zeros()


@helper
def _pq2_0(row, chunk, blocks):
    p = row + 34 * (chunk // 2)
    return expand_pairs(load_i8x16(p + 2 + 16 * (chunk % 2))) - splat_i8x64(1), splat(load_f16(p)), zeros()


@helper
def _ptq1_0(row, chunk, blocks):
    p = row + 28 * (chunk // 2)
    a, b = load_i8x16(p), load_i8x16(p + 12)
    digits = ptq1_0_low(a, b) if chunk % 2 == 0 else ptq1_0_high(a, b)
    return digits - splat_i8x64(1), splat(load_f16(p + 26)), zeros()


@helper
def _tq1_0(row, chunk, blocks):
    p, quarter = row + 54 * (chunk // 4), chunk % 4
    a, b = load_i8x32(p), load_i8x32(p + 20)
    if quarter < 2:
        digits = tq1_0_quarter0(a, b) if quarter == 0 else tq1_0_quarter1(a, b)
    else:
        digits = tq1_0_quarter2(a, b) if quarter == 2 else tq1_0_quarter3(a, b)
    return digits - splat_i8x64(1), splat(load_f16(p + 52)), zeros()


@helper
def _tq2_0(row, chunk, blocks):
    p, half, shift = row + 66 * (chunk // 4), (chunk % 4) // 2, 4 * (chunk % 2)
    packed = load_i8x32(p + 32 * half)
    codes = join32((packed >> shift) & splat_i8x32(3), (packed >> (shift + 2)) & splat_i8x32(3))
    return codes - splat_i8x64(1), splat(load_f16(p + 64)), zeros()


@helper
def _six_bit_pair(p, j):
    """Scale and minimum number j (0 … 7) of the 12 packed bytes at p."""
    if j < 4:
        return load_u8(p + j) & 63, load_u8(p + j + 4) & 63
    scale = (load_u8(p + j + 4) & 15) | ((load_u8(p + j - 4) >> 6) << 4)
    return scale, (load_u8(p + j + 4) >> 4) | ((load_u8(p + j) >> 6) << 4)


@helper
def _six_bit_scales(block, quarter):
    """Scales and minima of the two groups of 32 of a quarter block (Q4_K, Q5_K)."""
    d, m = load_f16(block), load_f16(block + 2)
    scale0, minimum0 = _six_bit_pair(block + 4, 2 * quarter)
    scale1, minimum1 = _six_bit_pair(block + 4, 2 * quarter + 1)
    scale = halves(d * np.float32(scale0), d * np.float32(scale1))
    minimum = halves(-(m * np.float32(minimum0)), -(m * np.float32(minimum1)))
    return scale, minimum


@helper
def _q4_k(row, chunk, blocks):
    block, quarter = row + 144 * (chunk // 4), chunk % 4
    packed = load_i8x32(block + 16 + 32 * quarter)
    scale, minimum = _six_bit_scales(block, quarter)
    return join32(packed & splat_i8x32(15), (packed >> 4) & splat_i8x32(15)), scale, minimum


@helper
def _q5_k(row, chunk, blocks):
    block, quarter = row + 176 * (chunk // 4), chunk % 4
    packed, high = load_i8x32(block + 48 + 32 * quarter), load_i8x32(block + 16)
    low = (packed & splat_i8x32(15)) | (((high >> (2 * quarter)) & splat_i8x32(1)) << 4)
    top = ((packed >> 4) & splat_i8x32(15)) | (((high >> (2 * quarter + 1)) & splat_i8x32(1)) << 4)
    scale, minimum = _six_bit_scales(block, quarter)
    return join32(low, top), scale, minimum


@helper
def _q6_k(row, chunk, blocks):
    block, half, odd = row + 210 * (chunk // 4), (chunk % 4) // 2, chunk % 2
    low = (load_i8x64(block + 64 * half) >> (4 * odd)) & splat_i8x64(15)
    packed = load_i8x32(block + 128 + 32 * half)
    high = join32((packed >> (4 * odd)) & splat_i8x32(3), (packed >> (4 * odd + 2)) & splat_i8x32(3))
    d, s = load_f16(block + 208), block + 192 + 8 * half + 4 * odd
    scale = quarters(
        d * np.float32(load_i8(s)),
        d * np.float32(load_i8(s + 1)),
        d * np.float32(load_i8(s + 2)),
        d * np.float32(load_i8(s + 3)),
    )
    return (low | (high << 4)) - splat_i8x64(32), scale, zeros()


@dataclass(frozen=True)
class Packing:
    """How one tensor type is unpacked: the function, weights per block, whether minima occur."""

    unpack: Any
    block: int
    minima: bool


PACKINGS: dict[str, Packing] = {
    "q4_0": Packing(_q4_0, 32, False),
    "q4_1": Packing(_q4_1, 32, True),
    "q5_0": Packing(_q5_0, 32, False),
    "q5_1": Packing(_q5_1, 32, True),
    "q8_0": Packing(_q8_0, 32, False),
    "q1_0": Packing(_q1_0, 128, False),
    "q2_0": Packing(_q2_0, 64, False),
    "q2_0_g128": Packing(_pq2_0, 128, False),
    "pq2_0": Packing(_pq2_0, 128, False),
    "ptq1_0": Packing(_ptq1_0, 128, False),
    "tq1_0": Packing(_tq1_0, 256, False),
    "tq2_0": Packing(_tq2_0, 256, False),
    "q4_k": Packing(_q4_k, 256, True),
    "q5_k": Packing(_q5_k, 256, True),
    "q6_k": Packing(_q6_k, 256, False),
}
