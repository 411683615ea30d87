"""Element by element: addition and product with broadcasting, scale and offset, gates.

Rows are shared among the threads. Operand 0 is the result; every operand's own strides are honoured.
"""

from __future__ import annotations

from .jit import helper
from .mathematics import gelu_tanh, sigmoid, silu, softplus, tanh
from .operands import address, extent, parameter_f32, row_address, rows, share, stride
from .simd import (
    fma,
    load_f32,
    load_f32x16,
    load_first,
    splat,
    store_f32,
    store_f32x16,
    store_first,
)


@helper
def broadcast_row(desc, k, row):
    """Row of operand k that meets row `row` of the result: its extents divide the result's."""
    n1, n2 = extent(desc, 0, 1), extent(desc, 0, 2)
    i1, i2, i3 = row % n1, (row // n1) % n2, row // (n1 * n2)
    place = (i1 % extent(desc, k, 1)) * stride(desc, k, 1) + (i2 % extent(desc, k, 2)) * stride(desc, k, 2)
    return address(desc, k) + place + (i3 % extent(desc, k, 3)) * stride(desc, k, 3)


@helper
def _added(a, b):
    return a + b


@helper
def _multiplied(a, b):
    return a * b


@helper
def _divided(a, b):
    return a / b


def _binary(combine):
    """Kernel y = combine(a, b), float32, b repeated to a's shape."""

    def kernel(desc, ith, nth):
        n = extent(desc, 0, 0)
        nb = extent(desc, 2, 0)
        sa, sb, sy = stride(desc, 1, 0), stride(desc, 2, 0), stride(desc, 0, 0)
        first, last = share(rows(desc, 0), ith, nth)
        for row in range(first, last):
            y, a, b = row_address(desc, 0, row), row_address(desc, 1, row), broadcast_row(desc, 2, row)
            if nb == n and sa == 4 and sb == 4 and sy == 4:
                i = 0
                while i + 16 <= n:
                    store_f32x16(y + 4 * i, combine(load_f32x16(a + 4 * i), load_f32x16(b + 4 * i)))
                    i += 16
                if i < n:
                    value = combine(load_first(a + 4 * i, n - i), load_first(b + 4 * i, n - i))
                    store_first(y + 4 * i, value, n - i)
            elif nb == 1 and sa == 4 and sy == 4:
                same = splat(load_f32(b))
                for i in range(0, n, 16):
                    store_first(y + 4 * i, combine(load_first(a + 4 * i, n - i), same), n - i)
            else:
                for i in range(n):
                    store_f32(y + sy * i, combine(load_f32(a + sa * i), load_f32(b + sb * (i % nb))))

    return kernel


def _scale(desc, ith, nth):
    """y = a·scale + offset."""
    n = extent(desc, 0, 0)
    factor, offset = splat(parameter_f32(desc, 0)), splat(parameter_f32(desc, 1))
    first, last = share(rows(desc, 0), ith, nth)
    for row in range(first, last):
        y, a = row_address(desc, 0, row), row_address(desc, 1, row)
        for i in range(0, n, 16):
            store_first(y + 4 * i, fma(load_first(a + 4 * i, n - i), factor, offset), n - i)


def _unary(function):
    """Kernel y = function(a), float32, rows contiguous."""

    def kernel(desc, ith, nth):
        n = extent(desc, 0, 0)
        first, last = share(rows(desc, 0), ith, nth)
        for row in range(first, last):
            y, a = row_address(desc, 0, row), row_address(desc, 1, row)
            for i in range(0, n, 16):
                store_first(y + 4 * i, function(load_first(a + 4 * i, n - i)), n - i)

    return kernel


def _gate(activation):
    """Kernel y = activation(a) · b, float32, rows contiguous."""

    def kernel(desc, ith, nth):
        n = extent(desc, 0, 0)
        # Units of 256 values, so that the threads share one long row too.
        pieces = (n + 255) // 256
        first, last = share(rows(desc, 0) * pieces, ith, nth)
        for item in range(first, last):
            row, start = item // pieces, (item % pieces) * 256
            y, a, b = row_address(desc, 0, row), row_address(desc, 1, row), row_address(desc, 2, row)
            end = min(n, start + 256)
            i = start
            while i + 16 <= end:
                store_f32x16(y + 4 * i, activation(load_f32x16(a + 4 * i)) * load_f32x16(b + 4 * i))
                i += 16
            if i < end:
                value = activation(load_first(a + 4 * i, end - i)) * load_first(b + 4 * i, end - i)
                store_first(y + 4 * i, value, end - i)

    return kernel


KERNELS = {
    "add": _binary(_added),
    "mul": _binary(_multiplied),
    "div": _binary(_divided),
    "scale": _scale,
    "sigmoid": _unary(sigmoid),
    "silu": _unary(silu),
    "softplus": _unary(softplus),
    "tanh": _unary(tanh),
    "swiglu": _gate(silu),
    "geglu": _gate(gelu_tanh),
}
