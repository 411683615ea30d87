"""Lowering rules: what concerns whole rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...graph import Op, Order, Tensor
from ...graph.rope import alibi_slopes
from ..layouts import NO_BOUND, TOTAL_PART
from ..lowering import Lowering, Rule, kernel_type, row_kernel, source_of
from ..steps import Operand


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


def _soft_max(low: Lowering, node: Tensor) -> None:
    scale, max_bias = node.params
    x, mask, sinks = source_of(node, 0), *node.sources[1:]
    given = low.dense(x)
    if mask is None and sinks is None and scale == 1.0:
        low.emit("soft_max.plain", low.operand(node), given)
        return
    heads = int(x.ne[2])
    slopes = alibi_slopes(heads, max_bias) if max_bias > 0 else [1.0] * heads
    operands = (
        given if mask is None else _dense_mask(low, mask),
        low.constant(np.array(slopes, np.float32), "slopes"),
        given if sinks is None else low.operand(sinks),
    )
    kernel = "soft_max.scaled" if mask is None else f"soft_max.masked.{mask.type.name.lower()}"
    low.emit(kernel, low.operand(node), given, *operands, params=(scale, int(sinks is not None)))


def _dense_mask(low: Lowering, mask: Tensor) -> Operand:
    """Return a mask in its own type, without gaps between the values of a row."""
    return low.operand(mask) if mask.nb[0] == mask.type.nbytes else low.contiguous(mask)


def _sums(divides: bool) -> Rule:
    def rule(low: Lowering, node: Tensor) -> None:
        low.emit("totals.rows", low.operand(node), low.dense(source_of(node, 0)), params=(int(divides),))

    return rule


def _norm(kernel: str) -> Rule:
    """Rule of a norm or of its way back: dense rows, and the operation's one parameter."""

    def rule(low: Lowering, node: Tensor) -> None:
        sources = (low.dense(source) for source in node.sources if source is not None)
        low.emit(kernel, low.operand(node), *sources, params=(float(node.params[0]),))

    return rule


def _group_norm(low: Lowering, node: Tensor) -> None:
    """The planes of a group are one row of NORM; the last group may have fewer."""
    groups, eps = node.params
    x, plane, channels = low.contiguous(source_of(node, 0)), int(node.ne[0] * node.ne[1]), int(node.ne[2])
    result, width = low.operand(node), -(-channels // groups)
    full, rest = divmod(channels, width)
    for start, count, n in ((0, full, plane * width), (full * width, min(rest, 1), plane * rest)):
        ne, nb = (n, count, 1, node.ne[3]), (4, 4 * n, 4 * n * count, 4 * plane * channels)
        nbytes = 4 * n * count + nb[3] * (int(node.ne[3]) - 1)
        parts = (replace(o, offset=o.offset + 4 * plane * start, ne=ne, nb=nb, nbytes=nbytes) for o in (result, x))
        if count:
            low.emit("norms.norm", *parts, params=(float(eps),))


def _total(kernel: str) -> Rule:
    """Rule of a sum over everything."""

    def rule(low: Lowering, node: Tensor) -> None:
        x = source_of(node, 0)
        parts = -(-x.elements // TOTAL_PART)
        if parts == 1:
            turn = len(low.steps)
            low.emit(f"{kernel}.alone", low.operand(node), low.contiguous(x), params=(turn,))
            return
        partial = low.temporary((parts, 1, 1, 1), (8, 8 * parts, 8 * parts, 8 * parts), 8 * parts, "parts of a sum")
        low.emit(f"{kernel}.parts", partial, low.contiguous(x))
        low.emit("totals.finish", low.operand(node), partial)

    return rule


def _count_equal(low: Lowering, node: Tensor) -> None:
    low.emit("totals.count_equal", low.operand(node), *(low.contiguous(source_of(node, n)) for n in (0, 1)))


def _argsort(low: Lowering, node: Tensor) -> None:
    x = source_of(node, 0)
    operands = low.operand(node), low.dense(x)
    low.emit("order.first", *operands, params=(int(node.params[0]),), scratch=8 * int(x.ne[0]))


def _top_k(low: Lowering, node: Tensor) -> None:
    operands = low.operand(node), low.dense(source_of(node, 0))
    low.emit("order.first", *operands, params=(int(Order.DESC),), scratch=8 * int(node.ne[0]))


def _diag_mask(value: float) -> Rule:
    def rule(low: Lowering, node: Tensor) -> None:
        x = low.operand(source_of(node, 0))
        low.emit("moves.band", low.operand(node), x, params=(-NO_BOUND, int(node.params[0]), value))

    return rule


def _get_rows_back(low: Lowering, node: Tensor) -> None:
    rows, index = source_of(node, 0), source_of(node, 1)
    low.emit("moves.get_rows_back", low.operand(node), low.dense(rows), low.operand(index))


RULES: dict[Op, Rule] = {
    Op.RMS_NORM: _rms_norm,
    Op.RMS_NORM_BACK: _norm("norms.rms_norm_back"),
    Op.NORM: _norm("norms.norm"),
    Op.NORM_BACK: _norm("norms.norm_back"),
    Op.GROUP_NORM: _group_norm,
    Op.L2_NORM: _norm("norms.l2_norm"),
    Op.L2_NORM_BACK: _norm("norms.l2_norm_back"),
    Op.SOFT_MAX: _soft_max,
    Op.SOFT_MAX_BACK: _norm("soft_max.back"),
    Op.DIAG_MASK_INF: _diag_mask(float("-inf")),
    Op.DIAG_MASK_ZERO: _diag_mask(0.0),
    Op.SUM: _total("totals.sum"),
    Op.SUM_SQUARES: _total("totals.squares"),
    Op.SUM_ROWS: _sums(divides=False),
    Op.MEAN: _sums(divides=True),
    Op.CUMSUM: row_kernel("totals.running"),
    Op.ARGMAX: row_kernel("order.argmax"),
    Op.COUNT_EQUAL: _count_equal,
    Op.ARGSORT: _argsort,
    Op.TOP_K: _top_k,
    Op.GET_ROWS: _get_rows,
    Op.GET_ROWS_BACK: _get_rows_back,
    Op.SET_ROWS: _set_rows,
}
