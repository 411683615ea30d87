"""Lowering rules: matrix products."""

from __future__ import annotations

from ...errors import GraphError
from ...graph import Op, Tensor
from ..layouts import QUANTIZED, byte_panel_scratch, panel_scratch
from ..lowering import Lowering, Rule, kernel_type, source_of
from ..steps import Operand


def _weights(low: Lowering, tensor: Tensor, node: Tensor) -> Operand:
    """Return the operand of a product's first source, whose rows must have no gaps."""
    if tensor.type.name == "F32":
        return low.dense(tensor)
    if tensor.nb[0] != tensor.type.nbytes:
        raise GraphError("rows of the first source have gaps", where=repr(node), found=tensor.nb)
    return low.operand(tensor)


def _product(family: str) -> Rule:
    """Rule of a product: weights, activations (rounded for quantized weights), and what else the operation reads."""

    def rule(low: Lowering, node: Tensor) -> None:
        weights, x, *rest = (source for source in node.sources if source is not None)
        kind = kernel_type(weights, node)
        quantized = weights.type.name in QUANTIZED
        kernel = f"{family}.{kind}@{low.isa}" if quantized else f"{family}.{kind}"
        activations = low.activations(x) if quantized else low.dense(x)
        scratch = byte_panel_scratch() if quantized and family == "matmul" else 0
        operands = low.operand(node), _weights(low, weights, node), activations, *map(low.operand, rest)
        low.emit(kernel, *operands, scratch=scratch)

    return rule


def _mul_mat(low: Lowering, node: Tensor) -> None:
    if not node.params[0]:
        _product("matmul")(low, node)
        return
    weights, x = source_of(node, 0), source_of(node, 1)
    kernel = f"panels.mul_mat.{kernel_type(weights, node)}@{low.isa}"
    operands = low.operand(node), _weights(low, weights, node), low.dense(x)
    low.emit(kernel, *operands, params=(0,), scratch=panel_scratch(low.isa))


def _out_prod(low: Lowering, node: Tensor) -> None:
    """A result that is only added to an accumulator is added by the product itself."""
    a, b = source_of(node, 0), source_of(node, 1)
    target = low.only_reader(node)
    adds = target is not None and target.op is Op.ADD and target.view_of is not None and target.sources[1] is node
    result = node
    if adds and target is not None:
        result = target
        low.done.add(target.index)
    kernel = f"panels.out_prod.{kernel_type(a, node)}@{low.isa}"
    operands = low.operand(result), _weights(low, a, node), low.operand(b)
    low.emit(kernel, *operands, params=(int(adds),), scratch=panel_scratch(low.isa))


def _mul_mat_id(low: Lowering, node: Tensor) -> None:
    if not node.params[0]:
        _product("experts")(low, node)
        return
    weights, x, index = (source_of(node, number) for number in range(3))
    operands = low.operand(node), _weights(low, weights, node), low.dense(x), low.operand(index)
    row = 4 * (int(weights.ne[0]) + 63)
    low.emit(f"experts_exact.mul_mat_id.{kernel_type(weights, node)}", *operands, scratch=row)


def _out_prod_id(low: Lowering, node: Tensor) -> None:
    weights, g, index = (source_of(node, number) for number in range(3))
    operands = low.operand(node), _weights(low, weights, node), low.dense(g), low.operand(index)
    low.emit(f"experts_exact.out_prod_id.{kernel_type(weights, node)}", *operands, scratch=256)


def _mul_mat_id_back(low: Lowering, node: Tensor) -> None:
    g, x, index = (source_of(node, number) for number in range(3))
    low.emit("experts_exact.mul_mat_id_back", low.operand(node), low.dense(g), low.dense(x), low.operand(index))


RULES: dict[Op, Rule] = {
    Op.MUL_MAT: _mul_mat,
    Op.MUL_MAT_ID: _mul_mat_id,
    Op.OUT_PROD: _out_prod,
    Op.OUT_PROD_ID: _out_prod_id,
    Op.MUL_MAT_ID_BACK: _mul_mat_id_back,
}
