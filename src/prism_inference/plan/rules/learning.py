"""Lowering rules: losses and optimizer steps."""

from __future__ import annotations

from ...graph import Op, Tensor
from ..lowering import Lowering, Rule, source_of


def _loss(kernel: str) -> Rule:
    """Rule of a loss: a float64 number for each row, then their total."""

    def rule(low: Lowering, node: Tensor) -> None:
        logits, labels = source_of(node, 0), source_of(node, 1)
        count = logits.ne[1] if logits.ne[2] == logits.ne[3] == 1 else logits.ne[1] * logits.ne[2] * logits.ne[3]
        size = 8 * int(count)
        losses = low.temporary((count, 1, 1, 1), (8, size, size, size), size, "losses of rows")
        given = low.dense(labels) if labels.type.name == "F32" else low.operand(labels)
        low.emit(kernel, losses, low.dense(logits), given)
        low.emit("totals.finish", low.operand(node), losses)

    return rule


def _token_loss_back(low: Lowering, node: Tensor) -> None:
    g, logits, labels = (source_of(node, number) for number in range(3))
    low.emit("losses.token_back", low.operand(node), low.operand(g), low.dense(logits), low.operand(labels))


def _cross_entropy_loss_back(low: Lowering, node: Tensor) -> None:
    g, logits, labels = (source_of(node, number) for number in range(3))
    low.emit("losses.cross_entropy_back", low.operand(node), low.operand(g), low.dense(logits), low.dense(labels))


def _adamw(low: Lowering, node: Tensor) -> None:
    gradient, m, v, parameters, *factor = (source for source in node.sources[1:] if source is not None)
    sources = (low.operand(tensor) for tensor in (m, v, gradient, parameters, *factor))
    low.emit("optimizers.adamw", low.operand(node), *sources, params=(len(factor),), written=3)


def _sgd(low: Lowering, node: Tensor) -> None:
    gradient, parameters, *factor = (source for source in node.sources[1:] if source is not None)
    sources = (low.operand(tensor) for tensor in (gradient, parameters, *factor))
    low.emit("optimizers.sgd", low.operand(node), *sources, params=(len(factor),))


RULES: dict[Op, Rule] = {
    Op.CROSS_ENTROPY_LOSS: _loss("losses.cross_entropy_rows"),
    Op.CROSS_ENTROPY_LOSS_BACK: _cross_entropy_loss_back,
    Op.TOKEN_LOSS: _loss("losses.token_rows"),
    Op.TOKEN_LOSS_BACK: _token_loss_back,
    Op.OPT_STEP_ADAMW: _adamw,
    Op.OPT_STEP_SGD: _sgd,
}
