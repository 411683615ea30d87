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
    load_bf16x16,
    load_f16x16,
    load_f32x16,
    load_first,
    load_first_bf16,
    load_first_f16,
    load_i32,
    splat_i8x64,
    spread0,
    spread1,
    store_f32x16,
    store_first,
)
from .unpack import PACKINGS

# Float type -> (load 16, load the first of 16, bytes).
PARTS = {
    "f32": (load_f32x16, load_first, 4),
    "f16": (load_f16x16, load_first_f16, 2),
    "bf16": (load_bf16x16, load_first_bf16, 2),
}


@helper
def _source(desc, row):
    """Address of the table's row that belongs to row `row` of the result."""
    n1, n2 = extent(desc, 0, 1), extent(desc, 0, 2)
    i1, i2, i3 = row % n1, (row // n1) % n2, row // (n1 * n2)
    index = address(desc, 2) + i1 * stride(desc, 2, 0) + i2 * stride(desc, 2, 1) + i3 * stride(desc, 2, 2)
    return address(desc, 1) + load_i32(index) * stride(desc, 1, 1) + i2 * stride(desc, 1, 2) + i3 * stride(desc, 1, 3)


def decoder(packing):
    """Make the helper that decodes one chunk of a quantized row: (row, chunk, n, to), up to 64 float32 values."""
    unpack, scales, per_block, minima = packing.codes, packing.scales, packing.block, packing.minima
    offset = 0 if packing.offset is None else 1 << packing.offset

    @helper
    def decode(row, c, n, y):
        codes = unpack(row, c, n // per_block) - splat_i8x64(offset)
        scale, second, minimum = scales(row, 0, c, n // per_block)  # eight times the same row
        v0, v1 = float_of_bytes0(codes) * spread0(scale), float_of_bytes1(codes) * spread0(second)
        v2, v3 = float_of_bytes2(codes) * spread1(scale), float_of_bytes3(codes) * spread1(second)
        if minima:
            v0, v1 = v0 + spread0(minimum), v1 + spread0(minimum)
            v2, v3 = v2 + spread1(minimum), v3 + spread1(minimum)
        count = n - 64 * c
        store_first(y, v0, count)
        store_first(y + 64, v1, count - 16)
        store_first(y + 128, v2, count - 32)
        store_first(y + 192, v3, count - 48)

    return decode


def float_decoder(source):
    """The same for a row of a float type."""
    load16, load_last, size = PARTS[source]

    @helper
    def decode(row, c, n, y):
        place, count = row + 64 * size * c, n - 64 * c
        for i in range(0, 64, 16):
            if count >= i + 16:
                store_f32x16(y + 4 * i, load16(place + size * i))
            elif count > i:
                store_first(y + 4 * i, load_last(place + size * i, count - i), count - i)

    return decode


# type name -> helper that decodes one chunk
DECODERS = {name: decoder(packing) for name, packing in PACKINGS.items()} | {
    name: float_decoder(name) for name in FLOATS
}


def _quantized(decode):
    def kernel(desc, ith, nth):
        n = extent(desc, 0, 0)
        chunks = (n + 63) // 64
        first, last = share(rows(desc, 0) * chunks, ith, nth)
        for item in range(first, last):
            row, c = item // chunks, item % chunks
            decode(_source(desc, row), c, n, row_address(desc, 0, row) + 256 * c)

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


KERNELS = {name: _quantized(DECODERS[name]) for name in PACKINGS} | {name: _float(name) for name in FLOATS}
