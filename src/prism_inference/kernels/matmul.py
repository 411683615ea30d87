"""Matrix products: float weights with float32 activations, quantized weights with eight-bit activations.

Operand 1 holds the weights [K, M, …], operand 2 the activations [K, N, …] (for quantized weights the chunks of
`activations`), operand 0 the result [M, N, …]. Rows of the weights are shared among the threads; each result is
summed in the same order whatever N and the number of threads, so that neither changes a bit of it.

Quantized weights: a block of 32 products is summed exactly, in integers, and times both scales added to one of two
sums, one over the even and one over the odd blocks. Few tokens meet eight rows at a time, whose bytes are read as they
lie in the file. For many, rows become the lanes of a panel in scratch (`byte_panel_scratch` bytes a thread), of which
tiles are multiplied in registers.
"""

from __future__ import annotations

from dataclasses import replace

from ..plan.layouts import BYTE_PANEL_BYTES as PANEL_BYTES
from ..plan.layouts import BYTE_PANEL_DEPTH as DEPTH
from ..plan.layouts import BYTE_PANEL_TOKENS as TOKEN_BLOCK
from ..plan.layouts import CHUNK_BYTES
from ..plan.layouts import CHUNK_SCALES as SCALES
from ..plan.layouts import CHUNK_SUMS as SUMS
from ..plan.layouts import CHUNK_TOTALS as TOTALS
from .jit import helper
from .operands import address, extent, scratch, share, stride
from .panel_rows import PANELS
from .simd import (
    Codes,
    byte_tile,
    dot_avx2,
    dot_generic,
    dot_signed_avx2,
    dot_vnni,
    first_of_group,
    fma,
    group_first,
    group_second,
    load_bf16x16,
    load_f16x16,
    load_f32x16,
    load_first,
    load_first_bf16,
    load_first_f16,
    load_i8x64,
    load_i32x16,
    load_repeated,
    panel_bytes,
    prefetch,
    quad_sums,
    splat_i8x64,
    store_f32,
    store_f32x16,
    store_group,
    store_i8x64,
    sum_lanes,
    to_float,
    zeros,
    zeros_i32,
)
from .unpack import PACKINGS

# Products of unsigned and of signed codes with signed bytes; without the second, signed codes are moved by 128.
DOTS = {"avx512vnni": (dot_vnni, None), "avx2": (dot_avx2, dot_signed_avx2), "generic": (dot_generic, None)}
# Vectors of rows and numbers of columns, as the registers allow.
TILES = {"avx512vnni": (2, (4, 2, 1)), "avx2": (1, (4, 2, 1)), "generic": (1, (2, 1))}
# Tokens from which on panels pay, by measurement with AVX-512 and AVX2; of the others, three. A gain of a tenth in a
# large matrix is a loss in small ones.
MANY = {"ptq1_0": 2, "tq1_0": 2, "q4_k": 2, "q5_k": 2, "q8_0": 4}

FLOAT_TOKENS = 64  # activations of so many tokens stay in the second-level cache while float weights pass
PREFETCH_AHEAD = 4096  # bytes: without it a row stream from memory gets a third of the bandwidth


def _for_isa(packing, isa):
    """The packing with codes that the instruction set can multiply."""
    if not packing.signed or DOTS[isa][1] is not None:
        return packing
    signed = packing.codes

    @helper
    def codes(row, chunk, blocks):
        return signed(row, chunk, blocks) + splat_i8x64(-128)

    return replace(packing, codes=codes, offset=7, largest=127)


def _group(packing, isa):
    """Make the helper (row, step, x, k, ahead) → sums of eight rows with one token, in the lanes of `simd.groups`: over
    the even blocks of 32 and over the odd ones. From `ahead` on as many bytes are fetched as are read."""
    codes, scales, per_block = packing.codes, packing.scales, packing.block
    minima, sixteens, lessened = packing.minima, packing.sixteens, packing.offset is not None
    offset, dot = packing.offset or 0, DOTS[isa][int(packing.signed)]

    @helper
    def group(row, step, x, k, ahead):
        total, none, blocks, chunks = zeros(), zeros_i32(), k // per_block, (k + 63) // 64
        lines = (8 * step // chunks + 63) // 64
        for c in range(chunks):
            chunk = x + CHUNK_BYTES * c
            if ahead != 0:
                for line in range(lines):
                    prefetch(ahead + 64 * (lines * c + line))
            values = load_i8x64(chunk)
            low = quad_sums(
                dot(none, codes(row, c, blocks), values),
                dot(none, codes(row + step, c, blocks), values),
                dot(none, codes(row + 2 * step, c, blocks), values),
                dot(none, codes(row + 3 * step, c, blocks), values),
            )
            high = quad_sums(
                dot(none, codes(row + 4 * step, c, blocks), values),
                dot(none, codes(row + 5 * step, c, blocks), values),
                dot(none, codes(row + 6 * step, c, blocks), values),
                dot(none, codes(row + 7 * step, c, blocks), values),
            )
            if lessened:
                less = load_i32x16(chunk + TOTALS) << offset
                low, high = low - less, high - less
            first, second = group_first(low, high), group_second(low, high)
            scale, other, minimum = scales(row, step, c, blocks)
            factor = load_repeated(chunk + SCALES)
            if sixteens:
                total = fma(to_float(first), scale * factor, total)
                total = fma(to_float(second), other * factor, total)
            else:
                total = fma(to_float(first + second), scale * factor, total)
            if minima:
                total = fma(minimum, load_repeated(chunk + SUMS), total)
        return total

    return group


def _rows(group):
    """Make the helper that multiplies rows first … last - 1 with one token."""

    @helper
    def rows(w, step, first, last, x, k, y, ahead):
        row = first
        while row < last:
            whole = row + 8 <= last
            here = w + step * row
            total = group(here, step if whole else 0, x, k, here + 8 * step if whole and ahead else 0)
            if whole:
                store_group(y + 4 * row, total)
                row += 8
            else:  # the group is eight times the same row
                store_f32(y + 4 * row, first_of_group(total))
                row += 1

    return rows


def _pack(name, packing, vectors):
    """Make the helper that writes `count` chunks from chunk `start` of 16·vectors rows as a panel of `byte_tiles`, and
    with each chunk of 16 of them fetches `bytes_ahead` of the next rows."""
    (codes, scales, unit), per_block = PANELS[name], packing.block
    moved = PACKINGS[name].signed and not packing.signed  # such types write one chunk at a time
    assert unit == 1 or not moved
    minima, sixteens, groups = packing.minima, packing.sixteens, 4 if packing.sixteens else 2
    size, line = panel_bytes(vectors, groups, minima), 64 * vectors
    assert size * DEPTH <= PANEL_BYTES

    @helper
    def pack(panel, staging, w, step, k, start, count, bytes_ahead):
        blocks = k // per_block
        following = w + 16 * vectors * step + vectors * bytes_ahead * start
        for v in range(vectors):
            row = w + 16 * step * v
            for c in range(0, count, unit):
                for ahead in range(0, unit * bytes_ahead, 64):
                    prefetch(following + ahead)
                following += unit * bytes_ahead
                to = panel + size * c + 64 * v
                codes(to, size, line, staging, row, step, start + c, blocks)
                if moved:
                    for number in range(16):
                        store_i8x64(to + line * number, load_i8x64(to + line * number) + splat_i8x64(-128))
                first, other, second, last, minimum0, minimum1 = scales(staging, row, step, start + c, blocks)
                for place in range(to + 16 * line, to + size * unit, size):
                    store_f32x16(place, first)
                    if sixteens:
                        store_f32x16(place + line, other)
                        store_f32x16(place + 2 * line, second)
                        store_f32x16(place + 3 * line, last)
                    else:
                        store_f32x16(place + line, second)
                    if minima:
                        store_f32x16(place + 2 * line, minimum0)
                        store_f32x16(place + 3 * line, minimum1)

    return pack


def _many(name, packing, isa):
    """Make the helper that multiplies whole strips of 16·vectors rows with n tokens, panel by panel; with `ahead` it
    fetches the next strip meanwhile."""
    vectors, widths = TILES[isa]
    groups, minima = 4 if packing.sixteens else 2, packing.minima
    kind = Codes(groups, minima, packing.offset, packing.largest)
    tiles = [byte_tile(isa, vectors, columns, kind) for columns in widths]
    tile4, tile2, tile1 = tiles if len(tiles) == 3 else (tiles[0], *tiles)
    most, sums_step = widths[0], 128 * vectors
    pack = _pack(name, packing, vectors)

    @helper
    def many(w, step, k, x, step_x, n, y, step_y, place, ahead):
        staging, sums = place + PANEL_BYTES, place + PANEL_BYTES + 1024
        chunks = (k + 63) // 64
        bytes_ahead = 16 * step // chunks if ahead else 0  # fetched with each chunk of 16 rows
        for i in range(2 * vectors * n):
            store_f32x16(sums + 64 * i, zeros())
        for start in range(0, chunks, DEPTH):
            count = min(DEPTH, chunks - start)
            pack(place, staging, w, step, k, start, count, bytes_ahead)
            here, t = x + CHUNK_BYTES * start, 0
            while t + most <= n:
                tile4(place, here + step_x * t, step_x, count, sums + sums_step * t)
                t += most
            if t + 2 <= n:
                tile2(place, here + step_x * t, step_x, count, sums + sums_step * t)
                t += 2
            if t < n:
                tile1(place, here + step_x * t, step_x, count, sums + sums_step * t)
        for t in range(n):
            for v in range(vectors):
                total = sums + sums_step * t + 128 * v
                store_f32x16(y + step_y * t + 64 * v, load_f32x16(total) + load_f32x16(total + 64))

    return many


def _quantized(name, isa):
    """Kernel for weights of one packing: few tokens row by row, many by panels; the same bits either way."""
    packing, strip, least = _for_isa(PACKINGS[name], isa), 16 * TILES[isa][0], MANY.get(name, 3)
    multiply, many = _rows(_group(packing, isa)), _many(name, packing, isa)

    def kernel(desc, ith, nth):
        k, m, n = extent(desc, 1, 0), extent(desc, 0, 0), extent(desc, 0, 1)
        step_w, step_x, step_y = stride(desc, 1, 1), stride(desc, 2, 1), stride(desc, 0, 1)
        unit = strip if n >= least else 8
        first, last = share((m + unit - 1) // unit, ith, nth)
        first, last = first * unit, min(m, last * unit)
        for batch in range(extent(desc, 0, 2) * extent(desc, 0, 3)):
            w, x, y = batch_addresses(desc, batch)
            row = first
            if n >= least:
                for block in range(0, n, TOKEN_BLOCK):
                    count, row = min(TOKEN_BLOCK, n - block), first
                    here, to = x + step_x * block, y + step_y * block
                    while row + strip <= last:
                        place = scratch(desc, ith)
                        many(w + step_w * row, step_w, k, here, step_x, count, to + 4 * row, step_y, place, block == 0)
                        row += strip
            for t in range(n):
                multiply(w, step_w, row, last, x + step_x * t, k, y + step_y * t, t == 0)

    return kernel


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


def _float_rows(one):
    @helper
    def rows(w, step, first, last, x, k, y, ahead):
        for row in range(first, last):
            store_f32(y + 4 * row, one(w + step * row, x, k))

    return rows


def _matrix(one, four):
    """Kernel for one pair of products: four tokens at a time while the row is at hand."""

    def kernel(desc, ith, nth):
        k, n = extent(desc, 1, 0), extent(desc, 0, 1)
        step_w, step_x, step_y = stride(desc, 1, 1), stride(desc, 2, 1), stride(desc, 0, 1)
        first, last = share(extent(desc, 0, 0), ith, nth)
        for batch in range(extent(desc, 0, 2) * extent(desc, 0, 3)):
            w, x, y = batch_addresses(desc, batch)
            for block in range(0, n, FLOAT_TOKENS):
                end = min(n, block + FLOAT_TOKENS)
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


# float kernel name -> (product with one row of activations, with four)
FLOAT_PRODUCTS = {
    "f32": _float(load_f32x16, load_first, 4),
    "f16": _float(load_f16x16, load_first_f16, 2),
    "bf16": _float(load_bf16x16, load_first_bf16, 2),
}
KERNELS = {f"{name}@{isa}": _quantized(name, isa) for name in PACKINGS for isa in DOTS} | {
    name: _matrix(*pair) for name, pair in FLOAT_PRODUCTS.items()
}


def row_products():
    """Return, by kernel name, helpers (w, step, first, last, x, k, y, ahead) that multiply rows with one token."""
    quantized = {
        f"{name}@{isa}": _rows(_group(_for_isa(packing, isa), isa))
        for name, packing in PACKINGS.items()
        for isa in DOTS
    }
    return quantized | {name: _float_rows(one) for name, (one, _) in FLOAT_PRODUCTS.items()}
