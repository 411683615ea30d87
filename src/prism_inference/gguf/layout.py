"""The tensor table of a file: extents, types and offsets, and whether they fit each other and the file.

Offsets must be exactly those of a file without gaps, which rules out overlaps and tells the two layouts apart that
share type number 42. Knows sizes, not what tensors mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import FormatError, LimitError, PrismError, UnsupportedError
from ..limits import GGUF_MAX_DIMS, GGUF_MAX_ELEMENTS, GGUF_MAX_EXTENT, GGUF_MAX_NAME_BYTES
from .cursor import TRUNCATED, Cursor
from .metadata import Metadata
from .spec import LEGACY_Q2_0, TensorType, tensor_type
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
        _check(rows, current, alignment, room)
        return current
    legacy = [LEGACY_Q2_0 if kind.id == LEGACY_Q2_0.id else kind for kind in current]
    spare, reason = _spare(rows, current, alignment, room)
    legacy_spare, legacy_reason = _spare(rows, legacy, alignment, room)
    if spare is not None and (spare < alignment or legacy_spare is None):
        return current
    if legacy_spare is not None and legacy_spare < alignment:
        return legacy
    raise FormatError(
        "tensors of type 42 fit neither Q2_0 (64 weights in 18 bytes) nor Prism's older layout (128 in 34)",
        where=where,
        found=f"as Q2_0: {reason or _surplus(spare)}; as the older layout: {legacy_reason or _surplus(legacy_spare)}",
        hint=f"{TRUNCATED} Another program may also use number 42 for a type of its own.",
    )


def _spare(
    rows: Sequence[Row], types: Sequence[TensorType], alignment: int, room: int
) -> tuple[int | None, str | None]:
    """Return the bytes after the last tensor, or None and why the types do not fit."""
    try:
        return room - _check(rows, types, alignment, room), None
    except PrismError as error:
        return None, str(error).splitlines()[0]


def _surplus(spare: int | None) -> str:
    return f"{spare} bytes follow the last tensor"


def _check(rows: Sequence[Row], types: Sequence[TensorType], alignment: int, room: int) -> int:
    """Check blocks, offsets and sizes against the data region; return the end of the last tensor."""
    end = 0
    for row, kind in zip(rows, types, strict=True):
        check_blocks(row.ne, kind, row.where)
        if row.offset != (expected := padded(end, alignment)):
            raise FormatError(
                "wrong offset of a tensor",
                where=row.where,
                expected=f"{expected}, where the one before it ends",
                found=row.offset,
            )
        nbytes = kind.size(math.prod(row.ne))
        end = row.offset + nbytes
        if end > room:
            raise FormatError(
                "the file ends before the tensor does",
                where=row.where,
                expected=f"{nbytes} bytes of {kind.name} at offset {row.offset}",
                found=f"{max(0, room - row.offset)} bytes",
                hint=TRUNCATED,
            )
    return end


def _known_type(row: Row, metadata: Metadata) -> TensorType:
    try:
        return tensor_type(row.type_id, row.where)
    except UnsupportedError as error:
        producer = ", ".join(f"{key} = {shown(metadata[key])}" for key in _PRODUCER_KEYS if key in metadata)
        raise UnsupportedError(
            error.problem,
            where=error.where,
            expected=error.expected,
            found=f"type number {row.type_id} in a file " + (f"with {producer}" if producer else "of unknown origin"),
            hint=error.hint,
        ) from error
