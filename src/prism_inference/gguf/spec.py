"""The numbers of the GGUF format: magic, versions, value types, tensor types. The only home of bare format numbers.

Knows the size of a tensor type's blocks, not what is in them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ..errors import UnsupportedError

MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)  # 1 has 32-bit counts; 2 and 3 share the layout
ALIGNMENT_KEY: Final = "general.alignment"
DEFAULT_ALIGNMENT: Final = 32


class ValueType(IntEnum):
    """Types of metadata values."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


# struct and NumPy codes of the types with a fixed size; a bool is one byte, 0 or 1.
SCALAR_CODES: Final[dict[ValueType, str]] = {
    ValueType.UINT8: "B",
    ValueType.INT8: "b",
    ValueType.UINT16: "H",
    ValueType.INT16: "h",
    ValueType.UINT32: "I",
    ValueType.INT32: "i",
    ValueType.FLOAT32: "f",
    ValueType.BOOL: "B",
    ValueType.UINT64: "Q",
    ValueType.INT64: "q",
    ValueType.FLOAT64: "d",
}


@dataclass(frozen=True)
class TensorType:
    """A tensor type: `block` elements take `nbytes` bytes."""

    id: int
    name: str
    block: int
    nbytes: int

    def size(self, elements: int) -> int:
        """Return the bytes of a whole number of blocks."""
        return elements // self.block * self.nbytes


_ROWS: Final = (
    TensorType(0, "F32", 1, 4),
    TensorType(1, "F16", 1, 2),
    TensorType(2, "Q4_0", 32, 18),
    TensorType(3, "Q4_1", 32, 20),
    TensorType(6, "Q5_0", 32, 22),
    TensorType(7, "Q5_1", 32, 24),
    TensorType(8, "Q8_0", 32, 34),
    TensorType(9, "Q8_1", 32, 36),
    TensorType(10, "Q2_K", 256, 84),
    TensorType(11, "Q3_K", 256, 110),
    TensorType(12, "Q4_K", 256, 144),
    TensorType(13, "Q5_K", 256, 176),
    TensorType(14, "Q6_K", 256, 210),
    TensorType(15, "Q8_K", 256, 292),
    TensorType(16, "IQ2_XXS", 256, 66),
    TensorType(17, "IQ2_XS", 256, 74),
    TensorType(18, "IQ3_XXS", 256, 98),
    TensorType(19, "IQ1_S", 256, 50),
    TensorType(20, "IQ4_NL", 32, 18),
    TensorType(21, "IQ3_S", 256, 110),
    TensorType(22, "IQ2_S", 256, 82),
    TensorType(23, "IQ4_XS", 256, 136),
    TensorType(24, "I8", 1, 1),
    TensorType(25, "I16", 1, 2),
    TensorType(26, "I32", 1, 4),
    TensorType(27, "I64", 1, 8),
    TensorType(28, "F64", 1, 8),
    TensorType(29, "IQ1_M", 256, 56),
    TensorType(30, "BF16", 1, 2),
    TensorType(34, "TQ1_0", 256, 54),
    TensorType(35, "TQ2_0", 256, 66),
    TensorType(39, "MXFP4", 32, 17),
    TensorType(40, "NVFP4", 64, 36),
    TensorType(41, "Q1_0", 128, 18),
    TensorType(42, "Q2_0", 64, 18),
    TensorType(42, "Q2_0_G128", 128, 34),  # what Prism's first ternary files hold under the same number
    TensorType(142, "PQ2_0", 128, 34),
    TensorType(143, "PTQ1_0", 128, 28),
)
TENSOR_TYPES: Final[dict[str, TensorType]] = {row.name: row for row in _ROWS}
LEGACY_Q2_0: Final = TENSOR_TYPES["Q2_0_G128"]
_BY_ID: Final[dict[int, TensorType]] = {row.id: row for row in _ROWS if row is not LEGACY_Q2_0}

# Numbers under which other programs write types of their own, so that a wrong size may mean one of those.
CONTESTED_TYPES: Final = frozenset({41, 42, 142, 143})

# Numbers that once stood for a type; files that use them are older than the types that replaced them.
REMOVED_TYPES: Final[dict[int, str]] = {
    4: "Q4_2",
    5: "Q4_3",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    36: "IQ4_NL_4_4",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}


def tensor_type(kind: str | int | TensorType, where: str | None = None) -> TensorType:
    """Return a type's row by name (any case) or number; 42 is the mainline Q2_0. `where` is the address for errors.

    Raises:
        UnsupportedError: there is no such type.
    """
    if isinstance(kind, TensorType):
        return kind
    row = _BY_ID.get(kind) if isinstance(kind, int) else TENSOR_TYPES.get(kind.upper())
    if row is None:
        removed = REMOVED_TYPES.get(kind) if isinstance(kind, int) else None
        raise UnsupportedError(
            "unknown tensor type" if removed is None else f"tensor type {removed} was removed from the format",
            where=where,
            expected=", ".join(TENSOR_TYPES),
            found=repr(kind),
            hint=None if removed is None else "Convert the original model again with current tools.",
        )
    return row
