"""Twins of what runs along a sequence."""

from __future__ import annotations

import numpy as np

from ..ops import Op, RopeMode
from ..rope import RopeParameters, channels, frequencies, magnitude
from ..tensor import Tensor
from . import attention
from .elements import silu
from .memory import Array, Memory, Twin, inputs, wide_inputs


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
    angle = by_channel[:, axes][None, :, None, :] * (turn if node.op is Op.ROPE else -turn)
    cosine, sine = np.cos(angle) * magnitude(p), np.sin(angle) * magnitude(p)
    first, second = {
        RopeMode.NORM: (slice(0, p.rotated, 2), slice(1, p.rotated, 2)),
        RopeMode.NEOX: (slice(0, pairs), slice(pairs, p.rotated)),
    }[p.mode]
    y = x.astype(np.float64)
    y[..., first] = x[..., first] * cosine - x[..., second] * sine
    y[..., second] = x[..., first] * sine + x[..., second] * cosine
    memory.write(node, y)


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


def _windows(x: Array, taps: int) -> Array:
    """Windows of `taps` inputs along axis 1 of [sequences, inputs, channels]: [sequences, tokens, channels, taps]."""
    return np.lib.stride_tricks.sliding_window_view(x, taps, axis=1)


def _spread(windows: Array) -> Array:
    """The transpose of `_windows`: what belongs to one input is added up, [sequences, inputs, channels]."""
    sequences, tokens, channels, taps = windows.shape
    x = np.zeros((sequences, tokens + taps - 1, channels))
    for i in range(taps):
        x[:, i : i + tokens] += windows[..., i]
    return x


def _after_zeros(x: Array, taps: int) -> Array:
    """The inputs [1, sequences, tokens, channels] with zeros before each sequence."""
    return np.asarray(np.pad(x[0], ((0, 0), (taps - 1, 0), (0, 0))))


def _causal_conv(memory: Memory, node: Tensor) -> None:
    x, weight = wide_inputs(memory, node)[:2]
    taps, target = weight.shape[-1], node.sources[2]
    whole = _after_zeros(x, taps)
    if target is not None:
        whole[0, : taps - 1] = memory.read(target)[0, 0]
    memory.write(node, silu((_windows(whole, taps) * weight[0, 0]).sum(-1))[None])
    if target is not None:
        memory.write(target, whole[0, x.shape[2] :])


def _causal_conv_back(memory: Memory, node: Tensor) -> None:
    g, x, weight = wide_inputs(memory, node)
    taps = weight.shape[-1]
    windows = _windows(_after_zeros(x, taps), taps)
    z = (windows * weight[0, 0]).sum(-1)
    sigma = 1.0 / (1.0 + np.exp(-z))
    dz = (g[0] * sigma * (1.0 + z * (1.0 - sigma)))[..., None]
    dx = _spread(dz * weight[0, 0])[:, taps - 1 :]
    memory.write(node, np.concatenate([dx.reshape(-1), (dz * windows).sum((0, 1)).reshape(-1)]))


def _ssm_conv(memory: Memory, node: Tensor) -> None:
    x, weight = wide_inputs(memory, node)
    windows = _windows(x[0].transpose(0, 2, 1), weight.shape[-1])
    memory.write(node, (windows * weight[0, 0]).sum(-1)[None])


def _ssm_conv_back(memory: Memory, node: Tensor) -> None:
    g, other = wide_inputs(memory, node)
    if node.params[0] == 0:
        memory.write(node, _spread(g[0, ..., None] * other[0, 0]).transpose(0, 2, 1)[None])
        return
    windows = _windows(other[0].transpose(0, 2, 1), int(node.ne[0]))
    memory.write(node, (g[0, ..., None] * windows).sum((0, 1)))


def _gated_delta_net(memory: Memory, node: Tensor) -> None:
    q, k, v, gate, beta = wide_inputs(memory, node)[:5]
    heads, size, target = v.shape[2], q.shape[3], node.sources[5]
    shared = np.arange(heads) % q.shape[2]
    start = np.zeros((v.shape[0], heads, v.shape[3], size))  # [sequences, H, V, S]
    matrix = start if target is None else memory.read(target).astype(np.float64)
    out = np.zeros(v.shape)
    for t in range(v.shape[1]):
        key, query = k[:, t, shared], q[:, t, shared]
        matrix = matrix * np.exp(gate[0, :, t])[..., None, None]
        delta = beta[0, :, t][..., None] * (v[:, t] - np.einsum("nhvs,nhs->nhv", matrix, key))
        matrix = matrix + delta[..., None] * key[:, :, None, :]
        out[:, t] = np.einsum("nhvs,nhs->nhv", matrix, query) / np.sqrt(size)
    memory.write(node, out)
    if target is not None:
        memory.write(target, matrix)


def _gated_delta_net_back(memory: Memory, node: Tensor) -> None:
    g, q, k, v, gate, beta = wide_inputs(memory, node)
    sequences, tokens, heads, width = v.shape
    shared = np.arange(heads) % q.shape[2]
    key, query = k[:, :, shared], q[:, :, shared] / np.sqrt(q.shape[3])
    decay = np.exp(gate[0])[..., None, None]
    before, decayed, errors = [], [], []  # of each token: the state, the same decayed, and v - M·k
    matrix = np.zeros((sequences, heads, width, q.shape[3]))
    for t in range(tokens):
        before.append(matrix)
        decayed.append(matrix * decay[:, t])
        errors.append(v[:, t] - np.einsum("nhvs,nhs->nhv", decayed[t], key[:, t]))
        matrix = decayed[t] + (beta[0, :, t][..., None] * errors[t])[..., None] * key[:, t, :, None, :]
    before.append(matrix)
    dq, dk, dv = np.zeros(query.shape), np.zeros(query.shape), np.zeros(v.shape)
    dgate, dbeta = np.zeros(gate.shape), np.zeros(beta.shape)
    dm = np.zeros(matrix.shape)
    for t in reversed(range(tokens)):
        rate = beta[0, :, t][..., None]
        dq[:, t] = np.einsum("nhvs,nhv->nhs", before[t + 1], g[:, t])
        dm = dm + g[:, t][..., None] * query[:, t, :, None, :]
        dd = np.einsum("nhvs,nhs->nhv", dm, key[:, t])
        dk[:, t] = np.einsum("nhvs,nhv->nhs", dm, rate * errors[t])
        dv[:, t], dbeta[0, :, t] = rate * dd, (dd * errors[t]).sum(-1)
        dk[:, t] -= np.einsum("nhvs,nhv->nhs", decayed[t], rate * dd)
        dm = dm - (rate * dd)[..., None] * key[:, t, :, None, :]
        dgate[0, :, t] = (dm * decayed[t]).sum((-1, -2))
        dm = dm * decay[:, t]
    groups = (sequences, tokens, heads // q.shape[2], *q.shape[2:])
    dq, dk = dq.reshape(groups).sum(2) / np.sqrt(q.shape[3]), dk.reshape(groups).sum(2)
    memory.write(node, np.concatenate([part.reshape(-1) for part in (dq, dk, dv, dgate, dbeta)]))


TWINS: dict[Op, Twin] = {
    Op.ROPE: _rope,
    Op.ROPE_BACK: _rope,
    **attention.TWINS,
    Op.HADAMARD: _hadamard,
    Op.CAUSAL_CONV: _causal_conv,
    Op.CAUSAL_CONV_BACK: _causal_conv_back,
    Op.SSM_CONV: _ssm_conv,
    Op.SSM_CONV_BACK: _ssm_conv_back,
    Op.GATED_DELTA_NET: _gated_delta_net,
    Op.GATED_DELTA_NET_BACK: _gated_delta_net_back,
}
