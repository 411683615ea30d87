"""Lowering rules: what concerns whole rows."""

from __future__ import annotations

from ...graph import Op, Tensor
from ..lowering import Lowering, Rule, kernel_type, row_kernel, source_of


def _rms_norm(low: Lowering, node: Tensor) -> None:
    if node.index not in low.absorbed:
        low.emit("norms.rms_norm", low.operand(node), low.dense(source_of(node, 0)), params=(float(node.params[0]),))


def _get_rows(low: Lowering, node: Tensor) -> None:
    table, index = source_of(node, 0), source_of(node, 1)
    low.emit(f"rows.{kernel_type(table, node)}", low.operand(node), low.operand(table), low.operand(index))


def _set_rows(low: Lowering, node: Tensor) -> None:
    rows, index = source_of(node, 0), source_of(node, 1)
    if node.type.block > 1:
        low.emit(f"cache.set_rows.{node.type.name.lower()}", low.operand(node), low.dense(rows), low.operand(index))
        return
    kernel = f"copies.set_rows.f32.{node.type.name.lower()}"
    low.emit(kernel, low.operand(node), low.operand(rows), low.operand(index))


RULES: dict[Op, Rule] = {
    Op.RMS_NORM: _rms_norm,
    Op.SOFT_MAX: row_kernel("norms.soft_max"),
    Op.SUM_ROWS: row_kernel("norms.sum_rows"),
    Op.TOP_K: row_kernel("experts.top_k"),
    Op.GET_ROWS: _get_rows,
    Op.SET_ROWS: _set_rows,
}
