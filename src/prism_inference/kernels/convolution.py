"""The way back through causal convolution, and convolution along time with its ways back.

Threads share channels: each gradient is added up by one thread. Knows no state.
"""

from __future__ import annotations

import numpy as np

from .jit import helper
from .mathematics import sigmoid
from .operands import address, extent, scratch, share, stride
from .recurrent import convolve, load_taps
from .simd import fma, load_f32, load_f32x16, load_first, splat, store_f32, store_f32x16, store_first, zeros

RUN = 64  # tokens whose part of the weights' gradient is added up before it joins the rest: bounds the rounding


@helper
def _flush(total, part, taps):
    """total += part; part = 0."""
    for i in range(taps):
        store_f32x16(total + 64 * i, load_f32x16(total + 64 * i) + load_f32x16(part + 64 * i))
        store_f32x16(part + 64 * i, zeros())


@helper
def _push(slopes, weights, taps, newest):
    """Let dz of a token move into the last `taps` of them; return dx of the token `taps - 1` before."""
    total = newest * load_f32x16(weights)
    for i in range(1, taps):
        value = load_f32x16(slopes + 64 * i)
        store_f32x16(slopes + 64 * (i - 1), value)
        total = fma(value, load_f32x16(weights + 64 * (taps - i)), total)
    store_f32x16(slopes + 64 * (taps - 1), newest)
    return total


@helper
def _slope(window, weights, part, taps, newest, gradient):
    """dz of one token; its products with the inputs are added to the part of the weights' gradient."""
    oldest = load_f32x16(window)
    z = convolve(window, weights, taps, newest)
    sigma = sigmoid(z)
    one = splat(np.float32(1))
    slope = gradient * sigma * fma(z, one - sigma, one)
    store_f32x16(part, fma(slope, oldest, load_f32x16(part)))
    for i in range(1, taps):
        store_f32x16(part + 64 * i, fma(slope, load_f32x16(window + 64 * (i - 1)), load_f32x16(part + 64 * i)))
    return slope


def _causal_conv_back(desc, ith, nth):
    """Operands: 0 and 1 gradients of inputs [channels, tokens, sequences] and weights [taps, channels], 2 gradient of
    the result, 3 inputs, 4 weights. With z before the silu: dz = g·silu'(z), dx[t] = Σ_i w[i]·dz[t + taps - 1 - i],
    dw[i] = Σ_t dz[t]·x[t - taps + 1 + i]. Scratch per thread: five rows of 16 float32 for each tap.
    """
    channels, tokens, taps = extent(desc, 3, 0), extent(desc, 3, 1), extent(desc, 4, 0)
    weights = scratch(desc, ith)
    total, part = weights + 64 * taps, weights + 128 * taps
    slopes, window = weights + 192 * taps, weights + 256 * taps
    first, last = share((channels + 15) // 16, ith, nth)
    for block in range(first, last):
        start = 16 * block
        count = min(16, channels - start)
        load_taps(weights, address(desc, 4) + stride(desc, 4, 1) * start, stride(desc, 4, 1), taps, count)
        for i in range(2 * taps):
            store_f32x16(total + 64 * i, zeros())
        for sequence in range(extent(desc, 3, 2)):
            for i in range(2 * taps - 1):
                store_f32x16(slopes + 64 * i, zeros())
            y = address(desc, 0) + stride(desc, 0, 2) * sequence + 4 * start
            g = address(desc, 2) + stride(desc, 2, 2) * sequence + 4 * start
            x = address(desc, 3) + stride(desc, 3, 2) * sequence + 4 * start
            for t in range(tokens + taps - 1):
                slope = zeros()
                if t < tokens:
                    newest, gradient = x + stride(desc, 3, 1) * t, g + stride(desc, 2, 1) * t
                    slope = _slope(window, weights, part, taps, load_first(newest, count), load_first(gradient, count))
                dx = _push(slopes, weights, taps, slope)
                if t >= taps - 1:
                    store_first(y + stride(desc, 0, 1) * (t - taps + 1), dx, count)
                if t % RUN == RUN - 1:
                    _flush(total, part, taps)
            _flush(total, part, taps)
        for i in range(taps):
            for lane in range(count):
                place = address(desc, 1) + stride(desc, 1, 1) * (start + lane) + 4 * i
                store_f32(place, load_f32(total + 64 * i + 4 * lane))


# --- Along time ------------------------------------------------------------------------------------------


def _ssm_conv(desc, ith, nth):
    """Operands: 0 result [channels, tokens, sequences], 1 inputs [taps - 1 + tokens, channels, sequences], 2 weights
    [taps, channels]."""
    channels, taps = extent(desc, 0, 0), extent(desc, 2, 0)
    first, last = share(channels, ith, nth)
    for sequence in range(extent(desc, 0, 2)):
        for channel in range(first, last):
            y = address(desc, 0) + stride(desc, 0, 2) * sequence + 4 * channel
            x = address(desc, 1) + stride(desc, 1, 2) * sequence + stride(desc, 1, 1) * channel
            w = address(desc, 2) + stride(desc, 2, 1) * channel
            for t in range(extent(desc, 0, 1)):
                total = np.float32(0)
                for i in range(taps):
                    total += load_f32(x + 4 * (t + i)) * load_f32(w + 4 * i)
                store_f32(y + stride(desc, 0, 1) * t, total)


def _ssm_conv_inputs(desc, ith, nth):
    """Operands: 0 gradient of the inputs, 1 gradient of the result, 2 weights."""
    channels, tokens, taps = extent(desc, 1, 0), extent(desc, 1, 1), extent(desc, 2, 0)
    first, last = share(channels, ith, nth)
    for sequence in range(extent(desc, 0, 2)):
        for channel in range(first, last):
            y = address(desc, 0) + stride(desc, 0, 2) * sequence + stride(desc, 0, 1) * channel
            g = address(desc, 1) + stride(desc, 1, 2) * sequence + 4 * channel
            w = address(desc, 2) + stride(desc, 2, 1) * channel
            for place in range(tokens + taps - 1):
                total = np.float32(0)
                for i in range(max(0, place - tokens + 1), min(taps, place + 1)):
                    total += load_f32(g + stride(desc, 1, 1) * (place - i)) * load_f32(w + 4 * i)
                store_f32(y + 4 * place, total)


def _ssm_conv_weights(desc, ith, nth):
    """Operands: 0 gradient of the weights, 1 gradient of the result, 2 inputs."""
    channels, tokens, taps = extent(desc, 1, 0), extent(desc, 1, 1), extent(desc, 0, 0)
    first, last = share(channels, ith, nth)
    for channel in range(first, last):
        for i in range(taps):
            total = 0.0
            for sequence in range(extent(desc, 1, 2)):
                g = address(desc, 1) + stride(desc, 1, 2) * sequence + 4 * channel
                x = address(desc, 2) + stride(desc, 2, 2) * sequence + stride(desc, 2, 1) * channel
                for t in range(tokens):
                    total += np.float64(load_f32(g + stride(desc, 1, 1) * t)) * np.float64(load_f32(x + 4 * (t + i)))
            store_f32(address(desc, 0) + stride(desc, 0, 1) * channel + 4 * i, np.float32(total))


KERNELS = {
    "causal_conv_back": _causal_conv_back,
    "ssm_conv": _ssm_conv,
    "ssm_conv_back.inputs": _ssm_conv_inputs,
    "ssm_conv_back.weights": _ssm_conv_weights,
}
