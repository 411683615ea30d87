"""Matrix products in float32 with weights of any type: nothing is rounded before it is multiplied.

`mul_mat`: operands 0 y [M, N, …], 1 w [K, M, …], 2 x [K, N, …]; y[m, n] = Σ_k w[k, m]·x[k, n].
`out_prod`: operands 0 y [K, N, …], 1 w [K, M, …], 2 x [N, M, …]; y[k, n] = Σ_m w[k, m]·x[n, m].
Rows of y and w have no gaps; x may have any strides. Integer parameter 0: 1 adds to what y holds, 0 overwrites it.
Scratch: `panel_scratch` bytes. Knows no block layouts.

The lanes of y's rows are cut into strips. For DEPTH terms of the sums at a time, a strip's weights are decoded to one
row of lanes a term; tiles of y are then summed in registers, and added to y. So the order of all additions is fixed: it
depends neither on the threads nor on the other lanes and columns.
"""

from __future__ import annotations

from ..plan.layouts import PANEL_COLUMNS as COLUMNS
from ..plan.layouts import PANEL_DEPTH as DEPTH
from ..plan.layouts import PANEL_LINE, PANEL_VECTORS
from ..plan.layouts import PANEL_STRIP as STRIP
from .jit import helper
from .matmul import batch_addresses
from .operands import extent, parameter, scratch, share, stride
from .rows import DECODERS
from .simd import (
    load_f32x16,
    load_first,
    store_f32x16,
    store_first,
    tile1x1,
    tile1x2,
    tile1x4,
    tile1x6,
    tile1x12,
    tile2x1,
    tile2x2,
    tile2x4,
    tile2x12,
    transpose16,
)

RUN = 16  # strips that take one depth after another, so that x is read once for all of them
NARROW = 24  # columns: narrower blocks are not made for even shares, as the weights are decoded for each block
ALIAS = 4096  # bytes: lines that are a multiple of it apart share so few places in the caches that x is copied

# This thread's scratch: the terms of one strip, then 16 decoded rows of 64, then a copy of a block of x, then results
# with lanes beyond y's.
TERM = 4 * STRIP
ROWS = TERM * DEPTH
COPY = ROWS + 16 * 256
RESULTS = COPY + PANEL_LINE * DEPTH


# --- Packing ------------------------------------------------------------------------------------------
# Functions (place, w, step, n, strip, lanes, start, count): write `count` terms of a strip, from term `start`, to the
# first bytes of scratch. w is the first row of the weights, n the number of values in a row. What is written beyond
# `lanes` and `count` does not matter.


def _from_columns(decode):
    """Lanes are rows of the weights, which are transposed 16 by 16."""

    @helper
    def pack(place, w, step, n, strip, lanes, start, count):
        for first in range(0, lanes, 16):
            for c in range(0, count, 64):
                for i in range(16):
                    row = w + step * (STRIP * strip + min(first + i, lanes - 1))
                    decode(row, (start + c) // 64, n, place + ROWS + 256 * i)
                for i in range(0, 64, 16):
                    transpose16(place + 4 * first + TERM * (c + i), TERM, place + ROWS + 4 * i, 256)

    return pack


def _from_rows(decode):
    """Lanes lie along the rows of the weights."""

    @helper
    def pack(place, w, step, n, strip, lanes, start, count):
        for c in range(count):
            decode(w + step * (start + c), strip, n, place + TERM * c)

    return pack


@helper
def _copy(target, x, step_c, count, columns):
    """Copy the terms of a block of adjacent columns."""
    for c in range(count):
        for p in range(0, columns, 16):
            store_f32x16(target + PANEL_LINE * c + 4 * p, load_first(x + step_c * c + 4 * p, columns - p))


# --- Multiplying --------------------------------------------------------------------------------------
# Functions (lanes, a, x, step_c, step_p, count, columns, y, step_y, add): multiply a panel, that is up to PANEL_VECTORS
# vectors of a strip's terms, with a block of columns. As many vectors of y are written as hold `lanes`.


def _sweep(most, tile, tile4, tile2, tile1):
    """Make such a function of tiles for `most`, 4, 2 and 1 columns; all write as many vectors."""

    @helper
    def sweep(a, x, step_c, step_p, count, columns, y, step_y, add):
        p = 0
        while p + most <= columns:
            tile(a, TERM, x + step_p * p, step_c, step_p, count, y + step_y * p, step_y, add)
            p += most
        while p + 4 <= columns:
            tile4(a, TERM, x + step_p * p, step_c, step_p, count, y + step_y * p, step_y, add)
            p += 4
        if p + 2 <= columns:
            tile2(a, TERM, x + step_p * p, step_c, step_p, count, y + step_y * p, step_y, add)
            p += 2
        if p < columns:
            tile1(a, TERM, x + step_p * p, step_c, step_p, count, y + step_y * p, step_y, add)

    return sweep


_two = _sweep(12, tile2x12, tile2x4, tile2x2, tile2x1)
_one = _sweep(12, tile1x12, tile1x4, tile1x2, tile1x1)
_few = _sweep(6, tile1x6, tile1x4, tile1x2, tile1x1)


@helper
def _panel_avx512(lanes, a, x, step_c, step_p, count, columns, y, step_y, add):
    if lanes > 16:
        _two(a, x, step_c, step_p, count, columns, y, step_y, add)
    else:
        _one(a, x, step_c, step_p, count, columns, y, step_y, add)


@helper
def _panel_generic(lanes, a, x, step_c, step_p, count, columns, y, step_y, add):
    _few(a, x, step_c, step_p, count, columns, y, step_y, add)


PANELS = {
    "avx512vnni": _panel_avx512,
    "avx2": _panel_generic,
    "generic": _panel_generic,
}  # as many sums as the registers hold


@helper
def _put(y, step_y, results, step, lanes, columns, add):
    """Copy the first lanes of results to y, or add them."""
    for p in range(columns):
        for first in range(0, lanes, 16):
            target, left = y + step_y * p + 4 * first, lanes - first
            value = load_f32x16(results + step * p + 4 * first)
            if add:
                value = load_first(target, left) + value
            store_first(target, value, left)


def _strip(isa):
    """Make the function that multiplies a strip with a block of columns."""
    panel, width = PANELS[isa], 16 * PANEL_VECTORS[isa]

    @helper
    def multiply(place, lanes, x, step_c, step_p, count, columns, y, step_y, add):
        for first in range(0, lanes, width):
            left, target = min(width, lanes - first), y + 4 * first
            whole = left % 16 == 0
            here, step, adding = (target, step_y, add) if whole else (place + RESULTS, 4 * width, 0)
            panel(left, place + 4 * first, x, step_c, step_p, count, columns, here, step, adding)
            if not whole:
                _put(target, step_y, here, step, left, columns, add)

    return multiply


# --- Kernels ------------------------------------------------------------------------------------------


@helper
def _blocks(columns, strips, nth):
    """Into how many blocks the columns are cut: for their size, and until the largest of the threads' shares is at most
    12/11 of the mean."""
    blocks = (columns + COLUMNS - 1) // COLUMNS
    while blocks * NARROW < columns:
        items = blocks * strips
        largest = (items + nth - 1) // nth
        if 12 * items >= 11 * nth * largest:
            break
        blocks += 1
    return blocks


def _product(pack, multiply, axis):
    """Kernel of one packing; the terms of the sums lie along `axis` of operands 1 and 2."""

    def kernel(desc, ith, nth):
        lanes, columns, terms = extent(desc, 0, 0), extent(desc, 0, 1), extent(desc, 1, axis)
        step_c, step_p, step_y = stride(desc, 2, axis), stride(desc, 2, 1 - axis), stride(desc, 0, 1)
        n, step_w, place = extent(desc, 1, 0), stride(desc, 1, 1), scratch(desc, ith)
        strips, batches = (lanes + STRIP - 1) // STRIP, extent(desc, 0, 2) * extent(desc, 0, 3)
        blocks = _blocks(columns, strips * batches, nth)
        item, last = share(batches * blocks * strips, ith, nth)
        while item < last:
            first, block, batch = item % strips, (item // strips) % blocks, item // (strips * blocks)
            end = min(strips, first + min(RUN, last - item))
            w, x, y = batch_addresses(desc, batch)
            four, beyond = share((columns + 3) // 4, block, blocks)  # blocks begin at multiples of four columns
            width = min(4 * beyond, columns) - 4 * four
            x += step_p * 4 * four
            y += step_y * 4 * four
            for start in range(0, terms, DEPTH):
                count = min(DEPTH, terms - start)
                add = parameter(desc, 0) if start == 0 else 1
                block_x, step_x = x + step_c * start, step_c
                if step_p == 4 and step_c % ALIAS == 0 and end - first > 1:
                    _copy(place + COPY, block_x, step_c, count, width)
                    block_x, step_x = place + COPY, PANEL_LINE
                for strip in range(first, end):
                    used, target = min(STRIP, lanes - STRIP * strip), y + 4 * STRIP * strip
                    pack(place, w, step_w, n, strip, used, start, count)
                    multiply(place, used, block_x, step_x, step_p, count, width, target, step_y, add)
            item += end - first

    return kernel


# family -> (packing, axis of the terms)
FAMILIES = {"mul_mat": (_from_columns, 0), "out_prod": (_from_rows, 1)}
KERNELS = {
    f"{family}.{name}@{isa}": _product(packing(decode), _strip(isa), axis)
    for family, (packing, axis) in FAMILIES.items()
    for name, decode in DECODERS.items()
    for isa in PANELS
}
