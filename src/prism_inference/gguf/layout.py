"""The tensor table of a file: extents, types and offsets, and whether they fit each other and the file.

Offsets must be exactly those of a file without gaps, which rules out overlaps and tells the two layouts apart that
share type number 42. Knows sizes, not what tensors mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import FormatError, LimitError, UnsupportedError
from ..limits import GGUF_MAX_DIMS, GGUF_MAX_ELEMENTS, GGUF_MAX_EXTENT, GGUF_MAX_NAME_BYTES
from .cursor import TRUNCATED, Cursor
from .metadata import Metadata
from .spec import CONTESTED_TYPES, LEGACY_Q2_0, TensorType, tensor_type
from .values import shown

_PRODUCER_KEYS = ("general.architecture", "general.name", "general.quantized_by", "general.author", "general.file_type")


@dataclass(frozen=True)
class Row:
    """A row of the tensor table as written; `where` is its address for errors."""

    name: str
    ne: tuple[int, ...]
    type_id: int
    offset: int
    where: str


def padded(size: int, alignment: int) -> int:
    """Return the smallest multiple of `alignment` that is not below `size`."""
    return -(-size // alignment) * alignment


def check_extents(ne: Sequence[int], where: str) -> None:
    """Refuse extents beyond the named limits.

    Raises:
        LimitError: one extent, or their product, is too large.
    """
    if len(ne) > GGUF_MAX_DIMS:
        raise LimitError("too many extents", where=where, expected=f"at most {GGUF_MAX_DIMS}", found=len(ne))
    if max(ne) > GGUF_MAX_EXTENT:
        raise LimitError("an extent is too large", where=where, expected=f"at most {GGUF_MAX_EXTENT}", found=max(ne))
    if (elements := math.prod(ne)) > GGUF_MAX_ELEMENTS:
        raise LimitError("too many elements", where=where, expected=f"at most {GGUF_MAX_ELEMENTS}", found=elements)


def check_blocks(ne: Sequence[int], kind: TensorType, where: str) -> None:
    """Refuse rows that end within a block."""
    if ne[0] % kind.block:
        expected = f"a multiple of {kind.block}"
        raise FormatError(f"rows do not fill whole blocks of {kind.name}", where=where, expected=expected, found=ne[0])


def read_table(cursor: Cursor, count: int) -> list[Row]:
    """Read the table; a tensor without extents is a scalar, which has one of 1."""
    rows: dict[str, Row] = {}
    for number in range(count):
        begin = cursor.position
        name = cursor.name(f"name of tensor {number}", GGUF_MAX_NAME_BYTES)
        what = f"tensor {name}"
        where = cursor.where(what)
        if name in rows:
            cursor.position = begin
            cursor.fail("a tensor occurs twice", what)
        dims = cursor.u32(what)
        if dims > GGUF_MAX_DIMS:
            cursor.position -= 4
            cursor.exceed("too many extents", what, GGUF_MAX_DIMS, dims)
        ne = tuple([cursor.u64(what) for _ in range(dims)]) or (1,)
        check_extents(ne, where)
        rows[name] = Row(name, ne, cursor.u32(what), cursor.u64(what), where)
    return list(rows.values())


def choose_types(rows: Sequence[Row], metadata: Metadata, alignment: int, room: int, where: str) -> list[TensorType]:
    """Return each tensor's type: the one reading under which the table fits a data region of `room` bytes.

    Number 42 stands for Q2_0 (64 weights in 18 bytes) or for what Prism's first ternary files hold (128 in 34). Both
    are tried on the whole file. Where the offsets allow both, the end of the file must decide; a tie is Q2_0.
    """
    current = [_known_type(row, metadata) for row in rows]
    if LEGACY_Q2_0.id not in (kind.id for kind in current):
        types = current
        _end(rows, current, alignment, metadata)
    else:
        legacy = [LEGACY_Q2_0 if kind.id == LEGACY_Q2_0.id else kind for kind in current]
        types = _choose_reading(rows, current, legacy, metadata, alignment, room, where)
    _check_room(rows, types, room)
    return types


def _choose_reading(
    rows: Sequence[Row],
    current: list[TensorType],
    legacy: list[TensorType],
    metadata: Metadata,
    alignment: int,
    room: int,
    where: str,
) -> list[TensorType]:
    """Return the one of two readings of type 42 that blocks, offsets and, if need be, the end of the file allow."""
    fitting: list[tuple[list[TensorType], int]] = []
    faults = []
    for types in (current, legacy):
        try:
            fitting.append((types, _end(rows, types, alignment, metadata)))
        except FormatError as error:
            faults.append(str(error).splitlines()[0])
    ends = [end for _, end in fitting]
    if len(set(ends)) == 2:
        fitting = [(types, end) for types, end in fitting if 0 <= room - end < alignment]
        faults = [_distance(room - end) for end in ends]
    elif fitting and fitting[0][0] is legacy and room - ends[0] >= alignment:
        # The offsets do not bound the last tensor: were it Q2_0, it would be longer, and be read as what it is not.
        fitting = []
        faults.append(_distance(room - ends[0]))
    if fitting:
        return fitting[0][0]
    raise FormatError(
        "tensors of type 42 fit neither Q2_0 (64 weights in 18 bytes) nor Prism's older layout (128 in 34)",
        where=where,
        found=f"as Q2_0: {faults[0]}; as the older layout: {faults[1]}",
        hint=f"{TRUNCATED} {_doubt(LEGACY_Q2_0, metadata)}",
    )


def _distance(spare: int) -> str:
    return f"{spare} bytes follow the last tensor" if spare >= 0 else f"{-spare} bytes of the last tensor are missing"


def _end(rows: Sequence[Row], types: Sequence[TensorType], alignment: int, metadata: Metadata) -> int:
    """Check blocks and offsets; return the end of the last tensor."""
    end = 0
    before: TensorType | None = None
    for row, kind in zip(rows, types, strict=True):
        check_blocks(row.ne, kind, row.where)
        if row.offset != (expected := padded(end, alignment)):
            raise FormatError(
                "wrong offset of a tensor",
                where=row.where,
                expected=f"{expected}, where the one before it ends",
                found=row.offset,
                hint=_doubt(before, metadata),
            )
        end = row.offset + kind.size(math.prod(row.ne))
        before = kind
    return end


def _check_room(rows: Sequence[Row], types: Sequence[TensorType], room: int) -> None:
    """Refuse tensors that end after the data region."""
    for row, kind in zip(rows, types, strict=True):
        nbytes = kind.size(math.prod(row.ne))
        if row.offset + nbytes > room:
            raise FormatError(
                "the file ends before the tensor does",
                where=row.where,
                expected=f"{nbytes} bytes of {kind.name} at offset {row.offset}",
                found=f"{max(0, room - row.offset)} bytes",
                hint=TRUNCATED,
            )


def _doubt(kind: TensorType | None, metadata: Metadata) -> str | None:
    """Return what else explains a tensor of the wrong size, if its type has a number that others use as well."""
    if kind is None or kind.id not in CONTESTED_TYPES:
        return None
    return f"Another program may use number {kind.id} for a type of its own; this is a file {_origin(metadata)}."


def _origin(metadata: Metadata) -> str:
    """Return what the file says of where it comes from."""
    producer = ", ".join(f"{key} = {shown(metadata[key])}" for key in _PRODUCER_KEYS if key in metadata)
    return f"with {producer}" if producer else "of unknown origin"


def _known_type(row: Row, metadata: Metadata) -> TensorType:
    try:
        return tensor_type(row.type_id, row.where)
    except UnsupportedError as error:
        raise UnsupportedError(
            error.problem,
            where=error.where,
            expected=error.expected,
            found=f"type number {row.type_id} in a file {_origin(metadata)}",
            hint=error.hint,
        ) from error
