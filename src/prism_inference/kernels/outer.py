"""Sums of outer products in registers, and transposition: what attention and its way back are made of.

C[i] = Σ_k A[i, k]·B[k], where C[i] and B[k] are rows of 32 lanes and A[i, k] is one number anywhere in memory: eight
rows of C (two where registers are narrower than 16 values) are held in registers while k runs. Each lane is added up in
the order of k, whatever the other lanes and rows are. Knows nothing of what the numbers mean.
"""

from __future__ import annotations

import numpy as np

from ..plan.layouts import ATTENTION_LANES
from .jit import helper
from .simd import (
    fma,
    load_f32,
    load_f32x16,
    load_first,
    splat,
    store_f32x16,
    store_first,
    swap_lower1,
    swap_lower2,
    swap_lower4,
    swap_lower8,
    swap_upper1,
    swap_upper2,
    swap_upper4,
    swap_upper8,
    zeros,
)
from .target import target

LANES = ATTENTION_LANES  # of a row
ROW = 4 * LANES  # bytes
PLACE = 1024  # bytes of scratch that `transpose` needs
WIDE = target().wide


@helper
def _one(a, step_a, b, step_b, count):
    """One row of C."""
    low, high = zeros(), zeros()
    for _ in range(count):
        x = splat(load_f32(a))
        low, high = fma(x, load_f32x16(b), low), fma(x, load_f32x16(b + 64), high)
        a += step_a
        b += step_b
    return low, high


@helper
def _two(a, row, step_a, b, step_b, count):
    """Two rows of C."""
    s0, t0, s1, t1 = zeros(), zeros(), zeros(), zeros()
    for _ in range(count):
        low, high = load_f32x16(b), load_f32x16(b + 64)
        x = splat(load_f32(a))
        s0, t0 = fma(x, low, s0), fma(x, high, t0)
        x = splat(load_f32(a + row))
        s1, t1 = fma(x, low, s1), fma(x, high, t1)
        a += step_a
        b += step_b
    return (s0, t0), (s1, t1)


@helper
def _eight(a, row, step_a, b, step_b, count):
    """Eight rows of C, each in two vectors."""
    s0, s1, s2, s3, s4, s5, s6, s7 = zeros(), zeros(), zeros(), zeros(), zeros(), zeros(), zeros(), zeros()
    t0, t1, t2, t3, t4, t5, t6, t7 = zeros(), zeros(), zeros(), zeros(), zeros(), zeros(), zeros(), zeros()
    for _ in range(count):
        low, high = load_f32x16(b), load_f32x16(b + 64)
        x = splat(load_f32(a))
        s0, t0 = fma(x, low, s0), fma(x, high, t0)
        x = splat(load_f32(a + row))
        s1, t1 = fma(x, low, s1), fma(x, high, t1)
        x = splat(load_f32(a + 2 * row))
        s2, t2 = fma(x, low, s2), fma(x, high, t2)
        x = splat(load_f32(a + 3 * row))
        s3, t3 = fma(x, low, s3), fma(x, high, t3)
        x = splat(load_f32(a + 4 * row))
        s4, t4 = fma(x, low, s4), fma(x, high, t4)
        x = splat(load_f32(a + 5 * row))
        s5, t5 = fma(x, low, s5), fma(x, high, t5)
        x = splat(load_f32(a + 6 * row))
        s6, t6 = fma(x, low, s6), fma(x, high, t6)
        x = splat(load_f32(a + 7 * row))
        s7, t7 = fma(x, low, s7), fma(x, high, t7)
        a += step_a
        b += step_b
    return (s0, t0), (s1, t1), (s2, t2), (s3, t3), (s4, t4), (s5, t5), (s6, t6), (s7, t7)


def _products(keep):
    """Make the function for C = Σ, or for C = C·factor + Σ with one factor per lane."""

    @helper
    def put(c, sums, low, high):
        first, second = sums
        if keep:
            first, second = fma(load_f32x16(c), low, first), fma(load_f32x16(c + 64), high, second)
        store_f32x16(c, first)
        store_f32x16(c + 64, second)

    @helper
    def products(c, step_c, rows, a, row, step_a, b, step_b, count, low, high):
        """Rows of C a step apart; A[i, k] at a + row·i + step_a·k; B[k] at b + step_b·k."""
        i = 0
        while WIDE and i + 8 <= rows:
            r0, r1, r2, r3, r4, r5, r6, r7 = _eight(a, row, step_a, b, step_b, count)
            put(c, r0, low, high)
            put(c + step_c, r1, low, high)
            put(c + 2 * step_c, r2, low, high)
            put(c + 3 * step_c, r3, low, high)
            put(c + 4 * step_c, r4, low, high)
            put(c + 5 * step_c, r5, low, high)
            put(c + 6 * step_c, r6, low, high)
            put(c + 7 * step_c, r7, low, high)
            a += 8 * row
            c += 8 * step_c
            i += 8
        while not WIDE and i + 2 <= rows:
            r0, r1 = _two(a, row, step_a, b, step_b, count)
            put(c, r0, low, high)
            put(c + step_c, r1, low, high)
            a += 2 * row
            c += 2 * step_c
            i += 2
        while i < rows:
            put(c, _one(a, step_a, b, step_b, count), low, high)
            a += row
            c += step_c
            i += 1

    return products


_written, _added = _products(False), _products(True)


@helper
def write_products(c, step_c, rows, a, row, step_a, b, step_b, count):
    """C[i] = Σ_k A[i, k]·B[k]."""
    _written(c, step_c, rows, a, row, step_a, b, step_b, count, zeros(), zeros())


@helper
def add_products(c, step_c, rows, a, row, step_a, b, step_b, count, low, high):
    """C[i] = C[i]·factor + Σ_k A[i, k]·B[k]; the factors of the lanes are in two vectors."""
    _added(c, step_c, rows, a, row, step_a, b, step_b, count, low, high)


# --- Transposition -----------------------------------------------------------------------------------


def _stage(distance, upper, lower):
    """Make one stage: rows `distance` apart exchange blocks."""

    @helper
    def stage(place):
        for i in range(16):
            if i & distance == 0:
                a, b = load_f32x16(place + 64 * i), load_f32x16(place + 64 * (i + distance))
                store_f32x16(place + 64 * i, upper(a, b))
                store_f32x16(place + 64 * (i + distance), lower(a, b))

    return stage


_stage8, _stage4 = _stage(8, swap_upper8, swap_lower8), _stage(4, swap_upper4, swap_lower4)
_stage2, _stage1 = _stage(2, swap_upper2, swap_lower2), _stage(1, swap_upper1, swap_lower1)


@helper
def transpose(y, step_y, lanes, a, step_a, rows, columns, factor, place):
    """y[c, r] = a[r, c]·factor[c] for up to 16 rows and columns; zeros in the lanes of y from `rows` to `lanes`.

    `place` is PLACE bytes of scratch. Nothing beyond rows and columns is read, nothing beyond columns and lanes
    written.
    """
    for i in range(16):
        value = load_first(a + step_a * i, columns) * factor if i < rows else zeros()
        store_f32x16(place + 64 * i, value)
    _stage8(place)
    _stage4(place)
    _stage2(place)
    _stage1(place)
    for i in range(min(16, columns)):
        store_first(y + step_y * i, load_f32x16(place + 64 * i), lanes)


@helper
def to_columns(y, a, step_a, rows, width, factor, place):
    """Rows of `width` values become columns: y[c, r] = a[r, c]·factor for up to 32 rows, zeros in the other lanes."""
    for start in range(0, LANES, 16):
        for i in range(0, width, 16):
            transpose(
                y + ROW * i + 4 * start,
                ROW,
                16,
                a + step_a * start + 4 * i,
                step_a,
                rows - start,
                width - i,
                splat(factor),
                place,
            )


@helper
def to_rows(y, step_y, a, rows, width, low, high, place):
    """The way back: y[r, c] = a[c, r]·factor[r], the factors of up to 32 rows in two vectors."""
    for start in range(0, rows, 16):
        factor = low if start == 0 else high
        for i in range(0, width, 16):
            transpose(
                y + step_y * start + 4 * i,
                step_y,
                width - i,
                a + ROW * i + 4 * start,
                ROW,
                width - i,
                rows - start,
                factor,
                place,
            )


ONE = np.float32(1)
