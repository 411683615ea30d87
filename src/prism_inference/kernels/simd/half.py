"""float16 and bfloat16: by hardware where the target has it, by bit arithmetic elsewhere (no library calls)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir

from ..target import target
from .core import F32, HALF, I64, NONE, SINGLE, WORD, F32x16, I32x16, call, first_lanes, lanes_of, operation, pointer


def _shaped(value: Any) -> tuple[Callable[[ir.Type], ir.Type], Callable[[ir.Type, Any], Any]]:
    """Return makers of types and of constants with the shape of a value: scalar, or vector of as many lanes."""
    vector = isinstance(value.type, ir.VectorType)
    lanes = value.type.count if vector else 1

    def kind(element: ir.Type) -> ir.Type:
        return ir.VectorType(element, lanes) if vector else element

    def const(element: ir.Type, number: Any) -> Any:
        return ir.Constant(kind(element), [number] * lanes if vector else number)

    return kind, const


def _half_to_single(builder: Any, half: Any) -> Any:
    """float16 bits (scalar or vector of i16) to float32; exact for every value, NaN and infinity included."""
    kind, const = _shaped(half)
    if target().half:
        return builder.fpext(builder.bitcast(half, kind(ir.HalfType())), kind(SINGLE))
    wide = builder.zext(half, kind(WORD))
    magnitude = builder.shl(builder.and_(wide, const(WORD, 0x7FFF)), const(WORD, 13))
    sign = builder.shl(builder.and_(wide, const(WORD, 0x8000)), const(WORD, 16))
    # 2^112 moves the exponent bias from 15 to 127 and makes normal numbers of the subnormal ones.
    scaled = builder.bitcast(
        builder.fmul(builder.bitcast(magnitude, kind(SINGLE)), const(SINGLE, 2.0**112)), kind(WORD)
    )
    special = builder.icmp_unsigned(">=", magnitude, const(WORD, 0x7C00 << 13))
    bits = builder.select(special, builder.or_(magnitude, const(WORD, 0x7F800000)), scaled)
    return builder.bitcast(builder.or_(bits, sign), kind(SINGLE))


def _single_to_half(builder: Any, single: Any) -> Any:
    """float32 (scalar or vector) to float16 bits, rounded to nearest, ties to even; NaN stays NaN."""
    kind, const = _shaped(single)
    if target().half:
        return builder.bitcast(builder.fptrunc(single, kind(ir.HalfType())), kind(HALF))
    bits = builder.bitcast(single, kind(WORD))
    sign = builder.and_(builder.lshr(bits, const(WORD, 16)), const(WORD, 0x8000))
    magnitude = builder.and_(bits, const(WORD, 0x7FFFFFFF))
    # Normal results: shift the bias and round by adding half a unit, one less if the kept part is even.
    odd = builder.and_(builder.lshr(magnitude, const(WORD, 13)), const(WORD, 1))
    rounded = builder.add(builder.add(magnitude, const(WORD, ((15 - 127) << 23) + 0xFFF)), odd)
    normal = builder.lshr(rounded, const(WORD, 13))
    # Subnormal results: adding 0.5 puts the float16 unit at the last bit of the float32 mantissa, which rounds to even.
    lifted = builder.fadd(builder.bitcast(magnitude, kind(SINGLE)), const(SINGLE, 0.5))
    small = builder.sub(builder.bitcast(lifted, kind(WORD)), const(WORD, 0x3F000000))
    value = builder.select(builder.icmp_unsigned("<", magnitude, const(WORD, 113 << 23)), small, normal)
    value = builder.select(
        builder.icmp_unsigned(">=", magnitude, const(WORD, (127 + 16) << 23)), const(WORD, 0x7C00), value
    )
    value = builder.select(builder.icmp_unsigned(">", magnitude, const(WORD, 0x7F800000)), const(WORD, 0x7E00), value)
    return builder.trunc(builder.or_(value, sign), kind(HALF))


def _bf16_to_single(builder: Any, half: Any) -> Any:
    return builder.bitcast(builder.shl(builder.zext(half, I32x16.llvm), lanes_of(I32x16, 16)), F32x16.llvm)


def _bf16(raw: Any) -> Any:
    return (raw.view(np.uint16)[:16].astype(np.uint32) << 16).view(np.float32)


def _keep(values: Any, count: int) -> Any:
    return np.where(np.arange(16) < count, values, np.float32(0))


@operation("load_f16", F32, (I64,), lambda raw: raw.view(np.float16)[0].astype(np.float32))
def load_f16(builder: Any, address: Any) -> Any:
    return _half_to_single(builder, builder.load(pointer(builder, address, HALF), align=1))


@operation("round_f16", F32, (F32,), lambda value: np.float32(np.float16(value)))
def round_f16(builder: Any, value: Any) -> Any:
    return _half_to_single(builder, _single_to_half(builder, value))


@operation("store_f16", NONE, (I64, F32), lambda value: np.float16(value).tobytes())
def store_f16(builder: Any, address: Any, value: Any) -> Any:
    builder.store(_single_to_half(builder, value), pointer(builder, address, HALF), align=1)


@operation("load_bf16", F32, (I64,), lambda raw: (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)[0])
def load_bf16(builder: Any, address: Any) -> Any:
    bits = builder.zext(builder.load(pointer(builder, address, HALF), align=1), WORD)
    return builder.bitcast(builder.shl(bits, WORD(16)), SINGLE)


@operation("load_f16x16", F32x16, (I64,), lambda raw: raw.view(np.float16)[:16].astype(np.float32))
def load_f16x16(builder: Any, address: Any) -> Any:
    return _half_to_single(builder, builder.load(pointer(builder, address, ir.VectorType(HALF, 16)), align=1))


@operation("store_f16x16", NONE, (I64, F32x16), lambda value: value.astype(np.float16).tobytes())
def store_f16x16(builder: Any, address: Any, value: Any) -> Any:
    builder.store(_single_to_half(builder, value), pointer(builder, address, ir.VectorType(HALF, 16)), align=1)


@operation("load_bf16x16", F32x16, (I64,), _bf16)
def load_bf16x16(builder: Any, address: Any) -> Any:
    return _bf16_to_single(builder, builder.load(pointer(builder, address, ir.VectorType(HALF, 16)), align=1))


def _load_first_bits(builder: Any, address: Any, count: Any) -> Any:
    vector = ir.VectorType(HALF, 16)
    values = [pointer(builder, address, vector), first_lanes(builder, count), ir.Constant(vector, [0] * 16)]
    return call(builder, "llvm.masked.load.v16i16.p0", vector, values)


@operation("load_first_f16", F32x16, (I64, I64), lambda raw, n: _keep(raw.view(np.float16)[:16].astype(np.float32), n))
def load_first_f16(builder: Any, address: Any, count: Any) -> Any:
    """The first `count` lanes, zeros in the others; reads nothing beyond them."""
    return _half_to_single(builder, _load_first_bits(builder, address, count))


@operation("load_first_bf16", F32x16, (I64, I64), lambda raw, n: _keep(_bf16(raw), n))
def load_first_bf16(builder: Any, address: Any, count: Any) -> Any:
    return _bf16_to_single(builder, _load_first_bits(builder, address, count))
