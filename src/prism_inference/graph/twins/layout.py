"""Twins of copies and of what moves values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..ops import Op, Triangle
from ..tensor import Tensor
from .memory import Array, Memory, Twin, inputs, wide_inputs


def _copy(memory: Memory, node: Tensor) -> None:
    source = node.sources[0]
    assert source is not None
    memory.write(node, memory.read(source).reshape(memory.place(node).shape))


def _repeat(memory: Memory, node: Tensor) -> None:
    a = inputs(memory, node)[0]
    memory.write(node, np.tile(a, [int(n) // m for n, m in zip(reversed(node.ne), a.shape, strict=True)]))


def _repeat_back(memory: Memory, node: Tensor) -> None:
    y = wide_inputs(memory, node)[0]
    for axis, extent in enumerate(reversed(node.ne)):
        shape = (*y.shape[:axis], -1, int(extent), *y.shape[axis + 1 :])
        y = y.reshape(shape).sum(axis)
    memory.write(node, y)


def _concat(memory: Memory, node: Tensor) -> None:
    memory.write(node, np.concatenate(inputs(memory, node), 3 - node.params[0]))


def _placed(adds: bool) -> Twin:
    """ACC and SET: a copy of the first source with the second in a strided part of it."""

    def twin(memory: Memory, node: Tensor) -> None:
        a, part = (value.copy() for value in inputs(memory, node))
        memory.write(node, a)
        *nb, offset = node.params
        y = memory.place(node)
        width = y.itemsize // 4  # wide memories hold float64 where the strides count float32
        target = as_strided(
            y.reshape(-1)[offset // 4 :], part.shape, (*(width * step for step in reversed(nb)), y.itemsize)
        )
        target[...] = target + part if adds else part

    return twin


def _diag(memory: Memory, node: Tensor) -> None:
    row = inputs(memory, node)[0]
    memory.write(node, row * np.eye(row.shape[-1]))


_TRIANGLES: dict[Triangle, Callable[[Array, Array], Array]] = {
    Triangle.UPPER_DIAG: np.greater_equal,
    Triangle.UPPER: np.greater,
    Triangle.LOWER_DIAG: np.less_equal,
    Triangle.LOWER: np.less,
}


def _tri(memory: Memory, node: Tensor) -> None:
    a = inputs(memory, node)[0]
    column = np.arange(a.shape[-1])
    memory.write(node, np.where(_TRIANGLES[node.params[0]](column, column[:, None]), a, 0.0))


def _pad(memory: Memory, node: Tensor) -> None:
    a = inputs(memory, node)[0]
    *before, circular = node.params
    sizes = [(before[d], int(node.ne[d]) - before[d] - a.shape[3 - d]) for d in (3, 2, 1, 0)]
    memory.write(node, np.pad(a, sizes, "wrap") if circular else np.pad(a, sizes))


def _roll(memory: Memory, node: Tensor) -> None:
    memory.write(node, np.roll(inputs(memory, node)[0], tuple(reversed(node.params)), (0, 1, 2, 3)))


TWINS: dict[Op, Twin] = {
    Op.DUP: _copy,
    Op.CPY: _copy,
    Op.CONT: _copy,
    Op.REPEAT: _repeat,
    Op.REPEAT_BACK: _repeat_back,
    Op.CONCAT: _concat,
    Op.ACC: _placed(adds=True),
    Op.SET: _placed(adds=False),
    Op.DIAG: _diag,
    Op.TRI: _tri,
    Op.PAD: _pad,
    Op.ROLL: _roll,
}
