"""Cases of what concerns whole rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from prism_inference.graph import Op, Tensor
from prism_inference.graph.ops import Order
from tolerances import ATTENTION, ELEMENTS, EXACT, FUNCTIONS, SUMS, Tolerance

from . import Maker, OpCase

Build = Callable[[Maker], Tensor]
Function = Callable[[Tensor], Tensor]

CASES: list[OpCase] = []


def case(op: Op, name: str, build: Build, tolerance: Tolerance = ELEMENTS, smooth: bool = True) -> None:
    """Record a case."""
    CASES.append(OpCase(op, name, build, tolerance, smooth))


def gapped(m: Maker, *ne: int, **given: float) -> Tensor:
    """A parameter's view of an extent two larger in its first dimension: gaps between the rows, and a start inside."""
    whole = m.parameter(ne[0] + 2, *ne[1:], **given)
    return whole.view(ne, whole.nb[1:], 4)


def transposed(m: Maker, *ne: int, **given: float) -> Tensor:
    """A parameter with its first two dimensions exchanged: values of a row lie apart."""
    return m.parameter(ne[1], ne[0], *ne[2:], **given).transpose()


# --- Every operation that makes of each row something of its own -------------------------------------------


def row_cases(op: Op, function: Function, tolerance: Tolerance = ELEMENTS, smooth: bool = True) -> None:
    """Shapes that a function of rows must take, whatever it does."""
    shapes: dict[str, Build] = {
        "one vector": lambda m: m.parameter(16, 3),
        "tail": lambda m: m.parameter(19, 3),
        "short": lambda m: m.parameter(5, 2, 3, 2),
        "gaps": lambda m: gapped(m, 17, 3),
        "transposed": lambda m: transposed(m, 7, 5),
        "permuted": lambda m: m.parameter(4, 3, 5, 2).permute(2, 0, 3, 1),
    }
    for name, operand in shapes.items():
        case(op, name, lambda m, operand=operand: function(operand(m)), tolerance, smooth)  # type: ignore[misc]
    case(op, "long", lambda m: function(m.leaf(1061, 9)), tolerance, smooth=False)
    case(op, "many", lambda m: function(m.leaf(33, 7, 5, 3)), tolerance, smooth=False)


EPS = 1e-5
row_cases(Op.RMS_NORM, lambda x: x.rms_norm(EPS))
row_cases(Op.NORM, lambda x: x.norm(EPS))
row_cases(Op.L2_NORM, lambda x: x.l2_norm(EPS))
row_cases(Op.SOFT_MAX, lambda x: x.soft_max(), FUNCTIONS)
row_cases(Op.SUM_ROWS, lambda x: x.sum_rows())
row_cases(Op.MEAN, lambda x: x.mean())
row_cases(Op.CUMSUM, lambda x: x.cumsum())
row_cases(Op.ARGSORT, lambda x: x.argsort(), EXACT, smooth=False)
row_cases(Op.TOP_K, lambda x: x.top_k(3), EXACT, smooth=False)
row_cases(Op.DIAG_MASK_ZERO, lambda x: x.diag_mask_zero(1), EXACT)
row_cases(Op.DIAG_MASK_INF, lambda x: x.diag_mask_inf(1), EXACT, smooth=False)


# --- Norms ---------------------------------------------------------------------------------------------------


def norm_cases() -> None:
    case(Op.RMS_NORM, "one value", lambda m: m.parameter(1, 4).rms_norm(0.5))
    case(Op.RMS_NORM, "eps alone", lambda m: m.parameter(21, 2, low=-1e-4, high=1e-4).rms_norm(0.5))
    case(Op.RMS_NORM, "with a gain", lambda m: m.parameter(19, 2).rms_norm(EPS).mul(m.parameter(19)))
    case(Op.RMS_NORM, "gains of heads", lambda m: transposed(m, 5, 3, 2).rms_norm(EPS).mul(m.parameter(5, 1, 2)))
    case(Op.NORM, "far from 0", lambda m: m.leaf(331, 3, low=1000.0, high=1001.0).norm(EPS), smooth=False)
    case(Op.NORM, "constant rows", lambda m: m.values(np.full((2, 21), 1.5)).norm(EPS), smooth=False)
    case(Op.L2_NORM, "below eps", lambda m: m.parameter(19, 2).l2_norm(100.0))
    case(Op.L2_NORM, "zeros", lambda m: m.values(np.zeros((2, 21))).l2_norm(EPS), smooth=False)
    groups = {
        "one": ((3, 2, 4, 2), 1),
        "equal": ((5, 2, 6), 3),
        "each channel": ((4, 3, 3), 3),
        "the last smaller": ((3, 2, 5), 2),
        "fewer than asked": ((3, 2, 5, 2), 4),
    }
    for name, (ne, count) in groups.items():
        case(Op.GROUP_NORM, name, lambda m, ne=ne, count=count: m.parameter(*ne).group_norm(count, EPS))  # type: ignore[misc]
    case(Op.GROUP_NORM, "permuted", lambda m: m.parameter(3, 4, 2, 2).permute(2, 0, 1, 3).group_norm(2, EPS))
    case(Op.GROUP_NORM, "large", lambda m: m.leaf(19, 17, 8, 2).group_norm(4, EPS), smooth=False)


norm_cases()


# --- The way back through norms and soft-max ---------------------------------------------------------------

Back = Callable[[Tensor, Tensor], Tensor]


def back_cases(op: Op, function: Back, second: bool) -> None:
    """Functions of a gradient and of a forward value; by the latter some have no derivative."""

    def value(m: Maker, *ne: int) -> Tensor:
        return m.parameter(*ne) if second else m.leaf(*ne)

    case(op, "tail", lambda m: function(m.parameter(19, 3), value(m, 19, 3)))
    case(op, "short", lambda m: function(m.parameter(3, 2, 3, 2), value(m, 3, 2, 3, 2)))
    case(op, "transposed", lambda m: function(transposed(m, 7, 4), value(m, 4, 7).transpose()))
    case(op, "gaps", lambda m: function(gapped(m, 17, 3), value(m, 17, 3)))
    case(op, "long", lambda m: function(m.leaf(1061, 9), m.leaf(1061, 9)), smooth=False)
    case(op, "many", lambda m: function(m.leaf(33, 7, 5, 3), m.leaf(33, 7, 5, 3)), smooth=False)


back_cases(Op.RMS_NORM_BACK, lambda g, x: g.rms_norm_back(x, EPS), second=True)
back_cases(Op.NORM_BACK, lambda g, x: g.norm_back(x, EPS), second=False)
back_cases(Op.L2_NORM_BACK, lambda g, x: g.l2_norm_back(x, EPS), second=False)
back_cases(Op.SOFT_MAX_BACK, lambda g, y: g.soft_max_back(y, 0.7), second=True)
case(Op.L2_NORM_BACK, "below eps", lambda m: m.parameter(19, 2).l2_norm_back(m.leaf(19, 2), 100.0))
case(
    Op.NORM_BACK,
    "far from 0",
    lambda m: m.leaf(331, 3).norm_back(m.leaf(331, 3, low=1000.0, high=1001.0), EPS),
    SUMS,
    smooth=False,
)


# --- Soft-max with a mask, slopes and sinks ------------------------------------------------------------------


def closed(m: Maker, *ne: int) -> Tensor:
    """A mask that closes a third of the places, and no row wholly."""
    values = m.rng.uniform(-1.0, 1.0, tuple(reversed(ne)))
    values[..., 1:][m.rng.uniform(size=values[..., 1:].shape) < 1 / 3] = -np.inf
    return m.values(values)


def half(tensor: Tensor) -> Tensor:
    """The same values as an F16 leaf."""
    return tensor.context.tensor("F16", tensor.ne).set(tensor.numpy().reshape(tuple(reversed(tensor.ne))))


def soft_max_cases() -> None:
    def soft(name: str, build: Build, smooth: bool = True) -> None:
        case(Op.SOFT_MAX, name, build, ATTENTION, smooth)

    soft("scale", lambda m: m.parameter(19, 3).soft_max(scale=0.3))
    soft("mask", lambda m: m.parameter(19, 3).soft_max(m.parameter(19, 3)))
    soft("mask of more rows", lambda m: m.parameter(19, 2).soft_max(m.parameter(19, 3), 0.5))
    soft("closed", lambda m: m.parameter(19, 3).soft_max(closed(m, 19, 3), 2.0))
    soft("mask of heads", lambda m: m.parameter(5, 2, 4).soft_max(m.parameter(5, 2, 2)))
    soft("mask of batches", lambda m: m.parameter(5, 2, 2, 4).soft_max(m.parameter(5, 2, 1, 2)))
    soft("F16", lambda m: m.parameter(19, 3).soft_max(half(closed(m, 19, 3)), 0.5))
    soft("F16 of batches", lambda m: m.parameter(5, 2, 2, 2).soft_max(half(closed(m, 5, 3, 2, 1)), 0.5))
    for heads in (1, 2, 3, 4, 6):
        soft(f"slopes of {heads}", lambda m, n=heads: m.parameter(5, 2, n).soft_max(m.parameter(5, 2), 0.5, 8.0))  # type: ignore[misc]
    soft("slopes of 12", lambda m: m.leaf(40, 3, 12, 2).soft_max(closed(m, 40, 3), 0.5, 8.0), smooth=False)
    soft("sinks", lambda m: m.parameter(5, 3, 2, 2).soft_max(sinks=m.parameter(2, low=0.0, high=2.0)))
    soft("a large sink", lambda m: m.parameter(5, 3, 2).soft_max(sinks=m.parameter(2, low=4.0, high=6.0)))
    soft(
        "all of it",
        lambda m: transposed(m, 5, 2, 3, 2).soft_max(closed(m, 5, 4, 1, 2), 0.5, 4.0, m.parameter(3)),
    )
    soft("F16, long", lambda m: m.leaf(1061, 4, 2).soft_max(half(closed(m, 1061, 4)), 0.5, 0.0, m.leaf(2)), False)
    soft("far apart", lambda m: m.leaf(333, 3, low=-300.0, high=300.0).soft_max(), smooth=False)
    soft(
        "closed but for a sink",
        lambda m: m.leaf(21, 2).soft_max(m.values(np.full((2, 21), -np.inf)), 1.0, 0.0, m.leaf(1)),
        False,
    )


soft_max_cases()

case(Op.DIAG_MASK_INF, "before a soft-max", lambda m: m.parameter(6, 5, 2).diag_mask_inf(0).soft_max(), FUNCTIONS)
case(Op.DIAG_MASK_INF, "past", lambda m: m.leaf(40, 20, 2, 2).diag_mask_inf(13), EXACT, smooth=False)
case(Op.DIAG_MASK_ZERO, "past", lambda m: m.leaf(40, 20, 2, 2).diag_mask_zero(13), EXACT, smooth=False)


# --- Sums, counts, order ---------------------------------------------------------------------------------------


def total_cases() -> None:
    case(Op.SUM, "one", lambda m: m.parameter(1).sum())
    case(Op.SUM, "tail", lambda m: m.parameter(19, 3).sum())
    case(Op.SUM, "gaps", lambda m: gapped(m, 7, 2, 3).sum())
    case(Op.SUM, "permuted", lambda m: m.parameter(3, 5, 2, 2).permute(3, 1, 0, 2).sum())
    case(Op.SUM, "several parts", lambda m: m.leaf(1030, 170, 3).sum(), smooth=False)
    case(Op.SUM, "of a square", lambda m: m.parameter(5, 3).sqr().sum())
    case(Op.MEAN, "of one", lambda m: m.parameter(1, 5).mean())
    for name, shape in {"few": (7, 3), "many": (1030, 3)}.items():
        build: Build = lambda m, s=shape: _integers(m, s).count_equal(_integers(m, s))  # type: ignore[misc]  # noqa: E731
        case(Op.COUNT_EQUAL, name, build, EXACT, smooth=False)
    case(
        Op.COUNT_EQUAL,
        "permuted",
        lambda m: _integers(m, (5, 4)).transpose().count_equal(_integers(m, (4, 5))),
        EXACT,
        smooth=False,
    )


def _integers(m: Maker, ne: tuple[int, ...], high: int = 3) -> Tensor:
    return m.integers(m.rng.integers(0, high, tuple(reversed(ne))))


total_cases()


def order_cases() -> None:
    def order(op: Op, name: str, build: Build) -> None:
        case(op, name, build, EXACT, smooth=False)

    for ne in ((1, 3), (5, 1), (19, 3), (1061, 4)):
        order(Op.ARGMAX, f"{ne}", lambda m, ne=ne: m.leaf(*ne).argmax())  # type: ignore[misc]
    order(Op.ARGMAX, "transposed", lambda m: m.leaf(5, 40).transpose().argmax())
    order(Op.ARGMAX, "all below 0", lambda m: m.leaf(37, 3, low=-9.0, high=-1.0).argmax())
    order(Op.ARGSORT, "descending", lambda m: m.leaf(37, 3).argsort(Order.DESC))
    order(Op.ARGSORT, "of one", lambda m: m.leaf(1, 3).argsort())
    order(Op.ARGSORT, "sorted before", lambda m: m.values(np.arange(500.0)[None]).argsort())
    order(Op.ARGSORT, "reversed before", lambda m: m.values(-np.arange(500.0)[None]).argsort(Order.ASC))
    order(Op.ARGSORT, "with infinities", lambda m: m.values([[3.0, np.inf, -1.0, -np.inf, 0.5]]).argsort(Order.DESC))
    order(Op.TOP_K, "the largest", lambda m: m.leaf(37, 3).top_k(1))
    order(Op.TOP_K, "all", lambda m: m.leaf(37, 3).top_k(37))
    order(Op.TOP_K, "many of many", lambda m: m.leaf(3001, 2).top_k(1000))
    order(Op.TOP_K, "lowest of all", lambda m: m.values([[-np.inf, -3.4028235e38, 1.0, 0.0]]).top_k(4))


order_cases()


# --- Rows by an index ------------------------------------------------------------------------------------------


def get_rows_cases() -> None:
    case(Op.GET_ROWS, "repeated", lambda m: m.parameter(19, 4).get_rows(m.integers([3, 0, 3, 3, 1])), EXACT)
    case(
        Op.GET_ROWS,
        "batches",
        lambda m: m.parameter(5, 3, 2, 3).get_rows(m.integers(m.rng.integers(0, 3, (3, 2, 4)))),
        EXACT,
    )
    case(Op.GET_ROWS, "transposed", lambda m: transposed(m, 5, 4).get_rows(m.integers([3, 0, 0])), EXACT)
    case(Op.GET_ROWS, "gaps", lambda m: gapped(m, 5, 4).get_rows(m.integers([3, 0, 0])), EXACT)
    case(Op.GET_ROWS, "one value", lambda m: m.parameter(1, 40).get_rows(m.integers([39, 0, 7, 7])), EXACT)
    case(
        Op.GET_ROWS,
        "index with gaps",
        lambda m: m.parameter(5, 4).get_rows(_integers(m, (3, 1, 2), 4).view((2, 1, 1), (12, 12), 4)),
        EXACT,
    )
    for kind in ("F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_1", "Q4_K", "Q6_K", "TQ2_0", "Q1_0"):
        width = 256 if kind not in ("F16", "BF16") else 37
        build: Build = lambda m, kind=kind, n=width: m.weights(kind, n, 6).get_rows(m.integers([5, 0, 5]))  # type: ignore[misc]  # noqa: E731
        case(Op.GET_ROWS, kind, build, EXACT, smooth=False)


def get_rows_back_cases() -> None:
    def back(name: str, build: Build, smooth: bool = True) -> None:
        case(Op.GET_ROWS_BACK, name, build, ELEMENTS, smooth)

    back("repeated", lambda m: m.parameter(19, 5).get_rows_back(m.integers([3, 0, 3, 3, 1]), m.leaf(19, 4)))
    back("gaps", lambda m: gapped(m, 5, 4).get_rows_back(m.integers([2, 0, 2, 2]), m.leaf(5, 3)))
    back("transposed", lambda m: transposed(m, 5, 4).get_rows_back(m.integers([2, 0, 2, 2]), m.leaf(5, 3)))
    back("one value", lambda m: m.parameter(1, 9).get_rows_back(_integers(m, (9,), 6), m.leaf(1, 6)))
    back(
        "batches",
        lambda m: m.parameter(5, 4, 2, 2).get_rows_back(_integers(m, (4, 2, 2)), m.leaf(5, 3, 2, 2)),
    )
    back("wide", lambda m: m.leaf(333, 70).get_rows_back(_integers(m, (70,), 40), m.leaf(333, 50)), smooth=False)
    back("one row", lambda m: m.leaf(40, 300).get_rows_back(m.integers(np.zeros(300)), m.leaf(40, 3)), smooth=False)


def set_rows_cases() -> None:
    def into(name: str, build: Build, smooth: bool = True, tolerance: Tolerance = EXACT) -> None:
        case(Op.SET_ROWS, name, build, tolerance, smooth)

    into("F32", lambda m: m.parameter(19, 4).dup().set_rows(m.parameter(19, 2), m.integers([3, 1])))
    into("into a leaf", lambda m: m.leaf(19, 4).set_rows(m.parameter(19, 2), m.integers([3, 1])))
    into("transposed rows", lambda m: m.parameter(5, 4).dup().set_rows(transposed(m, 5, 2), m.integers([3, 1])))
    into(
        "an index each",
        lambda m: m.parameter(5, 4, 2, 2).dup().set_rows(m.parameter(5, 1, 2, 2), _integers(m, (1, 2, 2), 4)),
    )
    into(
        "an index for all",
        lambda m: m.parameter(5, 4, 2, 2).dup().set_rows(m.parameter(5, 2, 2, 2), m.integers([3, 1])),
    )
    into(
        "an index for some",
        lambda m: m.leaf(5, 4, 2, 4).set_rows(m.leaf(5, 1, 2, 4), _integers(m, (1, 1, 2), 4)),
        smooth=False,
    )
    into("F16", lambda m: m.weights("F16", 37, 4).set_rows(m.leaf(37, 2), m.integers([3, 1])), smooth=False)
    into("Q8_0", lambda m: m.weights("Q8_0", 64, 4).set_rows(m.leaf(64, 2), m.integers([3, 1])), smooth=False)
    into("Q4_0", lambda m: m.weights("Q4_0", 64, 4).set_rows(m.leaf(64, 2), m.integers([3, 1])), smooth=False)


get_rows_cases()
get_rows_back_cases()
set_rows_cases()
