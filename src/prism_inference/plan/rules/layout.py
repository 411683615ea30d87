"""Lowering rules: copies and what moves values."""

from __future__ import annotations

from ...graph import Op, Tensor
from ..lowering import Lowering, Rule, source_of


def _copy(low: Lowering, node: Tensor) -> None:
    source = source_of(node, 0)
    kernel = f"copies.copy.{source.type.name.lower()}.{node.type.name.lower()}"
    low.emit(kernel, low.operand(node), low.operand(source))


RULES: dict[Op, Rule] = {
    Op.CPY: _copy,
    Op.CONT: _copy,
}
