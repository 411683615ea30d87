"""Lowering rules: matrix products."""

from __future__ import annotations

from ...errors import GraphError
from ...graph import Op, Tensor
from ..layouts import QUANTIZED
from ..lowering import Lowering, Rule, kernel_type


def _product(family: str) -> Rule:
    """Rule of a product: weights, activations (rounded for quantized weights), and what else the operation reads."""

    def rule(low: Lowering, node: Tensor) -> None:
        weights, x, *rest = (source for source in node.sources if source is not None)
        kind = kernel_type(weights, node)
        if weights.nb[0] != weights.type.nbytes:
            raise GraphError("rows of the first source have gaps", where=repr(node), found=weights.nb)
        quantized = weights.type.name in QUANTIZED
        kernel = f"{family}.{kind}@{low.isa}" if quantized else f"{family}.{kind}"
        activations = low.activations(x) if quantized else low.dense(x)
        low.emit(kernel, low.operand(node), low.operand(weights), activations, *map(low.operand, rest))

    return rule


RULES: dict[Op, Rule] = {
    Op.MUL_MAT: _product("matmul"),
    Op.MUL_MAT_ID: _product("experts"),
}
