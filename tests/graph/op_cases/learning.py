"""Cases of losses and of optimizer steps."""

from __future__ import annotations

from prism_inference.graph import Op, Tensor
from tolerances import ELEMENTS, SUMS

from . import Maker, OpCase


def _distributions(m: Maker, *ne: int) -> Tensor:
    """Labels that add up to 1 in each row."""
    raw = m.rng.uniform(0.05, 1.0, tuple(reversed(ne)))
    return m.values(raw / raw.sum(-1, keepdims=True))


def _tokens(m: Maker, vocabulary: int, rows: int) -> Tensor:
    """Labels of which some count nothing."""
    labels = m.rng.integers(0, vocabulary, rows)
    labels[1::3] = -1
    return m.integers(labels)


def _cross_entropy(m: Maker, *ne: int) -> Tensor:
    return m.parameter(*ne, low=-3, high=3).cross_entropy_loss(_distributions(m, *ne).mark_parameter())


def _cross_entropy_back(m: Maker, *ne: int) -> Tensor:
    logits, labels = m.parameter(*ne, low=-3, high=3), _distributions(m, *ne).mark_parameter()
    return m.parameter(1, low=0.5).cross_entropy_loss_back(logits, labels)


def _strided_cross_entropy(m: Maker) -> Tensor:
    return m.parameter(3, 5).transpose().cross_entropy_loss(m.parameter(3, 5, low=0.1).transpose())


def _adamw(m: Maker, *ne: int, factor: bool) -> Tensor:
    numbers = m.values([1e-2, 0.9, 0.999, 1e-8, 0.1, 1 / (1 - 0.9**3), 1 / (1 - 0.999**3)])
    moments = m.leaf(*ne), m.leaf(*ne, low=0.0)
    return m.leaf(*ne).opt_step_adamw(m.leaf(*ne), *moments, numbers, m.values([0.3]) if factor else None)


def _sgd(m: Maker, *ne: int, factor: bool) -> Tensor:
    return m.leaf(*ne).opt_step_sgd(m.leaf(*ne), m.values([1e-2, 0.1]), m.values([0.3]) if factor else None)


CASES: list[OpCase] = [
    *(
        OpCase(Op.CROSS_ENTROPY_LOSS, " ".join(map(str, ne)), lambda m, ne=ne: _cross_entropy(m, *ne), SUMS)
        for ne in ((5, 3), (19, 1), (4, 2, 2, 2))
    ),
    OpCase(Op.CROSS_ENTROPY_LOSS, "strided", _strided_cross_entropy, SUMS),
    OpCase(Op.CROSS_ENTROPY_LOSS, "long", lambda m: _cross_entropy(m, 3001, 7), SUMS, smooth=False),
    *(
        OpCase(Op.CROSS_ENTROPY_LOSS_BACK, " ".join(map(str, ne)), lambda m, ne=ne: _cross_entropy_back(m, *ne), SUMS)
        for ne in ((5, 3), (19, 1), (4, 2, 2, 2))
    ),
    OpCase(Op.CROSS_ENTROPY_LOSS_BACK, "long", lambda m: _cross_entropy_back(m, 3001, 7), SUMS, smooth=False),
    *(
        OpCase(
            Op.TOKEN_LOSS,
            f"{n} {rows}",
            lambda m, n=n, rows=rows: m.parameter(n, rows, low=-3, high=3).token_loss(_tokens(m, n, rows)),
            SUMS,
        )
        for n, rows in ((7, 4), (33, 3), (64, 1))
    ),
    OpCase(
        Op.TOKEN_LOSS, "strided", lambda m: m.parameter(4, 7).transpose().token_loss(m.integers([3, -1, 6, 0])), SUMS
    ),
    OpCase(
        Op.TOKEN_LOSS,
        "long",
        lambda m: m.leaf(5003, 9, low=-30, high=30).token_loss(_tokens(m, 5003, 9)),
        SUMS,
        smooth=False,
    ),
    *(
        OpCase(
            Op.TOKEN_LOSS_BACK,
            f"{n} {rows}",
            lambda m, n=n, rows=rows: m.values([0.7]).token_loss_back(
                m.leaf(n, rows, low=-6, high=6), _tokens(m, n, rows)
            ),
            SUMS,
            smooth=False,
        )
        for n, rows in ((7, 4), (64, 3), (5003, 9))
    ),
    *(
        OpCase(
            Op.OPT_STEP_ADAMW,
            f"{' '.join(map(str, ne))}{', factor' if factor else ''}",
            lambda m, ne=ne, factor=factor: _adamw(m, *ne, factor=factor),
            ELEMENTS,
            smooth=False,
        )
        for ne in ((1,), (19, 3), (1001, 5, 2))
        for factor in (False, True)
    ),
    *(
        OpCase(
            Op.OPT_STEP_SGD,
            f"{' '.join(map(str, ne))}{', factor' if factor else ''}",
            lambda m, ne=ne, factor=factor: _sgd(m, *ne, factor=factor),
            ELEMENTS,
            smooth=False,
        )
        for ne in ((1,), (19, 3), (1001, 5, 2))
        for factor in (False, True)
    ),
    OpCase(Op.SUM_SQUARES, "", lambda m: m.parameter(7, 3, 2).sum_squares(), SUMS),
    OpCase(Op.SUM_SQUARES, "permuted", lambda m: m.parameter(3, 5).transpose().sum_squares(), SUMS),
    OpCase(Op.SUM_SQUARES, "several parts", lambda m: m.leaf(700, 811).sum_squares(), SUMS, smooth=False),
]
