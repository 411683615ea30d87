"""Causal convolution and the gated delta rule, token after token, with a state that is updated in place or from zeros.

Operand 0 is the result, operand 1 the state (not read by the kernels that start from zeros). Threads share channels, or
rows of the state, never tokens: each part of a state is read and written by one thread, and a result does not depend on
how a prompt is cut.
"""

from __future__ import annotations

import numpy as np

from ..plan.layouts import STATE_ROWS as ROWS
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


@helper
def load_taps(weights, place, step, taps, count):
    """Write the weights [taps, channels] of up to 16 channels as rows of lanes."""
    for i in range(taps):
        store_f32x16(weights + 64 * i, zeros())
        for lane in range(count):
            store_f32(weights + 64 * i + 4 * lane, load_f32(place + step * lane + 4 * i))


@helper
def convolve(window, weights, taps, newest):
    """Add up the products of the weights with the `taps - 1` inputs of the window, the oldest first, and the newest
    one, which moves in."""
    total = newest * load_f32x16(weights + 64 * (taps - 1))
    for i in range(taps - 1):
        value = load_f32x16(window + 64 * i)
        total = fma(value, load_f32x16(weights + 64 * i), total)
        if i > 0:
            store_f32x16(window + 64 * (i - 1), value)
    store_f32x16(window + 64 * (taps - 2), newest)
    return total


def _causal_conv(kept):
    """Make the kernel with a state, of one sequence, or the one from zeros."""

    def kernel(desc, ith, nth):
        """Operands: 2 inputs [channels, tokens, sequences], 3 weights [taps, channels]; state [channels, taps - 1],
        oldest first."""
        channels, tokens, taps = extent(desc, 0, 0), extent(desc, 0, 1), extent(desc, 3, 0)
        weights = scratch(desc, ith)
        window = weights + 64 * taps
        blocks = (channels + 15) // 16
        first, last = share(blocks * extent(desc, 0, 2), ith, nth)
        for item in range(first, last):
            start, sequence = 16 * (item % blocks), item // blocks
            count = min(16, channels - start)
            load_taps(weights, address(desc, 3) + stride(desc, 3, 1) * start, stride(desc, 3, 1), taps, count)
            state = address(desc, 1) + 4 * start
            for i in range(taps - 1):
                oldest = load_first(state + stride(desc, 1, 1) * i, count) if kept else zeros()
                store_f32x16(window + 64 * i, oldest)
            y = address(desc, 0) + stride(desc, 0, 2) * sequence + 4 * start
            x = address(desc, 2) + stride(desc, 2, 2) * sequence + 4 * start
            for t in range(tokens):
                total = convolve(window, weights, taps, load_first(x + stride(desc, 2, 1) * t, count))
                store_first(y + stride(desc, 0, 1) * t, silu(total), count)
            if kept:
                for i in range(taps - 1):
                    store_first(state + stride(desc, 1, 1) * i, load_f32x16(window + 64 * i), count)

    return kernel


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


def _gated_delta_net(kept):
    """Make the kernel with a state, of one sequence, or the one from zeros."""

    def kernel(desc, ith, nth):
        """Operands: 2 queries [S, h, tokens, sequences], 3 keys, 4 values [V, H, tokens, sequences], 5 gates [H,
        tokens, sequences], 6 betas; state [S, V, H]. From zeros, scratch holds ROWS rows of S."""
        size, width, heads, tokens = extent(desc, 2, 0), extent(desc, 0, 0), extent(desc, 0, 1), extent(desc, 0, 2)
        shared = extent(desc, 2, 1)
        scale = np.float32(1) / square_root(np.float32(size))
        pieces = (width + ROWS - 1) // ROWS
        first, last = share(heads * pieces * extent(desc, 0, 3), ith, nth)
        for item in range(first, last):
            head, start, sequence = item // pieces % heads, (item % pieces) * ROWS, item // (pieces * heads)
            end = min(width, start + ROWS)
            state, step = scratch(desc, ith), 4 * size
            if kept:
                step = stride(desc, 1, 1)
                state = address(desc, 1) + stride(desc, 1, 2) * head + step * start
            else:
                for i in range(0, ROWS * size, 16):
                    store_first(state + 4 * i, zeros(), ROWS * size - i)
            place = head % shared
            for t in range(tokens):
                query = address(desc, 2) + stride(desc, 2, 1) * place + stride(desc, 2, 2) * t
                query += stride(desc, 2, 3) * sequence
                key = address(desc, 3) + stride(desc, 3, 1) * place + stride(desc, 3, 2) * t
                key += stride(desc, 3, 3) * sequence
                value = address(desc, 4) + stride(desc, 4, 1) * head + stride(desc, 4, 2) * t
                value += stride(desc, 4, 3) * sequence
                y = (
                    address(desc, 0)
                    + stride(desc, 0, 1) * head
                    + stride(desc, 0, 2) * t
                    + stride(desc, 0, 3) * sequence
                )
                gate = address(desc, 5) + 4 * head + stride(desc, 5, 1) * t + stride(desc, 5, 2) * sequence
                decay = exponential(splat(load_f32(gate)))
                beta = load_f32(address(desc, 6) + 4 * head + stride(desc, 6, 1) * t + stride(desc, 6, 2) * sequence)
                for j in range(start, end):
                    row = state + step * (j - start)
                    out = _delta_row(row, key, query, size, decay, load_f32(value + 4 * j), beta)
                    store_f32(y + 4 * j, out * scale)

    return kernel


KERNELS = {
    "causal_conv": _causal_conv(True),
    "causal_conv_from_zeros": _causal_conv(False),
    "gated_delta_net": _gated_delta_net(True),
    "gated_delta_net_from_zeros": _gated_delta_net(False),
}
