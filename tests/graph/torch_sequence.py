"""What runs along a sequence, in torch, float64; see `torch_rows`."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch_rows import Row, Value, back, extents, weights

from prism_inference.graph import Op, RopeMode, RopeParameters, Tensor


def angles(p: RopeParameters) -> tuple[Value, float]:
    """Angle per position of each pair, and the factor of the rotated values; YaRN as arXiv 2309.00071 has it."""
    i = torch.arange(p.rotated // 2, dtype=torch.float64)
    full = p.base ** (-2 * i / p.rotated)
    if p.extension == 0:
        return p.scale * full, p.magnitude
    turns = [p.original_context / (2 * math.pi * beta) for beta in (p.beta_fast, p.beta_slow)]
    low, high = (p.rotated * math.log(length) / (2 * math.log(p.base)) for length in turns)
    low, high = max(math.floor(low), 0), min(math.ceil(high), p.rotated - 1)
    kept = p.extension * (1 - ((i - low) / max(high - low, 0.001)).clamp(0, 1))
    return torch.lerp(p.scale * full, full, kept), p.magnitude * (1 - 0.1 * math.log(p.scale))


def turned(p: RopeParameters, x: Value, positions: Value, factors: Value | None) -> Value:
    """Rotate pairs as complex numbers."""
    pairs = p.rotated // 2
    angle, magnitude = angles(p)
    if factors is not None:
        angle = angle / factors.reshape(-1)[:pairs]
    channel = torch.zeros(pairs, dtype=torch.int64)
    if positions.shape[2] > 1:
        for axis in (1, 2):
            channel[axis : 3 * p.sections[axis] : 3] = axis
    phase = positions[0, 0].double()[channel].T * angle
    turn = torch.polar(torch.full_like(phase, magnitude), phase)[None, :, None, :]
    head, rest = x[..., : p.rotated], x[..., p.rotated :]
    axis = -2 if p.mode is RopeMode.NEOX else -1  # of the two values of a pair
    first, second = head.unflatten(-1, (2, pairs) if axis == -2 else (pairs, 2)).unbind(axis)
    y = torch.complex(first, second) * turn
    return torch.cat([torch.stack([y.real, y.imag], axis).flatten(-2), rest], -1)


def _rope(node: Tensor, x: Value, positions: Value, factors: Value | None) -> Value:
    return turned(node.params[0], x, positions, factors)


def _rope_back(node: Tensor, g: Value, positions: Value, factors: Value | None) -> Value:
    return back(lambda x: turned(node.params[0], x, positions, factors), [torch.zeros_like(g)], g)[0]


def _hadamard(node: Tensor, x: Value, signs: Value | None) -> Value:
    block, inverse = node.params
    matrix = torch.ones(1, 1, dtype=torch.float64)
    while len(matrix) < block:
        matrix = torch.kron(torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.float64), matrix)
    signs = torch.ones(x.shape[-1], dtype=torch.float64) if signs is None else signs.reshape(-1)
    before, after = (1.0, signs) if inverse else (signs, 1.0)
    return after * ((x * before).unflatten(-1, (-1, block)) @ (matrix / math.sqrt(block))).flatten(-2)


# --- Attention ------------------------------------------------------------------------------------------------


def attention(
    node: Tensor, q: Value, k: Value, v: Value, ranges: Value | None, mask: Value | None, sinks: Value | None
) -> Value:
    """Scores, soft-max and weighted sums, written out: [n, tokens, heads, D]."""
    scale, cap, max_bias = node.params
    k, v = (t.repeat_interleave(q.shape[0] // t.shape[0], 0) for t in (k, v))
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    scores = q @ k.transpose(-1, -2) * scale
    if cap:
        scores = cap * torch.tanh(scores / cap)
    if ranges is not None:
        cells = torch.arange(k.shape[2])
        first, last = ranges[0, 0, :, :1], ranges[0, 0, :, 1:]
        scores = scores.masked_fill((cells < first) | (cells >= last), -math.inf)
    p = weights(scores, mask, sinks, max_bias)
    seen = (p > 0).any(2)[..., None]  # cells that nobody sees may hold anything
    return (p @ torch.where(seen, v, 0.0)).transpose(1, 2)


def _attention_back(
    node: Tensor,
    g: Value,
    q: Value,
    k: Value,
    v: Value,
    result: Value,
    ranges: Value | None,
    mask: Value | None,
    sinks: Value | None,
) -> Value:
    if sinks is None:
        parts = back(lambda q, k, v: attention(node, q, k, v, ranges, mask, None), [q, k, v], g)
    else:
        parts = back(lambda q, k, v, s: attention(node, q, k, v, ranges, mask, s), [q, k, v, sinks], g)
    return torch.cat([part.reshape(-1) for part in parts])


# --- Convolution and the delta rule -----------------------------------------------------------------------------


def convolved(x: Value, weight: Value) -> Value:
    """Each channel of [sequences, channels, taps - 1 + tokens] with its own taps: [1, sequences, tokens, channels]."""
    return F.conv1d(x[0], weight[0, 0][:, None], groups=weight.shape[2]).transpose(1, 2)[None]


def _causal_conv(node: Tensor, x: Value, weight: Value, state: Value | None) -> Value | tuple[Value, dict[int, Value]]:
    taps = weight.shape[-1]
    start = torch.zeros(1, x.shape[1], taps - 1, x.shape[3], dtype=torch.float64) if state is None else state
    whole = torch.cat([start, x], 2)
    y = F.silu(convolved(whole.transpose(2, 3), weight))
    return y if state is None else (y, {2: whole[:, :, x.shape[2] :]})


def _causal_conv_back(node: Tensor, g: Value, x: Value, weight: Value) -> Value:
    def forward(x: Value, weight: Value) -> Value:
        y = _causal_conv(node, x, weight, None)
        assert isinstance(y, torch.Tensor)
        return y

    return torch.cat([part.reshape(-1) for part in back(forward, [x, weight], g)])


def _ssm_conv_back(node: Tensor, g: Value, other: Value) -> Value:
    sought = torch.zeros(extents(node), dtype=torch.float64)
    if node.params[0] == 0:
        return back(lambda x: convolved(x, other), [sought], g)[0]
    return back(lambda weight: convolved(other, weight), [sought], g)[0]


def delta_net(
    q: Value, k: Value, v: Value, gate: Value, beta: Value, state: Value | None = None
) -> tuple[Value, Value]:
    """Token by token, with the states as matrices that map keys to values: the results and the last states."""
    sequences, tokens, heads, size = v.shape
    times = heads // q.shape[2]
    q, k = (t.repeat(1, 1, times, 1) for t in (q, k))
    empty = torch.zeros(sequences, heads, size, q.shape[-1], dtype=torch.float64)
    matrix = empty if state is None else state.reshape(empty.shape)
    results = []
    for t in range(tokens):
        matrix = matrix * gate[0, :, t].exp()[..., None, None]
        error = v[:, t] - (matrix @ k[:, t, ..., None])[..., 0]
        matrix = matrix + (beta[0, :, t, :, None] * error)[..., None] * k[:, t, :, None, :]
        results.append((matrix @ q[:, t, ..., None])[..., 0] / math.sqrt(q.shape[-1]))
    return torch.stack(results, 1), matrix


def _delta_net(
    node: Tensor, q: Value, k: Value, v: Value, gate: Value, beta: Value, state: Value | None
) -> Value | tuple[Value, dict[int, Value]]:
    y, matrix = delta_net(q, k, v, gate, beta, state)
    return y if state is None else (y, {5: matrix})


def _delta_net_back(node: Tensor, g: Value, *sources: Value) -> Value:
    return torch.cat([part.reshape(-1) for part in back(lambda *s: delta_net(*s)[0], sources, g)])


ROWS: dict[Op, Row] = {
    Op.ROPE: _rope,
    Op.ROPE_BACK: _rope_back,
    Op.HADAMARD: _hadamard,
    Op.FLASH_ATTN_EXT: attention,
    Op.FLASH_ATTN_BACK: _attention_back,
    Op.SSM_CONV: lambda node, x, weight: convolved(x, weight),
    Op.SSM_CONV_BACK: _ssm_conv_back,
    Op.CAUSAL_CONV: _causal_conv,
    Op.CAUSAL_CONV_BACK: _causal_conv_back,
    Op.GATED_DELTA_NET: _delta_net,
    Op.GATED_DELTA_NET_BACK: _delta_net_back,
}
