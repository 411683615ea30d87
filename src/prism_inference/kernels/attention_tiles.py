"""Attention over float32 keys in tiles of 32 queries, one in each lane: for keys that are computed, not kept.

Keys are taken in blocks that begin at multiples of KEYS, so that a result depends neither on the other tokens of the
batch nor on the number of threads. Which cells a tile sees, and scores, are found here for the way back too.
"""

from __future__ import annotations

import numpy as np

from ..plan.layouts import ATTENTION_BLOCK as KEYS
from .jit import helper
from .mathematics import exponential, tanh
from .operands import address, extent, parameter, parameter_f32, scratch, stride
from .outer import LANES, PLACE, ROW, add_products, to_columns, to_rows, transpose, write_products
from .simd import (
    load_f32,
    load_f32x16,
    load_i32,
    max_lanes,
    maximum,
    splat,
    store_f32,
    store_f32x16,
    store_first,
    where_less,
    zeros,
)

LOWEST = np.float32(-3.4028235e38)  # where maxima start: finite, so that differences stay numbers
HIDDEN = np.float32(-np.inf)  # the score of a cell that a query does not see
ONE, ZERO = np.float32(1), np.float32(0)

# This thread's scratch: PLACE bytes for transpositions, then rows of 32 lanes.
BOUNDS = PLACE  # first cell that is seen, and one past the last
STATE = BOUNDS + 2 * ROW  # largest score so far, and sum of the exponentials
TILES = STATE + 2 * ROW  # what else a kernel needs


# --- Which cells a tile of queries sees ------------------------------------------------------------------


@helper
def load_bounds(desc, k, given, token, count, cells, bounds):
    """Write the ranges of 32 tokens as float32; lanes beyond `count` repeat the last token's, so that they widen
    nothing. Without ranges all cells are seen."""
    for lane in range(LANES):
        place = address(desc, k) + stride(desc, k, 1) * (token + min(lane, count - 1))
        first, last = (load_i32(place), load_i32(place + 4)) if given else (0, cells)
        store_f32(bounds + 4 * lane, np.float32(max(first, 0)))
        store_f32(bounds + ROW + 4 * lane, np.float32(min(last, cells)))


@helper
def _most(row):
    """The largest of 32 lanes."""
    return np.int64(max_lanes(maximum(load_f32x16(row), load_f32x16(row + 64))))


@helper
def _least(row):
    """The smallest of 32 lanes."""
    low, high = zeros() - load_f32x16(row), zeros() - load_f32x16(row + 64)
    return -np.int64(max_lanes(maximum(low, high)))


@helper
def hull(bounds):
    """The cells that any of the lanes sees lie in low … high - 1, those that all of them see are from … to - 1."""
    return _least(bounds), _most(bounds + ROW), _most(bounds), _least(bounds + ROW)


@helper
def next_run(bounds, position):
    """The first run, from `position` on, of cells each of which some lane sees: its start, and one past its end."""
    start = np.int64(1) << 60
    for lane in range(LANES):
        first, last = np.int64(load_f32(bounds + 4 * lane)), np.int64(load_f32(bounds + ROW + 4 * lane))
        if last > max(first, position):
            start = min(start, max(first, position))
    end, grown = start, True
    while grown:
        grown = False
        for lane in range(LANES):
            first, last = np.int64(load_f32(bounds + 4 * lane)), np.int64(load_f32(bounds + ROW + 4 * lane))
            if first <= end < last:
                end, grown = last, True
    return start, end


@helper
def next_block(bounds, cell, end, high):
    """The next block from `cell` on, given the end of its run: (first cell, one past the last, end of the run)."""
    if cell >= end:
        cell, end = next_run(bounds, cell)
        end = min(end, high)
    return cell, min(end, (cell // KEYS + 1) * KEYS), end


# --- Scores ---------------------------------------------------------------------------------------------


@helper
def cap_scores(s, n, cap, bend):
    """s = cap·tanh(s / cap); the derivative 1 - tanh² is written to `bend` unless that is 0."""
    for i in range(0, ROW * n, 64):
        t = tanh(load_f32x16(s + i) * splat(ONE / cap))
        store_f32x16(s + i, t * splat(cap))
        if bend != 0:
            store_f32x16(bend + i, splat(ONE) - t * t)


@helper
def add_mask(s, n, mask, step, count, slope, spare, place):
    """s[j] += slope·mask[query, j]; rows of the mask lie `step` bytes apart, `spare` takes n rows of 32 lanes."""
    for start in range(0, LANES, 16):
        for j in range(0, n, 16):
            y, a = spare + ROW * j + 4 * start, mask + step * start + 4 * j
            transpose(y, ROW, 16, a, step, count - start, n - j, splat(slope), place)
    for i in range(0, ROW * n, 64):
        store_f32x16(s + i, load_f32x16(s + i) + load_f32x16(spare + i))


@helper
def hide(s, n, cell, bounds):
    """s[j] = HIDDEN in the lanes that do not see cell + j."""
    hidden = splat(HIDDEN)
    for half in range(0, ROW, 64):
        first, last = load_f32x16(bounds + half), load_f32x16(bounds + ROW + half)
        for j in range(n):
            this, place = splat(np.float32(cell + j)), s + ROW * j + half
            value = where_less(this, last, load_f32x16(place), hidden)
            store_f32x16(place, where_less(this, first, hidden, value))


# --- Forward ----------------------------------------------------------------------------------------------


@helper
def _weigh(s, n, state, some):
    """Scores of 16 lanes become e^(s - max), hidden ones 0 (looked for if `some` may be); return the factor of what was
    added up before."""
    best = load_f32x16(state)
    top = best
    for j in range(n):
        top = maximum(top, load_f32x16(s + ROW * j))
    factor = exponential(best - top)
    norm = load_f32x16(state + ROW) * factor
    for j in range(n):
        score = load_f32x16(s + ROW * j)
        weight = exponential(score - top)
        if some:
            weight = where_less(splat(HIDDEN), score, weight, zeros())
        store_f32x16(s + ROW * j, weight)
        norm = norm + weight
    store_f32x16(state, top)
    store_f32x16(state + ROW, norm)
    return factor


@helper
def _sink(state, sink):
    """One more score without a value; return the factor of the sums."""
    best = load_f32x16(state)
    top = maximum(best, splat(sink))
    factor = exponential(best - top)
    store_f32x16(state, top)
    store_f32x16(state + ROW, load_f32x16(state + ROW) * factor + exponential(splat(sink) - top))
    return factor


@helper
def _inverse(state):
    """1 / the sum of the exponentials; 0 where nothing is seen."""
    norm = load_f32x16(state + ROW)
    return where_less(zeros(), norm, splat(ONE) / norm, zeros())


@helper
def _finish(desc, place, o, head, token, count):
    """Divide the sums by those of the exponentials and write the results and shares of one tile."""
    state = place + STATE
    low, high = splat(ONE), splat(ONE)
    if parameter(desc, 4) != 0:
        sink = load_f32(address(desc, 8) + 4 * head)
        low, high = _sink(state, sink), _sink(state + 64, sink)
    first, second = _inverse(state), _inverse(state + 64)
    y = address(desc, 0) + head * stride(desc, 0, 1) + token * stride(desc, 0, 2)
    to_rows(y, stride(desc, 0, 2), o, count, extent(desc, 4, 0), low * first, high * second, place)
    shares = address(desc, 1) + head * stride(desc, 1, 1) + 4 * token
    store_first(shares, load_f32x16(state), count)
    store_first(shares + 64, load_f32x16(state + 64), count - 16)
    store_first(shares + stride(desc, 1, 2), first, count)
    store_first(shares + stride(desc, 1, 2) + 64, second, count - 16)


@helper
def _tile(desc, place, head, shared, token):
    """32 queries of one head."""
    d, dv, cells = extent(desc, 2, 0), extent(desc, 4, 0), extent(desc, 3, 1)
    count = min(LANES, extent(desc, 2, 1) - token)
    bounds, state, q = place + BOUNDS, place + STATE, place + TILES
    o, s = q + ROW * d, q + ROW * (d + dv)
    masked = parameter(desc, 3) != 0
    a = address(desc, 2) + token * stride(desc, 2, 1) + head * stride(desc, 2, 2)
    to_columns(q, a, stride(desc, 2, 1), count, d, parameter_f32(desc, 0), place)
    for i in range(0, ROW * dv, 64):
        store_f32x16(o + i, zeros())
    for half in (0, 64):
        store_f32x16(state + half, splat(LOWEST))
        store_f32x16(state + ROW + half, zeros())
    load_bounds(desc, 5, parameter(desc, 2) != 0, token, count, cells, bounds)
    cell, high, inner, outer = hull(bounds)
    keys = address(desc, 3) + shared * stride(desc, 3, 2)
    values = address(desc, 4) + shared * stride(desc, 4, 2)
    end = high if inner <= outer else cell
    while cell < high:
        cell, stop, end = next_block(bounds, cell, end, high)
        n = stop - cell
        write_products(s, ROW, n, keys + stride(desc, 3, 1) * cell, stride(desc, 3, 1), 4, q, ROW, d)
        if parameter_f32(desc, 1) > ZERO:
            cap_scores(s, n, parameter_f32(desc, 1), 0)
        if masked:
            mask = address(desc, 6) + head % extent(desc, 6, 2) * stride(desc, 6, 2)
            mask += token * stride(desc, 6, 1) + 4 * cell
            slope = load_f32(address(desc, 7) + 4 * head)
            add_mask(s, n, mask, stride(desc, 6, 1), count, slope, s + ROW * KEYS, place)
        some = cell < inner or outer < stop
        if some:
            hide(s, n, cell, bounds)
        low, up = _weigh(s, n, state, some or masked), _weigh(s + 64, n, state + 64, some or masked)
        add_products(o, ROW, dv, values + stride(desc, 4, 1) * cell, 4, stride(desc, 4, 1), s, ROW, n, low, up)
        cell = stop
    _finish(desc, place, o, head, token, count)


def _forward(desc, ith, nth):
    """Operands: 0 result [Dv, heads, tokens], 1 shares [tokens, heads, 2] (each query's largest score, and 1 over the
    sum of its exponentials), 2 queries [D, tokens, heads], 3 keys [D, cells, key heads], 4 values [Dv, cells, key
    heads], 5 ranges int32 [2, tokens], 6 mask [cells, tokens, …], 7 slopes of the mask [heads], 8 sinks [heads].
    Parameters: 0 scale, 1 cap of the scores (0: none), 2 to 4 whether there are ranges, a mask, sinks."""
    tokens, heads = extent(desc, 2, 1), extent(desc, 2, 2)
    group = heads // extent(desc, 3, 2)
    place = scratch(desc, ith)
    # A thread takes every nth tile of each head: later tokens see more cells, so runs of tiles would be uneven.
    for head in range(heads):
        token = (ith + head) % nth * LANES
        while token < tokens:
            _tile(desc, place, head, head // group, token)
            token += nth * LANES


KERNELS = {"forward": _forward}
