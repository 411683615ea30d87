"""Cases of copies, views, repetition and parts."""

from __future__ import annotations

from collections.abc import Callable

from prism_inference.graph import Op, Tensor, Triangle
from tolerances import ELEMENTS, EXACT, SUMS, Tolerance

from . import Maker, OpCase


def _permuted(m: Maker) -> Tensor:
    return m.parameter(3, 5, 2).permute(1, 0, 2, 3)


def _overlapping(m: Maker) -> Tensor:
    """Two views of one tensor that share values, and the tensor itself."""
    x = m.parameter(6, 3)
    first, second = x.view((4, 2), (x.nb[1],)), x.view((4, 2), (x.nb[1],), 8)
    return first.mul(second).sum().add(x.sum())


def _strided(m: Maker) -> Tensor:
    """Every second row, from the third value on."""
    x = m.parameter(7, 6)
    return x.view((4, 3), (2 * x.nb[1],), 8).scale(2.0)


CASES = [
    OpCase(Op.DUP, "", lambda m: m.parameter(5, 3).dup()),
    OpCase(Op.DUP, "permuted", lambda m: _permuted(m).dup()),
    OpCase(Op.CONT, "transposed", lambda m: m.parameter(5, 3).transpose().cont()),
    OpCase(Op.CONT, "integers", lambda m: m.integers([[1, 2, 3], [4, 5, -6]]).transpose().cont(), smooth=False),
    OpCase(Op.CPY, "", lambda m: m.parameter(5, 3).cpy(m.leaf(5, 3)).scale(1.0)),
    OpCase(Op.CPY, "other extents", lambda m: m.parameter(6, 2).cpy(m.leaf(4, 3)).scale(2.0)),
    OpCase(Op.CPY, "permuted", lambda m: _permuted(m).cpy(m.leaf(5, 3, 2)).scale(2.0)),
    OpCase(Op.RESHAPE, "", lambda m: m.parameter(6, 4).reshape(3, 2, 4).scale(2.0)),
    OpCase(Op.RESHAPE, "of a view's gradient", lambda m: m.parameter(6, 4).reshape(4, 6).transpose().scale(2.0)),
    OpCase(Op.VIEW, "row", lambda m: m.parameter(7).view((3,), (), 8).scale(2.0)),
    OpCase(Op.VIEW, "strided", _strided),
    OpCase(Op.VIEW, "overlapping", _overlapping, SUMS),
    OpCase(Op.VIEW, "of a transposed source", lambda m: _view_of_transposed(m).scale(2.0)),
    OpCase(Op.VIEW, "of a view", lambda m: m.parameter(8).view((6,), (), 4).view((3,), (), 8).scale(2.0)),
    OpCase(Op.PERMUTE, "", lambda m: m.parameter(4, 3, 2, 2).permute(2, 0, 3, 1).scale(2.0)),
    OpCase(Op.TRANSPOSE, "", lambda m: m.parameter(4, 3, 2).transpose().scale(2.0)),
    OpCase(Op.REPEAT, "rows", lambda m: m.parameter(5).repeat(5, 3, 2)),
    OpCase(Op.REPEAT, "tiles", lambda m: m.parameter(3, 2).repeat(9, 4, 2)),
    OpCase(Op.REPEAT, "one value", lambda m: m.parameter(1).repeat(19, 3)),
    OpCase(Op.REPEAT, "permuted", lambda m: _permuted(m).repeat(10, 3, 4)),
    OpCase(Op.REPEAT_BACK, "rows", lambda m: m.parameter(19, 3, 2).repeat_back(19), SUMS),
    OpCase(Op.REPEAT_BACK, "tiles", lambda m: m.parameter(9, 4, 2).repeat_back(3, 2), SUMS),
    OpCase(Op.REPEAT_BACK, "batches", lambda m: m.parameter(5, 6, 2).repeat_back(5, 1, 2), SUMS),
    OpCase(Op.REPEAT_BACK, "permuted", lambda m: _permuted(m).repeat_back(5, 1, 2), SUMS),
    OpCase(Op.REPEAT_BACK, "wide", lambda m: m.leaf(300, 40).repeat_back(300), SUMS, smooth=False),
    *(OpCase(Op.CONCAT, f"axis {axis}", lambda m, axis=axis: _joined(m, axis)) for axis in range(4)),
    OpCase(Op.CONCAT, "permuted", lambda m: _permuted(m).concat(m.parameter(4, 3, 2))),
    OpCase(Op.ACC, "", lambda m: m.parameter(6, 4).acc(m.parameter(3, 2), (24, 96, 96), 32)),
    OpCase(Op.ACC, "permuted part", lambda m: m.parameter(6, 4).acc(m.parameter(2, 3).transpose(), (24, 96, 96), 32)),
    OpCase(Op.ACC, "in place", lambda m: m.parameter(6, 4).dup().acc_inplace(m.parameter(3, 2), (24, 96, 96), 32)),
    OpCase(Op.SET, "", lambda m: m.parameter(6, 4).set_part(m.parameter(3, 2), (24, 96, 96), 32)),
    OpCase(Op.SET, "every second row", lambda m: m.parameter(5, 6).set_part(m.parameter(5, 3), (40, 120, 120), 20)),
    OpCase(Op.DIAG, "", lambda m: m.parameter(5, 1, 2).diag()),
    *(OpCase(Op.TRI, part.name, lambda m, part=part: m.parameter(5, 5, 2).tri(part)) for part in Triangle),
    OpCase(Op.TRI, "permuted", lambda m: m.parameter(4, 4, 2).permute(1, 0, 2, 3).tri(Triangle.LOWER)),
    OpCase(Op.PAD, "after", lambda m: m.parameter(5, 3).pad(2, 1)),
    OpCase(Op.PAD, "around", lambda m: m.parameter(5, 3, 2).pad(2, 0, 1, 1, before=(1, 2))),
    OpCase(Op.PAD, "permuted", lambda m: _permuted(m).pad(1, 1)),
    OpCase(Op.PAD, "circular", lambda m: m.leaf(5, 3).pad(2, 1, before=(3, 1), circular=True), smooth=False),
    OpCase(Op.ROLL, "", lambda m: m.parameter(5, 3, 2).roll(2, -1, 1)),
    OpCase(Op.ROLL, "permuted", lambda m: _permuted(m).roll(-7)),
]


def _joined(m: Maker, axis: int) -> Tensor:
    ne = [3, 2, 2, 2]
    other = list(ne)
    other[axis] = 4
    return m.parameter(*ne).concat(m.parameter(*other), axis)


def _view_of_transposed(m: Maker) -> Tensor:
    x = m.parameter(5, 4).transpose()
    return x.view((2, 3), (x.nb[1],), x.nb[0])


# --- More shapes: tails, four dimensions, sources of any strides, other types, larger than a vector ---------------


def case(
    op: Op, name: str, build: Callable[[Maker], Tensor], smooth: bool = True, tolerance: Tolerance = EXACT
) -> None:
    """Record a case."""
    CASES.append(OpCase(op, name, build, tolerance, smooth))


def forward(op: Op, name: str, build: Callable[[Maker], Tensor], tolerance: Tolerance = EXACT) -> None:
    """Record a case that is not differentiated: it is large, or its type is none for that."""
    case(op, name, build, False, tolerance)


def _gapped(m: Maker, *ne: int) -> Tensor:
    """A view with gaps between the rows, and a start inside."""
    whole = m.parameter(ne[0] + 2, *ne[1:])
    return whole.view(ne, whole.nb[1:], 4)


def _integers(m: Maker, *ne: int) -> Tensor:
    return m.integers(m.rng.integers(-9, 9, tuple(reversed(ne))))


def copy_cases() -> None:
    for op, copied in ((Op.DUP, Tensor.dup), (Op.CONT, Tensor.cont)):
        case(op, "gaps", lambda m, copied=copied: copied(_gapped(m, 17, 3)))
        case(op, "all turned", lambda m, copied=copied: copied(m.parameter(5, 2, 3, 2).permute(3, 1, 0, 2)))
        case(op, "heads", lambda m, copied=copied: copied(m.parameter(5, 3, 4).permute(0, 2, 1, 3)))
        forward(op, "turned, long", lambda m, copied=copied: copied(m.leaf(53, 70, 3).transpose()))
        forward(op, "turned by two", lambda m, copied=copied: copied(m.leaf(35, 5, 40, 2).permute(2, 1, 0, 3)))
        forward(op, "turned by three", lambda m, copied=copied: copied(m.leaf(35, 3, 2, 20).permute(3, 1, 2, 0)))
        forward(op, "F16", lambda m, copied=copied: copied(m.weights("F16", 37, 3)))
        forward(op, "F16 turned", lambda m, copied=copied: copied(m.weights("F16", 37, 20).transpose()))
        forward(op, "I32", lambda m, copied=copied: copied(_integers(m, 37, 20).transpose()))
        forward(op, "long", lambda m, copied=copied: copied(m.leaf(5003)))
    case(Op.CPY, "into a view", lambda m: m.parameter(5, 3).cpy(_inner(m.leaf(7, 4), 5, 3)))
    case(Op.CPY, "into a turned one", lambda m: m.parameter(5, 3).cpy(m.leaf(3, 5).transpose()))
    case(Op.CPY, "a view into other extents", lambda m: _gapped(m, 6, 2).cpy(m.leaf(3, 2, 2)))
    case(Op.CPY, "into a node", lambda m: m.parameter(5, 3).cpy(m.leaf(5, 3).dup()).cont())
    forward(Op.CPY, "F32 to F16", lambda m: m.leaf(37, 3).cpy(m.weights("F16", 37, 3)))
    forward(Op.CPY, "F16 to F32", lambda m: m.weights("F16", 37, 3).cpy(m.leaf(37, 3)))
    forward(Op.CPY, "BF16 to F32", lambda m: m.weights("BF16", 37, 3).cpy(m.leaf(37, 3)))
    forward(Op.CPY, "BF16 to F16", lambda m: m.weights("BF16", 37, 3).cpy(m.weights("F16", 37, 3)))
    forward(Op.CPY, "F16 to other extents", lambda m: m.weights("F16", 30, 4).transpose().cpy(m.leaf(8, 5, 3)))
    forward(Op.CPY, "I32", lambda m: _integers(m, 5, 4).cpy(_integers(m, 10, 2)))


def _inner(whole: Tensor, *ne: int) -> Tensor:
    return whole.view(ne, whole.nb[1:], 4)


def view_cases() -> None:
    case(Op.VIEW, "as the result", lambda m: m.parameter(7, 3).scale(2.0).view((4, 2), (28,), 32), tolerance=ELEMENTS)
    case(Op.VIEW, "of a parameter", lambda m: m.parameter(7, 3).view((4, 2), (28,), 32))
    case(Op.VIEW, "four dimensions", lambda m: _inner(m.parameter(5, 2, 3, 2), 3, 2, 2, 1).cont())
    case(Op.VIEW, "windows", lambda m: m.parameter(13).view((4, 3), (8,)).cont())
    case(Op.VIEW, "one row many times", lambda m: m.parameter(5, 4).view((5, 4), (0,)).cont())
    case(Op.VIEW, "of a permuted source", _view_of_permuted)
    case(Op.VIEW, "of one with gaps", lambda m: _inner(_gapped(m, 9, 3), 4, 2).cont())
    case(Op.VIEW, "windows of a transposed source", _windows_of_transposed)
    case(Op.RESHAPE, "to four dimensions", lambda m: m.parameter(24).reshape(2, 3, 2, 2).permute(1, 0, 3, 2).cont())
    case(Op.RESHAPE, "as the result", lambda m: m.parameter(6, 4).reshape(8, 3))
    case(Op.PERMUTE, "as the result", lambda m: m.parameter(4, 3, 2, 2).permute(2, 0, 3, 1))
    case(Op.PERMUTE, "twice", lambda m: m.parameter(4, 3, 2, 2).permute(2, 0, 3, 1).permute(1, 3, 0, 2).cont())
    case(Op.TRANSPOSE, "as the result", lambda m: m.parameter(4, 3, 2).transpose())
    case(Op.TRANSPOSE, "twice", lambda m: m.parameter(4, 3).transpose().transpose().cont())


def _view_of_permuted(m: Maker) -> Tensor:
    x = m.parameter(5, 3, 4).permute(1, 2, 0, 3)
    return x.view((2, 3, 2), x.nb[1:], x.nb[0] + x.nb[1]).cont()


def _windows_of_transposed(m: Maker) -> Tensor:
    x = m.parameter(5, 6).transpose()
    return x.view((2, 4, 3), (x.nb[1], x.nb[0])).cont()


def repeat_cases() -> None:
    case(Op.REPEAT, "batches", lambda m: m.parameter(5, 2, 1, 2).repeat(5, 2, 3, 4))
    case(Op.REPEAT, "columns", lambda m: m.parameter(1, 3, 2).repeat(37, 3, 2))
    case(Op.REPEAT, "gaps", lambda m: _gapped(m, 17, 2).repeat(34, 4))
    forward(Op.REPEAT, "wide", lambda m: m.leaf(1061, 2).repeat(1061, 6, 3))
    forward(Op.REPEAT, "wide tiles", lambda m: m.leaf(53, 2).repeat(530, 6))
    forward(Op.REPEAT, "I32", lambda m: _integers(m, 3, 2).repeat(9, 4))
    for name, (large, small) in {
        "to one": ((7, 3, 2, 2), (1,)),
        "to columns": ((37, 3), (1, 3)),
        "to heads": ((5, 3, 2, 2), (1, 1, 2)),
        "of tails": ((19, 4), (19, 2)),
        "in every dimension": ((6, 4, 2, 2), (3, 2, 1, 2)),
    }.items():
        case(Op.REPEAT_BACK, name, lambda m, a=large, b=small: m.parameter(*a).repeat_back(*b), tolerance=SUMS)
    case(Op.REPEAT_BACK, "gaps", lambda m: _gapped(m, 17, 4).repeat_back(17), tolerance=SUMS)
    for name, (large, small) in {
        "many rows": ((331, 900), (331,)),
        "folded batches": ((2051, 3, 4), (2051, 1, 4)),
        "long rows": ((3001, 40), (1, 40)),
        "all": ((1061, 70), (1,)),
        "wide tiles": ((530, 40), (53, 2)),
    }.items():
        forward(Op.REPEAT_BACK, name, lambda m, a=large, b=small: m.leaf(*a).repeat_back(*b), SUMS)


def part_cases() -> None:
    for axis in range(4):
        forward(Op.CONCAT, f"long, axis {axis}", lambda m, axis=axis: _long_joined(m, axis))
        case(
            Op.CONCAT, f"gaps, axis {axis}", lambda m, axis=axis: _gapped(m, 5, 2, 2).concat(_gapped(m, 5, 2, 2), axis)
        )
    case(Op.CONCAT, "turned", lambda m: m.parameter(3, 5).transpose().concat(m.parameter(3, 5).transpose(), 1))
    for op, placed in ((Op.ACC, Tensor.acc), (Op.SET, Tensor.set_part)):
        for name, (whole, part, offset) in {
            "a row": ((19, 3), (19,), 76),
            "columns": ((19, 3), (7, 3), 20),
            "the inside of four dimensions": ((5, 3, 3, 3), (3, 2, 2, 2), 4 * (1 + 5 + 15 + 45)),
        }.items():

            def build(
                m: Maker,
                placed: Callable[..., Tensor] = placed,
                whole: tuple[int, ...] = whole,
                part: tuple[int, ...] = part,
                offset: int = offset,
            ) -> Tensor:
                x = m.parameter(*whole)
                return placed(x, m.parameter(*part), x.nb[1:], offset)

            case(op, name, build, tolerance=ELEMENTS)
        strides = (4 * 1061, 4 * 1061 * 9, 4 * 1061 * 9)
        forward(op, "long", lambda m, f=placed, nb=strides: f(m.leaf(1061, 9), m.leaf(500, 9), nb, 400), ELEMENTS)
    case(Op.SET, "permuted part", lambda m: m.parameter(6, 4).set_part(m.parameter(2, 3).transpose(), (24, 96, 96), 32))
    case(
        Op.ACC, "all", lambda m: m.parameter(5, 2, 3, 2).acc(m.parameter(5, 2, 3, 2), (20, 40, 120)), tolerance=ELEMENTS
    )
    case(Op.SET, "all", lambda m: m.leaf(5, 2, 3, 2).set_part(m.parameter(5, 2, 3, 2), (20, 40, 120)))
    case(Op.ACC, "in place twice", _added_twice, tolerance=ELEMENTS)
    case(Op.DIAG, "of one", lambda m: m.parameter(1, 1, 3).diag())
    case(Op.DIAG, "gaps", lambda m: _gapped(m, 4, 1, 2, 2).diag())
    forward(Op.DIAG, "large", lambda m: m.leaf(70, 1, 3).diag())
    for part in Triangle:
        forward(Op.TRI, f"{part.name}, large", lambda m, part=part: m.leaf(53, 53, 2, 2).tri(part))


def _long_joined(m: Maker, axis: int) -> Tensor:
    ne, other = [37, 5, 3, 2], [37, 5, 3, 2]
    other[axis] = 19
    return m.leaf(*ne).concat(m.leaf(*other), axis)


def _added_twice(m: Maker) -> Tensor:
    whole = m.parameter(6, 3).scale(2.0)
    once = whole.acc_inplace(m.parameter(4, 2), (24, 72, 72), 4)
    return once.acc_inplace(m.parameter(3, 2), (24, 72, 72), 32)


def moved_cases() -> None:
    case(Op.PAD, "before", lambda m: m.parameter(5, 3).pad(0, before=(3, 1)))
    case(Op.PAD, "each dimension", lambda m: m.parameter(3, 2, 2, 2).pad(1, 2, 0, 1, before=(2, 0, 1, 1)))
    case(Op.PAD, "gaps", lambda m: _gapped(m, 17, 2).pad(4, 1))
    forward(Op.PAD, "long", lambda m: m.leaf(1061, 5).pad(27, 2, before=(33,)))
    forward(Op.PAD, "circular, each dimension", lambda m: _turned(m).pad(1, 2, 1, 1, before=(2, 1), circular=True))
    case(Op.ROLL, "each dimension", lambda m: m.parameter(5, 3, 2, 2).roll(3, 1, -1, 1))
    case(Op.ROLL, "by a multiple", lambda m: m.parameter(5, 3).roll(10, -3))
    forward(Op.ROLL, "long", lambda m: m.leaf(1061, 5, 2).roll(-400, 2, 1))


def _turned(m: Maker) -> Tensor:
    return m.leaf(3, 4, 2, 2).permute(1, 0, 2, 3)


copy_cases()
view_cases()
repeat_cases()
part_cases()
moved_cases()
