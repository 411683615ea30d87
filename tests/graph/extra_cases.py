"""Cases beside `op_cases` for the comparisons with libggml and torch: what only they need, and a whole network."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from op_cases import Maker, OpCase

from prism_inference.graph import Op, RopeMode, RopeParameters, Tensor
from prism_inference.graph.operations.elements import ROUNDED as ROUND_TYPES
from tolerances import ATTENTION, ELEMENTS, SUMS, Tolerance

ROUNDED = Tolerance(5e-4, "one side rounds the activations otherwise than the other, or not at all")
WIDTH, HEADS, TOKENS, VOCABULARY, INNER = 8, 2, 5, 7, 6


def transformer(m: Maker) -> Tensor:
    """The cross-entropy of a layer of a language model: every parameter takes part, many values are read twice."""
    ids, labels = m.integers([3, 1, 0, 1, 6]), m.values(np.eye(VOCABULARY)[[1, 0, 1, 6, 2]])
    x = m.parameter(WIDTH, VOCABULARY).get_rows(ids)
    x = x.add(_attention(m, _normed(m, x)))
    y = _normed(m, x)
    gate, up = (m.parameter(WIDTH, INNER).mul_mat(y) for _ in range(2))
    x = x.add(m.parameter(INNER, WIDTH).mul_mat(gate.swiglu(up)))
    return m.parameter(WIDTH, VOCABULARY).mul_mat(_normed(m, x)).cross_entropy_loss(labels)


def _normed(m: Maker, x: Tensor) -> Tensor:
    return x.rms_norm(1e-5).mul(m.parameter(WIDTH, low=0.5, high=1.5))


def _attention(m: Maker, x: Tensor) -> Tensor:
    size = WIDTH // HEADS
    places, turn = m.integers(np.arange(TOKENS)), RopeParameters(size, RopeMode.NEOX)
    mask = m.values(np.triu(np.full((TOKENS, TOKENS), -np.inf), 1))
    q, k, v = (m.parameter(WIDTH, WIDTH).mul_mat(x).reshape(size, HEADS, TOKENS) for _ in range(3))
    q, k = (t.rope(places, turn).permute(0, 2, 1, 3) for t in (q, k))
    p = k.mul_mat(q).soft_max(mask, size**-0.5)
    y = v.permute(1, 2, 0, 3).cont().mul_mat(p).permute(0, 2, 1, 3).cont()
    return m.parameter(WIDTH, WIDTH).mul_mat(y.reshape(WIDTH, TOKENS))


def _by_sections(m: Maker) -> tuple[Tensor, Tensor, RopeParameters]:
    """Heads whose eight pairs all belong to a section: ggml and the models agree on these."""
    places = m.integers(m.rng.integers(0, 50, (4, 3)))
    return m.parameter(18, 2, 3), places, RopeParameters(16, RopeMode.NEOX, 1000.0, 0.5, sections=(3, 3, 2))


# Weight types before which activations are rounded to blocks of 32 in ggml too, and of 256.
QUANTIZED = ("Q1_0", "Q2_0", "Q4_0", "Q8_0", "Q4_K", "Q6_K", "TQ2_0")


def _product(kind: str, picked: bool) -> Callable[[Maker], Tensor]:
    def build(m: Maker) -> Tensor:
        if picked:
            return m.weights(kind, 256, 5, 4).mul_mat_id(m.leaf(256, 1, 3), m.integers([[0, 3], [2, 0], [3, 1]]))
        return m.weights(kind, 512, 5).mul_mat(m.leaf(512, 3))

    return build


EXTRA: list[OpCase] = [
    *(
        OpCase(op, f"{kind} rounded", _product(kind, op is Op.MUL_MAT_ID), ROUNDED, smooth=False)
        for op in (Op.MUL_MAT, Op.MUL_MAT_ID)
        for kind in QUANTIZED
    ),
    OpCase(Op.ROPE, "whole sections", lambda m: Tensor.rope(*_by_sections(m)), SUMS),
    OpCase(Op.ROPE_BACK, "whole sections", lambda m: Tensor.rope_back(*_by_sections(m)), SUMS),
    # Rounded straight through: differences of values would show no derivative.
    *(
        OpCase(Op.ROUND_TO, f"{kind} trained", lambda m, kind=kind: m.parameter(256, 2).round_to(kind).sqr())
        for kind in ROUND_TYPES
    ),
    OpCase(Op.ADD1, "to what is differentiated", lambda m: m.parameter(5, 3).add1(m.leaf(1)), ELEMENTS),
    OpCase(Op.CROSS_ENTROPY_LOSS, "of a layer of a transformer", transformer, ATTENTION),
]
