"""Matrix products: float weights with float32 activations, quantized weights with eight-bit activations.

Operand 1 holds the weights [K, M, …], operand 2 the activations [K, N, …] (for quantized weights the chunks of
`activations`), operand 0 the result [M, N, …]. Rows of the weights are shared among the threads; each result is
summed in the same order whatever N and the number of threads, so that neither changes a bit of it.
"""

from __future__ import annotations

from ..plan.layouts import CHUNK_BYTES
from .activations import SCALES, SUMS
from .jit import helper
from .operands import address, extent, share, stride
from .simd import (
    dot_generic,
    dot_vnni,
    fma,
    load_bf16x16,
    load_f16x16,
    load_f32x16,
    load_first,
    load_first_bf16,
    load_first_f16,
    load_i8x64,
    prefetch,
    splat_i8x64,
    store_f32,
    sum_lanes,
    to_float,
    zeros,
    zeros_i32,
)
from .unpack import PACKINGS

DOTS = {"avx512vnni": dot_vnni, "generic": dot_generic}

TOKEN_BLOCK = 64  # activations of so many tokens stay in the second-level cache while the weights pass
PREFETCH_AHEAD = 4096  # bytes: without it a row stream from memory gets a third of the bandwidth


def _quantized(packing, dot):
    """Products of one packing by one byte product: (row, x, k) → sum, and the same for four rows of x a step apart."""
    unpack, minima, per_block = packing.unpack, packing.minima, packing.block

    @helper
    def start(codes):
        """Minus 128 times the sum of the codes: cancels the 128 that was added to the activations, exactly."""
        return zeros_i32() - dot(zeros_i32(), splat_i8x64(-128), codes)

    @helper
    def add(total, chunk, first, codes, scale, minimum):
        """Add one chunk's part of the result to the lanes of `total`."""
        total = fma(to_float(dot(first, load_i8x64(chunk), codes)) * load_f32x16(chunk + SCALES), scale, total)
        if minima:
            total = fma(minimum, load_f32x16(chunk + SUMS), total)
        return total

    @helper
    def one(row, x, k):
        total = zeros()
        for c in range((k + 63) // 64):
            codes, scale, minimum = unpack(row, c, k // per_block)
            total = add(total, x + CHUNK_BYTES * c, start(codes), codes, scale, minimum)
        return sum_lanes(total)

    @helper
    def four(row, x, step, k):
        t0, t1, t2, t3 = zeros(), zeros(), zeros(), zeros()
        for c in range((k + 63) // 64):
            codes, scale, minimum = unpack(row, c, k // per_block)
            first = start(codes)
            chunk = x + CHUNK_BYTES * c
            t0 = add(t0, chunk, first, codes, scale, minimum)
            t1 = add(t1, chunk + step, first, codes, scale, minimum)
            t2 = add(t2, chunk + 2 * step, first, codes, scale, minimum)
            t3 = add(t3, chunk + 3 * step, first, codes, scale, minimum)
        return sum_lanes(t0), sum_lanes(t1), sum_lanes(t2), sum_lanes(t3)

    return one, four


@helper
def batch_addresses(desc, batch):
    """Addresses of the matrices of one batch: the weights' third and fourth extents divide the result's."""
    n2, n3 = extent(desc, 0, 2), extent(desc, 0, 3)
    i2, i3 = batch % n2, batch // n2
    w2, w3 = i2 // (n2 // extent(desc, 1, 2)), i3 // (n3 // extent(desc, 1, 3))
    w = address(desc, 1) + w2 * stride(desc, 1, 2) + w3 * stride(desc, 1, 3)
    x = address(desc, 2) + i2 * stride(desc, 2, 2) + i3 * stride(desc, 2, 3)
    return w, x, address(desc, 0) + i2 * stride(desc, 0, 2) + i3 * stride(desc, 0, 3)


def _float(load16, load_last, size):
    """The same for float weights of `size` bytes; `load_last(address, count)` loads a partial vector."""

    @helper
    def one(w, x, k):
        total = zeros()
        i = 0
        while i + 16 <= k:
            total = fma(load16(w + size * i), load_f32x16(x + 4 * i), total)
            i += 16
        if i < k:
            total = fma(load_last(w + size * i, k - i), load_first(x + 4 * i, k - i), total)
        return sum_lanes(total)

    @helper
    def four(w, x, step, k):
        t0, t1, t2, t3 = zeros(), zeros(), zeros(), zeros()
        i = 0
        while i + 16 <= k:
            weights = load16(w + size * i)
            a = x + 4 * i
            t0 = fma(weights, load_f32x16(a), t0)
            t1 = fma(weights, load_f32x16(a + step), t1)
            t2 = fma(weights, load_f32x16(a + 2 * step), t2)
            t3 = fma(weights, load_f32x16(a + 3 * step), t3)
            i += 16
        if i < k:
            weights = load_last(w + size * i, k - i)
            a, n = x + 4 * i, k - i
            t0 = fma(weights, load_first(a, n), t0)
            t1 = fma(weights, load_first(a + step, n), t1)
            t2 = fma(weights, load_first(a + 2 * step, n), t2)
            t3 = fma(weights, load_first(a + 3 * step, n), t3)
        return sum_lanes(t0), sum_lanes(t1), sum_lanes(t2), sum_lanes(t3)

    return one, four


def _matrix(one, four):
    """Kernel for one pair of products: four tokens at a time while the row is at hand."""

    def kernel(desc, ith, nth):
        k, n = extent(desc, 1, 0), extent(desc, 0, 1)
        step_w, step_x, step_y = stride(desc, 1, 1), stride(desc, 2, 1), stride(desc, 0, 1)
        first, last = share(extent(desc, 0, 0), ith, nth)
        for batch in range(extent(desc, 0, 2) * extent(desc, 0, 3)):
            w, x, y = batch_addresses(desc, batch)
            for block in range(0, n, TOKEN_BLOCK):
                end = min(n, block + TOKEN_BLOCK)
                for row in range(first, last):
                    weights = w + step_w * row
                    for ahead in range(0, step_w, 64):
                        prefetch(weights + PREFETCH_AHEAD + ahead)
                    t = block
                    while t + 4 <= end:
                        r0, r1, r2, r3 = four(weights, x + step_x * t, step_x, k)
                        place = y + step_y * t + 4 * row
                        store_f32(place, r0)
                        store_f32(place + step_y, r1)
                        store_f32(place + 2 * step_y, r2)
                        store_f32(place + 3 * step_y, r3)
                        t += 4
                    while t < end:
                        store_f32(y + step_y * t + 4 * row, one(weights, x + step_x * t, k))
                        t += 1

    return kernel


# kernel name -> (product with one row of activations, with four)
PRODUCTS = {
    f"{name}@{isa}": _quantized(packing, dot) for name, packing in PACKINGS.items() for isa, dot in DOTS.items()
} | {
    "f32": _float(load_f32x16, load_first, 4),
    "f16": _float(load_f16x16, load_first_f16, 2),
    "bf16": _float(load_bf16x16, load_first_bf16, 2),
}
KERNELS = {name: _matrix(*pair) for name, pair in PRODUCTS.items()}
