"""Opens GGUF files over mmap: header, metadata, tensor table. Tensor bytes are not touched. Knows no models.

Every count is bounded by a named limit and by the bytes left before anything is allocated for it.
"""

from __future__ import annotations

import math
import mmap
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType

import numpy as np
import numpy.typing as npt

from ..errors import FormatError, UnsupportedError
from ..limits import GGUF_MAX_ALIGNMENT, GGUF_MAX_KEY_BYTES, GGUF_MAX_KEYS, GGUF_MAX_TENSORS
from .cursor import Cursor
from .layout import choose_types, padded, read_table
from .metadata import Metadata
from .spec import ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAGIC, VERSIONS, TensorType, ValueType
from .splits import check_place, check_total, find_shards

_SMALLEST_KEY_VALUE = 13  # bytes: length of the key, type, a value of one byte
_SMALLEST_TENSOR = 24  # bytes: length of the name, number of extents, type, offset

# What files that are not GGUF begin with, and what they then are.
_OTHER_FILES = {
    b"lmgg": "This is a ggml file, older than GGUF: convert the original model again with current tools.",
    b"tjgg": "This is a ggjt file, older than GGUF: convert the original model again with current tools.",
    b"vers": "This may be a pointer of Git LFS: fetch the file itself with `git lfs pull`.",
    b"<!DO": "This may be a web page: use the link that downloads the file itself.",
    b"<!do": "This may be a web page: use the link that downloads the file itself.",
    b"<htm": "This may be a web page: use the link that downloads the file itself.",
    b"PK\x03\x04": "This is a zip archive: unpack it first.",
    b"\x1f\x8b\x08\x00": "This is compressed by gzip: unpack it first.",
}


@dataclass(frozen=True, eq=False)
class TensorInfo:
    """One tensor of a file.

    `ne` holds the extents in ggml order (the contiguous one first), `offset` counts from the start of the shard's
    tensor data, `data` is a read-only uint8 view [nbytes] of the mapped bytes, which stays valid as long as it is
    referenced. An extent may be 0: the tensor then has no bytes.
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
        return math.prod(self.ne)


class GGUFFile:
    """An open file, or a set of shards seen as one.

    `metadata` is that of the first shard, `tensors` are those of all in order; `path` is the first of `paths`; `size`
    counts the bytes of all files. The files must not shrink while they are open: the bytes of a mapped file are read
    when they are used.
    """

    def __init__(self, shards: tuple[Shard, ...], tensors: dict[str, TensorInfo]) -> None:
        first = shards[0]
        self.paths = tuple(shard.path for shard in shards)
        self.path = first.path
        self.version = first.version
        self.alignment = first.alignment
        self.size = sum(shard.size for shard in shards)
        self.metadata = first.metadata
        self._encoded = first.encoded
        self.tensors: Mapping[str, TensorInfo] = MappingProxyType(tensors)

    def __enter__(self) -> GGUFFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<GGUFFile {self.path}: {len(self.metadata)} keys, {len(self.tensors)} tensors>"

    def encoded(self, key: str) -> bytes:
        """Return a key's type and value as the file has them."""
        return bytes(self._encoded[key])

    def close(self) -> None:
        """Forget the tensors; the mapping goes when the last array that refers to it does."""
        self.tensors = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class Shard:
    """One parsed file."""

    path: Path
    version: int
    alignment: int
    size: int
    metadata: Metadata
    encoded: Mapping[str, memoryview]
    tensors: tuple[TensorInfo, ...]


def open(path: str | os.PathLike[str]) -> GGUFFile:
    """Open a GGUF file; given any shard of a set, open the whole set.

    Raises:
        FormatError: it is not a GGUF file, or breaks the format's rules; says at which byte.
        LimitError: a count or size beyond a named limit.
        UnsupportedError: version 1, big-endian, a tensor type that is not known.
    """
    given = _read_shard(Path(path), 0)
    paths = find_shards(given.path, given.metadata)
    shards: list[Shard] = []
    tensors: dict[str, TensorInfo] = {}
    for shard in _read_set(given, paths):
        for info in shard.tensors:
            if info.name in tensors:
                raise FormatError("a tensor occurs in two shards", where=f"{shard.path}, tensor {info.name!r}")
            tensors[info.name] = info
        shards.append(shard)
    if len(shards) > 1:
        check_total(shards[0].path, shards[0].metadata, len(tensors))
    return GGUFFile(tuple(shards), tensors)


def _read_set(given: Shard, paths: list[Path]) -> Iterator[Shard]:
    """Parse the files of a set one after the other; `given` is parsed, and right if it is the first."""
    for number, path in enumerate(paths):
        shard = given if number == 0 and path == given.path else _read_shard(path, number)
        if len(paths) > 1:
            check_place(path, shard.metadata, number, len(paths))
        yield shard


def _read_shard(path: Path, number: int) -> Shard:
    """Parse one file, the shard `number` of its set."""
    data = _mapped(path)
    cursor = Cursor(data.data, path)
    version = _version(cursor)
    tensor_count = cursor.count("number of tensors", GGUF_MAX_TENSORS, _SMALLEST_TENSOR)
    key_count = cursor.count("number of keys", GGUF_MAX_KEYS, _SMALLEST_KEY_VALUE)
    values, encoded = _key_values(cursor, key_count)
    alignment: int = values.get(ALIGNMENT_KEY, DEFAULT_ALIGNMENT)  # type: ignore[assignment]  # was checked there
    metadata = Metadata(values, str(path))
    rows = read_table(cursor, tensor_count)
    start = padded(cursor.position, alignment)
    tensors = []
    for row, kind in zip(rows, choose_types(rows, metadata, alignment, len(data) - start, str(path)), strict=True):
        nbytes = kind.size(math.prod(row.ne))
        begin = start + row.offset
        tensors.append(TensorInfo(row.name, kind, row.ne, row.offset, nbytes, data[begin : begin + nbytes], number))
    return Shard(path, version, alignment, len(data), metadata, encoded, tuple(tensors))


def _mapped(path: Path) -> npt.NDArray[np.uint8]:
    """Map a file for reading: uint8 [bytes of the file], read-only."""
    try:
        status = path.stat()  # before opening: that would wait for the other end of a pipe
        if not stat.S_ISREG(status.st_mode):
            hint = "Name the GGUF file, not its folder." if stat.S_ISDIR(status.st_mode) else None
            found = "a folder" if hint else "a device or a pipe"
            raise FormatError("not a file", where=str(path), expected="a GGUF file", found=found, hint=hint)
        if status.st_size == 0:
            raise FormatError(
                "the file is empty", where=str(path), hint="The download may have failed: fetch it again."
            )
        with path.open("rb") as file:
            return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    except FormatError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a path with a zero byte
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise FormatError("cannot be opened", where=str(path), found=reason) from error


def _version(cursor: Cursor) -> int:
    """Check magic and version."""
    cursor.need(len(MAGIC), "magic")
    magic = bytes(cursor.data[: len(MAGIC)])
    if magic != MAGIC:
        cursor.fail("not a GGUF file", "magic", expected=MAGIC, found=magic, hint=_OTHER_FILES.get(magic))
    cursor.position = len(MAGIC)
    version = cursor.u32("version")
    if version in VERSIONS:
        return version
    cursor.position = len(MAGIC)
    swapped = int.from_bytes(version.to_bytes(4, "little"), "big") if version & 0xFFFF == 0 else 0
    raise UnsupportedError(
        "a big-endian file" if swapped else "an unsupported version of GGUF",
        where=cursor.where("version"),
        expected=f"little-endian, version {' or '.join(map(str, VERSIONS))}",
        found=f"big-endian, version {swapped}" if swapped else f"version {version}",
        hint="Convert the original model again with current tools." if swapped or version == 1 else None,
    )


def _key_values(cursor: Cursor, count: int) -> tuple[dict[str, object], dict[str, memoryview]]:
    """Read the metadata: values, and the bytes of each one's type and value; the alignment, if any, is checked."""
    values: dict[str, object] = {}
    encoded: dict[str, memoryview] = {}
    for number in range(count):
        begin = cursor.position
        key = cursor.name(f"key {number}", GGUF_MAX_KEY_BYTES)
        if key in values:
            cursor.position = begin
            cursor.fail("a key occurs twice", key)
        begin = cursor.position
        kind = cursor.value_type(key)
        if key == ALIGNMENT_KEY:
            values[key] = _alignment(cursor, kind)
        else:
            values[key] = cursor.value(kind, key)
        encoded[key] = cursor.data[begin : cursor.position]
    return values, encoded


def _alignment(cursor: Cursor, kind: ValueType) -> int:
    if kind is not ValueType.UINT32:
        cursor.position -= 4
        cursor.fail("wrong type of value", ALIGNMENT_KEY, expected=ValueType.UINT32.name, found=kind.name)
    alignment = cursor.u32(ALIGNMENT_KEY)
    cursor.position -= 4
    if alignment.bit_count() != 1:
        cursor.fail("not a power of two", ALIGNMENT_KEY, found=alignment)
    if alignment > GGUF_MAX_ALIGNMENT:
        cursor.exceed("the alignment is too large", ALIGNMENT_KEY, GGUF_MAX_ALIGNMENT, alignment)
    cursor.position += 4
    return alignment
