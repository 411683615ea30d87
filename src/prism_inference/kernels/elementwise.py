"""Element by element: arithmetic with broadcasting, scale and offset, constants; and what makes kernels of functions.

Operands that lie in memory without gaps are taken as one row. Threads share pieces of rows. Operand 0 is the result;
every operand's own strides are honoured where it says so.
"""

from __future__ import annotations

import numpy as np

from .jit import helper
from .mathematics import sine_cosine
from .operands import address, extent, parameter_f32, row_address, rows, share, stride
from .simd import (
    fma,
    load_f32,
    load_f32x16,
    load_first,
    load_i32,
    maximum,
    minimum,
    splat,
    store_f32,
    store_f32x16,
    store_first,
)

PIECE = 1024  # values that a thread takes at a time: a few KiB of each operand


# --- Where rows are ---------------------------------------------------------------------------------------


@helper
def broadcast_row(desc, k, row):
    """Row of operand k that meets row `row` of the result: its extents divide the result's."""
    n1, n2 = extent(desc, 0, 1), extent(desc, 0, 2)
    i1, i2, i3 = row % n1, (row // n1) % n2, row // (n1 * n2)
    place = (i1 % extent(desc, k, 1)) * stride(desc, k, 1) + (i2 % extent(desc, k, 2)) * stride(desc, k, 2)
    return address(desc, k) + place + (i3 % extent(desc, k, 3)) * stride(desc, k, 3)


@helper
def same_rows(desc, k):
    """Whether operand k has as many rows as the result in each dimension."""
    return (
        extent(desc, k, 1) == extent(desc, 0, 1)
        and extent(desc, k, 2) == extent(desc, 0, 2)
        and extent(desc, k, 3) == extent(desc, 0, 3)
    )


@helper
def row_step(desc, k):
    """Bytes from each row of operand k to the next, where that is the same for all of them; -1 elsewhere."""
    n1, n2, n3 = extent(desc, k, 1), extent(desc, k, 2), extent(desc, k, 3)
    s1, s2, s3 = stride(desc, k, 1), stride(desc, k, 2), stride(desc, k, 3)
    step = s1 if n1 > 1 else s2 if n2 > 1 else s3
    if n1 > 1 and n2 > 1 and s2 != n1 * s1:
        return -1
    if n1 * n2 > 1 and n3 > 1 and s3 != n1 * n2 * step:
        return -1
    return step if n1 * n2 * n3 > 1 else 0


@helper
def broadcast_step(desc, k):
    """The same of an operand that is repeated to the result: 0 if all rows meet one and the same."""
    if rows(desc, k) == 1:
        return 0
    return row_step(desc, k) if same_rows(desc, k) else -1


@helper
def line(desc, k, step, row):
    """Address of a row of operand k, given its `row_step`."""
    return address(desc, k) + step * row if step >= 0 else row_address(desc, k, row)


@helper
def flat(desc, k):
    """Whether the values of operand k follow each other without gaps."""
    return stride(desc, k, 0) == 4 and (row_step(desc, k) == 4 * extent(desc, k, 0) or rows(desc, k) == 1)


@helper
def pieces(n):
    """Number of pieces of a row of n values."""
    return (n + PIECE - 1) // PIECE


# --- Kernels of functions ---------------------------------------------------------------------------------


def mapped(function):
    """Kernel y = function(desc, a), values of 16 lanes; rows of a and y without gaps between values."""

    def kernel(desc, ith, nth):
        n, count = extent(desc, 0, 0), rows(desc, 0)
        if flat(desc, 0) and flat(desc, 1):
            n, count = n * count, 1
        step_y, step_a, parts = row_step(desc, 0), row_step(desc, 1), pieces(n)
        first, last = share(count * parts, ith, nth)
        for item in range(first, last):
            row = item // parts
            i = (item - row * parts) * PIECE
            end = min(n, i + PIECE)
            y, a = line(desc, 0, step_y, row), line(desc, 1, step_a, row)
            while i + 16 <= end:
                store_f32x16(y + 4 * i, function(desc, load_f32x16(a + 4 * i)))
                i += 16
            if i < end:
                store_first(y + 4 * i, function(desc, load_first(a + 4 * i, end - i)), end - i)

    return kernel


def paired(function):
    """Kernel y = function(desc, a, b), all of one shape; rows without gaps between values."""

    def kernel(desc, ith, nth):
        n, count = extent(desc, 0, 0), rows(desc, 0)
        if flat(desc, 0) and flat(desc, 1) and flat(desc, 2):
            n, count = n * count, 1
        step_y, step_a, step_b, parts = row_step(desc, 0), row_step(desc, 1), row_step(desc, 2), pieces(n)
        first, last = share(count * parts, ith, nth)
        for item in range(first, last):
            row = item // parts
            i = (item - row * parts) * PIECE
            end = min(n, i + PIECE)
            y, a, b = line(desc, 0, step_y, row), line(desc, 1, step_a, row), line(desc, 2, step_b, row)
            while i + 16 <= end:
                store_f32x16(y + 4 * i, function(desc, load_f32x16(a + 4 * i), load_f32x16(b + 4 * i)))
                i += 16
            if i < end:
                value = function(desc, load_first(a + 4 * i, end - i), load_first(b + 4 * i, end - i))
                store_first(y + 4 * i, value, end - i)

    return kernel


def _repeated(combine):
    """Kernel y = combine(a, b), b repeated to a's shape; any strides."""

    @helper
    def run(y, step_y, a, step_a, b, step_b, period, start, end):
        """Values start … end - 1 of a row; value i meets value i % period of b."""
        i = start
        if end <= period and step_a == 4 and step_b == 4 and step_y == 4:
            while i + 16 <= end:
                store_f32x16(y + 4 * i, combine(load_f32x16(a + 4 * i), load_f32x16(b + 4 * i)))
                i += 16
            if i < end:
                value = combine(load_first(a + 4 * i, end - i), load_first(b + 4 * i, end - i))
                store_first(y + 4 * i, value, end - i)
        elif period == 1 and step_a == 4 and step_y == 4:
            same = splat(load_f32(b))
            while i < end:
                store_first(y + 4 * i, combine(load_first(a + 4 * i, end - i), same), end - i)
                i += 16
        else:
            while i < end:
                store_f32(y + step_y * i, combine(load_f32(a + step_a * i), load_f32(b + step_b * (i % period))))
                i += 1

    def kernel(desc, ith, nth):
        n, count, period = extent(desc, 0, 0), rows(desc, 0), extent(desc, 2, 0)
        if period == n and same_rows(desc, 2) and flat(desc, 0) and flat(desc, 1) and flat(desc, 2):
            n, count = n * count, 1
            period = n
        sy, sa, sb = stride(desc, 0, 0), stride(desc, 1, 0), stride(desc, 2, 0)
        step_y, step_a, step_b, parts = row_step(desc, 0), row_step(desc, 1), broadcast_step(desc, 2), pieces(n)
        first, last = share(count * parts, ith, nth)
        for item in range(first, last):
            row = item // parts
            start = (item - row * parts) * PIECE
            end = min(n, start + PIECE)
            b = address(desc, 2) + step_b * row if step_b >= 0 else broadcast_row(desc, 2, row)
            run(line(desc, 0, step_y, row), sy, line(desc, 1, step_a, row), sa, b, sb, period, start, end)

    return kernel


# --- Arithmetic --------------------------------------------------------------------------------------------


@helper
def _added(a, b):
    return a + b


@helper
def _subtracted(a, b):
    return a - b


@helper
def _multiplied(a, b):
    return a * b


@helper
def _divided(a, b):
    return a / b


@helper
def _scaled(desc, x):
    return fma(x, splat(parameter_f32(desc, 0)), splat(parameter_f32(desc, 1)))


@helper
def _clamped(desc, x):
    # The bounds come first: of NaN the second operand is kept.
    return minimum(splat(parameter_f32(desc, 1)), maximum(splat(parameter_f32(desc, 0)), x))


@helper
def _squared(desc, x):
    return x * x


def _add_id(desc, ith, nth):
    """y[:, i, t] = a[:, i, t] + b[:, index[i, t]]; any strides. Operand 3 is the int32 index."""
    n, used = extent(desc, 0, 0), extent(desc, 0, 1)
    sy, sa, sb = stride(desc, 0, 0), stride(desc, 1, 0), stride(desc, 2, 0)
    first, last = share(rows(desc, 0), ith, nth)
    for row in range(first, last):
        i, t = row % used, row // used
        picked = load_i32(address(desc, 3) + stride(desc, 3, 0) * i + stride(desc, 3, 1) * t)
        y, a, b = row_address(desc, 0, row), row_address(desc, 1, row), address(desc, 2) + stride(desc, 2, 1) * picked
        for j in range(n):
            store_f32(y + sy * j, load_f32(a + sa * j) + load_f32(b + sb * j))


# --- Constants, and functions of float64 angles ---------------------------------------------------------------


def _fill(desc, ith, nth):
    """Parameter 0 everywhere."""
    n, count = extent(desc, 0, 0), rows(desc, 0)
    value = splat(parameter_f32(desc, 0))
    first, last = share(count, ith, nth)
    for row in range(first, last):
        y = row_address(desc, 0, row)
        for i in range(0, n, 16):
            store_first(y + 4 * i, value, n - i)


def _arange(desc, ith, nth):
    """Parameter 0 + i · parameter 1, rounded once."""
    first, last = share(extent(desc, 0, 0), ith, nth)
    start, step = np.float64(parameter_f32(desc, 0)), np.float64(parameter_f32(desc, 1))
    for i in range(first, last):
        store_f32(address(desc, 0) + 4 * i, np.float32(start + step * i))


def _angle(part):
    """Kernel of the sine (part 0) or cosine (1), by float64; any strides."""

    def kernel(desc, ith, nth):
        n = extent(desc, 0, 0)
        sy, sa = stride(desc, 0, 0), stride(desc, 1, 0)
        first, last = share(rows(desc, 0), ith, nth)
        for row in range(first, last):
            y, a = row_address(desc, 0, row), row_address(desc, 1, row)
            for i in range(n):
                store_f32(y + sy * i, np.float32(sine_cosine(np.float64(load_f32(a + sa * i)))[part]))

    return kernel


KERNELS = {
    "add": _repeated(_added),
    "sub": _repeated(_subtracted),
    "mul": _repeated(_multiplied),
    "div": _repeated(_divided),
    "add_id": _add_id,
    "scale": mapped(_scaled),
    "clamp": mapped(_clamped),
    "sqr": mapped(_squared),
    "sin": _angle(0),
    "cos": _angle(1),
    "fill": _fill,
    "arange": _arange,
}
