"""Lowering rules: what is done element by element."""

from __future__ import annotations

from dataclasses import replace

from ...graph import Op, Tensor, Unary
from ..lowering import Lowering, Rule, elementwise, source_of
from ..steps import Operand


def _mul(low: Lowering, node: Tensor) -> None:
    a, b = source_of(node, 0), source_of(node, 1)
    if a.index in low.absorbed:
        params = (float(a.params[0]),)
        low.emit("norms.rms_norm_mul", low.operand(node), low.dense(source_of(a, 0)), low.dense(b), params=params)
    else:
        elementwise("elementwise.mul")(low, node)


def _function(kernel: str) -> Rule:
    """Rule of a function of one value and the operation's parameters."""

    def rule(low: Lowering, node: Tensor) -> None:
        source = low.dense(source_of(node, 0))
        low.emit(kernel, low.operand(node), source, params=tuple(float(value) for value in node.params))

    return rule


def _angle(kernel: str) -> Rule:
    """Rule of a function whose kernel takes any strides."""

    def rule(low: Lowering, node: Tensor) -> None:
        low.emit(kernel, low.operand(node), low.operand(source_of(node, 0)))

    return rule


def _constant(kernel: str, *numbers: int) -> Rule:
    """Rule of an operation without sources; `numbers` says which of its parameters the kernel takes."""

    def rule(low: Lowering, node: Tensor) -> None:
        low.emit(kernel, low.operand(node), params=tuple(float(node.params[number]) for number in numbers))

    return rule


def _add_id(low: Lowering, node: Tensor) -> None:
    sources = (low.operand(source_of(node, number)) for number in range(3))
    low.emit("elementwise.add_id", low.operand(node), *sources)


def _round_to(low: Lowering, node: Tensor) -> None:
    low.emit(f"roundings.{node.params[0].lower()}", low.operand(node), low.dense(source_of(node, 0)))


# --- Functions of one value, gated units --------------------------------------------------------------------


def _unary(low: Lowering, node: Tensor) -> None:
    kind, *params = node.params
    low.emit(f"functions.x.{kind.name.lower()}", low.operand(node), low.dense(source_of(node, 0)), params=tuple(params))


def _back(low: Lowering, node: Tensor) -> None:
    """g · f'(x) for a kind of function; SILU_BACK has its kind in its name."""
    kind, *params = node.params or (Unary.SILU,)
    sources = (low.dense(source_of(node, number)) for number in range(2))
    low.emit(f"functions.slope.{kind.name.lower()}", low.operand(node), *sources, params=tuple(map(float, params)))


def _glu(low: Lowering, node: Tensor) -> None:
    kind, *params, swapped = node.params
    a = low.dense(source_of(node, 0))
    if node.sources[1] is not None:
        b = low.dense(source_of(node, 1))
    else:
        halves = _half(a, 0), _half(a, 1)
        a, b = reversed(halves) if swapped else halves
    low.emit(f"functions.gate.{kind.name.lower()}", low.operand(node), a, b, params=tuple(params))


def _half(operand: Operand, part: int) -> Operand:
    """Return a half of each row of an F32 operand."""
    half = operand.ne[0] // 2
    ne = (half, *operand.ne[1:])
    return replace(operand, offset=operand.offset + 4 * half * part, ne=ne, nbytes=operand.nbytes - 4 * half)


RULES: dict[Op, Rule] = {
    Op.ADD: elementwise("elementwise.add"),
    Op.ADD1: elementwise("elementwise.add"),
    Op.ADD_ID: _add_id,
    Op.SUB: elementwise("elementwise.sub"),
    Op.MUL: _mul,
    Op.DIV: elementwise("elementwise.div"),
    Op.SCALE: _function("elementwise.scale"),
    Op.CLAMP: _function("elementwise.clamp"),
    Op.SQR: _function("elementwise.sqr"),
    Op.SQRT: _function("functions.x.sqrt"),
    Op.LOG: _function("functions.x.log"),
    Op.SIN: _angle("elementwise.sin"),
    Op.COS: _angle("elementwise.cos"),
    Op.LEAKY_RELU: _function("functions.x.leaky_relu"),
    Op.FILL: _constant("elementwise.fill", 0),
    Op.ARANGE: _constant("elementwise.arange", 0, 2),
    Op.ROUND_TO: _round_to,
    Op.UNARY: _unary,
    Op.UNARY_BACK: _back,
    Op.SILU_BACK: _back,
    Op.GLU: _glu,
}
