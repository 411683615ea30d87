"""Twins of what concerns whole rows."""

from __future__ import annotations

import numpy as np

from ... import codecs
from ..ops import Op, Order
from ..rope import alibi_slopes
from ..tensor import Tensor
from .memory import Array, Memory, Twin, inputs, wide_inputs


def _rms_norm(memory: Memory, node: Tensor) -> None:
    a = wide_inputs(memory, node)[0]
    memory.write(node, a / np.sqrt((a * a).mean(-1, keepdims=True) + node.params[0]))


def _rms_norm_back(memory: Memory, node: Tensor) -> None:
    g, x = wide_inputs(memory, node)
    r = 1.0 / np.sqrt((x * x).mean(-1, keepdims=True) + node.params[0])
    memory.write(node, r * (g - x * r * r * (x * g).mean(-1, keepdims=True)))


def _norm(memory: Memory, node: Tensor) -> None:
    memory.write(node, _normalized(wide_inputs(memory, node)[0], node.params[0]))


def _normalized(a: Array, eps: float) -> Array:
    return np.asarray((a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + eps))


def _norm_back(memory: Memory, node: Tensor) -> None:
    g, x = wide_inputs(memory, node)
    y = _normalized(x, node.params[0])
    centred = g - g.mean(-1, keepdims=True) - y * (g * y).mean(-1, keepdims=True)
    memory.write(node, centred / np.sqrt(x.var(-1, keepdims=True) + node.params[0]))


def _group_norm(memory: Memory, node: Tensor) -> None:
    a = wide_inputs(memory, node)[0]
    groups, eps = node.params
    width = -(-a.shape[1] // groups)
    y = np.empty_like(a)
    for start in range(0, a.shape[1], width):
        part = a[:, start : start + width]
        y[:, start : start + width] = _normalized(part.reshape(a.shape[0], -1), eps).reshape(part.shape)
    memory.write(node, y)


def _l2_norm(memory: Memory, node: Tensor) -> None:
    a = wide_inputs(memory, node)[0]
    memory.write(node, a / np.maximum(np.sqrt((a * a).sum(-1, keepdims=True)), node.params[0]))


def _l2_norm_back(memory: Memory, node: Tensor) -> None:
    g, x = wide_inputs(memory, node)
    length = np.sqrt((x * x).sum(-1, keepdims=True))
    eps = node.params[0]
    y = x / np.maximum(length, eps)
    along = np.where(length > eps, (g * y).sum(-1, keepdims=True), 0.0)
    memory.write(node, (g - y * along) / np.maximum(length, eps))


def _soft_max(memory: Memory, node: Tensor) -> None:
    a = memory.read(_source(node, 0)).astype(np.float64)
    scale, max_bias = node.params
    mask, sinks = node.sources[1:]
    z = a * scale
    if mask is not None:
        bias = memory.read(mask).astype(np.float64)[:, :, : a.shape[2]]
        bias = np.tile(bias, (a.shape[0] // bias.shape[0], a.shape[1] // bias.shape[1], 1, 1))
        slopes = np.array(alibi_slopes(a.shape[1], max_bias)) if max_bias > 0 else np.ones(a.shape[1])
        z = z + slopes[:, None, None] * bias
    sink = np.full((a.shape[1], 1, 1), -np.inf)
    if sinks is not None:
        sink = memory.read(sinks).astype(np.float64).reshape(-1, 1, 1)
    top = np.maximum(z.max(-1, keepdims=True), sink)
    weights = np.exp(z - top)
    memory.write(node, weights / (weights.sum(-1, keepdims=True) + np.exp(sink - top)))


def _soft_max_back(memory: Memory, node: Tensor) -> None:
    g, y = wide_inputs(memory, node)
    memory.write(node, node.params[0] * y * (g - (y * g).sum(-1, keepdims=True)))


def _diag_mask(value: float) -> Twin:
    def twin(memory: Memory, node: Tensor) -> None:
        a = wide_inputs(memory, node)[0]
        beyond = np.arange(a.shape[-1]) > node.params[0] + np.arange(a.shape[-2])[:, None]
        memory.write(node, np.where(beyond, value, a))

    return twin


def _sum(memory: Memory, node: Tensor) -> None:
    memory.write(node, np.asarray(wide_inputs(memory, node)[0].sum()))


def _sum_rows(memory: Memory, node: Tensor) -> None:
    memory.write(node, wide_inputs(memory, node)[0].sum(-1, keepdims=True))


def _mean(memory: Memory, node: Tensor) -> None:
    memory.write(node, wide_inputs(memory, node)[0].mean(-1, keepdims=True))


def _cumsum(memory: Memory, node: Tensor) -> None:
    memory.write(node, wide_inputs(memory, node)[0].cumsum(-1))


def _argmax(memory: Memory, node: Tensor) -> None:
    memory.write(node, wide_inputs(memory, node)[0].argmax(-1).reshape(-1))


def _count_equal(memory: Memory, node: Tensor) -> None:
    a, b = inputs(memory, node)
    memory.write(node, np.asarray((a == b).sum()))


def _argsort(memory: Memory, node: Tensor) -> None:
    a = wide_inputs(memory, node)[0]
    memory.write(node, np.argsort(-a if node.params[0] is Order.DESC else a, axis=-1, kind="stable"))


def _top_k(memory: Memory, node: Tensor) -> None:
    order = np.argsort(-inputs(memory, node)[0], axis=-1, kind="stable")
    memory.write(node, order[..., : int(node.ne[0])])


def _get_rows(memory: Memory, node: Tensor) -> None:
    table, index = inputs(memory, node)
    n3, n2 = table.shape[:2]
    i3, i2 = np.ix_(range(n3), range(n2))
    memory.write(node, table[i3[..., None], i2[..., None], index[0]])


def _set_rows(memory: Memory, node: Tensor) -> None:
    rows, index, _ = inputs(memory, node)
    place = memory.blocks(node) if node.type.block > 1 else memory.place(node)
    if node.type.block > 1:
        raw = np.frombuffer(codecs.encode(node.type, np.ascontiguousarray(rows)), np.uint8)
        rows = raw.reshape(*rows.shape[:3], -1)
    for i3 in range(rows.shape[0]):
        for i2 in range(rows.shape[1]):
            place[i3, i2, index[0, i3 % index.shape[1], i2 % index.shape[2]]] = rows[i3, i2]


def _get_rows_back(memory: Memory, node: Tensor) -> None:
    g, index = wide_inputs(memory, node)
    y = np.zeros(tuple(int(extent) for extent in reversed(node.ne)))
    n3, n2 = g.shape[:2]
    i3, i2 = np.ix_(range(n3), range(n2))
    np.add.at(y, (i3[..., None], i2[..., None], index[0]), g)
    memory.write(node, y)


def _source(node: Tensor, number: int) -> Tensor:
    source = node.sources[number]
    assert source is not None
    return source


TWINS: dict[Op, Twin] = {
    Op.RMS_NORM: _rms_norm,
    Op.RMS_NORM_BACK: _rms_norm_back,
    Op.NORM: _norm,
    Op.NORM_BACK: _norm_back,
    Op.GROUP_NORM: _group_norm,
    Op.L2_NORM: _l2_norm,
    Op.L2_NORM_BACK: _l2_norm_back,
    Op.SOFT_MAX: _soft_max,
    Op.SOFT_MAX_BACK: _soft_max_back,
    Op.DIAG_MASK_INF: _diag_mask(-np.inf),
    Op.DIAG_MASK_ZERO: _diag_mask(0.0),
    Op.SUM: _sum,
    Op.SUM_ROWS: _sum_rows,
    Op.MEAN: _mean,
    Op.CUMSUM: _cumsum,
    Op.ARGMAX: _argmax,
    Op.COUNT_EQUAL: _count_equal,
    Op.ARGSORT: _argsort,
    Op.TOP_K: _top_k,
    Op.GET_ROWS: _get_rows,
    Op.GET_ROWS_BACK: _get_rows_back,
    Op.SET_ROWS: _set_rows,
}
