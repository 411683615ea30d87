"""Twins of attention and its way back: whole matrices of scores, in float64."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..ops import Op
from ..rope import alibi_slopes
from ..tensor import Tensor
from .memory import Array, Memory, Twin


@dataclass
class _Weights:
    """Of batches n, heads H, tokens T and cells C: p = soft-max of the scores [n, H, T, C] (0 where nothing is seen),
    the share of the sink [n, H, T, 1], and the derivative of the cap."""

    p: Array
    sink: Array
    bend: Array


def _read(memory: Memory, tensor: Tensor | None) -> Array | None:
    return None if tensor is None else memory.read(tensor).astype(np.float64)


def _grouped(keys: Array, queries: Array) -> Array:
    """Repeat the batches and heads of keys to those of the queries."""
    return keys.repeat(queries.shape[0] // keys.shape[0], 0).repeat(queries.shape[1] // keys.shape[1], 1)


def _weights(
    q: Array, k: Array, ranges: Array | None, mask: Array | None, sinks: Array | None, params: tuple[float, ...]
) -> _Weights:
    scale, cap, max_bias = params
    heads, tokens, cells = q.shape[1], q.shape[2], k.shape[2]
    z = np.einsum("nhtd,nhcd->nhtc", q, k, optimize=True) * scale
    bend = np.ones(())
    if cap:
        z = cap * np.tanh(z / cap)
        bend = 1.0 - (z / cap) ** 2
    if mask is not None:
        slopes = np.array(alibi_slopes(heads, max_bias) if max_bias > 0 else [1.0] * heads)
        times = (q.shape[0] // mask.shape[0], heads // mask.shape[1], 1, 1)
        z = z + slopes[:, None, None] * np.tile(mask, times)[:, :, :tokens]
    if ranges is not None:
        first, last = ranges[0, 0, :, 0], ranges[0, 0, :, 1]
        cell = np.arange(cells)
        z = np.where((cell >= first[:, None]) & (cell < last[:, None]), z, -np.inf)
    sink = np.full((1, heads, 1, 1), -np.inf) if sinks is None else sinks.reshape(1, heads, 1, 1)
    top = np.maximum(z.max(-1, keepdims=True), sink)
    top = np.where(np.isfinite(top), top, 0.0)
    p, share = np.exp(z - top), np.exp(sink - top)
    total = p.sum(-1, keepdims=True) + share
    total = np.where(total == 0, 1.0, total)
    return _Weights(p / total, share / total, bend)


def _attention(memory: Memory, node: Tensor) -> None:
    q, k, v, ranges, mask, sinks = (_read(memory, source) for source in node.sources)
    assert q is not None
    assert k is not None
    assert v is not None
    k, v = _grouped(k, q), _grouped(v, q)
    p = _weights(q, k, ranges, mask, sinks, node.params).p
    # Cells that nobody sees may hold anything.
    seen = np.asarray((p > 0).any(2))
    v = np.where(seen[..., None], v, 0.0)
    memory.write(node, np.einsum("nhtc,nhcd->nthd", p, v, optimize=True))


def _attention_back(memory: Memory, node: Tensor) -> None:
    g, q, keys, values, _, ranges, mask, sinks = (_read(memory, source) for source in node.sources)
    assert g is not None
    assert q is not None
    assert keys is not None
    assert values is not None
    k, v, g = _grouped(keys, q), _grouped(values, q), g.transpose(0, 2, 1, 3)
    w = _weights(q, k, ranges, mask, sinks, node.params)
    through = np.einsum("nhtd,nhcd->nhtc", g, v, optimize=True)
    delta = (w.p * through).sum(-1, keepdims=True)
    ds = w.p * (through - delta) * w.bend * node.params[0]
    shape = (keys.shape[0], keys.shape[1], q.shape[1] // keys.shape[1])
    parts = [
        np.einsum("nhtc,nhcd->nhtd", ds, k, optimize=True),
        np.einsum("nhtc,nhtd->nhcd", ds, q, optimize=True).reshape(*shape, *keys.shape[2:]).sum(2),
        np.einsum("nhtc,nhtd->nhcd", w.p, g, optimize=True).reshape(*shape, *values.shape[2:]).sum(2),
    ]
    if sinks is not None:
        parts.append(-(w.sink * delta).sum((0, 2, 3)))
    memory.write(node, np.concatenate([part.reshape(-1) for part in parts]))


TWINS: dict[Op, Twin] = {Op.FLASH_ATTN_EXT: _attention, Op.FLASH_ATTN_BACK: _attention_back}
