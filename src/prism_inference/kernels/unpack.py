"""Quantized rows, 64 weights at a time: with `panel_rows`, the only place where kernels know block layouts.

For each tensor type a function for the codes of a chunk of one row, and one for the scales of a chunk of eight rows:
weight = (code - 2^offset)·scale + minimum. The order of operations is the reference decoder's, so that decoded rows
are equal bit for bit. Types with blocks of 32 take two blocks a chunk; where the row ends after the first, the second
repeats it (the activations there are zeros), so that nothing beyond the row is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .jit import helper
from .simd import (
    expand_pairs,
    group_bytes,
    group_half,
    group_halves,
    group_pair,
    interleave16,
    join16,
    join32,
    load_i8x16,
    load_i8x32,
    load_i8x64,
    load_i64,
    load_u32,
    ptq1_0_high,
    ptq1_0_low,
    select_bits,
    splat,
    splat_i8x32,
    splat_i8x64,
    splat_i32,
    to_float,
    tq1_0_quarter0,
    tq1_0_quarter1,
    tq1_0_quarter2,
    tq1_0_quarter3,
    zeros,
)

_MINUS = np.float32(-1)


@helper
def block_pair(row, chunk, blocks, size):
    """Addresses of the two blocks of 32 of a chunk."""
    return row + size * (2 * chunk), row + size * min(2 * chunk + 1, blocks - 1)


# --- Codes: (row, chunk, blocks) → 64 unsigned bytes ----------------------------------------------------------------


@helper
def _nibbles(p0, p1):
    """Two blocks of 16 bytes to 64 codes 0 … 15, each block's low nibbles first."""
    packed = join16(load_i8x16(p0), load_i8x16(p1))
    return interleave16(packed & splat_i8x32(15), (packed >> 4) & splat_i8x32(15))


def _four_bits(size, at):
    """Blocks of `size` bytes whose nibbles begin at byte `at`."""

    @helper
    def codes(row, chunk, blocks):
        p0, p1 = block_pair(row + at, chunk, blocks, size)
        return _nibbles(p0, p1)

    return codes


def _five_bits(size, at):
    """The same with 32 fifth bits before the nibbles."""

    @helper
    def codes(row, chunk, blocks):
        p0, p1 = block_pair(row + at, chunk, blocks, size)
        return _nibbles(p0 + 4, p1 + 4) | select_bits(load_u32(p0) | (load_u32(p1) << 32), 16, 0)

    return codes


@helper
def _q8_0(row, chunk, blocks):
    p0, p1 = block_pair(row + 2, chunk, blocks, 34)
    return join32(load_i8x32(p0), load_i8x32(p1))


@helper
def _q1_0(row, chunk, blocks):
    return select_bits(load_i64(row + 18 * (chunk // 2) + 2 + 8 * (chunk % 2)), 2, 0)


@helper
def _q2_0(row, chunk, blocks):
    return expand_pairs(load_i8x16(row + 18 * chunk + 2))


@helper
def _pq2_0(row, chunk, blocks):
    return expand_pairs(load_i8x16(row + 34 * (chunk // 2) + 2 + 16 * (chunk % 2)))


@helper
def _ptq1_0(row, chunk, blocks):
    p = row + 28 * (chunk // 2)
    a, b = load_i8x16(p), load_i8x16(p + 12)
    return ptq1_0_low(a, b) if chunk % 2 == 0 else ptq1_0_high(a, b)


@helper
def _tq1_0(row, chunk, blocks):
    p, quarter = row + 54 * (chunk // 4), chunk % 4
    a, b = load_i8x32(p), load_i8x32(p + 20)
    if quarter < 2:
        return tq1_0_quarter0(a, b) if quarter == 0 else tq1_0_quarter1(a, b)
    return tq1_0_quarter2(a, b) if quarter == 2 else tq1_0_quarter3(a, b)


@helper
def _tq2_0(row, chunk, blocks):
    packed, shift = load_i8x32(row + 66 * (chunk // 4) + 32 * ((chunk % 4) // 2)), 4 * (chunk % 2)
    return join32((packed >> shift) & splat_i8x32(3), (packed >> (shift + 2)) & splat_i8x32(3))


@helper
def _q4_k(row, chunk, blocks):
    packed = load_i8x32(row + 144 * (chunk // 4) + 16 + 32 * (chunk % 4))
    return join32(packed & splat_i8x32(15), (packed >> 4) & splat_i8x32(15))


@helper
def _q5_k(row, chunk, blocks):
    block, quarter = row + 176 * (chunk // 4), chunk % 4
    packed, high = load_i8x32(block + 48 + 32 * quarter), load_i8x32(block + 16)
    low = (packed & splat_i8x32(15)) | (((high >> (2 * quarter)) & splat_i8x32(1)) << 4)
    top = ((packed >> 4) & splat_i8x32(15)) | (((high >> (2 * quarter + 1)) & splat_i8x32(1)) << 4)
    return join32(low, top)


@helper
def _q6_k(row, chunk, blocks):
    block, half, odd = row + 210 * (chunk // 4), (chunk % 4) // 2, chunk % 2
    low = (load_i8x64(block + 64 * half) >> (4 * odd)) & splat_i8x64(15)
    packed = load_i8x32(block + 128 + 32 * half)
    high = join32((packed >> (4 * odd)) & splat_i8x32(3), (packed >> (4 * odd + 2)) & splat_i8x32(3))
    return low | (high << 4)


# --- Scales: (row, step, chunk, blocks) → (scale, second, minimum) of eight rows, in the lanes of `simd.groups` -----
# `second` scales the second 16 of each 32, where that is another number.


def _one_scale(size, at, chunks):
    """One float16 at byte `at` of blocks of so many bytes and chunks."""

    @helper
    def scales(row, step, chunk, blocks):
        scale = group_half(row + size * (chunk // chunks) + at, step)
        return scale, scale, zeros()

    return scales


def _two_scales(size, minima=False):
    """A float16 at the start of each block of 32, and perhaps a minimum after it."""

    @helper
    def scales(row, step, chunk, blocks):
        p0, p1 = block_pair(row, chunk, blocks, size)
        scale = group_halves(p0, step, p1 - p0)
        return scale, scale, group_halves(p0 + 2, step, p1 - p0) if minima else zeros()

    return scales


def _super_scales(size):
    """Two float16 and eight pairs of six bits for 256 weights (Q4_K, Q5_K)."""

    @helper
    def scales(row, step, chunk, blocks):
        block, quarter = row + size * (chunk // 4), chunk % 4
        p = block + 4 + 2 * (quarter % 2)
        scale, minimum = group_pair(p, step), group_pair(p + 4, step)
        if quarter < 2:
            scale, minimum = scale & splat_i32(63), minimum & splat_i32(63)
        else:
            low = group_pair(p + 8, step)
            scale = (low & splat_i32(15)) | ((scale >> 6) << 4)
            minimum = (low >> 4) | ((minimum >> 6) << 4)
        scaled = group_half(block, step) * to_float(scale)
        return scaled, scaled, group_half(block + 2, step) * to_float(minimum) * splat(_MINUS)

    return scales


@helper
def _q6_k_scales(row, step, chunk, blocks):
    block = row + 210 * (chunk // 4)
    p, d = block + 192 + 4 * (chunk % 4), group_half(block + 208, step)
    return d * to_float(group_bytes(p, step, 2)), d * to_float(group_bytes(p + 1, step, 2)), zeros()


@dataclass(frozen=True)
class Packing:
    """How one tensor type is unpacked: its codes and scales, weights per block, what is subtracted from the codes (as a
    power of two; None: nothing), the largest code, whether minima occur, and whether each 16 weights have a scale."""

    codes: Any
    scales: Any
    block: int
    offset: int | None
    largest: int
    minima: bool = False
    sixteens: bool = False

    @property
    def signed(self) -> bool:
        """Whether codes are signed bytes."""
        return self.largest > 127


PACKINGS: dict[str, Packing] = {
    "q4_0": Packing(_four_bits(18, 2), _two_scales(18), 32, 3, 15),
    "q4_1": Packing(_four_bits(20, 4), _two_scales(20, minima=True), 32, None, 15, minima=True),
    "q5_0": Packing(_five_bits(22, 2), _two_scales(22), 32, 4, 31),
    "q5_1": Packing(_five_bits(24, 4), _two_scales(24, minima=True), 32, None, 31, minima=True),
    "q8_0": Packing(_q8_0, _two_scales(34), 32, None, 128),
    "q1_0": Packing(_q1_0, _one_scale(18, 0, 2), 128, 0, 2),
    "q2_0": Packing(_q2_0, _one_scale(18, 0, 1), 64, 0, 3),
    "q2_0_g128": Packing(_pq2_0, _one_scale(34, 0, 2), 128, 0, 3),
    "pq2_0": Packing(_pq2_0, _one_scale(34, 0, 2), 128, 0, 3),
    "ptq1_0": Packing(_ptq1_0, _one_scale(28, 26, 2), 128, 0, 2),
    "tq1_0": Packing(_tq1_0, _one_scale(54, 52, 4), 256, 0, 2),
    "tq2_0": Packing(_tq2_0, _one_scale(66, 64, 4), 256, 0, 3),
    "q4_k": Packing(_q4_k, _super_scales(144), 256, None, 15, minima=True),
    "q5_k": Packing(_q5_k, _super_scales(176), 256, None, 31, minima=True),
    "q6_k": Packing(_q6_k, _q6_k_scales, 256, 5, 63, sixteens=True),
}
