"""What all intrinsics are made of: vector types, operators on them, the record of operations and their twins.

Vectors are LLVM vectors of fixed width; LLVM splits them for narrower machines, so one source serves every target.
Integers are int64 throughout (numba makes float64 of int64 with uint64), addresses too. A twin takes and returns
NumPy arrays; for a load it takes the bytes at the address, for a store it returns them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir

from ..jit import AbstractTemplate, infer_global, intrinsic, lower_builtin, models, register_model, signature, types

BYTE, HALF, WORD, LONG = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64)
SINGLE = ir.FloatType()
ELEMENTS: dict[str, tuple[ir.Type, type]] = {
    "i8": (BYTE, np.int8),
    "i16": (HALF, np.int16),
    "i32": (WORD, np.int32),
    "f32": (SINGLE, np.float32),
    "f64": (ir.DoubleType(), np.float64),
}


FLOATING = ("f32", "f64")


class Vector(types.Type):
    """The numba type of an LLVM vector; `element` is a key of `ELEMENTS`."""

    def __init__(self, element: str, lanes: int) -> None:
        self.element, self.lanes = element, lanes
        self.llvm = ir.VectorType(ELEMENTS[element][0], lanes)
        self.dtype = ELEMENTS[element][1]
        super().__init__(name=f"{element}x{lanes}")


@register_model(Vector)
class VectorModel(models.PrimitiveModel):
    """A vector is held as the LLVM vector itself."""

    def __init__(self, manager: Any, vector: Vector) -> None:
        super().__init__(manager, vector, vector.llvm)


I8x16, I8x32, I8x64 = (Vector("i8", n) for n in (16, 32, 64))
I32x16, F32x16, F64x16 = Vector("i32", 16), Vector("f32", 16), Vector("f64", 16)
I64, F32, NONE = types.int64, types.float32, types.void

# name -> (intrinsic, result type, parameter types, twin): what tests/kernels/test_simd.py walks over.
OPERATIONS: dict[str, tuple[Any, Any, tuple[Any, ...], Callable[..., Any]]] = {}


# numba reads the number of arguments off an intrinsic's signature, so each arity needs a function of its own.
_ARITY: dict[int, Callable[..., Any]] = {
    0: lambda f: lambda ctx: f(),
    1: lambda f: lambda ctx, a: f(a),
    2: lambda f: lambda ctx, a, b: f(a, b),
    3: lambda f: lambda ctx, a, b, c: f(a, b, c),
    4: lambda f: lambda ctx, a, b, c, d: f(a, b, c, d),
    5: lambda f: lambda ctx, a, b, c, d, e: f(a, b, c, d, e),
    9: lambda f: lambda ctx, a, b, c, d, e, g, h, i, j: f(a, b, c, d, e, g, h, i, j),
}


def operation(name: str, result: Any, parameters: tuple[Any, ...], twin: Callable[..., Any]) -> Callable[..., Any]:
    """Make an intrinsic of a function `(builder, *values) -> value` and record its twin."""

    def wrap(build: Callable[..., Any]) -> Any:
        def implement(*_: Any) -> Any:
            def code(ctx: Any, builder: Any, sig: Any, values: Any) -> Any:
                value = build(builder, *values)
                return ctx.get_dummy_value() if result is NONE else value

            return result(*parameters), code

        typing = _ARITY[len(parameters)](implement)
        typing.__name__ = name
        made = intrinsic(typing)
        OPERATIONS[name] = (made, result, parameters, twin)
        return made

    return wrap


def call(builder: Any, name: str, result: ir.Type, values: list[Any]) -> Any:
    """Call an LLVM intrinsic function."""
    module = builder.module
    kind = ir.FunctionType(result, [value.type for value in values])
    function = module.globals.get(name) or ir.Function(module, kind, name)
    return builder.call(function, values)


def pointer(builder: Any, address: Any, kind: ir.Type) -> Any:
    return builder.inttoptr(address, kind.as_pointer())


def lanes_of(vector: Vector, value: Any) -> Any:
    return ir.Constant(vector.llvm, [value] * vector.lanes)


def shuffle(builder: Any, a: Any, b: Any, order: list[int]) -> Any:
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(WORD, len(order)), order))


def broadcast(builder: Any, value: Any, lanes: int) -> Any:
    empty = ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined)
    return shuffle(builder, builder.insert_element(empty, value, WORD(0)), empty, [0] * lanes)


def first_lanes(builder: Any, count: Any) -> Any:
    """Mask of the lanes of 16 that are below `count`."""
    index = ir.Constant(ir.VectorType(LONG, 16), list(range(16)))
    return builder.icmp_signed("<", index, broadcast(builder, count, 16))


# --- Operators on vectors: +, -, * lane by lane (integers wrap); &, |; << and >> (logical) by one constant or count

_ARITHMETIC: dict[Any, tuple[str, str | None]] = {
    operator.add: ("add", "fadd"),
    operator.sub: ("sub", "fsub"),
    operator.mul: ("mul", "fmul"),
    operator.truediv: ("", "fdiv"),
    operator.and_: ("and_", None),
    operator.or_: ("or_", None),
}
_SHIFTS = {operator.lshift: "shl", operator.rshift: "lshr"}


def _install_operators() -> None:
    def arithmetic(function: Any, integer: str, floating: str | None) -> None:
        @infer_global(function)
        class _Same(AbstractTemplate):
            def generic(self, args: Any, kws: Any) -> Any:
                a, b = args
                known = isinstance(a, Vector) and a == b and (floating if a.element in FLOATING else integer)
                return signature(a, a, a) if known else None

        @lower_builtin(function, Vector, Vector)
        def _code(ctx: Any, builder: Any, sig: Any, values: Any) -> Any:
            name = floating if sig.return_type.element in FLOATING else integer
            return getattr(builder, str(name))(*values)

    def shift(function: Any, name: str) -> None:
        @infer_global(function)
        class _Count(AbstractTemplate):
            def generic(self, args: Any, kws: Any) -> Any:
                a, b = args
                return signature(a, a, I64) if isinstance(a, Vector) and isinstance(b, types.Integer) else None

        @lower_builtin(function, Vector, types.Integer)
        def _code(ctx: Any, builder: Any, sig: Any, values: Any) -> Any:
            vector, count = values
            element = vector.type.element
            count = builder.trunc(count, element) if element.width < 64 else count
            return getattr(builder, name)(vector, broadcast(builder, count, vector.type.count))

    for function, (integer, floating) in _ARITHMETIC.items():
        arithmetic(function, integer, floating)
    for function, name in _SHIFTS.items():
        shift(function, name)


_install_operators()
