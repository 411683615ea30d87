"""Sixteen rows side by side while their codes are still packed: words of four bytes exchanged between rows and lanes,
and what lies in the bytes of such words brought apart."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from .core import (
    BYTE,
    HALF,
    I64,
    LONG,
    NONE,
    WORD,
    F32x16,
    I8x64,
    I32x16,
    broadcast,
    lanes_of,
    operation,
    pointer,
    shuffle,
)
from .half import _half_to_single

ROWS = 16


def _signed(byte: int) -> int:
    """The same bits as a signed number, which is how LLVM writes them."""
    return byte - 256 if byte > 127 else byte


def _load_words(builder: Any, source: Any, step: Any, row: int, count: int) -> Any:
    place = builder.add(source, builder.mul(step, LONG(row)))
    return builder.load(pointer(builder, place, ir.VectorType(WORD, count)), align=1)


def _in_quarters(first: tuple[int, ...]) -> list[int]:
    """An order that does in every quarter what it does in the first; lanes of the second vector count from 16."""
    return [4 * quarter + lane for quarter in range(4) for lane in first]


@operation("gather_words", NONE, (I64, I64, I64), lambda rows: rows.view(np.int32).reshape(ROWS, 4).T.copy())
def gather_words(builder: Any, target: Any, source: Any, step: Any) -> None:
    """Read four words from each of 16 rows that are a step apart; write four vectors, the first words in the first."""
    quads = []
    for first in range(4):  # a vector's quarters are rows four apart, so that nothing need leave its quarter
        rows = [_load_words(builder, source, step, first + 4 * quarter, 4) for quarter in range(4)]
        low, high = (shuffle(builder, a, b, list(range(8))) for a, b in (rows[:2], rows[2:]))
        quads.append(shuffle(builder, low, high, list(range(16))))
    ones = _in_quarters((0, 16, 1, 17)), _in_quarters((2, 18, 3, 19))
    pairs = _in_quarters((0, 1, 16, 17)), _in_quarters((2, 3, 18, 19))
    vectors = [
        shuffle(builder, shuffle(builder, quads[0], quads[1], one), shuffle(builder, quads[2], quads[3], one), pair)
        for one in ones
        for pair in pairs
    ]
    for number, vector in enumerate(vectors):
        place = builder.add(target, LONG(64 * number))
        builder.store(vector, pointer(builder, place, I32x16.llvm), align=4)


@operation("gather_word", I32x16, (I64, I64), lambda rows: rows.view(np.int32).reshape(ROWS))
def gather_word(builder: Any, source: Any, step: Any) -> Any:
    """One word of each of 16 rows that are a step apart."""
    vector = ir.Constant(I32x16.llvm, ir.Undefined)
    for row in range(ROWS):
        value = builder.extract_element(_load_words(builder, source, step, row, 1), WORD(0))
        vector = builder.insert_element(vector, value, WORD(row))
    return vector


def _repeated(byte: int) -> Any:
    @operation(f"repeat_byte{byte}", I8x64, (I32x16,), lambda a: a.view(np.int8).reshape(ROWS, 4)[:, byte].repeat(4))
    def repeat(builder: Any, a: Any) -> Any:
        """A byte of each word, four times."""
        flat = builder.bitcast(a, I8x64.llvm)
        return shuffle(builder, flat, flat, [4 * lane + byte for lane in range(ROWS) for _ in range(4)])

    return repeat


repeat_byte0, repeat_byte1, repeat_byte2, repeat_byte3 = (_repeated(byte) for byte in range(4))


@operation("bytes_of", I8x64, (I32x16,), lambda a: a.view(np.int8))
def bytes_of(builder: Any, a: Any) -> Any:
    return builder.bitcast(a, I8x64.llvm)


def _bits_apart(name: str, first: int) -> Any:
    bits = [1 << (first + lane % 4) for lane in range(64)]

    def twin(a: Any, value: Any) -> Any:
        return np.where(a.view(np.uint8) & np.array(bits), value, 0).astype(np.int8)

    @operation(name, I8x64, (I8x64, I64), twin)
    def apart(builder: Any, a: Any, value: Any) -> Any:
        """In each four bytes: the value where the byte has the bit of its place, counted from `first`, else 0."""
        kept = builder.and_(a, ir.Constant(I8x64.llvm, [_signed(bit) for bit in bits]))
        some = builder.icmp_unsigned("!=", kept, lanes_of(I8x64, 0))
        return builder.select(some, broadcast(builder, builder.trunc(value, BYTE), 64), lanes_of(I8x64, 0))

    return apart


low_bits_apart, high_bits_apart = _bits_apart("low_bits_apart", 0), _bits_apart("high_bits_apart", 4)


@operation(
    "pairs_apart", I8x64, (I8x64,), lambda a: (a.view(np.uint8) >> np.tile([0, 2, 4, 6], ROWS) & 3).astype(np.int8)
)
def pairs_apart(builder: Any, a: Any) -> Any:
    """In each four bytes: the two bits of the byte's place."""
    kept = builder.bitcast(builder.and_(a, ir.Constant(I8x64.llvm, [3, 12, 48, _signed(192)] * ROWS)), I32x16.llvm)
    # By two, then by four: what crosses into another byte lands above its two lowest bits.
    for count in (2, 4):
        kept = builder.or_(kept, builder.lshr(kept, lanes_of(I32x16, count)))
    return builder.bitcast(builder.and_(kept, lanes_of(I32x16, 0x03030303)), I8x64.llvm)


@operation("ternary_digits", I8x64, (I8x64,), lambda a: ((a.view(np.uint8).astype(np.int64) * 3) >> 8).astype(np.int8))
def ternary_digits(builder: Any, a: Any) -> Any:
    """The first digit of each byte, in base 3: (3·byte) >> 8."""
    ones, twos = (
        builder.zext(builder.icmp_unsigned(">", a, lanes_of(I8x64, _signed(bound))), I8x64.llvm) for bound in (85, 170)
    )
    return builder.add(ones, twos)


def _first_pairs_twin(a: Any, b: Any) -> Any:
    return np.stack([a.view(np.int16)[::2], b.view(np.int16)[::2]], 1).reshape(-1).view(np.int8)


@operation("first_pairs", I8x64, (I8x64, I8x64), _first_pairs_twin)
def first_pairs(builder: Any, a: Any, b: Any) -> Any:
    """In each four bytes the first two of a's and the first two of b's."""
    return shuffle(
        builder, a, b, [4 * lane + byte + 64 * second for lane in range(ROWS) for second in (0, 1) for byte in (0, 1)]
    )


# --- Scales -----------------------------------------------------------------------------------------------------------


@operation("gather_half", F32x16, (I64, I64), lambda rows: rows.view(np.float16).reshape(ROWS).astype(np.float32))
def gather_half(builder: Any, source: Any, step: Any) -> Any:
    """A float16 of each of 16 rows that are a step apart."""
    vector = ir.Constant(ir.VectorType(HALF, ROWS), ir.Undefined)
    for row in range(ROWS):
        place = builder.add(source, builder.mul(step, LONG(row)))
        value = builder.load(pointer(builder, place, HALF), align=1)
        vector = builder.insert_element(vector, value, WORD(row))
    return _half_to_single(builder, vector)


def _halves(name: str, number: int) -> Any:
    @operation(name, F32x16, (I32x16,), lambda a: a.view(np.float16)[number::2].astype(np.float32))
    def halves(builder: Any, a: Any) -> Any:
        """The float16 in a half of each word."""
        words = builder.lshr(a, lanes_of(I32x16, 16)) if number else a
        return _half_to_single(builder, builder.trunc(words, ir.VectorType(HALF, ROWS)))

    return halves


low_halves, high_halves = _halves("low_halves", 0), _halves("high_halves", 1)


def _signed_byte(byte: int) -> Any:
    @operation(f"signed_byte{byte}", I32x16, (I32x16,), lambda a: a.view(np.int8)[byte::4].astype(np.int32))
    def signed(builder: Any, a: Any) -> Any:
        """A byte of each word, with its sign."""
        return builder.ashr(builder.shl(a, lanes_of(I32x16, 24 - 8 * byte)), lanes_of(I32x16, 24))

    return signed


signed_byte0, signed_byte1, signed_byte2, signed_byte3 = (_signed_byte(byte) for byte in range(4))
