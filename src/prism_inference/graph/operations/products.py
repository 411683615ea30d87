"""Matrix products."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ops import Op
from .checks import require, require_f32

if TYPE_CHECKING:
    from ..tensor import Tensor


def mul_mat(self: Tensor, other: Tensor, *, exact: bool = False) -> Tensor:
    """Rows of `other` times the transposed of self: [K, M, a, b] , [K, N, c, d] → [M, N, c, d]; a | c, b | d.

    Before quantized weights the values of `other` are rounded to eight bits, unless `exact` asks for float32 products
    with the decoded weights (ggml's GGML_PREC_F32): slower for few rows, and what training needs.
    """
    op = Op.MUL_MAT
    require(self.ne[0] == other.ne[0], op, "different row lengths", self, other)
    require(other.type.name == "F32", op, "wrong type of the second", other, expected="F32")
    fits = other.ne[2] % self.ne[2] == 0 and other.ne[3] % self.ne[3] == 0
    require(fits, op, "cannot repeat the first over the second's batches", self, other)
    ne = (self.ne[1], other.ne[1], other.ne[2], other.ne[3])
    return self.context.node(op, other.type, ne, [self, other], (exact,))


def mul_mat_id(self: Tensor, other: Tensor, index: Tensor, *, exact: bool = False) -> Tensor:
    """Products with picked experts: weights [K, M, E], other [K, used or 1, tokens], index I32 [used, tokens] →
    [M, used, tokens]. `exact` as in `mul_mat`."""
    op = Op.MUL_MAT_ID
    require(other.type.name == "F32" and index.type.name == "I32", op, "wrong types", other, index)
    fits = self.ne[0] == other.ne[0] and self.ne[3] == other.ne[3] == 1 and index.ne[1] == other.ne[2]
    require(fits and other.ne[1] in (1, index.ne[0]), op, "shapes do not fit", self, other, index)
    return self.context.node(op, other.type, (self.ne[1], index.ne[0], index.ne[1]), [self, other, index], (exact,))


def out_prod(self: Tensor, other: Tensor) -> Tensor:
    """Sums of outer products of rows: [K, M, a, b], [N, M, c, d] → [K, N, c, d]; a | c, b | d.

    y[k, n] = Σ_m self[k, m]·other[n, m]; `other` may have any strides, self may be of any type with kernels.
    """
    op = Op.OUT_PROD
    require_f32(op, other)
    require(self.ne[1] == other.ne[1], op, "different numbers of rows", self, other)
    fits = other.ne[2] % self.ne[2] == 0 and other.ne[3] % self.ne[3] == 0
    require(fits, op, "cannot repeat the first over the second's batches", self, other)
    return self.context.node(op, other.type, (self.ne[0], other.ne[0], *other.ne[2:]), [self, other])


def out_prod_id(self: Tensor, other: Tensor, index: Tensor) -> Tensor:
    """The way back through `mul_mat_id` to its inputs: weights [K, M, E], gradients [M, used, tokens], index I32
    [used, tokens] → [K, used, tokens], y[:, s, t] = W[:, :, index[s, t]]·g[:, s, t]."""
    op = Op.OUT_PROD_ID
    require_f32(op, other)
    require(index.type.name == "I32", op, "wrong index type", index, expected="I32")
    fits = self.ne[1] == other.ne[0] and self.ne[3] == other.ne[3] == 1 and index.ne[:2] == other.ne[1:3]
    require(fits, op, "shapes do not fit", self, other, index)
    return self.context.node(op, other.type, (self.ne[0], *other.ne[1:]), [self, other, index])


def mul_mat_id_back(self: Tensor, other: Tensor, index: Tensor, experts: int) -> Tensor:
    """The way back through `mul_mat_id` to its weights: gradients [M, used, tokens], inputs [K, used or 1, tokens],
    index I32 [used, tokens] → [K, M, experts]: the sum of x ⊗ g over the tokens that picked an expert."""
    op = Op.MUL_MAT_ID_BACK
    require_f32(op, self, other)
    require(index.type.name == "I32", op, "wrong index type", index, expected="I32")
    fits = index.ne[:2] == self.ne[1:3] and other.ne[2] == self.ne[2] and other.ne[1] in (1, self.ne[1])
    require(fits and self.ne[3] == other.ne[3] == 1, op, "shapes do not fit", self, other, index)
    return self.context.node(op, self.type, (other.ne[0], self.ne[0], experts), [self, other, index])
