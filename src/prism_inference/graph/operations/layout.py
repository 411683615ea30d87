"""Where values lie: copies, views, repetition, parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..extents import contiguous_strides, full_extents
from ..ops import Op, Triangle
from .checks import FLOATS, repeats, require, require_f32

MOVED = ("F32", "F16", "I32")  # what is copied without a change

if TYPE_CHECKING:
    from ..tensor import Tensor


def cpy(self: Tensor, target: Tensor) -> Tensor:
    """Copy all elements into `target`, in its type and layout; the result is a view of the target."""
    require(self.elements == target.elements, Op.CPY, "different numbers of elements", self, target)
    floats = self.type.name in FLOATS and target.type.name in FLOATS[:2]
    integers = self.type.name == target.type.name == "I32"
    require(floats or integers, Op.CPY, "wrong types", self, target)
    node = self.context.view(Op.CPY, target, target.ne, target.nb, 0)
    node.sources = (self, target)
    return node


def dup(self: Tensor) -> Tensor:
    """A copy of the same shape, contiguous."""
    require(self.type.name in MOVED, Op.DUP, "wrong type", self, expected=MOVED)
    return self.context.node(Op.DUP, self.type, self.ne, [self])


def cont(self: Tensor) -> Tensor:
    """A contiguous copy."""
    require(self.type.name in MOVED, Op.CONT, "wrong type", self, expected=MOVED)
    return self.context.node(Op.CONT, self.type, self.ne, [self])


def reshape(self: Tensor, *ne: int) -> Tensor:
    """The same elements with other extents."""
    full = full_extents(ne)
    count = int(full[0]) * int(full[1]) * int(full[2]) * int(full[3])
    require(self.contiguous, Op.RESHAPE, "not contiguous", self)
    require(count == self.elements, Op.RESHAPE, f"cannot become {ne}", self, expected=f"{self.elements} elements")
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
    require(sorted(axes) == [0, 1, 2, 3], Op.PERMUTE, f"not a permutation: {axes}", self)
    ne, nb = list(self.ne), list(self.nb)
    for source, target in enumerate(axes):
        ne[target], nb[target] = self.ne[source], self.nb[source]
    return self.context.view(Op.PERMUTE, self, ne, nb, 0, tuple(axes))


def transpose(self: Tensor) -> Tensor:
    """The first two dimensions exchanged."""
    ne = (self.ne[1], self.ne[0], *self.ne[2:])
    nb = (self.nb[1], self.nb[0], *self.nb[2:])
    return self.context.view(Op.TRANSPOSE, self, ne, nb, 0)


# --- Repetition and parts -----------------------------------------------------------------------------


def repeat(self: Tensor, *ne: int) -> Tensor:
    """This tensor (F32 or I32) repeated to larger extents, which its own divide."""
    require(self.type.name in ("F32", "I32"), Op.REPEAT, "wrong type", self, expected="F32 or I32")
    return _repetition(self, Op.REPEAT, ne, grows=True)


def repeat_back(self: Tensor, *ne: int) -> Tensor:
    """The way back through `repeat`: what falls on the same place is added up."""
    require_f32(Op.REPEAT_BACK, self)
    return _repetition(self, Op.REPEAT_BACK, ne, grows=False)


def _repetition(self: Tensor, op: Op, ne: Sequence[int], grows: bool) -> Tensor:
    node = self.context.node(op, self.type, ne, [self])
    small, large = (self, node) if grows else (node, self)
    require(repeats(small, large), op, "extents do not divide", self, expected=f"{full_extents(ne)}")
    return node


def concat(self: Tensor, other: Tensor, axis: int = 0) -> Tensor:
    """Both tensors one after the other along an axis."""
    op = Op.CONCAT
    require_f32(op, self, other)
    require(0 <= axis < 4, op, f"no axis {axis}", self, other)
    same = all(self.ne[d] == other.ne[d] for d in range(4) if d != axis)
    require(same, op, "different shapes", self, other)
    ne = [extent + other.ne[d] if d == axis else extent for d, extent in enumerate(self.ne)]
    return self.context.node(op, self.type, ne, [self, other], (axis,))


def acc(self: Tensor, part: Tensor, nb: Sequence[int], offset: int = 0) -> Tensor:
    """A copy of this tensor with `part` added where a view of it with byte strides `nb` (of dimensions 1 to 3) and an
    offset would lie."""
    return _placed(self, Op.ACC, part, nb, offset)


def acc_inplace(self: Tensor, part: Tensor, nb: Sequence[int], offset: int = 0) -> Tensor:
    """The same, added to this tensor itself: the result is a view of it."""
    _placed(self, Op.ACC, part, nb, offset)
    self.context.tensors.pop()
    node = self.context.view(Op.ACC, self, self.ne, self.nb, 0, (*nb, offset))
    node.sources = (self, part)
    return node


def set_part(self: Tensor, part: Tensor, nb: Sequence[int], offset: int = 0) -> Tensor:
    """The same with `part` in place of what lies there."""
    return _placed(self, Op.SET, part, nb, offset)


def _placed(self: Tensor, op: Op, part: Tensor, nb: Sequence[int], offset: int) -> Tensor:
    require_f32(op, self, part)
    require(self.contiguous, op, "not contiguous", self)
    require(len(nb) == 3 and offset >= 0, op, f"three strides and an offset are needed, not {nb}, {offset}", self)
    end = offset + 4 * (part.ne[0] - 1) + 4 + sum((int(part.ne[d]) - 1) * nb[d - 1] for d in (1, 2, 3))
    require(end <= self.nbytes, op, "the part lies outside", self, part, expected=f"at most {self.nbytes} bytes")
    return self.context.node(op, self.type, self.ne, [self, part], (*nb, offset))


def diag(self: Tensor) -> Tensor:
    """Matrices with the rows of [N, 1, …] as diagonals: [N, N, …]."""
    require_f32(Op.DIAG, self)
    require(self.ne[1] == 1, Op.DIAG, "one row per matrix is needed", self)
    return self.context.node(Op.DIAG, self.type, (self.ne[0], self.ne[0], *self.ne[2:]), [self])


def tri(self: Tensor, part: Triangle) -> Tensor:
    """A triangle of square matrices, zero elsewhere: column ≥, >, ≤ or < row."""
    require_f32(Op.TRI, self)
    require(self.ne[0] == self.ne[1], Op.TRI, "not square", self)
    return self.context.node(Op.TRI, self.type, self.ne, [self], (Triangle(part),))


def pad(self: Tensor, *after: int, before: Sequence[int] = (0, 0, 0, 0), circular: bool = False) -> Tensor:
    """Zeros (or, circular, the values from the other end) before and after each dimension."""
    op = Op.PAD
    require_f32(op, self)
    left, right = ((*sizes, *(0,) * (4 - len(sizes))) for sizes in (before, after))
    require(len(left) == len(right) == 4 and min(*left, *right) >= 0, op, f"wrong sizes {before}, {after}", self)
    if circular:
        fits = all(max(left[d], right[d]) <= self.ne[d] for d in range(4))
        require(fits, op, "more than the tensor itself to repeat", self)
    ne = [left[d] + int(self.ne[d]) + right[d] for d in range(4)]
    return self.context.node(op, self.type, ne, [self], (*left, circular))


def roll(self: Tensor, *shifts: int) -> Tensor:
    """Values moved along each dimension, those pushed out coming in at the other end."""
    require_f32(Op.ROLL, self)
    require(1 <= len(shifts) <= 4, Op.ROLL, f"one to four shifts are needed, not {shifts}", self)
    full = (*shifts, *(0,) * (4 - len(shifts)))
    return self.context.node(Op.ROLL, self.type, self.ne, [self], full)
