"""Float32 lanes as bit patterns, their numbers, signs and roots."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from .core import F32x16, I32x16, call, operation


@operation("bits_of", I32x16, (F32x16,), lambda a: a.view(np.int32))
def bits_of(builder: Any, a: Any) -> Any:
    return builder.bitcast(a, I32x16.llvm)


@operation("from_bits", F32x16, (I32x16,), lambda a: a.view(np.float32))
def from_bits(builder: Any, a: Any) -> Any:
    return builder.bitcast(a, F32x16.llvm)


@operation("copy_sign", F32x16, (F32x16, F32x16), np.copysign)
def copy_sign(builder: Any, a: Any, b: Any) -> Any:
    """The magnitude of a with the sign of b."""
    return call(builder, "llvm.copysign.v16f32", F32x16.llvm, [a, b])


@operation("square_roots", F32x16, (F32x16,), np.sqrt)
def square_roots(builder: Any, a: Any) -> Any:
    return call(builder, "llvm.sqrt.v16f32", F32x16.llvm, [a])


@operation("lane_numbers", F32x16, (), lambda: np.arange(16, dtype=np.float32))
def lane_numbers(builder: Any) -> Any:
    """0 … 15."""
    return ir.Constant(F32x16.llvm, [float(lane) for lane in range(16)])
