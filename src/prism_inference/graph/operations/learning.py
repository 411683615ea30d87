"""Losses over logits, and the steps of optimizers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ops import Op
from .checks import require, require_f32

if TYPE_CHECKING:
    from ..tensor import Tensor

ADAMW_PARAMETERS = 7  # alpha, beta1, beta2, eps, weight decay, 1 / (1 - beta1^t), 1 / (1 - beta2^t)
SGD_PARAMETERS = 2  # alpha, weight decay


def cross_entropy_loss(self: Tensor, labels: Tensor) -> Tensor:
    """-Σ labels·ln(soft_max(self)) over all rows, divided by their number: [classes, rows], the same → [1]."""
    op = Op.CROSS_ENTROPY_LOSS
    require_f32(op, self, labels)
    require(self.ne == labels.ne, op, "different shapes", self, labels)
    return self.context.node(op, self.type, (1,), [self, labels])


def cross_entropy_loss_back(self: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
    """The way back through `cross_entropy_loss` to the logits: g / rows · (soft_max(logits)·Σ labels - labels)."""
    op = Op.CROSS_ENTROPY_LOSS_BACK
    require_f32(op, self, logits, labels)
    require(self.elements == 1, op, "the gradient is not one value", self)
    require(logits.ne == labels.ne, op, "different shapes", logits, labels)
    return self.context.node(op, self.type, logits.ne, [self, logits, labels])


def token_loss(self: Tensor, labels: Tensor) -> Tensor:
    """The sum over rows of -ln soft_max(self)[label]: logits [vocabulary, rows], labels I32 [rows] → [1].

    Rows with a label below 0 count nothing. It is a sum, so that parts of a batch add up whatever their lengths.
    """
    op = Op.TOKEN_LOSS
    require_f32(op, self)
    _require_labels(op, self, labels)
    return self.context.node(op, self.type, (1,), [self, labels])


def token_loss_back(self: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
    """The way back through `token_loss`: g·(soft_max(logits) - the label's unit vector); zeros where it is below 0."""
    op = Op.TOKEN_LOSS_BACK
    require_f32(op, self, logits)
    require(self.elements == 1, op, "the gradient is not one value", self)
    _require_labels(op, logits, labels)
    return self.context.node(op, self.type, logits.ne, [self, logits, labels])


def _require_labels(op: Op, logits: Tensor, labels: Tensor) -> None:
    require(labels.type.name == "I32", op, "wrong type of the labels", labels, expected="I32")
    fits = labels.elements == labels.ne[0] == logits.ne[1] and logits.ne[2] == logits.ne[3] == 1
    require(fits, op, "one label per row is needed", logits, labels)


def sum_squares(self: Tensor) -> Tensor:
    """The sum of the squares of all values: [1]. What the length of a gradient is made of."""
    require_f32(Op.SUM_SQUARES, self)
    return self.context.node(Op.SUM_SQUARES, self.type, (1,), [self])


def opt_step_adamw(
    self: Tensor, gradient: Tensor, m: Tensor, v: Tensor, parameters: Tensor, factor: Tensor | None = None
) -> Tensor:
    """One step of AdamW (arXiv 1711.05101), in place; the result is a view of this tensor.

    g = gradient·factor; m ← β1·m + (1 - β1)·g; v ← β2·v + (1 - β2)·g²;
    w ← w·(1 - α·λ) - α·(m·h1) / (sqrt(v·h2) + ε), with `parameters` F32 [7] = α, β1, β2, ε, λ, h1 = 1 / (1 - β1^t),
    h2 = 1 / (1 - β2^t). `factor` is F32 [1].
    """
    op = Op.OPT_STEP_ADAMW
    require_f32(op, self, gradient, m, v, parameters, factor)
    require(self.ne == gradient.ne == m.ne == v.ne, op, "different shapes", self, gradient, m, v)
    require(parameters.elements == ADAMW_PARAMETERS, op, "wrong parameters", parameters, expected=ADAMW_PARAMETERS)
    return _step(self, op, [self, gradient, m, v, parameters], factor)


def opt_step_sgd(self: Tensor, gradient: Tensor, parameters: Tensor, factor: Tensor | None = None) -> Tensor:
    """w ← w·(1 - α·λ) - α·gradient·factor, in place; `parameters` F32 [2] = α, λ; `factor` F32 [1]."""
    op = Op.OPT_STEP_SGD
    require_f32(op, self, gradient, parameters, factor)
    require(self.ne == gradient.ne, op, "different shapes", self, gradient)
    require(parameters.elements == SGD_PARAMETERS, op, "wrong parameters", parameters, expected=SGD_PARAMETERS)
    return _step(self, op, [self, gradient, parameters], factor)


def _step(self: Tensor, op: Op, sources: list[Tensor], factor: Tensor | None) -> Tensor:
    require(all(tensor.contiguous for tensor in sources), op, "not contiguous", *sources)
    require(factor is None or factor.elements == 1, op, "the factor is not one value", factor)
    node = self.context.view(op, self, self.ne, self.nb, 0)
    node.sources = (*sources, factor)
    return node
