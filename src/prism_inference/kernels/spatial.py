"""Images and signals: unfolding and its way back, pooling and its way back, resizing and its way back.

Operands are float32; results are contiguous. Threads share planes or rows of the result, so that none adds to
another's. Extents are [width, height, channels, images].
"""

from __future__ import annotations

import numpy as np

from .jit import helper
from .operands import address, extent, parameter, row_address, rows, share, stride
from .simd import load_f32, load_i32, store_f32

_LOWEST = np.float32(-np.inf)


def _im2col(desc, ith, nth):
    """Operands: 0 columns [C·KH·KW, OW, OH, N], 1 image [W, H, C, N] with any strides.

    Parameters: strides, paddings, dilations, KW, KH as width | height << 32 each: see `_pair`.
    """
    kw, kh = _pair(desc, 3)
    n1, n2 = extent(desc, 0, 1), extent(desc, 0, 2)
    width, height, across, down = extent(desc, 1, 0), extent(desc, 1, 1), stride(desc, 1, 0), stride(desc, 1, 1)
    first, last = share(rows(desc, 0), ith, nth)
    for row in range(first, last):
        ow, oh, n = row % n1, (row // n1) % n2, row // (n1 * n2)
        to = row_address(desc, 0, row)
        for c in range(extent(desc, 1, 2)):
            plane = address(desc, 1) + c * stride(desc, 1, 2) + n * stride(desc, 1, 3)
            for j in range(kh):
                for i in range(kw):
                    x, y, inside = _place(desc, ow, oh, i, j, width, height)
                    store_f32(to, load_f32(plane + x * across + y * down) if inside else np.float32(0))
                    to += 4


@helper
def _pair(desc, number):
    """Two numbers below 2^31 in one parameter: of the width, of the height."""
    both = parameter(desc, number)
    return both & 0xFFFFFFFF, both >> 32


@helper
def _place(desc, ow, oh, i, j, width, height):
    """The column and row of the image that place (i, j) of the kernel meets at (ow, oh), and whether it has them."""
    s0, s1 = _pair(desc, 0)
    p0, p1 = _pair(desc, 1)
    d0, d1 = _pair(desc, 2)
    x, y = ow * s0 - p0 + i * d0, oh * s1 - p1 + j * d1
    return x, y, x >= 0 and x < width and y >= 0 and y < height


@helper
def _add(place, value):
    store_f32(place, load_f32(place) + value)


@helper
def _larger(value, best):
    """Whether a value takes the place of the largest so far; the first that is not a number keeps it."""
    return best == best and not value <= best


def _im2col_back(desc, ith, nth):
    """Operands: 0 image, contiguous, 1 gradient of the columns, contiguous; parameters as `_im2col`."""
    kw, kh = _pair(desc, 3)
    width, height, channels = extent(desc, 0, 0), extent(desc, 0, 1), extent(desc, 0, 2)
    first, last = share(channels * extent(desc, 0, 3), ith, nth)
    for plane in range(first, last):
        c, n = plane % channels, plane // channels
        to = address(desc, 0) + c * stride(desc, 0, 2) + n * stride(desc, 0, 3)
        for i in range(width * height):
            store_f32(to + 4 * i, np.float32(0))
        for oh in range(extent(desc, 1, 2)):
            for ow in range(extent(desc, 1, 1)):
                g = address(desc, 1) + ow * stride(desc, 1, 1) + oh * stride(desc, 1, 2) + n * stride(desc, 1, 3)
                g += 4 * c * kh * kw
                for j in range(kh):
                    for i in range(kw):
                        x, y, inside = _place(desc, ow, oh, i, j, width, height)
                        if inside:
                            _add(to + 4 * (y * width + x), load_f32(g))
                        g += 4


def _pool_2d(desc, ith, nth):
    """Operands: 0 result, 1 image with any strides. Parameters as `_im2col`, 4: 1 for the mean over a window, 2
    over what of it lies inside. Something of every window does."""
    kw, kh = _pair(desc, 3)
    mean = parameter(desc, 4)
    n1, n2 = extent(desc, 0, 1), extent(desc, 0, 2)
    width, height, across, down = extent(desc, 1, 0), extent(desc, 1, 1), stride(desc, 1, 0), stride(desc, 1, 1)
    first, last = share(rows(desc, 0), ith, nth)
    for row in range(first, last):
        oh, c, n = row % n1, (row // n1) % n2, row // (n1 * n2)
        plane = address(desc, 1) + c * stride(desc, 1, 2) + n * stride(desc, 1, 3)
        to = row_address(desc, 0, row)
        for ow in range(extent(desc, 0, 0)):
            best, total, count = _LOWEST, 0.0, kw * kh if mean == 1 else 0
            for j in range(kh):
                for i in range(kw):
                    x, y, inside = _place(desc, ow, oh, i, j, width, height)
                    if inside:
                        value = load_f32(plane + x * across + y * down)
                        best, total = value if _larger(value, best) else best, total + value
                        count += mean // 2
            store_f32(to + 4 * ow, total / count if mean != 0 else best)


def _pool_2d_back(desc, ith, nth):
    """Operands: 0 result, contiguous, 1 gradient, contiguous, 2 image with any strides; parameters as `_pool_2d`."""
    kw, kh = _pair(desc, 3)
    mean = parameter(desc, 4) != 0
    width, height, channels = extent(desc, 0, 0), extent(desc, 0, 1), extent(desc, 0, 2)
    across, down = stride(desc, 2, 0), stride(desc, 2, 1)
    first, last = share(channels * extent(desc, 0, 3), ith, nth)
    for plane in range(first, last):
        c, n = plane % channels, plane // channels
        to = address(desc, 0) + c * stride(desc, 0, 2) + n * stride(desc, 0, 3)
        a = address(desc, 2) + c * stride(desc, 2, 2) + n * stride(desc, 2, 3)
        for i in range(width * height):
            store_f32(to + 4 * i, np.float32(0))
        for oh in range(extent(desc, 1, 1)):
            for ow in range(extent(desc, 1, 0)):
                g = load_f32(
                    address(desc, 1)
                    + 4 * ow
                    + oh * stride(desc, 1, 1)
                    + c * stride(desc, 1, 2)
                    + n * stride(desc, 1, 3)
                )
                best, place = _LOWEST, -1
                for j in range(kh):
                    for i in range(kw):
                        x, y, inside = _place(desc, ow, oh, i, j, width, height)
                        if not inside:
                            continue
                        if mean:
                            _add(to + 4 * (y * width + x), g / np.float32(kw * kh))
                            continue
                        value = load_f32(a + x * across + y * down)
                        if place < 0 or _larger(value, best):
                            best, place = value, y * width + x
                if not mean and place >= 0:
                    _add(to + 4 * place, g)


@helper
def _taps(desc, k, number, size):
    """Two places and the weight of the second, from the table of a dimension (int32, int32, float32 [size])."""
    table = address(desc, k)
    first, second = load_i32(table + 4 * number), load_i32(table + 4 * (size + number))
    return first, second, load_f32(table + 4 * (2 * size + number))


@helper
def _between(a, b, weight):
    """From a to b; b has no part in it, be it infinite, where the weight is 0."""
    return a if weight == 0 else a * (np.float32(1) - weight) + b * weight


def _upscale(desc, ith, nth):
    """Operands: 0 result, 1 source with any strides, 2 … 5 tables of the dimensions."""
    n0, n1, n2, n3 = extent(desc, 0, 0), extent(desc, 0, 1), extent(desc, 0, 2), extent(desc, 0, 3)
    first, last = share(rows(desc, 0), ith, nth)
    for row in range(first, last):
        i1, i2, i3 = row % n1, (row // n1) % n2, row // (n1 * n2)
        j2, _, _ = _taps(desc, 4, i2, n2)
        j3, _, _ = _taps(desc, 5, i3, n3)
        plane = address(desc, 1) + j2 * stride(desc, 1, 2) + j3 * stride(desc, 1, 3)
        top, bottom, v = _taps(desc, 3, i1, n1)
        a, b = plane + top * stride(desc, 1, 1), plane + bottom * stride(desc, 1, 1)
        y = row_address(desc, 0, row)
        for i0 in range(n0):
            left, right, u = _taps(desc, 2, i0, n0)
            x0, x1 = left * stride(desc, 1, 0), right * stride(desc, 1, 0)
            over = _between(load_f32(a + x0), load_f32(a + x1), u)
            under = _between(load_f32(b + x0), load_f32(b + x1), u)
            store_f32(y + 4 * i0, _between(over, under, v))


@helper
def _divide(line, left, right, weight, value):
    """Add the parts of a value to two places of a line."""
    _add(line + 4 * left, value * (np.float32(1) - weight))
    if weight != 0:
        _add(line + 4 * right, value * weight)


def _upscale_back(desc, ith, nth):
    """Operands: 0 result, contiguous, 1 gradient, contiguous, 2 … 5 tables of the gradient's dimensions."""
    n0, n1, n2, n3 = extent(desc, 1, 0), extent(desc, 1, 1), extent(desc, 1, 2), extent(desc, 1, 3)
    width, height, channels = extent(desc, 0, 0), extent(desc, 0, 1), extent(desc, 0, 2)
    first, last = share(channels * extent(desc, 0, 3), ith, nth)
    for plane in range(first, last):
        c, n = plane % channels, plane // channels
        y = address(desc, 0) + c * stride(desc, 0, 2) + n * stride(desc, 0, 3)
        for i in range(width * height):
            store_f32(y + 4 * i, np.float32(0))
        for i3 in range(n3):
            j3, _, _ = _taps(desc, 5, i3, n3)
            for i2 in range(n2):
                j2, _, _ = _taps(desc, 4, i2, n2)
                if j2 != c or j3 != n:
                    continue
                for i1 in range(n1):
                    top, bottom, v = _taps(desc, 3, i1, n1)
                    g = address(desc, 1) + i1 * stride(desc, 1, 1) + i2 * stride(desc, 1, 2) + i3 * stride(desc, 1, 3)
                    for i0 in range(n0):
                        left, right, u = _taps(desc, 2, i0, n0)
                        value = load_f32(g + 4 * i0)
                        _divide(y + 4 * top * width, left, right, u, value * (np.float32(1) - v))
                        if v != 0:
                            _divide(y + 4 * bottom * width, left, right, u, value * v)


KERNELS = {
    "im2col": _im2col,
    "im2col_back": _im2col_back,
    "pool_2d": _pool_2d,
    "pool_2d_back": _pool_2d_back,
    "upscale": _upscale,
    "upscale_back": _upscale_back,
}
