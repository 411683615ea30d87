"""Products with picked weights in float32, and the way back: weights are decoded, activations are not rounded.

Weights W [K, M, experts], index int32 [used, tokens]. Experts come one after another, so that each one's weights are
decoded once for all tokens that chose it; each result is added up in one order, whatever the threads.
"""

from __future__ import annotations

from .jit import helper
from .operands import address, extent, scratch, share, stride
from .rows import DECODERS
from .simd import (
    fma,
    load_f32,
    load_first,
    load_i32,
    splat,
    store_f32,
    store_first,
    sum_lanes,
    zeros,
)


@helper
def _picks(desc, k, token, slot, expert):
    """Whether operand k, the index, picks the expert."""
    return load_i32(address(desc, k) + stride(desc, k, 0) * slot + stride(desc, k, 1) * token) == expert


@helper
def _place(desc, k, slot, token):
    """Row of operand k [n, used or 1, tokens] of a pick."""
    return address(desc, k) + stride(desc, k, 1) * (slot % extent(desc, k, 1)) + stride(desc, k, 2) * token


@helper
def _dot(a, b, n):
    total = zeros()
    for i in range(0, n, 16):
        total = fma(load_first(a + 4 * i, n - i), load_first(b + 4 * i, n - i), total)
    return sum_lanes(total)


@helper
def _add_scaled(y, a, factor, n):
    """y += factor·a."""
    same = splat(factor)
    for i in range(0, n, 16):
        store_first(y + 4 * i, fma(load_first(a + 4 * i, n - i), same, load_first(y + 4 * i, n - i)), n - i)


@helper
def _clear(y, n):
    for i in range(0, n, 16):
        store_first(y + 4 * i, zeros(), n - i)


def _mul_mat_id(decode):
    """y[m, s, t] = Σ_k W[k, m, e]·x[k, s, t]; operands y, W, x, index. Threads share the rows; scratch 4·K bytes."""

    def kernel(desc, ith, nth):
        k = extent(desc, 1, 0)
        used, tokens = extent(desc, 0, 1), extent(desc, 0, 2)
        row = scratch(desc, ith)
        first, last = share(extent(desc, 0, 0), ith, nth)
        for expert in range(extent(desc, 1, 2)):
            for m in range(first, last):
                weights = address(desc, 1) + stride(desc, 1, 2) * expert + stride(desc, 1, 1) * m
                decoded = False
                for t in range(tokens):
                    for s in range(used):
                        if _picks(desc, 3, t, s, expert):
                            if not decoded:
                                for c in range((k + 63) // 64):
                                    decode(weights, c, k, row + 256 * c)
                                decoded = True
                            store_f32(_place(desc, 0, s, t) + 4 * m, _dot(row, _place(desc, 2, s, t), k))

    return kernel


def _out_prod_id(decode):
    """y[k, s, t] = Σ_m W[k, m, e]·g[m, s, t]; operands y, W, g, index. Threads share runs of 64 of k; scratch 256."""

    def kernel(desc, ith, nth):
        k, rows_of_w = extent(desc, 1, 0), extent(desc, 1, 1)
        used, tokens = extent(desc, 0, 1), extent(desc, 0, 2)
        part = scratch(desc, ith)
        first, last = share((k + 63) // 64, ith, nth)
        for c in range(first, last):
            n = min(64, k - 64 * c)
            for t in range(tokens):
                for s in range(used):
                    _clear(_place(desc, 0, s, t) + 256 * c, n)
            for expert in range(extent(desc, 1, 2)):
                for m in range(rows_of_w):
                    weights = address(desc, 1) + stride(desc, 1, 2) * expert + stride(desc, 1, 1) * m
                    decoded = False
                    for t in range(tokens):
                        for s in range(used):
                            if _picks(desc, 3, t, s, expert):
                                if not decoded:
                                    decode(weights, c, k, part)
                                    decoded = True
                                g = load_f32(_place(desc, 2, s, t) + 4 * m)
                                _add_scaled(_place(desc, 0, s, t) + 256 * c, part, g, n)

    return kernel


def _mul_mat_id_back(desc, ith, nth):
    """y[k, m, e] = Σ x[k, s, t]·g[m, s, t] over the picks of e; operands y, g, x, index. Threads share rows."""
    k, rows_of_y, experts = extent(desc, 0, 0), extent(desc, 0, 1), extent(desc, 0, 2)
    used, tokens = extent(desc, 1, 1), extent(desc, 1, 2)
    first, last = share(rows_of_y * experts, ith, nth)
    for item in range(first, last):
        expert, m = item // rows_of_y, item % rows_of_y
        y = address(desc, 0) + stride(desc, 0, 2) * expert + stride(desc, 0, 1) * m
        _clear(y, k)
        for t in range(tokens):
            for s in range(used):
                if _picks(desc, 3, t, s, expert):
                    _add_scaled(y, _place(desc, 2, s, t), load_f32(_place(desc, 1, s, t) + 4 * m), k)


KERNELS = (
    {f"mul_mat_id.{name}": _mul_mat_id(decode) for name, decode in DECODERS.items()}
    | {f"out_prod_id.{name}": _out_prod_id(decode) for name, decode in DECODERS.items()}
    | {"mul_mat_id_back": _mul_mat_id_back}
)
