"""Losses over rows of logits, and the way back from them. Threads share the rows.

A row's loss goes to a float64 number of its own; `totals.finish` adds these in their order, so that the sum depends on
nothing but the rows.
"""

from __future__ import annotations

import numpy as np

from .jit import helper
from .mathematics import logarithm_wide
from .operands import address, extent, row_address, rows, share, stride
from .simd import (
    fma,
    load_f32,
    load_f32x16,
    load_first,
    load_i32,
    splat,
    store_f32,
    store_f32x16,
    store_f64,
    store_first,
    sum_wide,
    widen,
    zeros,
    zeros_f64,
)
from .soft_max import RUN, added, kept, largest, multiply

_NAN = np.float32(np.nan)


# --- Tokens as labels ---------------------------------------------------------------------------------------


def _token_rows(desc, ith, nth):
    """-ln soft_max(a)[label] of each row: operand 1 logits, 2 labels (int32). 0 where the label is negative, NaN where
    there is no such logit."""
    n = extent(desc, 1, 0)
    first, last = share(rows(desc, 1), ith, nth)
    for row in range(first, last):
        a, label = row_address(desc, 1, row), load_i32(address(desc, 2) + stride(desc, 2, 0) * row)
        loss = 0.0
        if label >= n:
            loss = np.float64(_NAN)
        elif label >= 0:
            top = largest(a, n)
            apart = np.float64(top) - np.float64(load_f32(a + 4 * label))
            loss = logarithm_wide(added(a, a, n, top)) + apart
        store_f64(address(desc, 0) + 8 * row, loss)


def _token_back(desc, ith, nth):
    """y = g·(soft_max(a) - the label's unit vector): operand 1 is g (one number), 2 logits, 3 labels."""
    n, g = extent(desc, 2, 0), load_f32(address(desc, 1))
    first, last = share(rows(desc, 2), ith, nth)
    for row in range(first, last):
        y, a = row_address(desc, 0, row), row_address(desc, 2, row)
        label = load_i32(address(desc, 3) + stride(desc, 3, 0) * row)
        if label < 0:
            for i in range(0, n, 16):
                store_first(y + 4 * i, zeros(), n - i)
            continue
        total = kept(y, a, n, largest(a, n))
        multiply(y, n, np.float32(g / total) if label < n else _NAN)
        if label < n:
            store_f32(y + 4 * label, load_f32(y + 4 * label) - g)


# --- Distributions as labels ----------------------------------------------------------------------------------


@helper
def _labels(labels, a, n, top):
    """Σ labels and Σ labels·(a - top)."""
    best, sums, products = splat(top), zeros_f64(), zeros_f64()
    i = 0
    while i + 16 <= n:
        some, product = zeros(), zeros()
        end = min(n - 15, i + RUN)
        while i < end:
            weight = load_f32x16(labels + 4 * i)
            some, product = some + weight, fma(weight, load_f32x16(a + 4 * i) - best, product)
            i += 16
        sums, products = sums + widen(some), products + widen(product)
    if i < n:
        weight = load_first(labels + 4 * i, n - i)
        sums = sums + widen(weight)
        products = products + widen(weight * (load_first(a + 4 * i, n - i) - best))
    return sum_wide(sums), sum_wide(products)


def _cross_entropy_rows(desc, ith, nth):
    """-Σ labels·ln soft_max(a) of each row, divided by the number of rows: operand 1 logits, 2 labels."""
    n, count = extent(desc, 1, 0), rows(desc, 1)
    first, last = share(count, ith, nth)
    for row in range(first, last):
        a = row_address(desc, 1, row)
        top = largest(a, n)
        total, product = _labels(row_address(desc, 2, row), a, n, top)
        loss = total * logarithm_wide(added(a, a, n, top)) - product
        store_f64(address(desc, 0) + 8 * row, loss / count)


def _cross_entropy_back(desc, ith, nth):
    """y = g / rows·(soft_max(a)·Σ labels - labels): operand 1 is g (one number), 2 logits, 3 labels."""
    n, count = extent(desc, 2, 0), rows(desc, 2)
    g = load_f32(address(desc, 1)) / np.float32(count)
    first, last = share(count, ith, nth)
    for row in range(first, last):
        y, a, labels = row_address(desc, 0, row), row_address(desc, 2, row), row_address(desc, 3, row)
        top = largest(a, n)
        total, _ = _labels(labels, a, n, top)
        factor, minus = splat(np.float32(g * total / kept(y, a, n, top))), splat(-g)
        i = 0
        while i + 16 <= n:
            store_f32x16(y + 4 * i, fma(load_f32x16(labels + 4 * i), minus, load_f32x16(y + 4 * i) * factor))
            i += 16
        if i < n:
            value = fma(load_first(labels + 4 * i, n - i), minus, load_first(y + 4 * i, n - i) * factor)
            store_first(y + 4 * i, value, n - i)


KERNELS = {
    "token_rows": _token_rows,
    "token_back": _token_back,
    "cross_entropy_rows": _cross_entropy_rows,
    "cross_entropy_back": _cross_entropy_back,
}
