"""Copies between float types and layouts, and rows written to places that an index names.

A kernel's name ends with the type it reads and the type it writes. Rows are shared among the threads.
"""

from __future__ import annotations

from .elementwise import PIECE, row_step
from .jit import helper
from .operands import address, extent, row_address, rows, share, stride, target_address
from .simd import (
    load_bf16,
    load_bf16x16,
    load_f16,
    load_f16x16,
    load_f32,
    load_f32x16,
    store_f16,
    store_f16x16,
    store_f32,
    store_f32x16,
    transpose16,
)

# What can be read: type name -> (load one, load 16, bytes); and written: type name -> (store one, store 16, bytes).
FLOATS = {"f32": (load_f32, load_f32x16, 4), "f16": (load_f16, load_f16x16, 2), "bf16": (load_bf16, load_bf16x16, 2)}
RESULTS = {"f32": (store_f32, store_f32x16, 4), "f16": (store_f16, store_f16x16, 2)}


def line(source, result):
    """Make the helper that copies n values from one line to another: (to, step, from, step, n), steps in bytes."""
    load, load16, size = FLOATS[source]
    store, store16, width = RESULTS[result]

    @helper
    def copy(y, step_y, a, step_a, n):
        i = 0
        if step_a == size and step_y == width:
            while i + 16 <= n:
                store16(y + width * i, load16(a + size * i))
                i += 16
        while i < n:
            store(y + step_y * i, load(a + step_a * i))
            i += 1

    return copy


@helper
def _packed(desc, k, size):
    """Whether the values of operand k follow each other without gaps."""
    return stride(desc, k, 0) == size and (rows(desc, k) == 1 or row_step(desc, k) == size * extent(desc, k, 0))


def _copy(source, result):
    """Kernel that copies all elements; those of the source and the result meet in the order of a contiguous tensor."""
    load, size = FLOATS[source][0], FLOATS[source][2]
    store, width = RESULTS[result][0], RESULTS[result][2]
    copy = line(source, result)

    @helper
    def run(desc, ith, nth):
        """Both without gaps: one row."""
        n = extent(desc, 1, 0) * rows(desc, 1)
        first, last = share((n + PIECE - 1) // PIECE, ith, nth)
        i = PIECE * first
        copy(address(desc, 0) + width * i, width, address(desc, 1) + size * i, size, min(n, PIECE * last) - i)

    @helper
    def by_rows(desc, first, last):
        """Both of the same extents."""
        n, n1, n2 = extent(desc, 1, 0), extent(desc, 1, 1), extent(desc, 1, 2)
        i1, i2, i3 = first % n1, (first // n1) % n2, first // (n1 * n2)
        for _ in range(first, last):
            y = address(desc, 0) + i1 * stride(desc, 0, 1) + i2 * stride(desc, 0, 2) + i3 * stride(desc, 0, 3)
            a = address(desc, 1) + i1 * stride(desc, 1, 1) + i2 * stride(desc, 1, 2) + i3 * stride(desc, 1, 3)
            copy(y, stride(desc, 0, 0), a, stride(desc, 1, 0), n)
            i1 += 1
            if i1 == n1:
                i1, i2 = 0, i2 + 1
                if i2 == n2:
                    i2, i3 = 0, i3 + 1

    @helper
    def by_elements(desc, first, last):
        n, m = extent(desc, 1, 0), extent(desc, 0, 0)
        for row in range(first, last):
            a = row_address(desc, 1, row)
            for i in range(n):
                flat = row * n + i
                y = row_address(desc, 0, flat // m) + stride(desc, 0, 0) * (flat % m)
                store(y, load(a + stride(desc, 1, 0) * i))

    def kernel(desc, ith, nth):
        if _packed(desc, 0, width) and _packed(desc, 1, size):
            run(desc, ith, nth)
            return
        same = extent(desc, 0, 0) == extent(desc, 1, 0)
        same = same and extent(desc, 0, 1) == extent(desc, 1, 1) and extent(desc, 0, 2) == extent(desc, 1, 2)
        first, last = share(rows(desc, 1), ith, nth)
        if same:
            by_rows(desc, first, last)
        else:
            by_elements(desc, first, last)

    return kernel


def _turn(desc, ith, nth):
    """Copy float32 values that lie next to each other along the second dimension of the source and the first one of the
    result, by tiles of 16 · 16; both have the same extents. Threads share strips of 16 rows of the result."""
    n, n1, n2 = extent(desc, 0, 0), extent(desc, 0, 1), extent(desc, 0, 2)
    step_y, step_a = stride(desc, 0, 1), stride(desc, 1, 0)
    strips = (n1 + 15) // 16
    first, last = share(strips * n2 * extent(desc, 0, 3), ith, nth)
    for item in range(first, last):
        start, batch = 16 * (item % strips), item // strips
        i2, i3 = batch % n2, batch // n2
        y = address(desc, 0) + start * step_y + i2 * stride(desc, 0, 2) + i3 * stride(desc, 0, 3)
        a = address(desc, 1) + 4 * start + i2 * stride(desc, 1, 2) + i3 * stride(desc, 1, 3)
        whole = n // 16 * 16 if start + 16 <= n1 else 0
        for i in range(0, whole, 16):
            transpose16(y + 4 * i, step_y, a + step_a * i, step_a)
        for i in range(whole, n):
            for row in range(min(16, n1 - start)):
                store_f32(y + step_y * row + 4 * i, load_f32(a + step_a * i + 4 * row))


def _set_rows(source, result):
    """Kernel that writes row i of operand 1 to row operand2[i] (int32) of the result."""
    copy = line(source, result)

    def kernel(desc, ith, nth):
        n, step_a, step_y = extent(desc, 1, 0), stride(desc, 1, 0), stride(desc, 0, 0)
        first, last = share(rows(desc, 1), ith, nth)
        for row in range(first, last):
            copy(target_address(desc, row), step_y, row_address(desc, 1, row), step_a, n)

    return kernel


KERNELS = (
    {f"copy.{a}.{b}": _copy(a, b) for a in FLOATS for b in RESULTS}
    | {f"set_rows.f32.{b}": _set_rows("f32", b) for b in RESULTS}
    | {"turn": _turn}
)
