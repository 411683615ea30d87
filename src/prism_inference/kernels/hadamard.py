"""Walsh-Hadamard rotation of rows, alone or followed by the rounding of activations.

The matrix is normalized, of Sylvester's order, applied to each block of a row: butterflies in place, without
reordering. Operands: 0 result, 1 rows, 2 signs (float32, one per value) if parameter 1 is set. Parameter 0: block;
parameter 2, of `rotate` alone: signs after the rotation instead of before. Scratch per thread: one block of float32,
at least one vector.
"""

from __future__ import annotations

import numpy as np

from ..plan.layouts import CHUNK_BYTES
from .activations import round_chunk
from .jit import helper
from .operands import address, extent, parameter, row_address, rows, scratch, share
from .simd import (
    butterfly1,
    butterfly2,
    butterfly4,
    butterfly8,
    load_f32x16,
    load_first,
    splat,
    square_root,
    store_f32x16,
    store_first,
)


@helper
def _within_vector(value, block):
    """The stages whose partners lie in one vector."""
    if block > 1:
        value = butterfly1(value)
    if block > 2:
        value = butterfly2(value)
    if block > 4:
        value = butterfly4(value)
    if block > 8:
        value = butterfly8(value)
    return value


@helper
def _turn(place, a, signs, n, block, signed):
    """Write H(s·a) of n values (one block; or less than a vector of small blocks) to `place`."""
    factor = splat(np.float32(1) / square_root(np.float32(block)))
    for i in range(0, n, 16):
        value = load_first(a + 4 * i, n - i)
        if signed:
            value = value * load_first(signs + 4 * i, n - i)
        store_f32x16(place + 4 * i, _within_vector(value * factor, block))
    half = 16
    while half < block:
        for start in range(0, block, 2 * half):
            for i in range(start, start + half, 16):
                low, high = load_f32x16(place + 4 * i), load_f32x16(place + 4 * (i + half))
                store_f32x16(place + 4 * i, low + high)
                store_f32x16(place + 4 * (i + half), low - high)
        half *= 2


def _rotate(desc, ith, nth):
    """y = H(s·x), or s·H(x)."""
    block, signed, after = parameter(desc, 0), parameter(desc, 1) != 0, parameter(desc, 2) != 0
    n = extent(desc, 0, 0)
    piece = block if block > 16 else 16
    pieces = (n + piece - 1) // piece
    place = scratch(desc, ith)
    first, last = share(rows(desc, 0) * pieces, ith, nth)
    for item in range(first, last):
        row, start = item // pieces, (item % pieces) * piece
        count = min(piece, n - start)
        signs = address(desc, 2) + 4 * start if signed else 0
        y, a = row_address(desc, 0, row) + 4 * start, row_address(desc, 1, row) + 4 * start
        _turn(place, a, signs, count, block, signed and not after)
        for i in range(0, count, 16):
            value = load_f32x16(place + 4 * i)
            if signed and after:
                value = value * load_first(signs + 4 * i, count - i)
            store_first(y + 4 * i, value, count - i)


def _rotate_round(desc, ith, nth):
    """The activations of H(s·x): blocks of at least 64 values, so that each fills whole chunks."""
    block, signed = parameter(desc, 0), parameter(desc, 1) != 0
    pieces = extent(desc, 1, 0) // block
    place = scratch(desc, ith)
    first, last = share(rows(desc, 1) * pieces, ith, nth)
    for item in range(first, last):
        row, start = item // pieces, (item % pieces) * block
        signs = address(desc, 2) + 4 * start if signed else 0
        _turn(place, row_address(desc, 1, row) + 4 * start, signs, block, block, signed)
        chunk = row_address(desc, 0, row) + CHUNK_BYTES * (start // 64)
        for c in range(block // 64):
            round_chunk(chunk + CHUNK_BYTES * c, place + 256 * c, 64)


KERNELS = {"rotate": _rotate, "rotate_round": _rotate_round}
