"""Rows of a table picked by an index and decoded to float32: token embeddings, selected positions.

Operand 1 is the table [K, R], operand 2 the int32 index, operand 0 the result. Decoded values are the reference
decoder's, bit for bit.
"""

from __future__ import annotations

from .copies import FLOATS, line
from .jit import helper
from .operands import address, extent, row_address, rows, share, stride
from .simd import (
    float_of_bytes0,
    float_of_bytes1,
    float_of_bytes2,
    float_of_bytes3,
    load_i32,
    spread0,
    spread1,
    spread2,
    spread3,
    store_first,
)
from .unpack import PACKINGS


@helper
def _source(desc, row):
    """Address of the table's row that belongs to row `row` of the result."""
    n1, n2 = extent(desc, 0, 1), extent(desc, 0, 2)
    i1, i2, i3 = row % n1, (row // n1) % n2, row // (n1 * n2)
    index = address(desc, 2) + i1 * stride(desc, 2, 0) + i2 * stride(desc, 2, 1) + i3 * stride(desc, 2, 2)
    return address(desc, 1) + load_i32(index) * stride(desc, 1, 1) + i2 * stride(desc, 1, 2) + i3 * stride(desc, 1, 3)


def _quantized(packing):
    unpack, per_block, minima = packing.unpack, packing.block, packing.minima

    def kernel(desc, ith, nth):
        n = extent(desc, 0, 0)
        chunks = (n + 63) // 64
        first, last = share(rows(desc, 0) * chunks, ith, nth)
        for item in range(first, last):
            row, c = item // chunks, item % chunks
            codes, scale, minimum = unpack(_source(desc, row), c, n // per_block)
            y = row_address(desc, 0, row) + 256 * c
            v0, v1 = float_of_bytes0(codes) * spread0(scale), float_of_bytes1(codes) * spread1(scale)
            v2, v3 = float_of_bytes2(codes) * spread2(scale), float_of_bytes3(codes) * spread3(scale)
            if minima:
                v0, v1 = v0 + spread0(minimum), v1 + spread1(minimum)
                v2, v3 = v2 + spread2(minimum), v3 + spread3(minimum)
            count = n - 64 * c
            store_first(y, v0, count)
            store_first(y + 64, v1, count - 16)
            store_first(y + 128, v2, count - 32)
            store_first(y + 192, v3, count - 48)

    return kernel


def _float(source):
    copy = line(source, "f32")

    def kernel(desc, ith, nth):
        n = extent(desc, 0, 0)
        step_a, step_y = stride(desc, 1, 0), stride(desc, 0, 0)
        first, last = share(rows(desc, 0), ith, nth)
        for row in range(first, last):
            copy(row_address(desc, 0, row), step_y, _source(desc, row), step_a, n)

    return kernel


KERNELS = {name: _quantized(packing) for name, packing in PACKINGS.items()} | {name: _float(name) for name in FLOATS}
