"""What moves values: repetition and its way back, rotation along dimensions, zeros around, bands of matrices, rows
added by an index.

Operand 0 is the result, float32 rows without gaps; other operands keep their own strides. Threads share what is
written.
"""

from __future__ import annotations

import numpy as np

from .copies import line
from .elementwise import broadcast_row
from .jit import helper
from .norms import row_sum
from .operands import address, extent, parameter, parameter_f32, row_address, rows, share, stride
from .simd import (
    load_f32,
    load_f32x16,
    load_first,
    load_i32,
    narrow,
    splat,
    store_f32,
    store_f32x16,
    store_first,
    widen,
    zeros_f64,
)

_copy_line = line("f32", "f32")
_ZERO = np.float32(0)
_COLUMNS = 64  # that a thread adds up at a time


@helper
def _fill(y, n, value):
    """n times one value."""
    same = splat(value)
    i = 0
    while i + 16 <= n:
        store_f32x16(y + 4 * i, same)
        i += 16
    if i < n:
        store_first(y + 4 * i, same, n - i)


# --- Repetition, rotation, padding --------------------------------------------------------------------------


def _wrap(desc, ith, nth):
    """y[i] = x[(i - before) mod extents of x]: repetition (before = 0), rolling, circular padding.

    Parameters: before in each dimension. The remainder of what is below 0 counts from the end, as everywhere in Python.
    """
    n, m, step = extent(desc, 0, 0), extent(desc, 1, 0), stride(desc, 1, 0)
    n1, n2 = extent(desc, 0, 1), extent(desc, 0, 2)
    begin = -parameter(desc, 0) % m
    first, last = share(rows(desc, 0), ith, nth)
    for row in range(first, last):
        y = row_address(desc, 0, row)
        i1, i2, i3 = row % n1, (row // n1) % n2, row // (n1 * n2)
        x = address(desc, 1) + ((i1 - parameter(desc, 1)) % extent(desc, 1, 1)) * stride(desc, 1, 1)
        x += ((i2 - parameter(desc, 2)) % extent(desc, 1, 2)) * stride(desc, 1, 2)
        x += ((i3 - parameter(desc, 3)) % extent(desc, 1, 3)) * stride(desc, 1, 3)
        if m == 1:
            _fill(y, n, load_f32(x))
            continue
        # The row consists of pieces that are contiguous in x.
        place, start = 0, begin
        while place < n:
            count = min(n - place, m - start)
            _copy_line(y + 4 * place, 4, x + step * start, step, count)
            place += count
            start = 0


@helper
def _inside(desc, d, i):
    """Whether x has an index i in dimension d."""
    return i >= 0 and i < extent(desc, 1, d)


def _pad(desc, ith, nth):
    """y[i] = x[i - before], 0 where there is none. Parameters: before in each dimension."""
    n, m, step, begin = extent(desc, 0, 0), extent(desc, 1, 0), stride(desc, 1, 0), parameter(desc, 0)
    n1, n2 = extent(desc, 0, 1), extent(desc, 0, 2)
    first, last = share(rows(desc, 0), ith, nth)
    for row in range(first, last):
        y = row_address(desc, 0, row)
        i1 = row % n1 - parameter(desc, 1)
        i2 = (row // n1) % n2 - parameter(desc, 2)
        i3 = row // (n1 * n2) - parameter(desc, 3)
        inside = (
            min(i1, i2, i3) >= 0 and i1 < extent(desc, 1, 1) and i2 < extent(desc, 1, 2) and i3 < extent(desc, 1, 3)
        )
        if inside:
            x = address(desc, 1) + i1 * stride(desc, 1, 1) + i2 * stride(desc, 1, 2) + i3 * stride(desc, 1, 3)
            _fill(y, begin, _ZERO)
            _copy_line(y + 4 * begin, 4, x, step, m)
            _fill(y + 4 * (begin + m), n - begin - m, _ZERO)
        else:
            _fill(y, n, _ZERO)


def _band(desc, ith, nth):
    """y = x where low ≤ column - row ≤ high, else a number; x is repeated to y's rows.

    Parameters: low, high, the number.
    """
    n, n1, value, step = extent(desc, 0, 0), extent(desc, 0, 1), parameter_f32(desc, 2), stride(desc, 1, 0)
    first, last = share(rows(desc, 0), ith, nth)
    for row in range(first, last):
        y, x, i1 = row_address(desc, 0, row), broadcast_row(desc, 1, row), row % n1
        start = min(max(i1 + parameter(desc, 0), 0), n)
        end = min(max(i1 + parameter(desc, 1) + 1, start), n)
        _fill(y, start, value)
        _copy_line(y + 4 * start, 4, x + step * start, step, end - start)
        _fill(y + 4 * end, n - end, value)


# --- The way back through repetition ------------------------------------------------------------------------


@helper
def _next_row(desc, i1, i2, i3, j1, j2):
    """The row of x after (i1, i2, i3) that falls on the same row of y, whose first two indices are j1 and j2."""
    i1 += extent(desc, 0, 1)
    if i1 >= extent(desc, 1, 1):
        i1, i2 = j1, i2 + extent(desc, 0, 2)
        if i2 >= extent(desc, 1, 2):
            i2, i3 = j2, i3 + extent(desc, 0, 3)
    return i1, i2, i3


@helper
def _add_columns(desc, y, start, j1, j2, j3):
    """Write the sums of up to 64 columns from `start` on."""
    n, m = extent(desc, 0, 0), extent(desc, 1, 0)
    count = n - start
    s0, s1, s2, s3 = zeros_f64(), zeros_f64(), zeros_f64(), zeros_f64()
    i1, i2, i3 = j1, j2, j3
    while i3 < extent(desc, 1, 3):
        x = address(desc, 1) + i1 * stride(desc, 1, 1) + i2 * stride(desc, 1, 2) + i3 * stride(desc, 1, 3)
        k = start
        while k < m:
            v = x + 4 * k
            if count >= _COLUMNS:
                s0, s1 = s0 + widen(load_f32x16(v)), s1 + widen(load_f32x16(v + 64))
                s2, s3 = s2 + widen(load_f32x16(v + 128)), s3 + widen(load_f32x16(v + 192))
            else:
                s0, s1 = s0 + widen(load_first(v, count)), s1 + widen(load_first(v + 64, count - 16))
                s2, s3 = s2 + widen(load_first(v + 128, count - 32)), s3 + widen(load_first(v + 192, count - 48))
            k += n
        i1, i2, i3 = _next_row(desc, i1, i2, i3, j1, j2)
    store_first(y, narrow(s0), count)
    store_first(y + 64, narrow(s1), count - 16)
    store_first(y + 128, narrow(s2), count - 32)
    store_first(y + 192, narrow(s3), count - 48)


@helper
def _add_rows(desc, y, j1, j2, j3):
    """Write the sum of whole rows."""
    m, total = extent(desc, 1, 0), 0.0
    i1, i2, i3 = j1, j2, j3
    while i3 < extent(desc, 1, 3):
        total += row_sum(
            address(desc, 1) + i1 * stride(desc, 1, 1) + i2 * stride(desc, 1, 2) + i3 * stride(desc, 1, 3), m
        )
        i1, i2, i3 = _next_row(desc, i1, i2, i3, j1, j2)
    store_f32(y, np.float32(total))


def _repeat_back(desc, ith, nth):
    """y = the sum of all that lies on the same place when x, rows without gaps, is cut into pieces of y's extents."""
    n, n1, n2 = extent(desc, 0, 0), extent(desc, 0, 1), extent(desc, 0, 2)
    chunks = (n + _COLUMNS - 1) // _COLUMNS
    first, last = share(rows(desc, 0) * chunks, ith, nth)
    for item in range(first, last):
        row, start = item // chunks, (item % chunks) * _COLUMNS
        y, j1, j2, j3 = row_address(desc, 0, row) + 4 * start, row % n1, (row // n1) % n2, row // (n1 * n2)
        if n == 1:
            _add_rows(desc, y, j1, j2, j3)
        else:
            _add_columns(desc, y, start, j1, j2, j3)


# --- Rows by an index ---------------------------------------------------------------------------------------


@helper
def _add_line(y, x, n):
    i = 0
    while i + 16 <= n:
        store_f32x16(y + 4 * i, load_f32x16(y + 4 * i) + load_f32x16(x + 4 * i))
        i += 16
    if i < n:
        store_first(y + 4 * i, load_first(y + 4 * i, n - i) + load_first(x + 4 * i, n - i), n - i)


def _get_rows_back(desc, ith, nth):
    """y = zeros, with the rows of operand 1 added where the int32 operand 2 says. Each thread has rows of y of its own,
    and adds in the order of the index; what the index names outside of y is left out. y has no gaps."""
    n, count = extent(desc, 0, 0), extent(desc, 0, 1)
    # It takes as long to look at an index as to add a short row: that is one thread's work.
    first, last = share(count, ith, nth) if n >= 16 else (0, count if ith == 0 else 0)
    for i3 in range(extent(desc, 0, 3)):
        for i2 in range(extent(desc, 0, 2)):
            y = address(desc, 0) + i2 * stride(desc, 0, 2) + i3 * stride(desc, 0, 3)
            _fill(y + 4 * n * first, n * (last - first), _ZERO)
            x = address(desc, 1) + i2 * stride(desc, 1, 2) + i3 * stride(desc, 1, 3)
            index = address(desc, 2) + i2 * stride(desc, 2, 1) + i3 * stride(desc, 2, 2)
            for i1 in range(extent(desc, 1, 1)):
                row = load_i32(index + i1 * stride(desc, 2, 0))
                if first <= row and row < last:
                    _add_line(y + 4 * n * row, x + stride(desc, 1, 1) * i1, n)


KERNELS = {"wrap": _wrap, "pad": _pad, "band": _band, "repeat_back": _repeat_back, "get_rows_back": _get_rows_back}
