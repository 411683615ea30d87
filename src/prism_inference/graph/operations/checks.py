"""What the operations' methods check with: refusals that name the operation and its tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import GraphError
from ..ops import Op

if TYPE_CHECKING:
    from ..tensor import Tensor

FLOATS = ("F32", "F16", "BF16")
CACHE_TYPES = ("F16", "F32", "Q8_0", "Q4_0")  # what keys and values may be kept in


def require(condition: bool, op: Op, problem: str, *tensors: Tensor | None, expected: object = None) -> None:
    """Refuse unless the condition holds.

    Raises:
        GraphError: names the operation, the problem and the tensors.
    """
    if not condition:
        found = ", ".join(repr(t) for t in tensors if t is not None)
        raise GraphError(problem, where=op.name, expected=expected, found=found)


def require_f32(op: Op, *tensors: Tensor | None) -> None:
    """Refuse tensors that are not F32."""
    wrong = [t for t in tensors if t is not None and t.type.name != "F32"]
    require(not wrong, op, "wrong type", *wrong, expected="F32")


def repeats(small: Tensor, large: Tensor) -> bool:
    """Whether the extents of `small` divide those of `large`."""
    return all(large.ne[d] % small.ne[d] == 0 for d in range(4))
