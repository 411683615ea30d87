"""Twins of what runs along a sequence."""

from __future__ import annotations

import numpy as np

from ..ops import Op, RopeMode
from ..rope import RopeParameters, channels, frequencies, magnitude
from ..tensor import Tensor
from .elements import silu
from .memory import Array, Memory, Twin, inputs


def _rope(memory: Memory, node: Tensor) -> None:
    x, positions = inputs(memory, node)[:2]
    p: RopeParameters = node.params[0]
    pairs = p.rotated // 2
    turn = frequencies(p)
    factors = node.sources[2]
    if factors is not None:
        turn = turn / memory.read(factors).reshape(-1)[:pairs]
    by_channel = positions[0, 0].T  # [tokens, channels]
    axes = channels(p) if by_channel.shape[1] > 1 else np.zeros(pairs, int)
    angle = by_channel[:, axes][None, :, None, :] * turn
    cosine, sine = np.cos(angle) * magnitude(p), np.sin(angle) * magnitude(p)
    first, second = {
        RopeMode.NORM: (slice(0, p.rotated, 2), slice(1, p.rotated, 2)),
        RopeMode.NEOX: (slice(0, pairs), slice(pairs, p.rotated)),
    }[p.mode]
    y = x.astype(np.float64)
    y[..., first] = x[..., first] * cosine - x[..., second] * sine
    y[..., second] = x[..., first] * sine + x[..., second] * cosine
    memory.write(node, y)


def _attention(memory: Memory, node: Tensor) -> None:
    q, k, v, ranges = (value.astype(np.float64)[0] for value in inputs(memory, node))
    group = q.shape[0] // k.shape[0]
    k, v = k.repeat(group, 0), v.repeat(group, 0)
    scores = np.einsum("htd,hcd->htc", q, k, optimize=True) * node.params[0]
    if cap := node.params[1]:
        scores = cap * np.tanh(scores / cap)
    cells = np.arange(k.shape[1])
    first, last = ranges[0, :, 0], ranges[0, :, 1]
    visible = (cells >= first[:, None]) & (cells < last[:, None])
    scores = np.where(visible, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    # Cells that nobody sees may hold anything.
    v = np.where(visible.any(0)[None, :, None], v, 0.0)
    out = np.einsum("htc,hcd->thd", weights / weights.sum(-1, keepdims=True), v, optimize=True)
    memory.write(node, out[None])


def walsh_hadamard(size: int) -> Array:
    """The normalized matrix of Sylvester's order, float64 [size, size]."""
    index = np.arange(size)
    bits = index[:, None] & index
    odd = np.zeros_like(bits)
    while bits.any():
        odd ^= bits & 1
        bits >>= 1
    return np.asarray(np.where(odd == 1, -1.0, 1.0) / np.sqrt(size))


def _hadamard(memory: Memory, node: Tensor) -> None:
    x = inputs(memory, node)[0].astype(np.float64)
    block, inverse = node.params
    signs = memory.read(node.sources[1]).reshape(-1) if node.sources[1] is not None else 1.0
    matrix = walsh_hadamard(block)

    def turned(values: Array) -> Array:
        return np.asarray(values.reshape(*values.shape[:-1], -1, block) @ matrix).reshape(values.shape)

    memory.write(node, signs * turned(x) if inverse else turned(signs * x))


def _causal_conv(memory: Memory, node: Tensor) -> None:
    x, weight, state = inputs(memory, node)
    whole = np.concatenate([state[0, 0], x[0, 0]]).astype(np.float64)
    taps, tokens = weight.shape[-1], x.shape[2]
    total = sum(weight[0, 0, :, i] * whole[i : i + tokens] for i in range(taps))
    memory.write(node, silu(np.asarray(total)))
    target = node.sources[2]
    assert target is not None
    memory.write(target, whole[tokens:])


def _gated_delta_net(memory: Memory, node: Tensor) -> None:
    q, k, v, gate, beta, state = (value.astype(np.float64) for value in inputs(memory, node))
    heads, size = v.shape[2], q.shape[3]
    matrix = state[0].copy()  # [H, V, S]
    out = np.zeros(v.shape)
    shared = np.arange(heads) % q.shape[2]
    for t in range(v.shape[1]):
        key, query = k[0, t, shared], q[0, t, shared]
        matrix *= np.exp(gate[0, 0, t])[:, None, None]
        delta = beta[0, 0, t][:, None] * (v[0, t] - np.einsum("hvs,hs->hv", matrix, key))
        matrix += delta[..., None] * key[:, None, :]
        out[0, t] = np.einsum("hvs,hs->hv", matrix, query) / np.sqrt(size)
    memory.write(node, out)
    target = node.sources[5]
    assert target is not None
    memory.write(target, matrix[None])


TWINS: dict[Op, Twin] = {
    Op.ROPE: _rope,
    Op.FLASH_ATTN_EXT: _attention,
    Op.HADAMARD: _hadamard,
    Op.CAUSAL_CONV: _causal_conv,
    Op.GATED_DELTA_NET: _gated_delta_net,
}
