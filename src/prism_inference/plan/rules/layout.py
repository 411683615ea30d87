"""Lowering rules: copies and what moves values. Most are copies into a part of the result."""

from __future__ import annotations

from dataclasses import replace

from ...graph import Op, Tensor, Triangle
from ..layouts import NO_BOUND
from ..lowering import Lowering, Rule, moved_type, source_of
from ..steps import Operand


def _copy(low: Lowering, node: Tensor) -> None:
    _emit_copy(low, low.operand(node), node, source_of(node, 0))


def _emit_copy(low: Lowering, result: Operand, node: Tensor, source: Tensor) -> None:
    low.copy(result, low.operand(source), f"{moved_type(source)}.{moved_type(node)}")


def _part(whole: Operand, like: Tensor, nb: tuple[int, int, int], offset: int) -> Operand:
    """Return the operand of a part of a float32 result: extents of `like`, byte strides, offset."""
    ne = like.ne
    nbytes = 4 * int(ne[0]) + sum((int(ne[d + 1]) - 1) * nb[d] for d in range(3))
    return replace(whole, offset=whole.offset + offset, ne=ne, nb=(4, *nb), nbytes=nbytes)


def _wrap(low: Lowering, node: Tensor) -> None:
    """REPEAT and ROLL: x[(i - shift) mod extents]."""
    shifts = node.params if node.op is Op.ROLL else (0, 0, 0, 0)
    low.emit("moves.wrap", low.operand(node), low.operand(source_of(node, 0)), params=tuple(map(int, shifts)))


def _repeat_back(low: Lowering, node: Tensor) -> None:
    low.emit("moves.repeat_back", low.operand(node), low.dense(source_of(node, 0)))


def _concat(low: Lowering, node: Tensor) -> None:
    axis, whole = node.params[0], low.operand(node)
    a, b = source_of(node, 0), source_of(node, 1)
    for source, start in ((a, 0), (b, int(a.ne[axis]))):
        part = _part(whole, source, (node.nb[1], node.nb[2], node.nb[3]), node.nb[axis] * start)
        _emit_copy(low, part, node, source)


def _placed(adds: bool) -> Rule:
    """ACC and SET: the whole copied, unless it is the same tensor, then the part added or copied to its place."""

    def rule(low: Lowering, node: Tensor) -> None:
        *nb, offset = node.params
        whole, part = low.operand(node), source_of(node, 1)
        if node.view_of is None:
            _emit_copy(low, whole, node, source_of(node, 0))
        target = _part(whole, part, (nb[0], nb[1], nb[2]), offset)
        if adds:
            low.emit("elementwise.add", target, target, low.operand(part))
        else:
            _emit_copy(low, target, node, part)

    return rule


def _pad(low: Lowering, node: Tensor) -> None:
    *before, circular = node.params
    kernel = "moves.wrap" if circular else "moves.pad"
    low.emit(kernel, low.operand(node), low.operand(source_of(node, 0)), params=tuple(before))


def _diag(low: Lowering, node: Tensor) -> None:
    low.emit("moves.band", low.operand(node), low.operand(source_of(node, 0)), params=(0, 0, 0.0))


# triangle -> the smallest and the largest column - row that it keeps
_BANDS = {
    Triangle.UPPER_DIAG: (0, NO_BOUND),
    Triangle.UPPER: (1, NO_BOUND),
    Triangle.LOWER_DIAG: (-NO_BOUND, 0),
    Triangle.LOWER: (-NO_BOUND, -1),
}


def _tri(low: Lowering, node: Tensor) -> None:
    x = low.operand(source_of(node, 0))
    low.emit("moves.band", low.operand(node), x, params=(*_BANDS[node.params[0]], 0.0))


RULES: dict[Op, Rule] = {
    Op.DUP: _copy,
    Op.CPY: _copy,
    Op.CONT: _copy,
    Op.REPEAT: _wrap,
    Op.REPEAT_BACK: _repeat_back,
    Op.CONCAT: _concat,
    Op.ACC: _placed(adds=True),
    Op.SET: _placed(adds=False),
    Op.DIAG: _diag,
    Op.TRI: _tri,
    Op.PAD: _pad,
    Op.ROLL: _wrap,
}
