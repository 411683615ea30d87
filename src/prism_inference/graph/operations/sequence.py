"""What runs along a sequence: rotary embedding, attention, convolution, the delta rule, and block rotations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ops import Op
from ..rope import RopeParameters
from .checks import CACHE_TYPES, require

if TYPE_CHECKING:
    from ..tensor import Tensor


def rope(self: Tensor, positions: Tensor, parameters: RopeParameters, factors: Tensor | None = None) -> Tensor:
    """Rotate the heads of [D, heads, tokens, …] by the I32 positions; `factors` divide the frequencies.

    Positions are [tokens], or [tokens, 4] (time, height, width, other) where the parameters have sections.
    """
    op = Op.ROPE
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
    self: Tensor, keys: Tensor, values: Tensor, ranges: Tensor, scale: float, cap: float = 0.0
) -> Tensor:
    """Attention: queries [D, tokens, heads], keys [D, cells, h], values [Dv, cells, h] → [Dv, heads, tokens].

    `ranges` is I32 [2, tokens]: token t sees the cells ranges[0, t] … ranges[1, t] - 1. Query head i uses key head
    i // (heads / h). With a cap, scores s become cap·tanh(s / cap).
    """
    op = Op.FLASH_ATTN_EXT
    require(self.type.name == "F32", op, "wrong type of the queries", self, expected="F32")
    same = keys.type.name == values.type.name and keys.type.name in CACHE_TYPES
    require(same, op, "wrong types of keys and values", keys, values, expected=f"both one of {CACHE_TYPES}")
    require(keys.ne[0] == self.ne[0], op, "different head sizes", self, keys)
    require(keys.ne[1:3] == values.ne[1:3] and self.ne[2] % keys.ne[2] == 0, op, "heads do not fit", self, keys, values)
    require(self.ne[3] == keys.ne[3] == values.ne[3] == 1, op, "one sequence at a time", self, keys, values)
    require(ranges.type.name == "I32" and ranges.ne[:2] == (2, self.ne[1]), op, "wrong ranges", ranges)
    ne = (values.ne[0], self.ne[2], self.ne[1])
    return self.context.node(op, self.type, ne, [self, keys, values, ranges], (scale, cap))


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


def causal_conv(self: Tensor, weight: Tensor, state: Tensor) -> Tensor:
    """Depthwise causal convolution of [channels, tokens] with weight [taps, channels], then silu.

    y[c, t] = silu(Σ_i weight[i, c]·x[c, t - taps + 1 + i]). `state` (F32 [channels, taps - 1], oldest first) holds the
    inputs before the first token and is overwritten with the last ones.
    """
    op = Op.CAUSAL_CONV
    f32 = all(t.type.name == "F32" for t in (self, weight, state))
    require(f32, op, "wrong types", self, weight, state, expected="F32")
    channels, taps = self.ne[0], weight.ne[0]
    require(weight.ne[1] == channels and self.ne[2] == self.ne[3] == 1, op, "shapes do not fit", self, weight)
    require(state.ne[:2] == (channels, taps - 1) and taps >= 2, op, "wrong state", state, weight)
    return self.context.node(op, self.type, self.ne, [self, weight, state])


def gated_delta_net(self: Tensor, keys: Tensor, values: Tensor, gate: Tensor, beta: Tensor, state: Tensor) -> Tensor:
    """The gated delta rule, token by token: queries and keys [S, h, tokens], values [V, H, tokens] → [V, H, tokens].

    For value head r with key head r mod h (arXiv 2412.06464): M ← e^gate·M, d = beta·(v - M·k), M ← M + d·kᵀ,
    o = M·q / sqrt(S). gate and beta are [H, tokens]. `state` (F32 [S, V, H]) holds M by rows of S and is updated in
    place.
    """
    op = Op.GATED_DELTA_NET
    f32 = all(t.type.name == "F32" for t in (self, keys, values, gate, beta, state))
    require(f32, op, "wrong types", self, keys, values, gate, beta, state, expected="F32")
    size, tokens, heads = self.ne[0], self.ne[2], values.ne[1]
    require(keys.ne == self.ne and values.ne[2] == tokens, op, "shapes do not fit", self, keys, values)
    require(heads % self.ne[1] == 0, op, "value heads do not share key heads evenly", self, values)
    require(gate.ne[:2] == beta.ne[:2] == (heads, tokens), op, "wrong gates", gate, beta)
    require(state.ne[:3] == (size, values.ne[0], heads), op, "wrong state", state)
    return self.context.node(op, self.type, values.ne, [self, keys, values, gate, beta, state])
