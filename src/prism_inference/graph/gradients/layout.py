"""Derivatives of copies, views, repetition and parts."""

from __future__ import annotations

import numpy as np

from ..derivative import Derivative, Rule
from ..ops import Op, Triangle
from ..tensor import Tensor


def contiguous(tensor: Tensor) -> Tensor:
    """The tensor itself, or a contiguous copy."""
    return tensor if tensor.contiguous else tensor.cont()


def _reshaped(d: Derivative, number: int) -> Tensor:
    source = d.node.sources[number]
    assert source is not None
    return d.gradient if d.gradient.ne == source.ne else contiguous(d.gradient).reshape(*source.ne)


def _permute(d: Derivative, number: int) -> Tensor:
    axes = d.node.params
    return d.gradient.permute(*(axes.index(d_) for d_ in range(4)))


def _transpose(d: Derivative, number: int) -> Tensor:
    return d.gradient.transpose()


def _view(d: Derivative, number: int) -> Tensor:
    """Zeros, made without reading the source (0·x would let NaN and Inf through), with the gradient in its place."""
    source, node = d.source(0), d.node
    width = source.type.nbytes
    if not source.contiguous or overlapping(node):
        return _scattered(d)
    base = d.begun if d.begun is not None else source.fill(0.0)
    strides = [step * 4 // width for step in node.nb[1:]]
    return base.acc_inplace(d.gradient, strides, node.view_offset * 4 // width)


def overlapping(view: Tensor) -> bool:
    """Whether elements of a view may lie in one place: a step that is shorter than what lies within it."""
    reach = view.type.nbytes
    for step, extent in sorted(zip(view.nb, view.ne, strict=True)):
        if extent > 1 and step < reach:
            return True
        reach += step * (int(extent) - 1)
    return False


def _scattered(d: Derivative) -> Tensor:
    """A view of a source with gaps or permuted dimensions, or one with elements in one place: the place of each is
    looked up by its address, and what falls on one place is added up."""
    source, node = d.source(0), d.node
    addresses, wanted = _addresses(source), _addresses(node) + node.view_offset
    order = np.argsort(addresses, kind="stable")
    found = order[np.minimum(np.searchsorted(addresses, wanted, sorter=order), order.size - 1)]
    if not np.array_equal(addresses[found], wanted):
        raise d.refuse(0, "the view reaches beyond the elements of its source", hint="Take it of the whole tensor.")
    leaf = node.context.tensor("I32", (found.size,), name="places").set(found)
    flat = contiguous(d.gradient).reshape(1, found.size)
    table = source.fill(0.0).reshape(1, source.elements)
    return flat.get_rows_back(leaf, table).reshape(*source.ne)


def _addresses(tensor: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Byte offsets of all elements from the first, in order."""
    total = np.zeros((1, 1, 1, 1), np.int64)
    for axis, (extent, step) in enumerate(zip(tensor.ne, tensor.nb, strict=True)):
        shape = [1, 1, 1, 1]
        shape[3 - axis] = int(extent)
        total = total + (np.arange(int(extent)) * step).reshape(shape)
    return np.asarray(total.reshape(-1))


def _repeat(d: Derivative, number: int) -> Tensor:
    return d.gradient.repeat_back(*d.source(0).ne)


def _repeat_back(d: Derivative, number: int) -> Tensor:
    return d.gradient.repeat(*d.source(0).ne)


def _part(gradient: Tensor, like: Tensor, nb: tuple[int, ...], offset: int) -> Tensor:
    """What lies in a contiguous gradient where a part of another shape was placed."""
    return contiguous(gradient).view(like.ne, nb, offset).cont()


def _acc(d: Derivative, number: int) -> Tensor:
    *nb, offset = d.node.params
    return d.gradient if number == 0 else _part(d.gradient, d.source(1), tuple(nb), offset)


def _set(d: Derivative, number: int) -> Tensor:
    *nb, offset = d.node.params
    if number == 1:
        return _part(d.gradient, d.source(1), tuple(nb), offset)
    return contiguous(d.gradient).set_part(d.source(1).fill(0.0), nb, offset)


def _concat(d: Derivative, number: int) -> Tensor:
    axis = d.node.params[0]
    source, g = d.source(number), d.gradient
    before = 0 if number == 0 else d.source(0).ne[axis]
    return g.view(source.ne, g.nb[1:], g.nb[axis] * before).cont()


def _diag(d: Derivative, number: int) -> Tensor:
    g, n = contiguous(d.gradient), d.source(0).ne[0]
    # The diagonal of a contiguous [N, N, …]: every (N + 1)th value.
    return g.view((1, n, *g.ne[2:]), (g.nb[1] + 4, g.nb[2], g.nb[3])).cont().reshape(*d.source(0).ne)


def _tri(d: Derivative, number: int) -> Tensor:
    return d.gradient.tri(Triangle(d.node.params[0]))


def _pad(d: Derivative, number: int) -> Tensor:
    *before, circular = d.node.params
    a, g = d.source(0), contiguous(d.gradient)
    if circular:
        raise d.refuse(0, "of a circular padding none is known here")
    offset = sum(g.nb[axis] * before[axis] for axis in range(4))
    return g.view(a.ne, g.nb[1:], offset).cont()


def _roll(d: Derivative, number: int) -> Tensor:
    return d.gradient.roll(*(-shift for shift in d.node.params))


GRADIENTS: dict[Op, Rule | str] = {
    Op.DUP: _reshaped,
    Op.CPY: _reshaped,
    Op.CONT: _reshaped,
    Op.RESHAPE: _reshaped,
    Op.VIEW: _view,
    Op.PERMUTE: _permute,
    Op.TRANSPOSE: _transpose,
    Op.REPEAT: _repeat,
    Op.REPEAT_BACK: _repeat_back,
    Op.CONCAT: _concat,
    Op.ACC: _acc,
    Op.SET: _set,
    Op.DIAG: _diag,
    Op.TRI: _tri,
    Op.PAD: _pad,
    Op.ROLL: _roll,
}
IGNORED: dict[Op, frozenset[int]] = {Op.CPY: frozenset({1})}
