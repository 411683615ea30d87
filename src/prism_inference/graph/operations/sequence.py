"""What runs along a sequence: rotary embedding, attention, convolution, the delta rule, and block rotations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ops import Op
from ..rope import RopeParameters
from .checks import CACHE_TYPES, require, require_f32

if TYPE_CHECKING:
    from ..tensor import Tensor


def rope(self: Tensor, positions: Tensor, parameters: RopeParameters, factors: Tensor | None = None) -> Tensor:
    """Rotate the heads of [D, heads, tokens, …] by the I32 positions; `factors` divide the frequencies.

    Positions are [tokens], or [tokens, 4] (time, height, width, other) where the parameters have sections.
    """
    return _rotation(self, Op.ROPE, positions, parameters, factors)


def rope_back(self: Tensor, positions: Tensor, parameters: RopeParameters, factors: Tensor | None = None) -> Tensor:
    """The way back through `rope`: its transpose, which turns by the negative angle (and keeps the magnitude)."""
    return _rotation(self, Op.ROPE_BACK, positions, parameters, factors)


def _rotation(self: Tensor, op: Op, positions: Tensor, parameters: RopeParameters, factors: Tensor | None) -> Tensor:
    require(self.type.name == "F32" and positions.type.name == "I32", op, "wrong types", self, positions)
    require(positions.ne[0] == self.ne[2], op, "one position per token is needed", self, positions)
    channels = (1, 4) if parameters.sections else (1,)
    require(positions.ne[1] in channels, op, "wrong channels of positions", positions, expected=channels)
    rotated = parameters.rotated
    require(0 < rotated <= self.ne[0] and rotated % 2 == 0, op, f"cannot rotate {rotated} values", self)
    if factors is not None:
        require(factors.type.name == "F32" and factors.ne[0] >= rotated // 2, op, "wrong factors", factors)
    return self.context.node(op, self.type, self.ne, [self, positions, factors], (parameters,))


def flash_attn_ext(
    self: Tensor,
    keys: Tensor,
    values: Tensor,
    ranges: Tensor | None = None,
    scale: float = 1.0,
    cap: float = 0.0,
    *,
    mask: Tensor | None = None,
    sinks: Tensor | None = None,
    max_bias: float = 0.0,
) -> Tensor:
    """Attention: queries [D, tokens, heads, n], keys [D, cells, h, m], values [Dv, cells, h, m] → [Dv, heads, tokens,
    n].

    Query head i uses key head i // (heads / h), batch i of the queries batch i // (n / m) of the keys. A score is
    z = cap·tanh(scale·q·k / cap) (without the cap: scale·q·k) + slope·mask. Where a token sees nothing its result is 0.

    Args:
        ranges: I32 [2, tokens]: token t sees the cells ranges[0, t] … ranges[1, t] - 1; None: all.
        scale: of the products.
        cap: soft bound of the scores; 0: none.
        mask: F32 or F16 [cells, tokens or more, a, b], head i with mask i mod a, batch i with mask i mod b. Cells that
            it closes (-inf) to every token must still hold finite numbers.
        sinks: F32 [heads]: one more score per head that takes its share of the sum and gives no value.
        max_bias: above 0, the slope of head i is ALiBi's (arXiv 2108.12409), else 1.
    """
    op = Op.FLASH_ATTN_EXT
    check_attention(op, self, keys, values, ranges, mask, sinks, max_bias)
    ne = (values.ne[0], self.ne[2], self.ne[1], self.ne[3])
    return self.context.node(
        op, self.type, ne, [self, keys, values, ranges, mask, sinks], (float(scale), float(cap), float(max_bias))
    )


def check_attention(
    op: Op,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    ranges: Tensor | None,
    mask: Tensor | None,
    sinks: Tensor | None,
    max_bias: float,
) -> None:
    """Refuse operands of attention that do not fit each other."""
    require(queries.type.name == "F32", op, "wrong type of the queries", queries, expected="F32")
    same = keys.type.name == values.type.name and keys.type.name in CACHE_TYPES
    require(same, op, "wrong types of keys and values", keys, values, expected=f"both one of {CACHE_TYPES}")
    require(keys.ne[0] == queries.ne[0], op, "different head sizes", queries, keys)
    heads = keys.ne[1:] == values.ne[1:] and queries.ne[2] % keys.ne[2] == 0 and queries.ne[3] % keys.ne[3] == 0
    require(heads, op, "heads do not fit", queries, keys, values)
    if ranges is not None:
        require(ranges.type.name == "I32" and ranges.ne == (2, queries.ne[1], 1, 1), op, "wrong ranges", ranges)
    if mask is not None:
        require(mask.type.name in ("F32", "F16"), op, "wrong type of the mask", mask, expected="F32 or F16")
        fits = mask.ne[0] == keys.ne[1] and mask.ne[1] >= queries.ne[1]
        fits = fits and queries.ne[2] % mask.ne[2] == 0 and queries.ne[3] % mask.ne[3] == 0
        require(fits, op, "the mask does not fit", queries, keys, mask)
    require(max_bias == 0 or mask is not None, op, "a bias needs a mask", queries)
    if sinks is not None:
        fits = sinks.type.name == "F32" and sinks.elements == queries.ne[2]
        require(fits, op, "one F32 sink per head is needed", queries, sinks)


def flash_attn_back(
    self: Tensor,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    result: Tensor,
    ranges: Tensor | None = None,
    scale: float = 1.0,
    cap: float = 0.0,
    *,
    mask: Tensor | None = None,
    sinks: Tensor | None = None,
    max_bias: float = 0.0,
) -> Tensor:
    """The way back through `flash_attn_ext` for the gradient of its result (self) and the result: one row of numbers,
    the gradients of queries, keys, values and (where there are any) sinks one after the other, each as a contiguous
    tensor of the source's shape.
    """
    op = Op.FLASH_ATTN_BACK
    check_attention(op, queries, keys, values, ranges, mask, sinks, max_bias)
    require(keys.type.name in ("F32", "F16"), op, "no gradient for this type", keys, values, expected="F32 or F16")
    ne = (values.ne[0], queries.ne[2], queries.ne[1], queries.ne[3])
    require_f32(op, self, result)
    require(self.ne == result.ne == ne, op, "wrong shapes", self, result, expected=ne)
    parts = [queries, keys, values] + ([sinks] if sinks is not None else [])
    count = sum(part.elements for part in parts)
    sources = [self, queries, keys, values, result, ranges, mask, sinks]
    return self.context.node(op, self.type, (count,), sources, (float(scale), float(cap), float(max_bias)))


def hadamard(self: Tensor, block: int, signs: Tensor | None = None, *, inverse: bool = False) -> Tensor:
    """Rotate each run of `block` values of a row by the normalized Walsh-Hadamard matrix H.

    H[r, c] = (-1)^popcount(r & c) / sqrt(block): symmetric and its own inverse. With signs s (F32, one per value of a
    row, ±1) the result is H(s·x), or s·H(x) where `inverse` is set, so that the two undo each other.
    """
    op = Op.HADAMARD
    require(self.type.name == "F32", op, "wrong type", self, expected="F32")
    require(block > 0 and block & (block - 1) == 0, op, f"the block must be a power of two, not {block}", self)
    require(self.ne[0] % block == 0, op, f"rows are no multiple of {block}", self)
    if signs is not None:
        require(signs.type.name == "F32" and signs.elements == self.ne[0], op, "wrong signs", signs, self)
    return self.context.node(op, self.type, self.ne, [self, signs], (block, inverse))


def causal_conv(self: Tensor, weight: Tensor, state: Tensor | None = None) -> Tensor:
    """Depthwise causal convolution of [channels, tokens, sequences] with weight [taps, channels], then silu.

    y[c, t] = silu(Σ_i weight[i, c]·x[c, t - taps + 1 + i]). `state` (F32 [channels, taps - 1], oldest first) holds the
    inputs before the first token of the one sequence and is overwritten with the last ones; without it they are zeros.
    """
    op = Op.CAUSAL_CONV
    _check_convolution(op, self, weight)
    if state is not None:
        require(state.type.name == "F32", op, "wrong type of the state", state, expected="F32")
        require(state.ne[:2] == (self.ne[0], weight.ne[0] - 1), op, "wrong state", state, weight)
        require(self.ne[2] == 1, op, "a state is that of one sequence", self, state)
    return self.context.node(op, self.type, self.ne, [self, weight, state])


def causal_conv_back(self: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """The way back through `causal_conv` without a state, for the gradient of its result (self): one row of numbers,
    the gradients of x and weight one after the other, each as a contiguous tensor of the source's shape."""
    op = Op.CAUSAL_CONV_BACK
    _check_convolution(op, x, weight)
    require(self.type.name == "F32" and self.ne == x.ne, op, "wrong gradient", self, x)
    return self.context.node(op, self.type, (x.elements + weight.elements,), [self, x, weight])


def _check_convolution(op: Op, x: Tensor, weight: Tensor) -> None:
    require_f32(op, x, weight)
    require(weight.ne[1:] == (x.ne[0], 1, 1) and x.ne[3] == 1, op, "shapes do not fit", x, weight)
    require(weight.ne[0] >= 2, op, "fewer than two taps", weight)


def ssm_conv(self: Tensor, weight: Tensor) -> Tensor:
    """Depthwise convolution along time: [taps - 1 + tokens, channels, sequences] with weight [taps, channels] →
    [channels, tokens, sequences], y[c, t] = Σ_i weight[i, c]·x[t + i, c]."""
    op = Op.SSM_CONV
    require_f32(op, self, weight)
    require(weight.ne[1:] == (self.ne[1], 1, 1) and self.ne[3] == 1, op, "shapes do not fit", self, weight)
    tokens = self.ne[0] - weight.ne[0] + 1
    require(tokens >= 1, op, "no token after the first inputs", self, weight)
    return self.context.node(op, self.type, (self.ne[1], tokens, self.ne[2]), [self, weight])


def ssm_conv_back(self: Tensor, other: Tensor, part: int) -> Tensor:
    """The way back through `ssm_conv` for the gradient of its result (self): part 0, that of the inputs, given the
    weights (other); part 1, that of the weights, given the inputs."""
    op = Op.SSM_CONV_BACK
    require_f32(op, self, other)
    require(part in (0, 1), op, f"no part {part}", self)
    channels, tokens, sequences = self.ne[:3]
    if part == 0:
        require(other.ne[1:] == (channels, 1, 1) and self.ne[3] == 1, op, "shapes do not fit", self, other)
        ne = (other.ne[0] - 1 + tokens, channels, sequences)
    else:
        fits = other.ne[1:] == (channels, sequences, 1) and other.ne[0] >= tokens and self.ne[3] == 1
        require(fits, op, "shapes do not fit", self, other)
        ne = (other.ne[0] + 1 - tokens, channels, 1)
    return self.context.node(op, self.type, ne, [self, other], (part,))


def gated_delta_net(
    self: Tensor, keys: Tensor, values: Tensor, gate: Tensor, beta: Tensor, state: Tensor | None = None
) -> Tensor:
    """The gated delta rule, token by token: queries and keys [S, h, tokens, sequences], values [V, H, tokens,
    sequences] → [V, H, tokens, sequences].

    For value head r with key head r mod h (arXiv 2412.06464): M ← e^gate·M, d = beta·(v - M·k), M ← M + d·kᵀ,
    o = M·q / sqrt(S). gate and beta are [H, tokens, sequences]. `state` (F32 [S, V, H], for one sequence) holds M by
    rows of S and is updated in place; without it each sequence starts from zeros.
    """
    op = Op.GATED_DELTA_NET
    _check_delta_net(op, self, keys, values, gate, beta)
    if state is not None:
        require(state.type.name == "F32", op, "wrong type of the state", state, expected="F32")
        require(state.ne[:3] == (self.ne[0], values.ne[0], values.ne[1]), op, "wrong state", state)
        require(values.ne[3] == 1, op, "a state is that of one sequence", values, state)
    return self.context.node(op, self.type, values.ne, [self, keys, values, gate, beta, state])


def gated_delta_net_back(
    self: Tensor, queries: Tensor, keys: Tensor, values: Tensor, gate: Tensor, beta: Tensor
) -> Tensor:
    """The way back through `gated_delta_net` without a state, for the gradient of its result (self): one row of
    numbers, the gradients of the five sources one after the other, each as a contiguous tensor of the source's
    shape."""
    op = Op.GATED_DELTA_NET_BACK
    _check_delta_net(op, queries, keys, values, gate, beta)
    require(self.type.name == "F32" and self.ne == values.ne, op, "wrong gradient", self, values)
    sources = [queries, keys, values, gate, beta]
    count = sum(source.elements for source in sources)
    return self.context.node(op, self.type, (count,), [self, *sources])


def _check_delta_net(op: Op, queries: Tensor, keys: Tensor, values: Tensor, gate: Tensor, beta: Tensor) -> None:
    require_f32(op, queries, keys, values, gate, beta)
    heads, tokens, sequences = values.ne[1:]
    fits = keys.ne == queries.ne and queries.ne[2:] == (tokens, sequences)
    require(fits, op, "shapes do not fit", queries, keys, values)
    require(heads % queries.ne[1] == 0, op, "value heads do not share key heads evenly", queries, values)
    require(gate.ne == beta.ne == (heads, tokens, sequences, 1), op, "wrong gates", gate, beta)
