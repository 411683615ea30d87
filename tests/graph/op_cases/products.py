"""Cases of matrix products."""

from __future__ import annotations

from prism_inference.gguf import tensor_type
from prism_inference.graph import Op, Tensor
from prism_inference.plan.layouts import FLOATS, QUANTIZED
from tolerances import SUMS

from . import Maker, OpCase


def _picks(m: Maker) -> Tensor:
    """Two of four experts for each of three tokens."""
    return m.integers([[0, 3], [2, 0], [3, 1]])


def _by_type(kind: str) -> list[OpCase]:
    """Products with weights of one type; rows of K-quants are too long to be differentiated numerically."""
    k = 2 * max(tensor_type(kind).block, 32)
    return [
        OpCase(
            Op.MUL_MAT,
            kind,
            lambda m: m.weights(kind, k, 21).mul_mat(m.leaf(k, 19), exact=True),
            SUMS,
            smooth=False,
        ),
        OpCase(Op.OUT_PROD, kind, lambda m: m.weights(kind, k, 21).out_prod(m.leaf(19, 21)), SUMS, smooth=False),
        OpCase(
            Op.MUL_MAT_ID,
            kind,
            lambda m: m.weights(kind, k, 5, 4).mul_mat_id(m.leaf(k, 1, 3), _picks(m), exact=True),
            SUMS,
            smooth=False,
        ),
        OpCase(
            Op.OUT_PROD_ID,
            kind,
            lambda m: m.weights(kind, k, 5, 4).out_prod_id(m.leaf(5, 2, 3), _picks(m)),
            SUMS,
            smooth=False,
        ),
    ]


CASES = [
    *(case for kind in (*QUANTIZED, *FLOATS) for case in _by_type(kind)),
    OpCase(Op.MUL_MAT, "plain", lambda m: m.parameter(5, 4).mul_mat(m.parameter(5, 3), exact=True), SUMS),
    OpCase(Op.MUL_MAT, "rows 1", lambda m: m.parameter(33, 1).mul_mat(m.parameter(33, 1), exact=True), SUMS),
    OpCase(
        Op.MUL_MAT,
        "batches shared",
        lambda m: m.parameter(4, 3, 2, 1).mul_mat(m.parameter(4, 2, 4, 3), exact=True),
        SUMS,
    ),
    OpCase(
        Op.MUL_MAT,
        "second permuted",
        lambda m: m.parameter(4, 3).mul_mat(m.parameter(2, 4, 3).permute(1, 0, 2, 3), exact=True),
        SUMS,
    ),
    OpCase(Op.MUL_MAT, "quantized", lambda m: m.weights("Q4_1", 64, 3).mul_mat(m.parameter(64, 2), exact=True), SUMS),
    OpCase(
        Op.MUL_MAT_ID,
        "one input a token",
        lambda m: m.parameter(5, 3, 4).mul_mat_id(m.parameter(5, 1, 3), _picks(m), exact=True),
        SUMS,
    ),
    OpCase(
        Op.MUL_MAT_ID,
        "an input each",
        lambda m: m.parameter(5, 3, 4).mul_mat_id(m.parameter(5, 2, 3), _picks(m), exact=True),
        SUMS,
    ),
    OpCase(Op.OUT_PROD_ID, "", lambda m: m.parameter(5, 3, 4).out_prod_id(m.parameter(3, 2, 3), _picks(m)), SUMS),
    OpCase(
        Op.MUL_MAT_ID_BACK,
        "one input a token",
        lambda m: m.parameter(3, 2, 3).mul_mat_id_back(m.parameter(5, 1, 3), _picks(m), 4),
        SUMS,
    ),
    OpCase(
        Op.MUL_MAT_ID_BACK,
        "an input each",
        lambda m: m.parameter(3, 2, 3).mul_mat_id_back(m.parameter(5, 2, 3), _picks(m), 4),
        SUMS,
    ),
    OpCase(Op.OUT_PROD, "plain", lambda m: m.parameter(5, 4).out_prod(m.parameter(3, 4)), SUMS),
    OpCase(Op.OUT_PROD, "transposed", lambda m: m.parameter(5, 4).out_prod(m.parameter(4, 3).transpose()), SUMS),
    OpCase(Op.OUT_PROD, "batches shared", lambda m: m.parameter(5, 4, 2).out_prod(m.parameter(3, 4, 4)), SUMS),
]
