"""Derivatives of losses."""

from __future__ import annotations

from ..derivative import Derivative, Rule
from ..ops import Op
from ..tensor import Tensor


def _cross_entropy_loss(d: Derivative, number: int) -> Tensor:
    logits, labels = d.source(0), d.source(1)
    if number == 0:
        return d.gradient.cross_entropy_loss_back(logits, labels)
    # -ln soft_max(logits)·g / rows
    rows = logits.ne[1] * logits.ne[2] * logits.ne[3]
    return logits.soft_max().log().mul(d.gradient).scale(-1.0 / rows)


def _cross_entropy_loss_back(d: Derivative, number: int) -> Tensor:
    """y = g/n·(p·Σ labels - labels) with p = soft_max(logits)."""
    g, logits, labels, u = d.source(0), d.source(1), d.source(2), d.gradient
    rows = logits.ne[1] * logits.ne[2] * logits.ne[3]
    p, total = logits.soft_max(), labels.sum_rows()
    if number == 0:
        return p.mul(total).sub(labels).mul(u).sum().scale(1.0 / rows).reshape(*g.ne)
    if number == 1:
        return u.soft_max_back(p).mul(total).mul(g).scale(1.0 / rows)
    inner = p.mul(u).sum_rows()
    return u.neg().add(inner).mul(g).scale(1.0 / rows)


def _token_loss(d: Derivative, number: int) -> Tensor:
    return d.gradient.token_loss_back(d.source(0), d.source(1))


def _sum_squares(d: Derivative, number: int) -> Tensor:
    return d.source(0).mul(d.gradient).scale(2.0)


_STEP = "a step of an optimizer is not part of a loss"

GRADIENTS: dict[Op, Rule | str] = {
    Op.CROSS_ENTROPY_LOSS: _cross_entropy_loss,
    Op.CROSS_ENTROPY_LOSS_BACK: _cross_entropy_loss_back,
    Op.TOKEN_LOSS: _token_loss,
    Op.TOKEN_LOSS_BACK: "its second derivative is not known here; CROSS_ENTROPY_LOSS has one",
    Op.SUM_SQUARES: _sum_squares,
    Op.OPT_STEP_ADAMW: _STEP,
    Op.OPT_STEP_SGD: _STEP,
}
IGNORED: dict[Op, frozenset[int]] = {
    Op.TOKEN_LOSS: frozenset({1}),
    Op.TOKEN_LOSS_BACK: frozenset({2}),
}
