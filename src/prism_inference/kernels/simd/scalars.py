"""Numbers in memory: one load or store each; integers widen to int64."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from ..jit import types
from .core import F32, I64, LONG, NONE, SINGLE, WORD, operation, pointer


def _scalar_load(name: str, kind: ir.Type, dtype: Any, signed: bool) -> Any:
    @operation(name, I64, (I64,), lambda raw: int(raw.view(dtype)[0]))
    def load(builder: Any, address: Any) -> Any:
        value = builder.load(pointer(builder, address, kind), align=1)
        if kind == LONG:
            return value
        return builder.sext(value, LONG) if signed else builder.zext(value, LONG)

    return load


load_i64 = _scalar_load("load_i64", LONG, np.int64, True)
load_i32 = _scalar_load("load_i32", WORD, np.int32, True)
load_u32 = _scalar_load("load_u32", WORD, np.uint32, False)


@operation("load_f32", F32, (I64,), lambda raw: raw.view(np.float32)[0])
def load_f32(builder: Any, address: Any) -> Any:
    return builder.load(pointer(builder, address, SINGLE), align=1)


@operation("load_f64", types.float64, (I64,), lambda raw: raw.view(np.float64)[0])
def load_f64(builder: Any, address: Any) -> Any:
    return builder.load(pointer(builder, address, ir.DoubleType()), align=1)


@operation("store_f32", NONE, (I64, F32), lambda value: np.float32(value).tobytes())
def store_f32(builder: Any, address: Any, value: Any) -> Any:
    builder.store(value, pointer(builder, address, SINGLE), align=1)


@operation("store_f64", NONE, (I64, types.float64), lambda value: np.float64(value).tobytes())
def store_f64(builder: Any, address: Any, value: Any) -> Any:
    builder.store(value, pointer(builder, address, ir.DoubleType()), align=1)


@operation("store_i64", NONE, (I64, I64), lambda value: np.int64(value).tobytes())
def store_i64(builder: Any, address: Any, value: Any) -> Any:
    builder.store(value, pointer(builder, address, LONG), align=1)


@operation("store_i32", NONE, (I64, I64), lambda value: np.int32(value).tobytes())
def store_i32(builder: Any, address: Any, value: Any) -> Any:
    builder.store(builder.trunc(value, WORD), pointer(builder, address, WORD), align=1)


@operation("float_of_bits", F32, (I64,), lambda bits: np.array([bits], np.int64).astype(np.uint32).view(np.float32)[0])
def float_of_bits(builder: Any, bits: Any) -> Any:
    return builder.bitcast(builder.trunc(bits, WORD), SINGLE)
