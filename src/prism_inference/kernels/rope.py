"""Rotary position embedding: one table of cosines and sines per batch, then a rotation of each head, and its way back.

The table is computed in float64 from the positions and inverse frequencies, so that it stays exact at large
positions; it is shared by all layers that rotate alike.
"""

from __future__ import annotations

import numpy as np

from .jit import helper
from .mathematics import sine_cosine
from .operands import address, extent, parameter, parameter_f32, row_address, rows, share, stride
from .simd import (
    evens,
    load_f32,
    load_f32x16,
    load_f64,
    load_i32,
    load_i64,
    odds,
    store_f32,
    store_f32x16,
    zip_high,
    zip_low,
)


def _table(desc, ith, nth):
    """Result [2, pairs, tokens]: (cos, sin)·magnitude of position·frequency/factor.

    Operands: positions (int32 [tokens, channels]), constants (float64 frequencies [pairs], then int64 channels
    [pairs]), and factors (float32 [pairs]) if parameter 1 is set. Parameter 0: magnitude.
    """
    magnitude = parameter_f32(desc, 0)
    pairs = extent(desc, 0, 1)
    first, last = share(extent(desc, 0, 2), ith, nth)
    for token in range(first, last):
        place = address(desc, 1) + token * stride(desc, 1, 0)
        y = address(desc, 0) + token * stride(desc, 0, 2)
        for i in range(pairs):
            channel = load_i64(address(desc, 2) + 8 * (pairs + i))
            position = np.float64(load_i32(place + channel * stride(desc, 1, 1)))
            angle = position * load_f64(address(desc, 2) + 8 * i)
            if parameter(desc, 1) != 0:
                angle = angle / np.float64(load_f32(address(desc, 3) + 4 * i))
            sine, cosine = sine_cosine(angle)
            store_f32(y + 8 * i, np.float32(cosine) * magnitude)
            store_f32(y + 8 * i + 4, np.float32(sine) * magnitude)


def _rotation(back):
    """Make the kernel of the rotation, or of its transpose: the same by the negative angle."""

    @helper
    def turned(p, q, cosine, sine):
        """A pair (or 16 of them) after the turn."""
        if back:
            return p * cosine + q * sine, q * cosine - p * sine
        return p * cosine - q * sine, p * sine + q * cosine

    @helper
    def sixteen(y, a, table, distance):
        """16 pairs: neighbours where the distance is one value, else 16 values each from two places."""
        low, high = load_f32x16(table), load_f32x16(table + 64)
        cosine, sine = evens(low, high), odds(low, high)
        if distance == 4:
            low, high = load_f32x16(a), load_f32x16(a + 64)
            p, q = turned(evens(low, high), odds(low, high), cosine, sine)
            store_f32x16(y, zip_low(p, q))
            store_f32x16(y + 64, zip_high(p, q))
        else:
            p, q = turned(load_f32x16(a), load_f32x16(a + distance), cosine, sine)
            store_f32x16(y, p)
            store_f32x16(y + distance, q)

    def rotate(desc, ith, nth):
        """Rotate the pairs of each row [n, heads, tokens]; values beyond the rotated ones are copied.

        Operand 2 is the table. Parameter 0: distance between the two of a pair, in values; parameter 1: step from pair
        to pair (2 where the distance is 1, else 1).
        """
        n, heads = extent(desc, 0, 0), extent(desc, 0, 1)
        distance, step = parameter(desc, 0) * 4, parameter(desc, 1) * 4
        pairs = extent(desc, 2, 1)
        first, last = share(rows(desc, 0), ith, nth)
        for row in range(first, last):
            y, a = row_address(desc, 0, row), row_address(desc, 1, row)
            table = address(desc, 2) + ((row // heads) % extent(desc, 2, 2)) * stride(desc, 2, 2)
            for i in range(0, pairs - 15, 16):
                sixteen(y + i * step, a + i * step, table + 8 * i, distance)
            for i in range(pairs // 16 * 16, pairs):
                p, q = load_f32(a + i * step), load_f32(a + i * step + distance)
                p, q = turned(p, q, load_f32(table + 8 * i), load_f32(table + 8 * i + 4))
                store_f32(y + i * step, p)
                store_f32(y + i * step + distance, q)
            for i in range(2 * pairs, n):
                store_f32(y + 4 * i, load_f32(a + 4 * i))

    return rotate


KERNELS = {"table": _table, "rotate": _rotation(False), "rotate_back": _rotation(True)}
