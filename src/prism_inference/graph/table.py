"""The op table: one row per operation with its NumPy twin and its derivative, or the reason for having none.

Shape rules are the methods in `operations/`; kernels are found by the plan (`plan/rules/`). Both are held against this
table by a test. Operations of the numbering that have no row are refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from . import gradients, twins
from .derivative import Rule
from .ops import VIEWS, Op
from .tensor import Tensor
from .twins.memory import Memory, Twin


@dataclass(frozen=True)
class Row:
    """What is known of an operation: its twin, and its rule of differentiation or why there is none."""

    twin: Twin
    gradient: Rule | str


def _nothing(memory: Memory, node: Tensor) -> None:
    """Views compute nothing."""


def _merged(*families: Mapping[Op, object]) -> None:
    """Fail where two families claim one operation."""
    seen: set[Op] = set()
    for family in families:
        assert not seen & family.keys(), seen & family.keys()
        seen |= family.keys()


_merged(*(module.TWINS for module in twins.FAMILIES))
_merged(*(module.GRADIENTS for module in gradients.FAMILIES))
_TWINS: dict[Op, Twin] = {op: twin for module in twins.FAMILIES for op, twin in module.TWINS.items()}
_TWINS |= dict.fromkeys(VIEWS, _nothing)
_GRADIENTS: dict[Op, Rule | str] = {op: rule for module in gradients.FAMILIES for op, rule in module.GRADIENTS.items()}

TABLE: dict[Op, Row] = {op: Row(_TWINS[op], _GRADIENTS.get(op, "no rule")) for op in sorted(_TWINS)}

_VISION = "an operation of image, sound or video models, which are not run here"
_OTHER = "an operation of an architecture that is not run here"
_FOREIGN = "a function of the caller's own: write it in NumPy between two graphs"

# Operations of the numbering that are refused, each with the reason.
REFUSED: dict[Op, str] = {
    Op.CONV_TRANSPOSE_1D: _VISION,
    Op.IM2COL_3D: _VISION,
    Op.COL2IM_1D: _VISION,
    Op.CONV_3D: _VISION,
    Op.CONV_2D_DW: _VISION,
    Op.CONV_TRANSPOSE_2D: _VISION,
    Op.PAD_REFLECT_1D: _VISION,
    Op.TIMESTEP_EMBEDDING: _VISION,
    Op.SSM_SCAN: _OTHER,
    Op.WIN_PART: _VISION,
    Op.WIN_UNPART: _VISION,
    Op.GET_REL_POS: _VISION,
    Op.ADD_REL_POS: _VISION,
    Op.RWKV_WKV6: _OTHER,
    Op.GATED_LINEAR_ATTN: _OTHER,
    Op.RWKV_WKV7: _OTHER,
    Op.SOLVE_TRI: _OTHER,
    Op.LIGHTNING_INDEXER: _OTHER,
    Op.DSV4_HC_COMB: _OTHER,
    Op.DSV4_HC_PRE: _OTHER,
    Op.DSV4_HC_POST: _OTHER,
    Op.MAP_CUSTOM1: _FOREIGN,
    Op.MAP_CUSTOM2: _FOREIGN,
    Op.MAP_CUSTOM3: _FOREIGN,
    Op.CUSTOM: _FOREIGN,
}

# Sources that no gradient flows to, by operation: indices, targets that are overwritten, shapes.
IGNORED: dict[Op, frozenset[int]] = {
    op: numbers for module in gradients.FAMILIES for op, numbers in module.IGNORED.items()
}

# Results that share the bytes of a source in which they overwrite something; no forward value is lost that their own
# derivatives read.
VIEW_LIKE = frozenset({Op.CPY, Op.SET_ROWS, Op.ACC})
