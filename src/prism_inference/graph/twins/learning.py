"""Twins of losses and of optimizer steps."""

from __future__ import annotations

import numpy as np

from ..ops import Op
from ..tensor import Tensor
from .memory import Array, Memory, Twin, wide_inputs


def _log_soft_max(a: Array) -> Array:
    shifted = a - a.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))


def _rows(a: Array) -> int:
    return int(np.prod(a.shape[:-1]))


def _cross_entropy_loss(memory: Memory, node: Tensor) -> None:
    logits, labels = wide_inputs(memory, node)
    memory.write(node, -np.asarray((labels * _log_soft_max(logits)).sum()) / _rows(logits))


def _cross_entropy_loss_back(memory: Memory, node: Tensor) -> None:
    g, logits, labels = wide_inputs(memory, node)
    p = np.exp(_log_soft_max(logits))
    memory.write(node, g.reshape(()) / _rows(logits) * (p * labels.sum(-1, keepdims=True) - labels))


def _token_loss(memory: Memory, node: Tensor) -> None:
    logits, labels = wide_inputs(memory, node)
    index = labels.reshape(-1)
    picked = _log_soft_max(logits[0, 0])[np.arange(index.size), np.maximum(index, 0)]
    memory.write(node, -np.asarray(picked[index >= 0].sum()))


def _token_loss_back(memory: Memory, node: Tensor) -> None:
    g, logits, labels = wide_inputs(memory, node)
    index = labels.reshape(-1)
    p = np.exp(_log_soft_max(logits[0, 0]))
    p[np.arange(index.size), np.maximum(index, 0)] -= 1.0
    memory.write(node, g.reshape(()) * np.where(index[:, None] >= 0, p, 0.0)[None, None])


def _sum_squares(memory: Memory, node: Tensor) -> None:
    memory.write(node, np.asarray((wide_inputs(memory, node)[0] ** 2).sum()))


def _factor(node: Tensor, memory: Memory) -> float:
    factor = node.sources[-1]
    return 1.0 if factor is None else float(memory.read(factor).reshape(()))


def _opt_step_adamw(memory: Memory, node: Tensor) -> None:
    w, g, m, v, parameters = wide_inputs(memory, node)[:5]
    alpha, beta1, beta2, eps, decay, h1, h2 = parameters.reshape(-1)
    g = g * _factor(node, memory)
    m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
    for number, values in ((2, m), (3, v)):
        moment = node.sources[number]
        assert moment is not None
        memory.write(moment, values)
    memory.write(node, w * (1 - alpha * decay) - alpha * (m * h1) / (np.sqrt(v * h2) + eps))


def _opt_step_sgd(memory: Memory, node: Tensor) -> None:
    w, g, parameters = wide_inputs(memory, node)[:3]
    alpha, decay = parameters.reshape(-1)
    memory.write(node, w * (1 - alpha * decay) - alpha * g * _factor(node, memory))


TWINS: dict[Op, Twin] = {
    Op.CROSS_ENTROPY_LOSS: _cross_entropy_loss,
    Op.CROSS_ENTROPY_LOSS_BACK: _cross_entropy_loss_back,
    Op.TOKEN_LOSS: _token_loss,
    Op.TOKEN_LOSS_BACK: _token_loss_back,
    Op.SUM_SQUARES: _sum_squares,
    Op.OPT_STEP_ADAMW: _opt_step_adamw,
    Op.OPT_STEP_SGD: _opt_step_sgd,
}
