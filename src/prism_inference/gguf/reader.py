"""Opens GGUF files over mmap: header, metadata, tensor table. Tensor bytes are not touched. Knows no models.

Every count is bounded by a named limit and by the bytes left before anything is allocated. The offsets of the tensors must be
exactly those of a file without gaps, which rules out overlaps, and tells the two layouts apart that share type number 42.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType

import numpy as np
import numpy.typing as npt

from ..errors import FormatError, LimitError, PrismError, UnsupportedError
from ..limits import (
    GGUF_MAX_ALIGNMENT,
    GGUF_MAX_DIMS,
    GGUF_MAX_ELEMENTS,
    GGUF_MAX_EXTENT,
    GGUF_MAX_KEY_BYTES,
    GGUF_MAX_KEYS,
    GGUF_MAX_NAME_BYTES,
    GGUF_MAX_TENSORS,
)
from .cursor import Cursor
from .metadata import Metadata
from .spec import DEFAULT_ALIGNMENT, LEGACY_Q2_0, MAGIC, VERSIONS, TensorType, ValueType, tensor_type
from .splits import find_shards

_SMALLEST_KEY_VALUE = 13  # bytes: length of the key, type, a value of one byte
_SMALLEST_TENSOR = 24  # bytes: length of the name, number of extents, type, offset


@dataclass(frozen=True)
class TensorInfo:
    """One tensor of a file.

    `ne` holds the extents in ggml order (the contiguous one first), `offset` counts from the start of the shard's tensor data,
    `data` is a read-only uint8 view of the mapped bytes, which stays valid as long as it is referenced.
    """

    name: str
    type: TensorType
    ne: tuple[int, ...]
    offset: int
    nbytes: int
    data: npt.NDArray[np.uint8]
    shard: int = 0

    @property
    def elements(self) -> int:
        """Number of elements."""
        return _product(self.ne)


class GGUFFile:
    """An open file, or a set of shards seen as one."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        first = shards[0]
        self.paths = tuple(shard.path for shard in shards)
        self.path = first.path
        self.version = first.version
        self.alignment = first.alignment
        self.size = sum(shard.size for shard in shards)
        self.metadata = first.metadata
        tensors: dict[str, TensorInfo] = {}
        for shard in shards:
            for name, info in shard.tensors.items():
                if name in tensors:
                    raise FormatError("a tensor occurs in two shards", where=f"{shard.path}, tensor {name}")
                tensors[name] = info
        self.tensors: Mapping[str, TensorInfo] = MappingProxyType(tensors)

    def __enter__(self) -> GGUFFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<GGUFFile {self.path}: {len(self.metadata)} keys, {len(self.tensors)} tensors>"

    def close(self) -> None:
        """Forget the tensors; the mapping goes when the last array that refers to it does."""
        self.tensors = MappingProxyType({})


@dataclass(frozen=True)
class Shard:
    """One parsed file."""

    path: Path
    version: int
    alignment: int
    size: int
    metadata: Metadata
    tensors: Mapping[str, TensorInfo]


def open(path: str | os.PathLike[str]) -> GGUFFile:
    """Open a GGUF file; given any shard of a set, open the whole set.

    Raises:
        FormatError: it is not a GGUF file, or breaks the format's rules; says at which byte.
        LimitError: a count or size beyond a named limit.
        UnsupportedError: version 1, big-endian, a tensor type that is not known.
    """
    first = read_shard(Path(path), 0)
    shards = [
        first if other == first.path else read_shard(other, number)
        for number, other in enumerate(find_shards(first.path, first.metadata))
    ]
    if len(shards) > 1:
        _check_set(shards)
    return GGUFFile(shards)


def _check_set(shards: Sequence[Shard]) -> None:
    """Hold the shards of a set against each other."""
    total = shards[0].metadata.integer("split.tensors.count", low=0)
    found = sum(len(shard.tensors) for shard in shards)
    for number, shard in enumerate(shards):
        no, count = shard.metadata.integer("split.no"), shard.metadata.integer("split.count")
        if (no, count) != (number, len(shards)):
            raise FormatError(
                "the shard does not belong to this set or place",
                where=str(shard.path),
                expected=f"split.no {number} of {len(shards)}",
                found=f"{no} of {count}",
            )
    if found != total:
        raise FormatError("the set lacks tensors", where=str(shards[0].path), expected=f"{total} tensors", found=found)


def read_shard(path: Path, number: int) -> Shard:
    """Parse one file."""
    data = _mapped(path)
    cursor = Cursor(memoryview(data), path)
    version = _version(cursor)
    tensor_count = cursor.count("tensors", GGUF_MAX_TENSORS, _SMALLEST_TENSOR)
    key_count = cursor.count("key-values", GGUF_MAX_KEYS, _SMALLEST_KEY_VALUE)
    values, alignment = _key_values(cursor, key_count)
    metadata = Metadata(values, str(path))
    table = _tensor_table(cursor, tensor_count)
    start = -(-cursor.position // alignment) * alignment
    types = _types(path, metadata, table, alignment, len(data) - start)
    tensors = {}
    for row, kind in zip(table, types, strict=True):
        nbytes = kind.size(_product(row.ne))
        begin = start + row.offset
        tensors[row.name] = TensorInfo(row.name, kind, row.ne, row.offset, nbytes, data[begin : begin + nbytes], number)
    return Shard(path, version, alignment, len(data), metadata, MappingProxyType(tensors))


def _mapped(path: Path) -> npt.NDArray[np.uint8]:
    """Map a file for reading."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size == 0:
                raise FormatError("the file is empty", where=str(path))
            return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    except FormatError:
        raise
    except (OSError, ValueError) as error:
        hint = "Name the GGUF file, not its folder." if path.is_dir() else None
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise FormatError("cannot be opened", where=str(path), found=reason, hint=hint) from error


def _version(cursor: Cursor) -> int:
    """Check magic and version."""
    cursor.need(4, "magic")
    magic = bytes(cursor.data[:4])
    if magic != MAGIC:
        cursor.fail("not a GGUF file", expected=MAGIC, found=magic)
    cursor.position = 4
    version = cursor.u32("version")
    if version not in VERSIONS:
        swapped = version & 0xFFFF == 0 and version != 0
        raise UnsupportedError(
            "a big-endian file" if swapped else "an unsupported version of GGUF",
            where=str(cursor.path),
            expected="little-endian, version 2 or 3",
            found=f"version {int.from_bytes(version.to_bytes(4, 'little'), 'big') if swapped else version}",
            hint="Convert the original model again with current tools." if version == 1 or swapped else None,
        )
    return version


def _key_values(cursor: Cursor, count: int) -> tuple[dict[str, object], int]:
    """Read the metadata; return it and the alignment."""
    values: dict[str, object] = {}
    alignment = DEFAULT_ALIGNMENT
    for number in range(count):
        raw = cursor.string(f"key {number}", GGUF_MAX_KEY_BYTES)
        try:
            key = raw.decode("utf-8")
        except UnicodeDecodeError:
            cursor.fail("a key is not UTF-8", f"key {number}", found=raw[:40])
        if not key:
            cursor.fail("a key is empty", f"key {number}")
        if key in values:
            cursor.fail("a key occurs twice", key)
        kind = cursor.value_type(key)
        if key == "general.alignment" and kind is not ValueType.UINT32:
            cursor.fail("wrong type of value", key, expected="UINT32", found=kind.name)
        values[key] = cursor.value(kind, key)
        if key == "general.alignment":
            alignment = int(str(values[key]))
            if alignment < 1 or alignment & (alignment - 1):
                cursor.fail("not a power of two", key, found=alignment)
            if alignment > GGUF_MAX_ALIGNMENT:
                raise LimitError(
                    "alignment too large",
                    where=f"{cursor.path}, {key}",
                    expected=f"at most {GGUF_MAX_ALIGNMENT}",
                    found=alignment,
                )
    return values, alignment


@dataclass(frozen=True)
class _Row:
    """A row of the tensor table as written."""

    name: str
    ne: tuple[int, ...]
    type_id: int
    offset: int
    where: str


def _tensor_table(cursor: Cursor, count: int) -> list[_Row]:
    rows: list[_Row] = []
    names: set[str] = set()
    for number in range(count):
        raw = cursor.string(f"name of tensor {number}", GGUF_MAX_NAME_BYTES)
        try:
            name = raw.decode("utf-8")
        except UnicodeDecodeError:
            cursor.fail("a tensor name is not UTF-8", f"tensor {number}", found=raw)
        what = f"tensor {name}"
        if not name:
            cursor.fail("a tensor has no name", f"tensor {number}")
        if name in names:
            cursor.fail("a tensor occurs twice", what)
        names.add(name)
        dims = cursor.u32(what)
        if dims > GGUF_MAX_DIMS:
            cursor.fail("too many extents", what, expected=f"at most {GGUF_MAX_DIMS}", found=dims)
        ne = tuple(cursor.u64(what) for _ in range(dims)) or (1,)
        where = f"{cursor.path}, {what}"
        if max(ne) > GGUF_MAX_EXTENT:
            raise LimitError("extent too large", where=where, expected=f"at most {GGUF_MAX_EXTENT}", found=max(ne))
        if _product(ne) > GGUF_MAX_ELEMENTS:
            raise LimitError(
                "too many elements", where=where, expected=f"at most {GGUF_MAX_ELEMENTS}", found=_product(ne)
            )
        rows.append(_Row(name, ne, cursor.u32(what), cursor.u64(what), where))
    return rows


def _types(path: Path, metadata: Metadata, table: list[_Row], alignment: int, room: int) -> list[TensorType]:
    """Return each tensor's type: the one reading under which every offset is that of a file without gaps."""
    known = [_known_type(row, metadata) for row in table]
    ambiguous = [number for number, kind in enumerate(known) if kind.id == LEGACY_Q2_0.id]
    try:
        _check_layout(table, known, alignment, room)
        return known
    except PrismError as error:
        if not ambiguous:
            raise
        legacy = [LEGACY_Q2_0 if kind.id == LEGACY_Q2_0.id else kind for kind in known]
        try:
            _check_layout(table, legacy, alignment, room)
        except PrismError as other:
            raise FormatError(
                "tensors of type 42 fit neither Q2_0 (64 weights in 18 bytes) nor Prism's older layout (128 in 34)",
                where=str(path),
                found=f"as Q2_0: {error}; as the older layout: {other}",
                hint="Another program may use number 42 for a type of its own.",
            ) from error
        return legacy


def _known_type(row: _Row, metadata: Metadata) -> TensorType:
    try:
        return tensor_type(row.type_id)
    except UnsupportedError as error:
        keys = ("general.name", "general.quantized_by", "general.architecture")
        producer = ", ".join(f"{key} = {metadata[key]!r}" for key in keys if key in metadata)
        raise UnsupportedError(
            error.problem,
            where=row.where,
            expected=error.expected,
            found=f"type number {row.type_id}" + (f" in a file with {producer}" if producer else ""),
            hint=error.hint,
        ) from error


def _check_layout(table: list[_Row], types: list[TensorType], alignment: int, room: int) -> None:
    """Check blocks, offsets and the end of the file."""
    expected = 0
    for row, kind in zip(table, types, strict=True):
        if row.ne[0] % kind.block:
            raise FormatError(
                f"rows do not fill whole blocks of {kind.name}",
                where=row.where,
                expected=f"a multiple of {kind.block}",
                found=row.ne[0],
            )
        if row.offset != expected:
            raise FormatError("wrong offset", where=row.where, expected=expected, found=row.offset)
        nbytes = kind.size(_product(row.ne))
        if row.offset + nbytes > room:
            raise FormatError(
                "the file ends before the tensor does",
                where=row.where,
                expected=f"{nbytes} bytes at {row.offset}",
                found=f"{max(0, room - row.offset)} bytes",
                hint="The download may be incomplete.",
            )
        expected = -(-(row.offset + nbytes) // alignment) * alignment


def _product(ne: tuple[int, ...]) -> int:
    count = 1
    for extent in ne:
        count *= extent
    return count
