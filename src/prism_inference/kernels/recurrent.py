"""Steps with a state that is updated in place: causal convolution and the gated delta rule, token after token.

Operand 0 is the result, operand 1 the state. Threads share channels, or rows of the state, never tokens: each part of a
state is read and written by one thread, and a result does not depend on how a prompt is cut.
"""

from __future__ import annotations

import numpy as np

from .jit import helper
from .mathematics import exponential, silu
from .operands import address, extent, scratch, share, stride
from .simd import (
    fma,
    load_f32,
    load_f32x16,
    load_first,
    splat,
    square_root,
    store_f32,
    store_f32x16,
    store_first,
    sum_lanes,
    zeros,
)

ROWS = 8  # rows of a state that one item of work takes


def _causal_conv(desc, ith, nth):
    """Operands: 2 inputs [channels, tokens], 3 weights [taps, channels]; state [channels, taps - 1], oldest first."""
    channels, tokens, taps = extent(desc, 0, 0), extent(desc, 0, 1), extent(desc, 3, 0)
    weights = scratch(desc, ith)
    window = weights + 64 * taps
    first, last = share((channels + 15) // 16, ith, nth)
    for block in range(first, last):
        start = 16 * block
        count = min(16, channels - start)
        state = address(desc, 1) + 4 * start
        for i in range(taps):
            store_f32x16(weights + 64 * i, zeros())
            for lane in range(count):
                w = load_f32(address(desc, 3) + stride(desc, 3, 1) * (start + lane) + 4 * i)
                store_f32(weights + 64 * i + 4 * lane, w)
        for i in range(taps - 1):
            store_f32x16(window + 64 * i, load_first(state + stride(desc, 1, 1) * i, count))
        for t in range(tokens):
            newest = load_first(address(desc, 2) + stride(desc, 2, 1) * t + 4 * start, count)
            total = newest * load_f32x16(weights + 64 * (taps - 1))
            for i in range(taps - 1):
                value = load_f32x16(window + 64 * i)
                total = fma(value, load_f32x16(weights + 64 * i), total)
                if i > 0:
                    store_f32x16(window + 64 * (i - 1), value)
            store_f32x16(window + 64 * (taps - 2), newest)
            store_first(address(desc, 0) + stride(desc, 0, 1) * t + 4 * start, silu(total), count)
        for i in range(taps - 1):
            store_first(state + stride(desc, 1, 1) * i, load_f32x16(window + 64 * i), count)


@helper
def _decayed(row, key, decay, n, seen):
    """Decay up to 16 values of a row in place; add their products with the key to `seen`."""
    m = load_first(row, n) * decay
    store_first(row, m, n)
    return fma(m, load_first(key, n), seen)


@helper
def _updated(row, key, query, delta, n, out):
    """Add delta·key to up to 16 values of a row in place; add their products with the query to `out`."""
    m = fma(delta, load_first(key, n), load_first(row, n))
    store_first(row, m, n)
    return fma(m, load_first(query, n), out)


@helper
def _delta_row(row, key, query, size, decay, value, beta):
    """One token for one row of the state: M ← decay·M + beta·(v - decay·M·k)·k; return M·q."""
    whole = size // 16 * 16
    seen = zeros()
    for i in range(0, whole, 16):
        m = load_f32x16(row + 4 * i) * decay
        store_f32x16(row + 4 * i, m)
        seen = fma(m, load_f32x16(key + 4 * i), seen)
    if whole < size:
        seen = _decayed(row + 4 * whole, key + 4 * whole, decay, size - whole, seen)
    delta = splat(beta * (value - sum_lanes(seen)))
    out = zeros()
    for i in range(0, whole, 16):
        m = fma(delta, load_f32x16(key + 4 * i), load_f32x16(row + 4 * i))
        store_f32x16(row + 4 * i, m)
        out = fma(m, load_f32x16(query + 4 * i), out)
    if whole < size:
        out = _updated(row + 4 * whole, key + 4 * whole, query + 4 * whole, delta, size - whole, out)
    return sum_lanes(out)


def _gated_delta_net(desc, ith, nth):
    """Operands: 2 queries [S, h, tokens], 3 keys, 4 values [V, H, tokens], 5 gates [H, tokens], 6 betas; state [S, V,
    H]."""
    size, width, heads, tokens = extent(desc, 2, 0), extent(desc, 0, 0), extent(desc, 0, 1), extent(desc, 0, 2)
    shared = extent(desc, 2, 1)
    scale = np.float32(1) / square_root(np.float32(size))
    pieces = (width + ROWS - 1) // ROWS
    first, last = share(heads * pieces, ith, nth)
    for item in range(first, last):
        head, start = item // pieces, (item % pieces) * ROWS
        end = min(width, start + ROWS)
        state = address(desc, 1) + stride(desc, 1, 2) * head
        for t in range(tokens):
            query = address(desc, 2) + stride(desc, 2, 1) * (head % shared) + stride(desc, 2, 2) * t
            key = address(desc, 3) + stride(desc, 3, 1) * (head % shared) + stride(desc, 3, 2) * t
            value = address(desc, 4) + stride(desc, 4, 1) * head + stride(desc, 4, 2) * t
            y = address(desc, 0) + stride(desc, 0, 1) * head + stride(desc, 0, 2) * t
            decay = exponential(splat(load_f32(address(desc, 5) + 4 * head + stride(desc, 5, 1) * t)))
            beta = load_f32(address(desc, 6) + 4 * head + stride(desc, 6, 1) * t)
            for j in range(start, end):
                row = state + stride(desc, 1, 1) * j
                out = _delta_row(row, key, query, size, decay, load_f32(value + 4 * j), beta)
                store_f32(y + 4 * j, out * scale)


KERNELS = {"causal_conv": _causal_conv, "gated_delta_net": _gated_delta_net}
