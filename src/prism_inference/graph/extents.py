"""Extents and strides of tensors; extents that vary from run to run. Knows no tensor."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import GraphError
from ..gguf import TensorType


class Dim(int):
    """An extent that may differ from run to run, up to the value it was built with.

    A plan is laid out for that largest value; `bind` sets the actual one by name. Arithmetic gives plain integers, so
    a Dim must reach a tensor's extents unchanged.
    """

    name: str

    def __new__(cls, largest: int, name: str) -> Dim:
        value = super().__new__(cls, largest)
        value.name = name
        return value

    def __repr__(self) -> str:
        return f"{self.name}≤{int(self)}"


Extents = tuple[int, int, int, int]


def full_extents(ne: Sequence[int]) -> Extents:
    """Return four extents: those given, then ones.

    Raises:
        GraphError: not one to four extents of at least one.
    """
    if not 1 <= len(ne) <= 4 or any(extent < 1 for extent in ne):
        raise GraphError("wrong extents", expected="one to four numbers of at least 1", found=tuple(ne))
    padded = (*ne, *(1,) * (4 - len(ne)))
    return padded[0], padded[1], padded[2], padded[3]


def contiguous_strides(kind: TensorType, ne: Extents) -> Extents:
    """Return the byte strides of a contiguous tensor (of whole blocks, for quantized types)."""
    nb1 = kind.nbytes * (int(ne[0]) // kind.block)
    nb2 = nb1 * int(ne[1])
    return kind.nbytes, nb1, nb2, nb2 * int(ne[2])
