"""The order of a row's values: the largest, and the places of the first of many. Threads share the rows.

The order is that of NumPy's stable sort: equals, as 0 and -0 are, by their places; NaN last, whichever the direction.
"""

from __future__ import annotations

from .jit import helper
from .operands import address, extent, parameter, row_address, rows, scratch, share, stride
from .simd import load_f32, load_i32, load_i64, store_i32, store_i64
from .soft_max import largest

_MAGNITUDE, _INFINITE = 0x7FFFFFFF, 0x7F800000
_PLACE = 32  # bits of a rank that hold the place


def _argmax(desc, ith, nth):
    """Operand 0, int32 [rows]: the place of the largest value of each row of operand 1, the first of equals. NaN counts
    as nothing."""
    n = extent(desc, 1, 0)
    first, last = share(rows(desc, 1), ith, nth)
    for row in range(first, last):
        a = row_address(desc, 1, row)
        top, place = largest(a, n), 0
        while place < n and load_f32(a + 4 * place) != top:
            place += 1
        store_i32(address(desc, 0) + stride(desc, 0, 0) * row, place if place < n else 0)


@helper
def _rank(a, place, sign):
    """A number whose order is that of the values at a, and of their places among equals; sign -1 turns the order of the
    values. The bits of a float32 are ordered as its magnitude is."""
    bits = load_i32(a + 4 * place)
    magnitude = bits & _MAGNITUDE
    value = magnitude if bits >= 0 else -magnitude
    value = _MAGNITUDE if magnitude > _INFINITE else sign * value
    return (value << _PLACE) + place


@helper
def _sink(heap, count, i, rank):
    """Put a rank to place i of a heap of `count`, whose largest is on top, or below what is larger."""
    while 2 * i + 1 < count:
        child = 2 * i + 1
        value = load_i64(heap + 8 * child)
        if child + 1 < count and load_i64(heap + 8 * child + 8) > value:
            child += 1
            value = load_i64(heap + 8 * child)
        if value <= rank:
            break
        store_i64(heap + 8 * i, value)
        i = child
    store_i64(heap + 8 * i, rank)


def _first(desc, ith, nth):
    """Operand 0, int32: the places of the first of each row of operand 1 in ascending (parameter 0 is 0) or descending
    (1) order, as many as the result has columns; all of them is a sorting.

    A heap holds the first so far, the last of them on top; the time is that of n·log(columns) comparisons. Scratch: 8
    bytes for each column.
    """
    n, count, sign = extent(desc, 1, 0), extent(desc, 0, 0), 1 - 2 * parameter(desc, 0)
    heap = scratch(desc, ith)
    first, last = share(rows(desc, 1), ith, nth)
    for row in range(first, last):
        a, y = row_address(desc, 1, row), row_address(desc, 0, row)
        for i in range(count):
            store_i64(heap + 8 * i, _rank(a, i, sign))
        for i in range(count // 2 - 1, -1, -1):
            _sink(heap, count, i, load_i64(heap + 8 * i))
        for i in range(count, n):
            rank = _rank(a, i, sign)
            if rank < load_i64(heap):
                _sink(heap, count, 0, rank)
        for size in range(count - 1, 0, -1):
            top = load_i64(heap)
            _sink(heap, size, 0, load_i64(heap + 8 * size))
            store_i64(heap + 8 * size, top)
        for i in range(count):
            store_i32(y + 4 * i, load_i64(heap + 8 * i) & 0xFFFFFFFF)


KERNELS = {"argmax": _argmax, "first": _first}
