"""Codes and scales of 16 rows at a time for the panels of `matmul`: rows in the lanes, four codes of each to a step.

What `unpack` says of one row is said here of 16: words of four bytes are brought from rows into lanes while they are
still packed, and the codes are taken out of them there. Each function for codes writes the 16 steps of one or more
chunks: steps lie a `line` of bytes apart, chunks a `gap`. Its arguments are (place, gap, line, staging, row, step,
chunk, blocks), with 1,024 bytes of staging.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .jit import helper
from .simd import (
    bytes_of,
    first_pairs,
    gather_half,
    gather_word,
    gather_words,
    high_bits_apart,
    high_halves,
    load_i8x64,
    load_i32x16,
    low_bits_apart,
    low_halves,
    pairs_apart,
    repeat_byte0,
    repeat_byte1,
    repeat_byte2,
    repeat_byte3,
    signed_byte0,
    signed_byte1,
    signed_byte2,
    signed_byte3,
    splat,
    splat_i8x64,
    splat_i32,
    store_i8x64,
    ternary_digits,
    to_float,
    zeros,
)
from .unpack import block_pair


@helper
def _nibbles(low, high, line, words):
    """Store the low nibbles of four vectors of words as steps from `low` on, the high ones from `high` on."""
    for w in range(4):
        packed = load_i8x64(words + 64 * w)
        store_i8x64(low + line * w, packed & splat_i8x64(15))
        store_i8x64(high + line * w, (packed >> 4) & splat_i8x64(15))


def _four_bits(size, at):
    """Blocks of 32 of `size` bytes whose nibbles begin at byte `at`."""

    @helper
    def codes(place, gap, line, staging, row, step, chunk, blocks):
        pair = block_pair(row + at, chunk, blocks, size)
        for half in range(2):
            gather_words(staging, pair[half], step)
            first = place + 8 * half * line
            _nibbles(first, first + 4 * line, line, staging)

    return codes


@helper
def _add_bits(place, line, words):
    """Add 16 to the codes of eight steps whose bit of the words is set."""
    parts = (repeat_byte0(words), repeat_byte1(words), repeat_byte2(words), repeat_byte3(words))
    for b in range(4):
        to = place + 2 * b * line
        store_i8x64(to, load_i8x64(to) | low_bits_apart(parts[b], 16))
        store_i8x64(to + line, load_i8x64(to + line) | high_bits_apart(parts[b], 16))


def _five_bits(size, at):
    """The same with 32 fifth bits before the nibbles."""
    nibbles = _four_bits(size, at + 4)

    @helper
    def codes(place, gap, line, staging, row, step, chunk, blocks):
        nibbles(place, gap, line, staging, row, step, chunk, blocks)
        pair = block_pair(row + at, chunk, blocks, size)
        for half in range(2):
            _add_bits(place + 8 * half * line, line, gather_word(pair[half], step))

    return codes


@helper
def _q8_0(place, gap, line, staging, row, step, chunk, blocks):
    pair = block_pair(row + 2, chunk, blocks, 34)
    for half in range(2):
        gather_words(staging, pair[half], step)
        gather_words(staging + 256, pair[half] + 16, step)
        for w in range(8):
            store_i8x64(place + line * (8 * half + w), load_i8x64(staging + 64 * w))


@helper
def _bits(place, line, words):
    """Store the bits of a vector of words as eight steps of codes 0 and 2."""
    parts = (repeat_byte0(words), repeat_byte1(words), repeat_byte2(words), repeat_byte3(words))
    for b in range(4):
        store_i8x64(place + 2 * b * line, low_bits_apart(parts[b], 2))
        store_i8x64(place + (2 * b + 1) * line, high_bits_apart(parts[b], 2))


@helper
def _q1_0(place, gap, line, staging, row, step, chunk, blocks):
    gather_words(staging, row + 18 * (chunk // 2) + 2, step)
    for w in range(4):
        _bits(place + gap * (w // 2) + line * (8 * (w % 2)), line, load_i32x16(staging + 64 * w))


@helper
def _pairs(place, line, staging):
    """Store the pairs of bits of four vectors of words as 16 steps."""
    for w in range(4):
        words, to = load_i32x16(staging + 64 * w), place + 4 * line * w
        store_i8x64(to, pairs_apart(repeat_byte0(words)))
        store_i8x64(to + line, pairs_apart(repeat_byte1(words)))
        store_i8x64(to + 2 * line, pairs_apart(repeat_byte2(words)))
        store_i8x64(to + 3 * line, pairs_apart(repeat_byte3(words)))


@helper
def _q2_0(place, gap, line, staging, row, step, chunk, blocks):
    gather_words(staging, row + 18 * chunk + 2, step)
    _pairs(place, line, staging)


@helper
def _pq2_0(place, gap, line, staging, row, step, chunk, blocks):
    block = row + 34 * (chunk // 2) + 2
    for half in range(2):
        gather_words(staging, block + 16 * half, step)
        _pairs(place + gap * half, line, staging)


@helper
def _store_step(place, gap, line, number, codes):
    """Store a step counted through the chunks of a block."""
    store_i8x64(place + gap * (number // 16) + line * (number % 16), codes)


@helper
def _digits(place, gap, line, first, stride, count, x):
    """Store the first `count` digits of bytes as steps `first`, `first + stride` and so on."""
    for n in range(count):
        _store_step(place, gap, line, first + stride * n, ternary_digits(x))
        x = x + x + x


@helper
def _ptq1_0(place, gap, line, staging, row, step, chunk, blocks):
    block = row + 28 * (chunk // 2)
    gather_words(staging, block, step)
    gather_words(staging + 256, block + 12, step)  # bytes 16 to 23, and the last two of digits, are its last words
    for w in range(4):
        _digits(place, gap, line, w, 4, 5, load_i8x64(staging + 64 * w))
    for w in range(2):
        _digits(place, gap, line, 20 + w, 2, 5, load_i8x64(staging + 256 + 64 * (1 + w)))
    ones = load_i8x64(staging + 256 + 192)
    threes = ones + ones + ones
    both = first_pairs(ones, threes)
    _store_step(place, gap, line, 30, ternary_digits(both))
    threes = both + both + both
    _store_step(place, gap, line, 31, ternary_digits(threes + threes + threes))


@helper
def _tq1_0(place, gap, line, staging, row, step, chunk, blocks):
    block = row + 54 * (chunk // 4)
    for quarter in range(3):
        gather_words(staging + 256 * quarter, block + 16 * quarter, step)
    for w in range(8):
        _digits(place, gap, line, w, 8, 5, load_i8x64(staging + 64 * w))
    for w in range(4):
        _digits(place, gap, line, 40 + w, 4, 5, load_i8x64(staging + 512 + 64 * w))
    _digits(place, gap, line, 60, 1, 4, bytes_of(gather_word(block + 48, step)))


@helper
def _tq2_0(place, gap, line, staging, row, step, chunk, blocks):
    block = row + 66 * (chunk // 4)
    for half in range(4):
        gather_words(staging + 256 * half, block + 16 * half, step)
    for w in range(16):
        packed, first = load_i8x64(staging + 64 * w), 32 * (w // 8) + w % 8
        for pair in range(4):
            _store_step(place, gap, line, first + 8 * pair, (packed >> (2 * pair)) & splat_i8x64(3))


@helper
def _q4_k(place, gap, line, staging, row, step, chunk, blocks):
    packed = row + 144 * (chunk // 4) + 16 + 32 * (chunk % 4)
    for half in range(2):
        gather_words(staging, packed + 16 * half, step)
        _nibbles(place + 4 * line * half, place + (8 + 4 * half) * line, line, staging)


@helper
def _q5_k(place, gap, line, staging, row, step, chunk, blocks):
    block, quarter = row + 176 * (chunk // 4), chunk % 4
    for half in range(2):
        gather_words(staging, block + 48 + 32 * quarter + 16 * half, step)
        gather_words(staging + 256, block + 16 + 16 * half, step)
        for w in range(4):
            packed, fifth = load_i8x64(staging + 64 * w), load_i8x64(staging + 256 + 64 * w) >> (2 * quarter)
            to = place + line * (4 * half + w)
            store_i8x64(to, (packed & splat_i8x64(15)) | ((fifth & splat_i8x64(1)) << 4))
            store_i8x64(to + 8 * line, ((packed >> 4) & splat_i8x64(15)) | ((fifth & splat_i8x64(2)) << 3))


@helper
def _q6_k(place, gap, line, staging, row, step, chunk, blocks):
    block, half, odd = row + 210 * (chunk // 4), (chunk % 4) // 2, chunk % 2
    for part in range(2):
        gather_words(staging, block + 64 * half + 16 * part, step)
        gather_words(staging + 256, block + 64 * half + 32 + 16 * part, step)
        gather_words(staging + 512, block + 128 + 32 * half + 16 * part, step)
        for w in range(4):
            high, to = load_i8x64(staging + 512 + 64 * w) >> (4 * odd), place + line * (4 * part + w)
            low = (load_i8x64(staging + 64 * w) >> (4 * odd)) & splat_i8x64(15)
            store_i8x64(to, low | ((high & splat_i8x64(3)) << 4))
            low = (load_i8x64(staging + 256 + 64 * w) >> (4 * odd)) & splat_i8x64(15)
            store_i8x64(to + 8 * line, low | ((high & splat_i8x64(12)) << 2))


# --- Scales: (staging, row, step, chunk, blocks) → those of both blocks' first and second 16 weights, then both minima


def _one_scale(size, at, chunks):
    """One float16 at byte `at` of blocks of so many bytes and chunks."""

    @helper
    def scales(staging, row, step, chunk, blocks):
        scale = gather_half(row + size * (chunk // chunks) + at, step)
        return scale, scale, scale, scale, zeros(), zeros()

    return scales


def _two_scales(size, minima=False):
    """A float16 at the start of each block of 32, and perhaps a minimum after it."""

    @helper
    def scales(staging, row, step, chunk, blocks):
        p0, p1 = block_pair(row, chunk, blocks, size)
        if minima:  # both in one word
            w0, w1 = gather_word(p0, step), gather_word(p1, step)
            first, second = low_halves(w0), low_halves(w1)
            return first, first, second, second, high_halves(w0), high_halves(w1)
        first, second = gather_half(p0, step), gather_half(p1, step)
        return first, first, second, second, zeros(), zeros()

    return scales


def _super_scales(size):
    """Two float16 and eight pairs of six bits for 256 weights (Q4_K, Q5_K)."""

    @helper
    def scales(staging, row, step, chunk, blocks):
        gather_words(staging, row + size * (chunk // 4), step)
        both, quarter = load_i32x16(staging), chunk % 4
        shift = 16 * (quarter % 2)
        scale, minimum = load_i32x16(staging + 64) >> shift, load_i32x16(staging + 128) >> shift
        if quarter < 2:
            scale, minimum = scale & splat_i32(0x3F3F), minimum & splat_i32(0x3F3F)
        else:
            low = load_i32x16(staging + 192) >> shift
            scale = (low & splat_i32(0x0F0F)) | ((scale & splat_i32(0xC0C0)) >> 2)
            minimum = ((low >> 4) & splat_i32(0x0F0F)) | ((minimum & splat_i32(0xC0C0)) >> 2)
        d, m = low_halves(both), high_halves(both) * splat(np.float32(-1))
        first, second = d * to_float(signed_byte0(scale)), d * to_float(signed_byte1(scale))
        return first, first, second, second, m * to_float(signed_byte0(minimum)), m * to_float(signed_byte1(minimum))

    return scales


@helper
def _q6_k_scales(staging, row, step, chunk, blocks):
    block = row + 210 * (chunk // 4)
    d, four = gather_half(block + 208, step), gather_word(block + 192 + 4 * (chunk % 4), step)
    first, other = d * to_float(signed_byte0(four)), d * to_float(signed_byte1(four))
    return first, other, d * to_float(signed_byte2(four)), d * to_float(signed_byte3(four)), zeros(), zeros()


# type -> the functions for codes and scales, and the chunks that the first writes and the second serves
PANELS: dict[str, tuple[Any, Any, int]] = {
    "q4_0": (_four_bits(18, 2), _two_scales(18), 1),
    "q4_1": (_four_bits(20, 4), _two_scales(20, minima=True), 1),
    "q5_0": (_five_bits(22, 2), _two_scales(22), 1),
    "q5_1": (_five_bits(24, 4), _two_scales(24, minima=True), 1),
    "q8_0": (_q8_0, _two_scales(34), 1),
    "q1_0": (_q1_0, _one_scale(18, 0, 2), 2),
    "q2_0": (_q2_0, _one_scale(18, 0, 1), 1),
    "q2_0_g128": (_pq2_0, _one_scale(34, 0, 2), 2),
    "pq2_0": (_pq2_0, _one_scale(34, 0, 2), 2),
    "ptq1_0": (_ptq1_0, _one_scale(28, 26, 2), 2),
    "tq1_0": (_tq1_0, _one_scale(54, 52, 4), 4),
    "tq2_0": (_tq2_0, _one_scale(66, 64, 4), 4),
    "q4_k": (_q4_k, _super_scales(144), 1),
    "q5_k": (_q5_k, _super_scales(176), 1),
    "q6_k": (_q6_k, _q6_k_scales, 1),
}
