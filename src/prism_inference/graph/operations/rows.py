"""What concerns whole rows: norms, soft-max, sums, order, rows picked and written by an index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...gguf import tensor_type
from ..ops import Op, Order
from .checks import CACHE_TYPES, require, require_f32

if TYPE_CHECKING:
    from ..tensor import Tensor


def rms_norm(self: Tensor, eps: float) -> Tensor:
    """Each row divided by sqrt(mean of its squares + eps)."""
    require(self.type.name == "F32", Op.RMS_NORM, "wrong type", self, expected="F32")
    require(eps > 0, Op.RMS_NORM, f"eps must be positive, not {eps}", self)
    return self.context.node(Op.RMS_NORM, self.type, self.ne, [self], (eps,))


def norm(self: Tensor, eps: float) -> Tensor:
    """Each row minus its mean, divided by sqrt(its variance + eps)."""
    return _normalized(self, Op.NORM, eps)


def l2_norm(self: Tensor, eps: float) -> Tensor:
    """Each row divided by max(its Euclidean length, eps)."""
    return _normalized(self, Op.L2_NORM, eps)


def group_norm(self: Tensor, groups: int, eps: float) -> Tensor:
    """NORM over groups of channels: ne[2] channels in `groups` equal runs, each run of planes normalized as one."""
    require(1 <= groups <= self.ne[2], Op.GROUP_NORM, f"cannot make {groups} groups", self)
    node = _normalized(self, Op.GROUP_NORM, eps)
    node.params = (groups, float(eps))
    return node


def _normalized(self: Tensor, op: Op, eps: float) -> Tensor:
    require_f32(op, self)
    require(eps >= 0, op, f"eps must not be negative: {eps}", self)
    return self.context.node(op, self.type, self.ne, [self], (float(eps),))


def rms_norm_back(self: Tensor, argument: Tensor, eps: float) -> Tensor:
    """The way back through `rms_norm`: self is the gradient of its result, `argument` what it normalized."""
    return _normalized_back(self, Op.RMS_NORM_BACK, argument, eps)


def norm_back(self: Tensor, argument: Tensor, eps: float) -> Tensor:
    """The way back through `norm`."""
    return _normalized_back(self, Op.NORM_BACK, argument, eps)


def l2_norm_back(self: Tensor, argument: Tensor, eps: float) -> Tensor:
    """The way back through `l2_norm`."""
    return _normalized_back(self, Op.L2_NORM_BACK, argument, eps)


def _normalized_back(self: Tensor, op: Op, argument: Tensor, eps: float) -> Tensor:
    require_f32(op, self, argument)
    require(self.ne == argument.ne, op, "different shapes", self, argument)
    return self.context.node(op, self.type, self.ne, [self, argument], (float(eps),))


def soft_max(
    self: Tensor,
    mask: Tensor | None = None,
    scale: float = 1.0,
    max_bias: float = 0.0,
    sinks: Tensor | None = None,
) -> Tensor:
    """e^z / Σ e^z of each row, z = scale·x + slope·mask.

    Args:
        mask: F32 or F16 [N, rows or more, a, b], repeated over the batches (a | ne[2], b | ne[3]).
        scale: of the scores.
        max_bias: above 0, the slope of head h (of ne[2]) is ALiBi's (arXiv 2108.12409), else 1.
        sinks: F32 [heads]: one more score per head that takes its share of the sum and gives no result.
    """
    op = Op.SOFT_MAX
    require_f32(op, self, sinks)
    if mask is not None:
        require(mask.type.name in ("F32", "F16"), op, "wrong type of the mask", mask, expected="F32 or F16")
        fits = mask.ne[0] == self.ne[0] and mask.ne[1] >= self.ne[1]
        fits = fits and self.ne[2] % mask.ne[2] == 0 and self.ne[3] % mask.ne[3] == 0
        require(fits, op, "the mask does not fit", self, mask)
    require(max_bias == 0 or mask is not None, op, "a bias needs a mask", self)
    if sinks is not None:
        require(sinks.elements == self.ne[2], op, "one sink per head is needed", self, sinks)
    return self.context.node(op, self.type, self.ne, [self, mask, sinks], (float(scale), float(max_bias)))


def soft_max_back(self: Tensor, result: Tensor, scale: float = 1.0) -> Tensor:
    """The way back through `soft_max`: scale·y·(g - Σ y·g) for the gradient g (self) and the result y."""
    op = Op.SOFT_MAX_BACK
    require_f32(op, self, result)
    require(self.ne == result.ne, op, "different shapes", self, result)
    return self.context.node(op, self.type, self.ne, [self, result], (float(scale),))


def diag_mask_inf(self: Tensor, past: int) -> Tensor:
    """Minus infinity where column > past + row."""
    return _diag_mask(self, Op.DIAG_MASK_INF, past)


def diag_mask_zero(self: Tensor, past: int) -> Tensor:
    """Zero where column > past + row."""
    return _diag_mask(self, Op.DIAG_MASK_ZERO, past)


def _diag_mask(self: Tensor, op: Op, past: int) -> Tensor:
    require_f32(op, self)
    require(past >= 0, op, f"past must not be negative: {past}", self)
    return self.context.node(op, self.type, self.ne, [self], (past,))


def sum(self: Tensor) -> Tensor:
    """The sum of all values: [1]."""
    require_f32(Op.SUM, self)
    return self.context.node(Op.SUM, self.type, (1,), [self])


def sum_rows(self: Tensor) -> Tensor:
    """The sum of each row: [N, …] → [1, …]."""
    require_f32(Op.SUM_ROWS, self)
    return self.context.node(Op.SUM_ROWS, self.type, (1, *self.ne[1:]), [self])


def mean(self: Tensor) -> Tensor:
    """The mean of each row: [N, …] → [1, …]."""
    require_f32(Op.MEAN, self)
    return self.context.node(Op.MEAN, self.type, (1, *self.ne[1:]), [self])


def cumsum(self: Tensor) -> Tensor:
    """Sums of the first 1, 2, … values of each row."""
    require_f32(Op.CUMSUM, self)
    return self.context.node(Op.CUMSUM, self.type, self.ne, [self])


def argmax(self: Tensor) -> Tensor:
    """The index (I32) of the largest of each row of [N, rows], the lowest of equals: [rows]."""
    op = Op.ARGMAX
    require_f32(op, self)
    require(self.ne[2] == self.ne[3] == 1, op, "more than two extents", self)
    return self.context.node(op, tensor_type("I32"), (self.ne[1],), [self])


def count_equal(self: Tensor, other: Tensor) -> Tensor:
    """How many values of two I32 tensors are equal: I64 [1]."""
    op = Op.COUNT_EQUAL
    require(self.type.name == other.type.name == "I32", op, "wrong types", self, other, expected="I32")
    require(self.ne == other.ne, op, "different shapes", self, other)
    return self.context.node(op, tensor_type("I64"), (1,), [self, other])


def argsort(self: Tensor, order: Order = Order.ASC) -> Tensor:
    """Indices (I32) that sort each row; equals keep their order, NaN comes last."""
    require_f32(Op.ARGSORT, self)
    return self.context.node(Op.ARGSORT, tensor_type("I32"), self.ne, [self], (Order(order),))


def top_k(self: Tensor, count: int) -> Tensor:
    """Indices (I32) of the `count` largest of each row, the largest first, the lower index of equals first."""
    require(self.type.name == "F32", Op.TOP_K, "wrong type", self, expected="F32")
    require(1 <= count <= self.ne[0], Op.TOP_K, f"cannot take {count} of a row", self)
    return self.context.node(Op.TOP_K, tensor_type("I32"), (count, *self.ne[1:]), [self])


def get_rows(self: Tensor, index: Tensor) -> Tensor:
    """Rows of this table picked by an I32 tensor and decoded to F32: [K, R, …], [N, …] → [K, N, …]."""
    require(index.type.name == "I32", Op.GET_ROWS, "wrong index type", index, expected="I32")
    fits = self.ne[2] == index.ne[1] and self.ne[3] == index.ne[2] and index.ne[3] == 1
    require(fits, Op.GET_ROWS, "index does not fit the table", self, index)
    ne = (self.ne[0], index.ne[0], index.ne[1], index.ne[2])
    return self.context.node(Op.GET_ROWS, tensor_type("F32"), ne, [self, index])


def get_rows_back(self: Tensor, index: Tensor, table: Tensor) -> Tensor:
    """The way back through `get_rows`: the rows of self (the gradient) are added up where `index` says, in a tensor of
    the table's shape that is zero elsewhere."""
    op = Op.GET_ROWS_BACK
    require_f32(op, self)
    require(index.type.name == "I32", op, "wrong index type", index, expected="I32")
    fits = self.ne[0] == table.ne[0] and self.ne[1:] == index.ne[:3] and table.ne[2:] == (*index.ne[1:3],)
    require(fits, op, "shapes do not fit", self, index, table)
    return self.context.node(op, self.type, table.ne, [self, index])


def set_rows(self: Tensor, rows: Tensor, index: Tensor) -> Tensor:
    """Write `rows` (F32) to those rows of this tensor that the I32 index names, each at most once; the result is a view
    of this tensor."""
    op = Op.SET_ROWS
    require(rows.type.name == "F32" and index.type.name == "I32", op, "wrong types", rows, index)
    require(self.type.name in CACHE_TYPES, op, "rows cannot be written to this type", self, expected=CACHE_TYPES)
    require(rows.ne[0] == self.ne[0] and rows.ne[1] == index.ne[0], op, "rows do not fit", self, rows, index)
    require(rows.ne[2] == self.ne[2] and rows.ne[3] == self.ne[3], op, "batches do not fit", self, rows)
    require(
        rows.ne[2] % index.ne[1] == 0 and rows.ne[3] % index.ne[2] == 0 and index.ne[3] == 1,
        op,
        "index does not fit the rows",
        rows,
        index,
    )
    node = self.context.view(op, self, self.ne, self.nb, 0)
    node.sources = (rows, index, self)
    return node
