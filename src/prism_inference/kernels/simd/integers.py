"""Vectors of int32 lanes and of bytes: conversions, unpacking, byte products."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from .core import (
    BYTE,
    HALF,
    I64,
    NONE,
    WORD,
    F32x16,
    I8x16,
    I8x32,
    I8x64,
    I32x16,
    Vector,
    broadcast,
    call,
    lanes_of,
    operation,
    pointer,
    shuffle,
)


@operation("to_float", F32x16, (I32x16,), lambda a: a.astype(np.float32))
def to_float(builder: Any, a: Any) -> Any:
    return builder.sitofp(a, F32x16.llvm)


@operation("round_even", I32x16, (F32x16,), lambda a: np.rint(a).astype(np.int32))
def round_even(builder: Any, a: Any) -> Any:
    """Nearest integer, ties to even, for magnitudes below 2^22: adding 1.5·2^23 leaves it in the low bits."""
    magic = 12582912.0
    shifted = builder.bitcast(builder.fadd(a, lanes_of(F32x16, magic)), I32x16.llvm)
    return builder.sub(shifted, lanes_of(I32x16, 0x4B400000))


@operation("truncate", I32x16, (F32x16,), lambda a: np.trunc(a).astype(np.int32))
def truncate(builder: Any, a: Any) -> Any:
    """Towards zero, for magnitudes below 2^31."""
    return builder.fptosi(a, I32x16.llvm)


@operation("widen_bytes", I32x16, (I8x16,), lambda a: a.astype(np.int32))
def widen_bytes(builder: Any, a: Any) -> Any:
    return builder.sext(a, I32x16.llvm)


@operation("power_of_two", F32x16, (I32x16,), lambda n: np.ldexp(np.float32(1), n).astype(np.float32))
def power_of_two(builder: Any, n: Any) -> Any:
    """2^n for n in -126 … 127."""
    bits = builder.shl(builder.add(n, lanes_of(I32x16, 127)), lanes_of(I32x16, 23))
    return builder.bitcast(bits, F32x16.llvm)


@operation("zeros_i32", I32x16, (), lambda: np.zeros(16, np.int32))
def zeros_i32(builder: Any) -> Any:
    return lanes_of(I32x16, 0)


@operation("splat_i32", I32x16, (I64,), lambda value: np.full(16, value, np.int32))
def splat_i32(builder: Any, value: Any) -> Any:
    return broadcast(builder, builder.trunc(value, WORD), 16)


def _byte_load(lanes: int, vector: Vector) -> Any:
    @operation(f"load_i8x{lanes}", vector, (I64,), lambda raw: raw.view(np.int8)[:lanes])
    def load(builder: Any, address: Any) -> Any:
        return builder.load(pointer(builder, address, vector.llvm), align=1)

    return load


load_i8x16, load_i8x32, load_i8x64 = (_byte_load(v.lanes, v) for v in (I8x16, I8x32, I8x64))


def _byte_splat(lanes: int, vector: Vector) -> Any:
    @operation(f"splat_i8x{lanes}", vector, (I64,), lambda value: np.full(lanes, value, np.int64).astype(np.int8))
    def fill(builder: Any, value: Any) -> Any:
        return broadcast(builder, builder.trunc(value, BYTE), lanes)

    return fill


splat_i8x16, splat_i8x32, splat_i8x64 = (_byte_splat(v.lanes, v) for v in (I8x16, I8x32, I8x64))


def _join(name: str, part: Vector, whole: Vector) -> Any:
    @operation(name, whole, (part, part), lambda a, b: np.concatenate([a, b]))
    def join(builder: Any, a: Any, b: Any) -> Any:
        return shuffle(builder, a, b, list(range(whole.lanes)))

    return join


join16, join32 = _join("join16", I8x16, I8x32), _join("join32", I8x32, I8x64)


@operation("interleave16", I8x64, (I8x32, I8x32), lambda a, b: np.concatenate([a[:16], b[:16], a[16:], b[16:]]))
def interleave16(builder: Any, a: Any, b: Any) -> Any:
    """Halves of two vectors in turn: low and high nibbles of two blocks to the order of their weights."""
    order = [*range(16), *range(32, 48), *range(16, 32), *range(48, 64)]
    return shuffle(builder, a, b, order)


@operation(
    "select_bits",
    I8x64,
    (I64, I64, I64),
    lambda bits, one, zero: np.array([one if (bits >> j) & 1 else zero for j in range(64)], np.int64).astype(np.int8),
)
def select_bits(builder: Any, bits: Any, one: Any, zero: Any) -> Any:
    """64 bytes: `one` where the bit (least significant first) is set, `zero` elsewhere."""
    mask = builder.bitcast(bits, ir.VectorType(ir.IntType(1), 64))
    return builder.select(
        mask,
        broadcast(builder, builder.trunc(one, BYTE), 64),
        broadcast(builder, builder.trunc(zero, BYTE), 64),
    )


@operation(
    "expand_pairs",
    I8x64,
    (I8x16,),
    lambda a: ((a.view(np.uint8)[:, None] >> np.arange(0, 8, 2, dtype=np.uint8)) & 3).astype(np.int8).reshape(-1),
)
def expand_pairs(builder: Any, a: Any) -> Any:
    """16 bytes to their 64 two-bit codes, least significant first."""
    wide = builder.zext(a, I32x16.llvm)
    for shift in (6, 12):
        # b | b<<6 | b<<12 | b<<18 has the code j of the byte at bit 8j; built in two doublings below.
        moved = builder.shl(wide, lanes_of(I32x16, shift))
        wide = builder.or_(wide, moved)
    return builder.bitcast(builder.and_(wide, lanes_of(I32x16, 0x03030303)), I8x64.llvm)


@operation("store_i8x64", NONE, (I64, I8x64), lambda value: value.tobytes())
def store_i8x64(builder: Any, address: Any, value: Any) -> Any:
    builder.store(value, pointer(builder, address, I8x64.llvm), align=1)


@operation("load_i32x16", I32x16, (I64,), lambda raw: raw.view(np.int32)[:16])
def load_i32x16(builder: Any, address: Any) -> Any:
    return builder.load(pointer(builder, address, I32x16.llvm), align=4)


@operation("store_low_bytes", NONE, (I64, I32x16), lambda value: value.astype(np.uint8).tobytes())
def store_low_bytes(builder: Any, address: Any, value: Any) -> Any:
    narrow = builder.trunc(value, I8x16.llvm)
    builder.store(narrow, pointer(builder, address, I8x16.llvm), align=1)


def _bytes_to_float(part: int) -> Any:
    @operation(f"float_of_bytes{part}", F32x16, (I8x64,), lambda a: a[16 * part : 16 * part + 16].astype(np.float32))
    def convert(builder: Any, a: Any) -> Any:
        piece = shuffle(builder, a, a, list(range(16 * part, 16 * part + 16)))
        return builder.sitofp(builder.sext(piece, I32x16.llvm), F32x16.llvm)

    return convert


float_of_bytes0, float_of_bytes1, float_of_bytes2, float_of_bytes3 = (_bytes_to_float(part) for part in range(4))


def _dot_twin(total: Any, unsigned: Any, signed: Any) -> Any:
    products = unsigned.view(np.uint8).astype(np.int32) * signed.astype(np.int32)
    return total + products.reshape(16, 4).sum(1, dtype=np.int32)


def multiply_add_vnni(builder: Any, total: Any, unsigned: Any, signed: Any) -> Any:
    return call(builder, "llvm.x86.avx512.vpdpbusd.512", I32x16.llvm, [total, unsigned, signed])


def multiply_add_generic(builder: Any, total: Any, unsigned: Any, signed: Any) -> Any:
    """By 16-bit products and two pairwise additions: LLVM finds the multiply-add of the target."""
    wide = ir.VectorType(WORD, 64)
    product = builder.mul(builder.zext(unsigned, wide), builder.sext(signed, wide))
    for lanes in (64, 32):
        even = shuffle(builder, product, product, list(range(0, lanes, 2)))
        odd = shuffle(builder, product, product, list(range(1, lanes, 2)))
        product = builder.add(even, odd)
    return builder.add(total, product)


# --- AVX2: 32 bytes at a time --------------------------------------------------------------------------------

_BYTES, _HALVES, _WORDS = (ir.VectorType(kind, 256 // kind.width) for kind in (BYTE, HALF, WORD))


def halves_of(builder: Any, vector: Any) -> list[Any]:
    """Both halves of a vector of 64 bytes."""
    return [shuffle(builder, vector, vector, list(range(first, first + 32))) for first in (0, 32)]


def pair_products(builder: Any, unsigned: Any, signed: Any) -> Any:
    """Sums of two products of bytes as int16, for 32 bytes; they saturate."""
    return call(builder, "llvm.x86.avx2.pmadd.ub.sw", _HALVES, [unsigned, signed])


def add_pairs(builder: Any, values: Any) -> Any:
    """Sums of two neighbouring int16 as int32, for 16 of them."""
    return call(builder, "llvm.x86.avx2.pmadd.wd", _WORDS, [values, ir.Constant(_HALVES, [1] * 16)])


def magnitude_and_sign(builder: Any, codes: Any, values: Any) -> tuple[Any, Any]:
    """For signed codes: their magnitudes, and the values with the codes' signs, which have the same products."""
    magnitude = call(builder, "llvm.abs.v32i8", _BYTES, [codes, ir.Constant(ir.IntType(1), 0)])
    return magnitude, call(builder, "llvm.x86.avx2.psign.b", _BYTES, [values, codes])


def _dot_avx2(name: str, signed_codes: bool) -> Any:
    def twin(total: Any, codes: Any, values: Any) -> Any:
        weights = codes.astype(np.int32) if signed_codes else codes.view(np.uint8).astype(np.int32)
        if signed_codes:
            values = np.where(weights < 0, (-values.astype(np.int32)).astype(np.int8), values)
            weights = np.abs(weights)
        pairs = (weights * values).reshape(32, 2).sum(1)
        return total + np.clip(pairs, -(2**15), 2**15 - 1).reshape(16, 2).sum(1, dtype=np.int32)

    @operation(name, I32x16, (I32x16, I8x64, I8x64), twin)
    def dot(builder: Any, total: Any, codes: Any, values: Any) -> Any:
        """total + sums of four products per lane (AVX2); of codes below 130 no sum of two products saturates."""
        sums = []
        for part, four in zip(halves_of(builder, codes), halves_of(builder, values), strict=True):
            pair = magnitude_and_sign(builder, part, four) if signed_codes else (part, four)
            sums.append(add_pairs(builder, pair_products(builder, *pair)))
        low, high = sums
        return builder.add(total, shuffle(builder, low, high, list(range(16))))

    return dot


dot_avx2, dot_signed_avx2 = _dot_avx2("dot_avx2", False), _dot_avx2("dot_signed_avx2", True)


@operation("dot_vnni", I32x16, (I32x16, I8x64, I8x64), _dot_twin)
def dot_vnni(builder: Any, total: Any, unsigned: Any, signed: Any) -> Any:
    """total + sums of four products unsigned·signed per lane, without saturation (AVX-512 VNNI)."""
    return multiply_add_vnni(builder, total, unsigned, signed)


@operation("dot_generic", I32x16, (I32x16, I8x64, I8x64), _dot_twin)
def dot_generic(builder: Any, total: Any, unsigned: Any, signed: Any) -> Any:
    """The same on any target."""
    return multiply_add_generic(builder, total, unsigned, signed)
