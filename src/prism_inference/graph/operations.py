"""What a tensor can do: each method checks types and shapes and makes the node. Shape rules live here; nothing is
computed.

Extents are in ggml's order throughout: `ne[0]` is the contiguous one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import GraphError
from ..gguf import tensor_type
from .extents import contiguous_strides, full_extents
from .ops import Glu, Op, RopeMode, Unary

if TYPE_CHECKING:
    from .tensor import Tensor

FLOATS = ("F32", "F16", "BF16")
CACHE_TYPES = ("F16", "F32", "Q8_0", "Q4_0")  # what keys and values may be kept in


@dataclass(frozen=True)
class RopeParameters:
    """Rotary embedding as the reference defines it.

    `rotated` values of each head turn; pair i turns by position·base^(-2i/rotated)·scale, mixed towards the unscaled
    angle by YaRN's ramp where `extension` > 0 (arXiv 2309.00071); cosine and sine are multiplied by the YaRN
    magnitude.
    """

    rotated: int
    mode: RopeMode = RopeMode.NORM
    base: float = 10000.0
    scale: float = 1.0
    extension: float = 0.0
    magnitude: float = 1.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    original_context: int = 0
    sections: tuple[int, ...] = ()  # pairs that turn by time, height and width in turn, where positions have channels


def _require(condition: bool, op: Op, problem: str, *tensors: Tensor | None, expected: object = None) -> None:
    if not condition:
        raise GraphError(
            problem, where=op.name, expected=expected, found=", ".join(repr(t) for t in tensors if t is not None)
        )


def _repeats(small: Tensor, large: Tensor) -> bool:
    """Whether the extents of `small` divide those of `large`."""
    return all(large.ne[d] % small.ne[d] == 0 for d in range(4))


# --- Elements -------------------------------------------------------------------------------------


def add(self: Tensor, other: Tensor) -> Tensor:
    """self + other, `other` repeated to this shape."""
    return _elements(self, Op.ADD, other)


def mul(self: Tensor, other: Tensor) -> Tensor:
    """self · other element by element, `other` repeated to this shape."""
    return _elements(self, Op.MUL, other)


def div(self: Tensor, other: Tensor) -> Tensor:
    """self / other element by element, `other` repeated to this shape."""
    return _elements(self, Op.DIV, other)


def _elements(self: Tensor, op: Op, other: Tensor) -> Tensor:
    _require(self.type.name == other.type.name == "F32", op, "wrong types", self, other, expected="F32")
    _require(_repeats(other, self), op, "cannot repeat the second to the first", self, other)
    return self.context.node(op, self.type, self.ne, [self, other])


def scale(self: Tensor, factor: float, offset: float = 0.0) -> Tensor:
    """self · factor + offset."""
    _require(self.type.name == "F32", Op.SCALE, "wrong type", self, expected="F32")
    return self.context.node(Op.SCALE, self.type, self.ne, [self], (factor, offset))


def sigmoid(self: Tensor) -> Tensor:
    """1 / (1 + e^-x)."""
    return _unary(self, Unary.SIGMOID)


def tanh(self: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return _unary(self, Unary.TANH)


def silu(self: Tensor) -> Tensor:
    """x / (1 + e^-x)."""
    return _unary(self, Unary.SILU)


def softplus(self: Tensor) -> Tensor:
    """ln(1 + e^x)."""
    return _unary(self, Unary.SOFTPLUS)


def _unary(self: Tensor, kind: Unary) -> Tensor:
    _require(self.type.name == "F32", Op.UNARY, "wrong type", self, expected="F32")
    return self.context.node(Op.UNARY, self.type, self.ne, [self], (kind,))


def swiglu(self: Tensor, other: Tensor) -> Tensor:
    """silu(self) · other."""
    return _glu(self, Glu.SWIGLU, other)


def geglu(self: Tensor, other: Tensor) -> Tensor:
    """gelu(self) · other, gelu by its tanh form."""
    return _glu(self, Glu.GEGLU, other)


def _glu(self: Tensor, kind: Glu, other: Tensor) -> Tensor:
    _require(self.type.name == other.type.name == "F32", Op.GLU, "wrong types", self, other, expected="F32")
    _require(self.ne == other.ne, Op.GLU, "different shapes", self, other)
    return self.context.node(Op.GLU, self.type, self.ne, [self, other], (kind,))


# --- Rows -----------------------------------------------------------------------------------------


def rms_norm(self: Tensor, eps: float) -> Tensor:
    """Each row divided by sqrt(mean of its squares + eps)."""
    _require(self.type.name == "F32", Op.RMS_NORM, "wrong type", self, expected="F32")
    _require(eps > 0, Op.RMS_NORM, f"eps must be positive, not {eps}", self)
    return self.context.node(Op.RMS_NORM, self.type, self.ne, [self], (eps,))


def soft_max(self: Tensor) -> Tensor:
    """e^x / Σ e^x of each row."""
    _require(self.type.name == "F32", Op.SOFT_MAX, "wrong type", self, expected="F32")
    return self.context.node(Op.SOFT_MAX, self.type, self.ne, [self])


def sum_rows(self: Tensor) -> Tensor:
    """The sum of each row: [N, …] → [1, …]."""
    _require(self.type.name == "F32", Op.SUM_ROWS, "wrong type", self, expected="F32")
    return self.context.node(Op.SUM_ROWS, self.type, (1, *self.ne[1:]), [self])


def top_k(self: Tensor, count: int) -> Tensor:
    """Indices (I32) of the `count` largest of each row, the largest first, the lower index of equals first."""
    _require(self.type.name == "F32", Op.TOP_K, "wrong type", self, expected="F32")
    _require(1 <= count <= self.ne[0], Op.TOP_K, f"cannot take {count} of a row", self)
    return self.context.node(Op.TOP_K, tensor_type("I32"), (count, *self.ne[1:]), [self])


def get_rows(self: Tensor, index: Tensor) -> Tensor:
    """Rows of this table picked by an I32 tensor and decoded to F32: [K, R, …], [N, …] → [K, N, …]."""
    _require(index.type.name == "I32", Op.GET_ROWS, "wrong index type", index, expected="I32")
    fits = self.ne[2] == index.ne[1] and self.ne[3] == index.ne[2] and index.ne[3] == 1
    _require(fits, Op.GET_ROWS, "index does not fit the table", self, index)
    ne = (self.ne[0], index.ne[0], index.ne[1], index.ne[2])
    return self.context.node(Op.GET_ROWS, tensor_type("F32"), ne, [self, index])


def set_rows(self: Tensor, rows: Tensor, index: Tensor) -> Tensor:
    """Write `rows` (F32) to this tensor's rows that the I32 index names; the result is a view of this tensor."""
    op = Op.SET_ROWS
    _require(rows.type.name == "F32" and index.type.name == "I32", op, "wrong types", rows, index)
    _require(self.type.name in CACHE_TYPES, op, "rows cannot be written to this type", self, expected=CACHE_TYPES)
    _require(rows.ne[0] == self.ne[0] and rows.ne[1] == index.ne[0], op, "rows do not fit", self, rows, index)
    _require(rows.ne[2] == self.ne[2] and rows.ne[3] == self.ne[3], op, "batches do not fit", self, rows)
    _require(
        rows.ne[2] % index.ne[1] == 0 and rows.ne[3] % index.ne[2] == 0 and index.ne[3] == 1,
        op,
        "index does not fit the rows",
        rows,
        index,
    )
    node = self.context.view(op, self, self.ne, self.nb, 0)
    node.sources = (rows, index, self)
    return node


# --- Products -------------------------------------------------------------------------------------


def mul_mat(self: Tensor, other: Tensor) -> Tensor:
    """Rows of `other` times the transposed of self: [K, M, a, b] , [K, N, c, d] → [M, N, c, d]; a | c, b | d."""
    op = Op.MUL_MAT
    _require(self.ne[0] == other.ne[0], op, "different row lengths", self, other)
    _require(other.type.name == "F32", op, "wrong type of the second", other, expected="F32")
    fits = other.ne[2] % self.ne[2] == 0 and other.ne[3] % self.ne[3] == 0
    _require(fits, op, "cannot repeat the first over the second's batches", self, other)
    ne = (self.ne[1], other.ne[1], other.ne[2], other.ne[3])
    return self.context.node(op, other.type, ne, [self, other])


def mul_mat_id(self: Tensor, other: Tensor, index: Tensor) -> Tensor:
    """Products with picked experts: weights [K, M, E], other [K, used or 1, tokens], index I32 [used, tokens] →
    [M, used, tokens]."""
    op = Op.MUL_MAT_ID
    _require(other.type.name == "F32" and index.type.name == "I32", op, "wrong types", other, index)
    fits = self.ne[0] == other.ne[0] and self.ne[3] == other.ne[3] == 1 and index.ne[1] == other.ne[2]
    _require(fits and other.ne[1] in (1, index.ne[0]), op, "shapes do not fit", self, other, index)
    return self.context.node(op, other.type, (self.ne[1], index.ne[0], index.ne[1]), [self, other, index])


def rope(self: Tensor, positions: Tensor, parameters: RopeParameters, factors: Tensor | None = None) -> Tensor:
    """Rotate the heads of [D, heads, tokens, …] by the I32 positions; `factors` divide the frequencies.

    Positions are [tokens], or [tokens, 4] (time, height, width, other) where the parameters have sections.
    """
    op = Op.ROPE
    _require(self.type.name == "F32" and positions.type.name == "I32", op, "wrong types", self, positions)
    _require(positions.ne[0] == self.ne[2], op, "one position per token is needed", self, positions)
    channels = (1, 4) if parameters.sections else (1,)
    _require(positions.ne[1] in channels, op, "wrong channels of positions", positions, expected=channels)
    rotated = parameters.rotated
    _require(0 < rotated <= self.ne[0] and rotated % 2 == 0, op, f"cannot rotate {rotated} values", self)
    if factors is not None:
        _require(factors.type.name == "F32" and factors.ne[0] >= rotated // 2, op, "wrong factors", factors)
    return self.context.node(op, self.type, self.ne, [self, positions, factors], (parameters,))


def flash_attn_ext(
    self: Tensor, keys: Tensor, values: Tensor, ranges: Tensor, scale: float, cap: float = 0.0
) -> Tensor:
    """Attention: queries [D, tokens, heads], keys [D, cells, h], values [Dv, cells, h] → [Dv, heads, tokens].

    `ranges` is I32 [2, tokens]: token t sees the cells ranges[0, t] … ranges[1, t] - 1. Query head i uses key head
    i // (heads / h). With a cap, scores s become cap·tanh(s / cap).
    """
    op = Op.FLASH_ATTN_EXT
    _require(self.type.name == "F32", op, "wrong type of the queries", self, expected="F32")
    same = keys.type.name == values.type.name and keys.type.name in CACHE_TYPES
    _require(same, op, "wrong types of keys and values", keys, values, expected=f"both one of {CACHE_TYPES}")
    _require(keys.ne[0] == self.ne[0], op, "different head sizes", self, keys)
    _require(
        keys.ne[1:3] == values.ne[1:3] and self.ne[2] % keys.ne[2] == 0, op, "heads do not fit", self, keys, values
    )
    _require(self.ne[3] == keys.ne[3] == values.ne[3] == 1, op, "one sequence at a time", self, keys, values)
    _require(ranges.type.name == "I32" and ranges.ne[:2] == (2, self.ne[1]), op, "wrong ranges", ranges)
    ne = (values.ne[0], self.ne[2], self.ne[1])
    return self.context.node(op, self.type, ne, [self, keys, values, ranges], (scale, cap))


def hadamard(self: Tensor, block: int, signs: Tensor | None = None, *, inverse: bool = False) -> Tensor:
    """Rotate each run of `block` values of a row by the normalized Walsh-Hadamard matrix H.

    H[r, c] = (-1)^popcount(r & c) / sqrt(block): symmetric and its own inverse. With signs s (F32, one per value of a
    row, ±1) the result is H(s·x), or s·H(x) where `inverse` is set, so that the two undo each other.
    """
    op = Op.HADAMARD
    _require(self.type.name == "F32", op, "wrong type", self, expected="F32")
    _require(block > 0 and block & (block - 1) == 0, op, f"the block must be a power of two, not {block}", self)
    _require(self.ne[0] % block == 0, op, f"rows are no multiple of {block}", self)
    if signs is not None:
        _require(signs.type.name == "F32" and signs.elements == self.ne[0], op, "wrong signs", signs, self)
    return self.context.node(op, self.type, self.ne, [self, signs], (block, inverse))


# --- Recurrence -------------------------------------------------------------------------------------------------


def causal_conv(self: Tensor, weight: Tensor, state: Tensor) -> Tensor:
    """Depthwise causal convolution of [channels, tokens] with weight [taps, channels], then silu.

    y[c, t] = silu(Σ_i weight[i, c]·x[c, t - taps + 1 + i]). `state` (F32 [channels, taps - 1], oldest first) holds the
    inputs before the first token and is overwritten with the last ones.
    """
    op = Op.CAUSAL_CONV
    f32 = all(t.type.name == "F32" for t in (self, weight, state))
    _require(f32, op, "wrong types", self, weight, state, expected="F32")
    channels, taps = self.ne[0], weight.ne[0]
    _require(weight.ne[1] == channels and self.ne[2] == self.ne[3] == 1, op, "shapes do not fit", self, weight)
    _require(state.ne[:2] == (channels, taps - 1) and taps >= 2, op, "wrong state", state, weight)
    return self.context.node(op, self.type, self.ne, [self, weight, state])


def gated_delta_net(self: Tensor, keys: Tensor, values: Tensor, gate: Tensor, beta: Tensor, state: Tensor) -> Tensor:
    """The gated delta rule, token by token: queries and keys [S, h, tokens], values [V, H, tokens] → [V, H, tokens].

    For value head r with key head r mod h (arXiv 2412.06464): M ← e^gate·M, d = beta·(v - M·k), M ← M + d·kᵀ,
    o = M·q / sqrt(S). gate and beta are [H, tokens]. `state` (F32 [S, V, H]) holds M by rows of S and is updated in
    place.
    """
    op = Op.GATED_DELTA_NET
    f32 = all(t.type.name == "F32" for t in (self, keys, values, gate, beta, state))
    _require(f32, op, "wrong types", self, keys, values, gate, beta, state, expected="F32")
    size, tokens, heads = self.ne[0], self.ne[2], values.ne[1]
    _require(keys.ne == self.ne and values.ne[2] == tokens, op, "shapes do not fit", self, keys, values)
    _require(heads % self.ne[1] == 0, op, "value heads do not share key heads evenly", self, values)
    _require(gate.ne[:2] == beta.ne[:2] == (heads, tokens), op, "wrong gates", gate, beta)
    _require(state.ne[:3] == (size, values.ne[0], heads), op, "wrong state", state)
    return self.context.node(op, self.type, values.ne, [self, keys, values, gate, beta, state])


# --- Layout ---------------------------------------------------------------------------------------


def cpy(self: Tensor, target: Tensor) -> Tensor:
    """Copy all elements into `target`, in its type and layout; the result is a view of the target."""
    _require(self.elements == target.elements, Op.CPY, "different numbers of elements", self, target)
    _require(self.type.name in FLOATS and target.type.name in FLOATS[:2], Op.CPY, "wrong types", self, target)
    node = self.context.view(Op.CPY, target, target.ne, target.nb, 0)
    node.sources = (self, target)
    return node


def cont(self: Tensor) -> Tensor:
    """A contiguous copy."""
    _require(self.type.name in FLOATS[:2], Op.CONT, "wrong type", self, expected=FLOATS[:2])
    return self.context.node(Op.CONT, self.type, self.ne, [self])


def reshape(self: Tensor, *ne: int) -> Tensor:
    """The same elements with other extents."""
    full = full_extents(ne)
    count = int(full[0]) * int(full[1]) * int(full[2]) * int(full[3])
    _require(self.contiguous, Op.RESHAPE, "not contiguous", self)
    _require(count == self.elements, Op.RESHAPE, f"cannot become {ne}", self, expected=f"{self.elements} elements")
    return self.context.view(Op.RESHAPE, self, full, contiguous_strides(self.type, full), 0)


def view(self: Tensor, ne: Sequence[int], nb: Sequence[int], offset: int = 0) -> Tensor:
    """A part: extents, byte strides of the dimensions above the first (as many as needed), byte offset."""
    full = full_extents(ne)
    strides = [self.nb[0], *nb]
    while len(strides) < 4:
        strides.append(strides[-1] * int(full[len(strides) - 1]))
    return self.context.view(Op.VIEW, self, full, strides, offset)


def permute(self: Tensor, *axes: int) -> Tensor:
    """Dimension i becomes dimension axes[i]."""
    _require(sorted(axes) == [0, 1, 2, 3], Op.PERMUTE, f"not a permutation: {axes}", self)
    ne, nb = list(self.ne), list(self.nb)
    for source, target in enumerate(axes):
        ne[target], nb[target] = self.ne[source], self.nb[source]
    return self.context.view(Op.PERMUTE, self, ne, nb, 0, tuple(axes))


def transpose(self: Tensor) -> Tensor:
    """The first two dimensions exchanged."""
    ne = (self.ne[1], self.ne[0], *self.ne[2:])
    nb = (self.nb[1], self.nb[0], *self.nb[2:])
    return self.context.view(Op.TRANSPOSE, self, ne, nb, 0)
