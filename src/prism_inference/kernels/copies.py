"""Copies between float types and layouts, and rows written to places that an index names.

A kernel's name ends with the type it reads and the type it writes. Rows are shared among the threads.
"""

from __future__ import annotations

from .jit import helper
from .operands import extent, row_address, rows, share, stride, target_address
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


def _copy(source, result):
    """Kernel that copies all elements; those of the source and the result meet in the order of a contiguous tensor."""
    load, store, copy = FLOATS[source][0], RESULTS[result][0], line(source, result)

    def kernel(desc, ith, nth):
        n, m = extent(desc, 1, 0), extent(desc, 0, 0)
        step_a, step_y = stride(desc, 1, 0), stride(desc, 0, 0)
        same = m == n and extent(desc, 0, 1) == extent(desc, 1, 1) and extent(desc, 0, 2) == extent(desc, 1, 2)
        first, last = share(rows(desc, 1), ith, nth)
        for row in range(first, last):
            a = row_address(desc, 1, row)
            if same:
                copy(row_address(desc, 0, row), step_y, a, step_a, n)
            else:
                for i in range(n):
                    flat = row * n + i
                    store(row_address(desc, 0, flat // m) + step_y * (flat % m), load(a + step_a * i))

    return kernel


def _set_rows(source, result):
    """Kernel that writes row i of operand 1 to row operand2[i] (int32) of the result."""
    copy = line(source, result)

    def kernel(desc, ith, nth):
        n, step_a, step_y = extent(desc, 1, 0), stride(desc, 1, 0), stride(desc, 0, 0)
        first, last = share(rows(desc, 1), ith, nth)
        for row in range(first, last):
            copy(target_address(desc, row), step_y, row_address(desc, 1, row), step_a, n)

    return kernel


KERNELS = {f"copy.{a}.{b}": _copy(a, b) for a in FLOATS for b in RESULTS} | {
    f"set_rows.f32.{b}": _set_rows("f32", b) for b in RESULTS
}
