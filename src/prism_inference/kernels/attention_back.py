"""The way back through attention in tiles of 32 queries: scores are computed again, never kept.

With weights p = e^(s - max) / Σ and δ = g·y: dv = Σ p·g, ds = p·(g·v - δ), dq = Σ ds·k, dk = Σ ds·q. A thread takes
whole chunks of one key head, so that each gradient of a key or value is one thread's; the summands of a query's
gradient, one for each chunk that it sees, are added up in order by `collect`.
"""

from __future__ import annotations

import numpy as np

from ..plan.layouts import ATTENTION_BLOCK as KEYS
from ..plan.layouts import ATTENTION_CELLS as CELLS
from .attention_tiles import (
    BOUNDS,
    HIDDEN,
    ONE,
    STATE,
    TILES,
    ZERO,
    add_mask,
    cap_scores,
    hide,
    hull,
    load_bounds,
    next_block,
)
from .jit import helper
from .mathematics import exponential
from .operands import address, extent, parameter, parameter_f32, scratch, share, stride
from .outer import LANES, ROW, add_products, to_columns, to_rows, write_products
from .simd import (
    fma,
    load_f32,
    load_f32x16,
    load_first,
    max_lanes,
    splat,
    store_f32,
    store_f32x16,
    store_first,
    sum_lanes,
    where_less,
    zeros,
)

DELTA = TILES  # one row of lanes: gradient times result of each query
FIELDS = TILES + ROW


@helper
def _padded(width):
    """Bytes of a row of `width` values in whole rows of lanes."""
    return (width + LANES - 1) // LANES * ROW


@helper
def _clear(place, nbytes):
    for i in range(0, nbytes, 64):
        store_f32x16(place + i, zeros())


@helper
def _copy_rows(y, step_y, lanes, a, step_a, rows, width):
    """Copy rows of `width` values; those of y are filled with zeros up to `lanes`."""
    for row in range(rows):
        for i in range(0, lanes, 16):
            store_first(y + step_y * row + 4 * i, load_first(a + step_a * row + 4 * i, width - i), lanes - i)


@helper
def _dot(a, b, n):
    """Sum of the products of two rows."""
    total = zeros()
    for i in range(0, n, 16):
        total = fma(load_first(a + 4 * i, n - i), load_first(b + 4 * i, n - i), total)
    return sum_lanes(total)


@helper
def _load_tile(desc, place, head, token, count, q, g, y, q_rows, g_rows):
    """Bring queries and gradients of 32 tokens into both orders, with their shares and δ (`y` takes the results)."""
    d, dv = extent(desc, 6, 0), extent(desc, 8, 0)
    step_q, step_g = stride(desc, 6, 1), stride(desc, 4, 2)
    a = address(desc, 6) + token * step_q + head * stride(desc, 6, 2)
    to_columns(q, a, step_q, count, d, parameter_f32(desc, 0), place)
    _copy_rows(q_rows, _padded(d), _padded(d) // 4, a, step_q, count, d)
    a = address(desc, 4) + token * step_g + head * stride(desc, 4, 1)
    to_columns(g, a, step_g, count, dv, ONE, place)
    _copy_rows(g_rows, _padded(dv), _padded(dv) // 4, a, step_g, count, dv)
    a = address(desc, 5) + token * stride(desc, 5, 2) + head * stride(desc, 5, 1)
    to_columns(y, a, stride(desc, 5, 2), count, dv, ONE, place)
    shares = address(desc, 9) + head * stride(desc, 9, 1) + 4 * token
    for i in range(0, LANES, 16):
        store_f32x16(place + STATE + 4 * i, load_first(shares + 4 * i, count - i))
        store_f32x16(place + STATE + ROW + 4 * i, load_first(shares + stride(desc, 9, 2) + 4 * i, count - i))
        # In the order of g·v: where one cell alone is seen, and y is its v, the difference is 0 to the bit.
        delta = zeros()
        for j in range(4 * i, ROW * dv, ROW):
            delta = fma(load_f32x16(y + j), load_f32x16(g + j), delta)
        store_f32x16(place + DELTA + 4 * i, delta)


@helper
def _derive(place, s, t, bend, n, scale, some):
    """Scores become weights p, and products of gradients and values become ds·scale."""
    for half in range(0, ROW, 64):
        best, inverse = load_f32x16(place + STATE + half), load_f32x16(place + STATE + ROW + half)
        delta = load_f32x16(place + DELTA + half)
        for i in range(half, ROW * n, ROW):
            score = load_f32x16(s + i)
            weight = exponential(score - best) * inverse
            if some:
                weight = where_less(splat(HIDDEN), score, weight, zeros())
            slope = weight * (load_f32x16(t + i) - delta) * splat(scale)
            if bend != 0:
                slope = slope * load_f32x16(bend + i)
            store_f32x16(s + i, weight)
            store_f32x16(t + i, slope)


@helper
def _target(desc, head, token, low, start, index, size):
    """Where the tile's gradient of the queries goes from the cells that begin at `start` in chunk `index`: the address,
    its step, and whether something of the same chunk is there already. The first chunk that is seen writes the
    result."""
    first = max(low, index * size)
    begun = first // CELLS < start // CELLS
    if low // size == index:
        y, step = address(desc, 0) + head * stride(desc, 0, 2), stride(desc, 0, 1)
    else:
        y, step = address(desc, 3) + head * stride(desc, 3, 2) + (index - 1) * stride(desc, 3, 3), stride(desc, 3, 1)
    return y + token * step, step, begun


@helper
def _tile(desc, place, head, shared, token, start, last, sums_k, sums_v):
    """32 queries of one head and the cells start … last - 1 of a chunk; adds to the sums of keys and values."""
    d, dv = extent(desc, 6, 0), extent(desc, 8, 0)
    count = min(LANES, extent(desc, 6, 1) - token)
    bounds = place + BOUNDS
    load_bounds(desc, 10, parameter(desc, 2) != 0, token, count, extent(desc, 7, 1), bounds)
    low, high, inner, outer = hull(bounds)
    cell, high = max(low, start), min(high, last)
    if cell >= high:
        return
    q = place + FIELDS
    g, dq = q + ROW * d, q + ROW * (d + dv)
    y = dq + ROW * d
    q_rows = y + ROW * dv
    g_rows = q_rows + LANES * _padded(d)
    s = g_rows + LANES * _padded(dv)
    t, bend = s + ROW * KEYS, s + 2 * ROW * KEYS
    _load_tile(desc, place, head, token, count, q, g, y, q_rows, g_rows)
    size = parameter(desc, 4)
    target, step, begun = _target(desc, head, token, low, start, start // size, size)
    if begun:
        to_columns(dq, target, step, count, d, ONE, place)
    else:
        _clear(dq, ROW * d)
    keys, step_k = address(desc, 7) + shared * stride(desc, 7, 2), stride(desc, 7, 1)
    values, step_v = address(desc, 8) + shared * stride(desc, 8, 2), stride(desc, 8, 1)
    end = high if inner <= outer else cell
    while cell < high:
        cell, stop, end = next_block(bounds, cell, end, high)
        n = stop - cell
        some = _scores(desc, place, s, t, bend, n, keys + step_k * cell, step_k, q, head, token, count, cell)
        write_products(t, ROW, n, values + step_v * cell, step_v, 4, g, ROW, dv)
        bent = bend if parameter_f32(desc, 1) > ZERO else 0
        some = some or cell < inner or outer < stop
        if cell < inner or outer < stop:
            hide(s, n, cell, bounds)
        _derive(place, s, t, bent, n, parameter_f32(desc, 0), some)
        one = splat(ONE)
        for i in range(0, _padded(d), ROW):
            sums = sums_k + _padded(d) * (cell - start) + i
            add_products(sums, _padded(d), n, t, ROW, 4, q_rows + i, _padded(d), count, one, one)
        for i in range(0, _padded(dv), ROW):
            sums = sums_v + _padded(dv) * (cell - start) + i
            add_products(sums, _padded(dv), n, s, ROW, 4, g_rows + i, _padded(dv), count, one, one)
        add_products(dq, ROW, d, keys + step_k * cell, 4, step_k, t, ROW, n, one, one)
        cell = stop
    to_rows(target, step, dq, count, d, splat(ONE), splat(ONE), place)


@helper
def _scores(desc, place, s, spare, bend, n, key, step, q, head, token, count, cell):
    """Scores of n keys, as in the forward kernel; true if a mask may hide some."""
    write_products(s, ROW, n, key, step, 4, q, ROW, extent(desc, 6, 0))
    if parameter_f32(desc, 1) > ZERO:
        cap_scores(s, n, parameter_f32(desc, 1), bend)
    if parameter(desc, 3) == 0:
        return False
    mask = address(desc, 11) + head % extent(desc, 11, 2) * stride(desc, 11, 2)
    mask += token * stride(desc, 11, 1) + 4 * cell
    add_mask(s, n, mask, stride(desc, 11, 1), count, load_f32(address(desc, 12) + 4 * head), spare, place)
    return True


@helper
def _cells(desc, place, shared, start, last):
    """The gradients of the keys and values of the cells start … last - 1 of one key head."""
    d, dv, tokens, heads = extent(desc, 6, 0), extent(desc, 8, 0), extent(desc, 6, 1), extent(desc, 6, 2)
    group = heads // extent(desc, 7, 2)
    fields = FIELDS + ROW * (2 * d + 2 * dv + 3 * KEYS) + LANES * (_padded(d) + _padded(dv))
    sums_k = place + fields
    sums_v = sums_k + CELLS * _padded(d)
    _clear(sums_k, CELLS * (_padded(d) + _padded(dv)))
    for head in range(shared * group, (shared + 1) * group):
        for token in range(0, tokens, LANES):
            _tile(desc, place, head, shared, token, start, last, sums_k, sums_v)
    y = address(desc, 1) + shared * stride(desc, 1, 2) + start * stride(desc, 1, 1)
    _copy_rows(y, stride(desc, 1, 1), d, sums_k, _padded(d), last - start, d)
    y = address(desc, 2) + shared * stride(desc, 2, 2) + start * stride(desc, 2, 1)
    _copy_rows(y, stride(desc, 2, 1), dv, sums_v, _padded(dv), last - start, dv)


def _parts(desc, ith, nth):
    """Operands: 0 to 2 the gradients of queries [D, tokens, heads], keys [D, cells, key heads] and values [Dv, cells,
    key heads]; 3 further summands of the first [D, tokens, heads, chunks - 1]; 4 the gradient and 5 the result [Dv,
    heads, tokens]; 6 to 8 queries, keys, values; 9 shares, 10 ranges, 11 mask, 12 slopes, and parameters 0 to 3, as in
    `attention_tiles`. Parameter 4: cells of a chunk, a multiple of CELLS."""
    cells, size = extent(desc, 7, 1), parameter(desc, 4)
    chunks = (cells + size - 1) // size
    place = scratch(desc, ith)
    for unit in range(extent(desc, 7, 2) * chunks):
        # To and fro among the threads: later chunks are seen by fewer tokens.
        turn = unit % nth
        if (turn if unit // nth % 2 == 0 else nth - 1 - turn) != ith:
            continue
        chunk = unit % chunks * size
        for start in range(chunk, min(cells, chunk + size), CELLS):
            _cells(desc, place, unit // chunks, start, min(cells, chunk + size, start + CELLS))


def _collect(desc, ith, nth):
    """Add the summands to the gradient of the queries. Operands: 0 the gradient, 1 the summands, 2 ranges, 3 keys.
    Parameters: 0 whether there are ranges, 1 cells of a chunk."""
    width, tokens, heads = extent(desc, 0, 0), extent(desc, 0, 1), extent(desc, 0, 2)
    tiles = (tokens + LANES - 1) // LANES
    size, bounds = parameter(desc, 1), scratch(desc, ith) + BOUNDS
    first, last = share(heads * tiles, ith, nth)
    for item in range(first, last):
        head, token = item // tiles, item % tiles * LANES
        count = min(LANES, tokens - token)
        load_bounds(desc, 2, parameter(desc, 0) != 0, token, count, extent(desc, 3, 1), bounds)
        low, high, _, _ = hull(bounds)
        y = address(desc, 0) + head * stride(desc, 0, 2) + token * stride(desc, 0, 1)
        if low >= high:
            _copy_rows(y, stride(desc, 0, 1), width, y, 0, count, 0)
        for chunk in range(low // size + 1, (high - 1) // size + 1):
            a = address(desc, 1) + head * stride(desc, 1, 2) + (chunk - 1) * stride(desc, 1, 3)
            a += token * stride(desc, 1, 1)
            for row in range(count):
                for i in range(0, width, 16):
                    b = y + stride(desc, 0, 1) * row + 4 * i
                    total = load_first(b, width - i) + load_first(a + stride(desc, 1, 1) * row + 4 * i, width - i)
                    store_first(b, total, width - i)


def _sinks(desc, ith, nth):
    """Gradients of the sinks: -Σ p·δ over all tokens. Operands: 0 result [heads], 1 gradient and 2 result of attention
    [Dv, heads, tokens, batches], 3 shares [tokens, heads, 2, batches], 4 sinks."""
    width, tokens = extent(desc, 1, 0), extent(desc, 1, 2)
    first, last = share(extent(desc, 1, 1), ith, nth)
    for head in range(first, last):
        total = 0.0
        sink = load_f32(address(desc, 4) + 4 * head)
        for item in range(tokens * extent(desc, 1, 3)):
            token, batch = item % tokens, item // tokens
            g = address(desc, 1) + head * stride(desc, 1, 1) + token * stride(desc, 1, 2) + batch * stride(desc, 1, 3)
            y = address(desc, 2) + head * stride(desc, 2, 1) + token * stride(desc, 2, 2) + batch * stride(desc, 2, 3)
            shares = address(desc, 3) + 4 * token + head * stride(desc, 3, 1) + batch * stride(desc, 3, 3)
            weight = max_lanes(exponential(splat(sink - load_f32(shares))))
            total -= np.float64(weight * load_f32(shares + stride(desc, 3, 2)) * _dot(g, y, width))
        store_f32(address(desc, 0) + 4 * head, np.float32(total))


KERNELS = {"parts": _parts, "collect": _collect, "sinks": _sinks}
