"""Keys and values in blocks of 32: rows written by index, and vectors of 16 values read back.

Encoding follows the codecs bit for bit (Q8_0: ties away from zero; Q4_0: from the signed extreme).
"""

from __future__ import annotations

import numpy as np

from .jit import helper
from .operands import extent, row_address, rows, share, target_address
from .simd import (
    absolute,
    load_f16,
    load_f32,
    load_f32x16,
    load_i8x16,
    max_lanes,
    maximum,
    splat,
    splat_i8x16,
    splat_i32,
    store_f16,
    store_low_bytes,
    to_float,
    truncate,
    widen_bytes,
)

Q8_0, Q4_0 = 34, 18  # bytes of a block


@helper
def _inverse(d):
    """1 / d; 0 where d is 0 or so small that the quotient is infinite."""
    inverse = np.float32(1) / d if d != np.float32(0) else np.float32(0)
    return inverse if abs(inverse) <= np.float32(3.4028235e38) else np.float32(0)


@helper
def _round_away(value):
    """Nearest integer, ties away from zero."""
    whole = truncate(value)
    rest = value - to_float(whole)
    return whole + truncate(rest + rest)


@helper
def _write_q8_0(block, a):
    low, high = load_f32x16(a), load_f32x16(a + 64)
    d = max_lanes(maximum(absolute(low), absolute(high))) / np.float32(127)
    inverse = splat(_inverse(d))
    store_f16(block, d)
    store_low_bytes(block + 2, _round_away(low * inverse))
    store_low_bytes(block + 18, _round_away(high * inverse))


@helper
def _write_q4_0(block, a):
    largest, extreme = np.float32(0), np.float32(0)
    for i in range(32):
        value = load_f32(a + 4 * i)
        if abs(value) > largest:
            largest, extreme = abs(value), value
    d = extreme / np.float32(-8)
    inverse, half = splat(_inverse(d)), splat(np.float32(8.5))
    store_f16(block, d)
    low = truncate(load_f32x16(a) * inverse + half)
    high = truncate(load_f32x16(a + 64) * inverse + half)
    store_low_bytes(block + 2, _fifteen(low) | (_fifteen(high) << 4))


@helper
def _fifteen(codes):
    """min(codes, 15) for codes 0 … 16: 16 is 15 too far by its fifth bit."""
    over = (codes >> 4) & splat_i32(1)
    return codes - over


def _set_rows(write, size):
    """Kernel that encodes row i of operand 1 into row operand2[i] (int32) of the result."""

    def kernel(desc, ith, nth):
        blocks = extent(desc, 1, 0) // 32
        first, last = share(rows(desc, 1), ith, nth)
        for row in range(first, last):
            y, a = target_address(desc, row), row_address(desc, 1, row)
            for b in range(blocks):
                write(y + size * b, a + 128 * b)

    return kernel


@helper
def load16_q8_0(row, i):
    """Values i … i + 15 of a row."""
    block = row + Q8_0 * (i // 32)
    return to_float(widen_bytes(load_i8x16(block + 2 + i % 32))) * splat(load_f16(block))


@helper
def load16_q4_0(row, i):
    """Values i … i + 15 of a row: low nibbles of a block, or high ones."""
    block = row + Q4_0 * (i // 32)
    packed = load_i8x16(block + 2)
    codes = (packed >> (i % 32 // 4)) & splat_i8x16(15)
    return to_float(widen_bytes(codes - splat_i8x16(8))) * splat(load_f16(block))


KERNELS = {"set_rows.q8_0": _set_rows(_write_q8_0, Q8_0), "set_rows.q4_0": _set_rows(_write_q4_0, Q4_0)}
