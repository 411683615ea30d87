"""Attention of each query to the keys in its range: online soft-max, so that no score matrix is ever stored.

Keys are taken 16 at a time in the order of the cells, so that a result depends neither on the other tokens of the batch
nor on the number of threads. Scratch per thread: (Dv + 16) float32.
"""

from __future__ import annotations

import numpy as np

from ..plan.layouts import ATTENTION_KEYS as KEYS
from .cache import load16_q4_0, load16_q8_0
from .jit import helper
from .mathematics import exponential, tanh
from .operands import address, extent, parameter, parameter_f32, scratch, stride
from .simd import (
    fma,
    load_f16x16,
    load_f32,
    load_f32x16,
    load_first,
    load_first_f16,
    load_i32,
    max_lanes,
    splat,
    store_f32,
    store_f32x16,
    store_first,
    sum_lanes,
    where_less,
    zeros,
)

_LOWEST = np.float32(-3.0e38)
HIDDEN = np.float32(-np.inf)  # the score of a cell that a mask closes, and of a sink that is not there


def _attention(load16, load_last, masked):
    """Kernel for one type of the cache: (row, i) → values i … i + 15, and (row, i, count) → the first of them; with or
    without mask and sinks."""

    absent = HIDDEN if masked else _LOWEST

    @helper
    def product(q, key, d):
        """Dot product of a float32 query with a key."""
        total = zeros()
        i = 0
        while i + 16 <= d:
            total = fma(load_f32x16(q + 4 * i), load16(key, i), total)
            i += 16
        if i < d:
            total = fma(load_first(q + 4 * i, d - i), load_last(key, i, d - i), total)
        return sum_lanes(total)

    @helper
    def accumulate(total, weights, value, step, count, start, d, factor):
        """total = total·factor + Σ weight[j]·value[j] over `count` cells, for the values from `start` on."""
        for i in range(start, d, 16):
            lanes = load_first(total + 4 * i, d - i) * factor
            for j in range(count):
                lanes = fma(splat(load_f32(weights + 4 * j)), load_last(value + step * j, i, d - i), lanes)
            store_first(total + 4 * i, lanes, d - i)

    @helper
    def accumulate4(total, weights, value, step, count, start, factor):
        """The same for 64 values whose sums stay in registers."""
        a = load_f32x16(total) * factor
        b = load_f32x16(total + 64) * factor
        c = load_f32x16(total + 128) * factor
        d = load_f32x16(total + 192) * factor
        for j in range(count):
            weight = splat(load_f32(weights + 4 * j))
            v = value + step * j
            a = fma(weight, load16(v, start), a)
            b = fma(weight, load16(v, start + 16), b)
            c = fma(weight, load16(v, start + 32), c)
            d = fma(weight, load16(v, start + 48), d)
        store_f32x16(total, a)
        store_f32x16(total + 64, b)
        store_f32x16(total + 128, c)
        store_f32x16(total + 192, d)

    @helper
    def attend(y, q, key, value, step_k, step_v, d, dv, first, last, scale, cap, scores, mask, slope, sink):
        """One query over the cells first … last - 1; scores and sums live in this thread's scratch. Without a mask its
        address is 0, without a sink that is HIDDEN."""
        sums = scores + 4 * KEYS
        for i in range(0, dv, 16):
            store_first(sums + 4 * i, zeros(), dv - i)
        best, norm = _LOWEST, zeros()
        cell = first
        while cell < last:
            count = min(KEYS, last - cell)
            for j in range(KEYS):
                score = product(q, key + step_k * (cell + j), d) * scale if j < count else absent
                store_f32(scores + 4 * j, score)
            lanes = load_f32x16(scores)
            if cap > np.float32(0):
                store_f32x16(scores, tanh(lanes / splat(cap)) * splat(cap))
                for j in range(count, KEYS):
                    store_f32(scores + 4 * j, absent)
                lanes = load_f32x16(scores)
            if masked and mask != 0:
                lanes = fma(load_first(mask + 4 * cell, count), splat(slope), lanes)
            top = max(best, max_lanes(lanes))
            factor = exponential(splat(best - top))
            weights = exponential(lanes - splat(top))
            if masked:
                weights = where_less(splat(HIDDEN), lanes, weights, zeros())
            store_f32x16(scores, weights)
            norm = fma(norm, factor, weights)
            best = top
            i = 0
            while i + 64 <= dv:
                accumulate4(sums + 4 * i, scores, value + step_v * cell, step_v, count, i, factor)
                i += 64
            if i < dv:
                accumulate(sums, scores, value + step_v * cell, step_v, count, i, dv, factor)
            cell += count
        total = sum_lanes(norm)
        if masked and sink > HIDDEN:
            top = max(best, sink)
            factor = exponential(splat(best - top))
            total = total * max_lanes(factor) + max_lanes(exponential(splat(sink - top)))
            for i in range(0, dv, 16):
                store_first(sums + 4 * i, load_first(sums + 4 * i, dv - i) * factor, dv - i)
        inverse = splat(np.float32(1) / total) if total > np.float32(0) else zeros()
        for i in range(0, dv, 16):
            store_first(y + 4 * i, load_first(sums + 4 * i, dv - i) * inverse, dv - i)

    @helper
    def marks(desc, head, token):
        """Address of the mask's row (0: none), slope and sink of one query."""
        mask, slope, sink = np.int64(0), np.float32(1), HIDDEN
        if masked and parameter(desc, 3) != 0:
            mask = address(desc, 5) + token * stride(desc, 5, 1) + head % extent(desc, 5, 2) * stride(desc, 5, 2)
            slope = load_f32(address(desc, 6) + 4 * head)
        if masked and parameter(desc, 4) != 0:
            sink = load_f32(address(desc, 7) + 4 * head)
        return mask, slope, sink

    @helper
    def seen(desc, token):
        """The cells that a token sees: the first, and one past the last."""
        if masked and parameter(desc, 2) == 0:
            return np.int64(0), extent(desc, 2, 1)
        cells = address(desc, 4) + token * stride(desc, 4, 1)
        return load_i32(cells), load_i32(cells + 4)

    def kernel(desc, ith, nth):
        """Operands: 0 result [Dv, heads, tokens], 1 queries [D, tokens, heads], 2 keys [D, cells, key heads], 3 values
        [Dv, cells, key heads], 4 ranges int32 [2, tokens]: the first cell that a token sees, and one past the last.
        Parameters: 0 scale, 1 cap of the scores (0: none). The masked kernels have besides 5 mask float32 [cells,
        tokens, …], 6 its slopes [heads], 7 sinks [heads], and parameters 2 to 4 that say whether there are ranges, a
        mask, sinks."""
        d, tokens, heads = extent(desc, 1, 0), extent(desc, 1, 1), extent(desc, 1, 2)
        group = heads // extent(desc, 2, 2)
        scores = scratch(desc, ith)
        # A thread takes every nth token of each head: later tokens see more cells, so runs of them would be uneven.
        for head in range(heads):
            key = address(desc, 2) + (head // group) * stride(desc, 2, 2)
            value = address(desc, 3) + (head // group) * stride(desc, 3, 2)
            token = (ith + head) % nth
            while token < tokens:
                first, last = seen(desc, token)
                mask, slope, sink = marks(desc, head, token)
                attend(
                    address(desc, 0) + head * stride(desc, 0, 1) + token * stride(desc, 0, 2),
                    address(desc, 1) + token * stride(desc, 1, 1) + head * stride(desc, 1, 2),
                    key,
                    value,
                    stride(desc, 2, 1),
                    stride(desc, 3, 1),
                    d,
                    extent(desc, 3, 0),
                    first,
                    last,
                    parameter_f32(desc, 0),
                    parameter_f32(desc, 1),
                    scores,
                    mask,
                    slope,
                    sink,
                )
                token += nth

    return kernel


@helper
def _f32(row, i):
    return load_f32x16(row + 4 * i)


@helper
def _f32_first(row, i, count):
    return load_first(row + 4 * i, count)


@helper
def _f16(row, i):
    return load_f16x16(row + 2 * i)


@helper
def _f16_first(row, i, count):
    return load_first_f16(row + 2 * i, count)


def _whole(load16):
    """Rows of whole blocks have no partial vectors."""

    @helper
    def load(row, i, count):
        return load16(row, i)

    return load


# type of the cache -> its loads
_LOADS = {
    "f32": (_f32, _f32_first),
    "f16": (_f16, _f16_first),
    "q8_0": (load16_q8_0, _whole(load16_q8_0)),
    "q4_0": (load16_q4_0, _whole(load16_q4_0)),
}
KERNELS = {name: _attention(*loads, False) for name, loads in _LOADS.items()} | {
    f"{name}.masked": _attention(*loads, True) for name, loads in _LOADS.items()
}
