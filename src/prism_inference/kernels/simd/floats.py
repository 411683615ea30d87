"""Vectors of 16 float32 lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir

from ..jit import types
from .core import (
    F32,
    I64,
    NONE,
    SINGLE,
    WORD,
    F32x16,
    F64x16,
    broadcast,
    call,
    first_lanes,
    lanes_of,
    operation,
    pointer,
    shuffle,
)


@operation("splat", F32x16, (F32,), lambda value: np.full(16, value, np.float32))
def splat(builder: Any, value: Any) -> Any:
    return broadcast(builder, value, 16)


@operation("zeros", F32x16, (), lambda: np.zeros(16, np.float32))
def zeros(builder: Any) -> Any:
    return lanes_of(F32x16, 0.0)


@operation("load_f32x16", F32x16, (I64,), lambda raw: raw.view(np.float32)[:16])
def load_f32x16(builder: Any, address: Any) -> Any:
    return builder.load(pointer(builder, address, F32x16.llvm), align=1)


@operation("store_f32x16", NONE, (I64, F32x16), lambda value: value.tobytes())
def store_f32x16(builder: Any, address: Any, value: Any) -> Any:
    builder.store(value, pointer(builder, address, F32x16.llvm), align=1)


@operation("load_first", F32x16, (I64, I64), lambda raw, n: np.where(np.arange(16) < n, raw.view(np.float32)[:16], 0))
def load_first(builder: Any, address: Any, count: Any) -> Any:
    """Load the first `count` lanes, zeros in the others; reads nothing beyond them."""
    place = pointer(builder, address, F32x16.llvm)
    values = [place, first_lanes(builder, count), lanes_of(F32x16, 0.0)]
    return call(builder, "llvm.masked.load.v16f32.p0", F32x16.llvm, values)


@operation("store_first", NONE, (I64, F32x16, I64), lambda value, n: value[: max(0, min(16, n))].tobytes())
def store_first(builder: Any, address: Any, value: Any, count: Any) -> Any:
    place = pointer(builder, address, F32x16.llvm)
    call(builder, "llvm.masked.store.v16f32.p0", ir.VoidType(), [value, place, first_lanes(builder, count)])


@operation("fma", F32x16, (F32x16, F32x16, F32x16), lambda a, b, c: (a.astype(np.float64) * b + c).astype(np.float32))
def fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, fused where the target can (a library call elsewhere would cost more than it gains)."""
    return call(builder, "llvm.fmuladd.v16f32", F32x16.llvm, [a, b, c])


@operation("maximum", F32x16, (F32x16, F32x16), lambda a, b: np.where(a > b, a, b))
def maximum(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


@operation("minimum", F32x16, (F32x16, F32x16), lambda a, b: np.where(a < b, a, b))
def minimum(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered("<", a, b), a, b)


@operation("absolute", F32x16, (F32x16,), np.abs)
def absolute(builder: Any, a: Any) -> Any:
    return call(builder, "llvm.fabs.v16f32", F32x16.llvm, [a])


def _fold(builder: Any, vector: Any, combine: Callable[[Any, Any], Any]) -> Any:
    """Halve the vector until one lane is left: the same tree on every target."""
    count = vector.type.count
    while count > 1:
        count //= 2
        low = shuffle(builder, vector, vector, list(range(count)))
        high = shuffle(builder, vector, vector, list(range(count, 2 * count)))
        vector = combine(low, high)
    return builder.extract_element(vector, WORD(0))


def _tree(value: Any, combine: Callable[[Any, Any], Any]) -> Any:
    while len(value) > 1:
        half = len(value) // 2
        value = combine(value[:half], value[half:])
    return value[0]


@operation("zeros_f64", F64x16, (), lambda: np.zeros(16))
def zeros_f64(builder: Any) -> Any:
    return lanes_of(F64x16, 0.0)


@operation("widen", F64x16, (F32x16,), lambda a: a.astype(np.float64))
def widen(builder: Any, a: Any) -> Any:
    return builder.fpext(a, F64x16.llvm)


@operation("narrow", F32x16, (F64x16,), lambda a: a.astype(np.float32))
def narrow(builder: Any, a: Any) -> Any:
    return builder.fptrunc(a, F32x16.llvm)


@operation("sum_wide", types.float64, (F64x16,), lambda a: _tree(a, np.add))
def sum_wide(builder: Any, a: Any) -> Any:
    return _fold(builder, a, builder.fadd)


@operation("sum_lanes", F32, (F32x16,), lambda a: np.float32(_tree(a.astype(np.float64), np.add)))
def sum_lanes(builder: Any, a: Any) -> Any:
    """Sum of the lanes, added in float64 and rounded once: the same on every target."""
    return builder.fptrunc(_fold(builder, builder.fpext(a, F64x16.llvm), builder.fadd), SINGLE)


@operation("max_lanes", F32, (F32x16,), lambda a: _tree(a, np.maximum))
def max_lanes(builder: Any, a: Any) -> Any:
    return _fold(builder, a, lambda x, y: builder.select(builder.fcmp_ordered(">", x, y), x, y))


@operation("halves", F32x16, (F32, F32), lambda a, b: np.repeat(np.array([a, b], np.float32), 8))
def halves(builder: Any, a: Any, b: Any) -> Any:
    return shuffle(builder, broadcast(builder, a, 8), broadcast(builder, b, 8), list(range(16)))


@operation("quarters", F32x16, (F32, F32, F32, F32), lambda *v: np.repeat(np.array(v, np.float32), 4))
def quarters(builder: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    low = shuffle(builder, broadcast(builder, a, 4), broadcast(builder, b, 4), list(range(8)))
    high = shuffle(builder, broadcast(builder, c, 4), broadcast(builder, d, 4), list(range(8)))
    return shuffle(builder, low, high, list(range(16)))


def _spread(part: int) -> Any:
    @operation(f"spread{part}", F32x16, (F32x16,), lambda a: np.repeat(a[4 * part : 4 * part + 4], 4))
    def spread(builder: Any, a: Any) -> Any:
        """Each of the lanes 4·part … 4·part+3, four times: scales per lane of a dot product to scales per weight."""
        return shuffle(builder, a, a, [4 * part + lane // 4 for lane in range(16)])

    return spread


spread0, spread1 = (_spread(part) for part in range(2))


@operation("square_root", F32, (F32,), lambda value: np.sqrt(np.float32(value)))
def square_root(builder: Any, value: Any) -> Any:
    return call(builder, "llvm.sqrt.f32", value.type, [value])


def _butterfly(distance: int) -> Any:
    def twin(a: Any) -> Any:
        lane = np.arange(16)
        partner = a[lane ^ distance]
        return np.where(lane & distance, partner - a, a + partner)

    @operation(f"butterfly{distance}", F32x16, (F32x16,), twin)
    def butterfly(builder: Any, a: Any) -> Any:
        """One stage of the Walsh-Hadamard transform within a vector: sums and differences of lanes `distance` apart."""
        partner = shuffle(builder, a, a, [lane ^ distance for lane in range(16)])
        order = [16 + lane if lane & distance else lane for lane in range(16)]
        return shuffle(builder, builder.fadd(a, partner), builder.fsub(partner, a), order)

    return butterfly


butterfly1, butterfly2, butterfly4, butterfly8 = (_butterfly(distance) for distance in (1, 2, 4, 8))
