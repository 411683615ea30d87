"""The way back through the gated delta rule: states are computed again from checkpoints, 16 rows of them at a time.

For a token with state M before it: M̃ = a·M, e = v - M̃·k, d = β·e, M' = M̃ + d·kᵀ, o = M'·q·c. Back, with D = dL/dM':
D += g·c·qᵀ, dq = c·M'ᵀ·g, dd = D·k, dk = Dᵀ·d - M̃ᵀ·β·dd, dv = β·dd, dβ = dd·e, D -= β·dd·kᵀ, dgate = Σ D∘M̃, D = a·D.
A thread takes all value heads of one key head of one sequence, so that the sums over them are its own. It holds the
states before each RUN-th token and those of one run, RUN = ⌈√tokens⌉: scratch does not grow with the tokens themselves.
"""

from __future__ import annotations

import numpy as np

from ..plan.layouts import DELTA_ROWS as ROWS
from .jit import helper
from .mathematics import exponential
from .operands import address, extent, parameter, scratch, share, stride
from .simd import (
    fma,
    load_f32,
    load_f32x16,
    load_first,
    max_lanes,
    splat,
    square_root,
    store_f32,
    store_f32x16,
    store_first,
    sum_lanes,
    zeros,
)

# The start of this thread's scratch: vectors of ROWS numbers for one token.
VALUE, GRADIENT, DELTA, BACK = 0, 64, 128, 192
KEY = 256  # then key, query, dk and dq of one token, padded to whole vectors, and the states


@helper
def _fill(place, a, size, nbytes, factor):
    """Write a row of `size` values times a factor, with zeros up to `nbytes`."""
    for i in range(0, nbytes, 64):
        store_f32x16(place + i, load_first(a + i, size - i // 4) * splat(factor))


@helper
def _clear(place, nbytes):
    for i in range(0, nbytes, 64):
        store_f32x16(place + i, zeros())


@helper
def _copy(y, a, nbytes):
    for i in range(0, nbytes, 64):
        store_f32x16(y + i, load_f32x16(a + i))


@helper
def _gather(y, a, n, fresh):
    """Add n values at `a` to those at y, or write them."""
    for i in range(0, n, 16):
        value = load_first(a + 4 * i, n - i)
        store_first(y + 4 * i, value if fresh else value + load_first(y + 4 * i, n - i), n - i)


@helper
def _advance(place, after, before, error, nbytes, decay, beta):
    """One token: the state `after` of the state `before`; writes e."""
    key, factor = place + KEY, splat(decay)
    for row in range(ROWS):
        seen = zeros()
        for i in range(0, nbytes, 64):
            seen = fma(load_f32x16(before + nbytes * row + i) * factor, load_f32x16(key + i), seen)
        store_f32(error + 4 * row, sum_lanes(seen))
    store_f32x16(error, load_f32x16(place + VALUE) - load_f32x16(error))
    store_f32x16(place + DELTA, load_f32x16(error) * splat(beta))
    for row in range(ROWS):
        delta = splat(load_f32(place + DELTA + 4 * row))
        for i in range(0, nbytes, 64):
            m = load_f32x16(before + nbytes * row + i) * factor
            store_f32x16(after + nbytes * row + i, fma(delta, load_f32x16(key + i), m))


@helper
def _first_half(place, slope, after, nbytes, row):
    """Four rows: D += g·qᵀ, dq += M'ᵀ·g, dk += Dᵀ·d; leaves D·k."""
    key, query, dk, dq = place + KEY, place + KEY + nbytes, place + KEY + 2 * nbytes, place + KEY + 3 * nbytes
    s0, s1, s2, s3 = zeros(), zeros(), zeros(), zeros()
    g, d = place + GRADIENT + 4 * row, place + DELTA + 4 * row
    g0, g1, g2, g3 = splat(load_f32(g)), splat(load_f32(g + 4)), splat(load_f32(g + 8)), splat(load_f32(g + 12))
    d0, d1, d2, d3 = splat(load_f32(d)), splat(load_f32(d + 4)), splat(load_f32(d + 8)), splat(load_f32(d + 12))
    slope, after = slope + nbytes * row, after + nbytes * row
    for i in range(0, nbytes, 64):
        k, q = load_f32x16(key + i), load_f32x16(query + i)
        a, b = slope + i, after + i
        m0, m1 = fma(g0, q, load_f32x16(a)), fma(g1, q, load_f32x16(a + nbytes))
        m2, m3 = fma(g2, q, load_f32x16(a + 2 * nbytes)), fma(g3, q, load_f32x16(a + 3 * nbytes))
        store_f32x16(a, m0)
        store_f32x16(a + nbytes, m1)
        store_f32x16(a + 2 * nbytes, m2)
        store_f32x16(a + 3 * nbytes, m3)
        s0, s1, s2, s3 = fma(m0, k, s0), fma(m1, k, s1), fma(m2, k, s2), fma(m3, k, s3)
        total = fma(d1, m1, fma(d0, m0, load_f32x16(dk + i)))
        store_f32x16(dk + i, fma(d3, m3, fma(d2, m2, total)))
        total = fma(g1, load_f32x16(b + nbytes), fma(g0, load_f32x16(b), load_f32x16(dq + i)))
        total = fma(g2, load_f32x16(b + 2 * nbytes), total)
        store_f32x16(dq + i, fma(g3, load_f32x16(b + 3 * nbytes), total))
    store_f32(place + BACK + 4 * row, sum_lanes(s0))
    store_f32(place + BACK + 4 * row + 4, sum_lanes(s1))
    store_f32(place + BACK + 4 * row + 8, sum_lanes(s2))
    store_f32(place + BACK + 4 * row + 12, sum_lanes(s3))


@helper
def _second_half(place, slope, before, nbytes, decay, row):
    """Four rows, where BACK holds -β·dd: dk += M̃ᵀ·BACK, D += BACK·kᵀ, then D = a·D; returns lanes of Σ D∘M̃."""
    key, dk, factor = place + KEY, place + KEY + 2 * nbytes, splat(decay)
    d = place + BACK + 4 * row
    d0, d1, d2, d3 = splat(load_f32(d)), splat(load_f32(d + 4)), splat(load_f32(d + 8)), splat(load_f32(d + 12))
    slope, before = slope + nbytes * row, before + nbytes * row
    total = zeros()
    for i in range(0, nbytes, 64):
        k, a, b = load_f32x16(key + i), slope + i, before + i
        m0, m1 = load_f32x16(b) * factor, load_f32x16(b + nbytes) * factor
        m2, m3 = load_f32x16(b + 2 * nbytes) * factor, load_f32x16(b + 3 * nbytes) * factor
        part = fma(d1, m1, fma(d0, m0, load_f32x16(dk + i)))
        store_f32x16(dk + i, fma(d3, m3, fma(d2, m2, part)))
        s0, s1 = fma(d0, k, load_f32x16(a)), fma(d1, k, load_f32x16(a + nbytes))
        s2, s3 = fma(d2, k, load_f32x16(a + 2 * nbytes)), fma(d3, k, load_f32x16(a + 3 * nbytes))
        total = fma(s3, m3, fma(s2, m2, fma(s1, m1, fma(s0, m0, total))))
        store_f32x16(a, s0 * factor)
        store_f32x16(a + nbytes, s1 * factor)
        store_f32x16(a + 2 * nbytes, s2 * factor)
        store_f32x16(a + 3 * nbytes, s3 * factor)
    return total


@helper
def _place(desc, k, head, t, sequence):
    """Address of the row of an operand [width, heads, tokens, sequences]."""
    return address(desc, k) + stride(desc, k, 1) * head + stride(desc, k, 2) * t + stride(desc, k, 3) * sequence


@helper
def _scalar(desc, k, head, t, sequence):
    """Address of a number of an operand [heads, tokens, sequences]."""
    return address(desc, k) + 4 * head + stride(desc, k, 1) * t + stride(desc, k, 2) * sequence


@helper
def _load(desc, place, head, shared, t, sequence, start, count, size, nbytes):
    """Bring what a token needs to go forward into scratch; return decay and beta."""
    _fill(place + KEY, _place(desc, 7, shared, t, sequence), size, nbytes, np.float32(1))
    store_f32x16(place + VALUE, load_first(_place(desc, 8, head, t, sequence) + 4 * start, count))
    decay = max_lanes(exponential(splat(load_f32(_scalar(desc, 9, head, t, sequence)))))
    return decay, load_f32(_scalar(desc, 10, head, t, sequence))


@helper
def _back(desc, place, slope, before, after, error, head, shared, t, sequence, start, count, size, nbytes):
    """One token on the way back, for ROWS rows from `start` on, `count` of them real."""
    scale = np.float32(1) / square_root(np.float32(size))
    decay, beta = _load(desc, place, head, shared, t, sequence, start, count, size, nbytes)
    store_f32x16(place + DELTA, load_f32x16(error) * splat(beta))
    _fill(place + KEY + nbytes, _place(desc, 6, shared, t, sequence), size, nbytes, scale)
    store_f32x16(place + GRADIENT, load_first(_place(desc, 5, head, t, sequence) + 4 * start, count))
    _clear(place + KEY + 2 * nbytes, 2 * nbytes)
    for row in range(0, ROWS, 4):
        _first_half(place, slope, after, nbytes, row)
    dd = load_f32x16(place + BACK)
    dv = dd * splat(beta)
    store_first(_place(desc, 2, head, t, sequence) + 4 * start, dv, count)
    store_f32x16(place + BACK, zeros() - dv)
    total = zeros()
    for row in range(0, ROWS, 4):
        total = total + _second_half(place, slope, before, nbytes, decay, row)
    _fill(place + KEY + 3 * nbytes, place + KEY + 3 * nbytes, size, nbytes, scale)
    first = start == 0
    fresh = first and head == shared
    _gather(_place(desc, 0, shared, t, sequence), place + KEY + 3 * nbytes, size, fresh)
    _gather(_place(desc, 1, shared, t, sequence), place + KEY + 2 * nbytes, size, fresh)
    gate, rate = _scalar(desc, 3, head, t, sequence), _scalar(desc, 4, head, t, sequence)
    dgate, dbeta = sum_lanes(total), sum_lanes(dd * load_f32x16(error))
    store_f32(gate, dgate if first else dgate + load_f32(gate))
    store_f32(rate, dbeta if first else dbeta + load_f32(rate))


@helper
def _rows(desc, place, head, shared, sequence, start):
    """ROWS rows of the state of one value head: forward to leave checkpoints, then run by run back."""
    size, width, tokens, run = extent(desc, 6, 0), extent(desc, 8, 0), extent(desc, 8, 2), parameter(desc, 0)
    nbytes = (size + 15) // 16 * 64
    count, state = min(ROWS, width - start), ROWS * nbytes
    slope = place + KEY + 4 * nbytes
    points = slope + state
    states = points + state * ((tokens + run - 1) // run)
    errors = states + state * (run + 1)
    latest = (tokens - 1) // run * run  # the last token with a checkpoint
    _clear(points, state)
    for t in range(latest):
        decay, beta = _load(desc, place, head, shared, t, sequence, start, count, size, nbytes)
        before = points + state * (t // run) if t % run == 0 else states + state * (t % 2)
        after = points + state * ((t + 1) // run) if (t + 1) % run == 0 else states + state * ((t + 1) % 2)
        _advance(place, after, before, errors, nbytes, decay, beta)
    _clear(slope, state)
    begin = latest
    while begin >= 0:
        end = min(tokens, begin + run)
        _copy(states, points + state * (begin // run), state)
        for t in range(begin, end):
            decay, beta = _load(desc, place, head, shared, t, sequence, start, count, size, nbytes)
            before, error = states + state * (t - begin), errors + 64 * (t - begin)
            _advance(place, before + state, before, error, nbytes, decay, beta)
        for t in range(end - 1, begin - 1, -1):
            before, error = states + state * (t - begin), errors + 64 * (t - begin)
            _back(
                desc, place, slope, before, before + state, error, head, shared, t, sequence, start, count, size, nbytes
            )
        begin -= run


def _gated_delta_net_back(desc, ith, nth):
    """Operands: 0 to 4 gradients of queries [S, h, tokens, sequences], keys, values [V, H, tokens, sequences], gates
    [H, tokens, sequences] and betas; 5 gradient of the result; 6 to 10 queries, keys, values, gates, betas. Parameter
    0: RUN."""
    width, heads, groups = extent(desc, 8, 0), extent(desc, 8, 1), extent(desc, 6, 1)
    place = scratch(desc, ith)
    first, last = share(groups * extent(desc, 8, 3), ith, nth)
    for item in range(first, last):
        shared, sequence = item % groups, item // groups
        head = shared
        while head < heads:
            for start in range(0, width, ROWS):
                _rows(desc, place, head, shared, sequence, start)
            head += groups


KERNELS = {"gated_delta_net_back": _gated_delta_net_back}
