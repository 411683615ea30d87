"""Lowering rules: what is done element by element."""

from __future__ import annotations

from ...graph import Glu, Op, Tensor
from ..lowering import Lowering, Rule, elementwise, source_of


def _mul(low: Lowering, node: Tensor) -> None:
    a, b = source_of(node, 0), source_of(node, 1)
    if a.index in low.absorbed:
        params = (float(a.params[0]),)
        low.emit("norms.rms_norm_mul", low.operand(node), low.dense(source_of(a, 0)), low.dense(b), params=params)
    else:
        elementwise("elementwise.mul")(low, node)


def _scale(low: Lowering, node: Tensor) -> None:
    factor, offset = node.params
    source = low.dense(source_of(node, 0))
    low.emit("elementwise.scale", low.operand(node), source, params=(float(factor), float(offset)))


def _glu(low: Lowering, node: Tensor) -> None:
    kernel = {Glu.SWIGLU: "elementwise.swiglu", Glu.GEGLU: "elementwise.geglu"}[node.params[0]]
    low.emit(kernel, low.operand(node), low.dense(source_of(node, 0)), low.dense(source_of(node, 1)))


def _unary(low: Lowering, node: Tensor) -> None:
    low.emit(f"elementwise.{node.params[0].name.lower()}", low.operand(node), low.dense(source_of(node, 0)))


RULES: dict[Op, Rule] = {
    Op.ADD: elementwise("elementwise.add"),
    Op.MUL: _mul,
    Op.DIV: elementwise("elementwise.div"),
    Op.SCALE: _scale,
    Op.GLU: _glu,
    Op.UNARY: _unary,
}
