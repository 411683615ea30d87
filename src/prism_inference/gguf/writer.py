"""Writes GGUF files, little-endian: a new file takes its name when it is whole, and not at all after an error.

What the reader would refuse is refused here too. Tensor bytes may come as arrays or as iterables of chunks, so that
large tensors need not be held in memory. Knows no models.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from ..errors import FormatError, LimitError, UnsupportedError
from ..limits import (
    GGUF_MAX_ALIGNMENT,
    GGUF_MAX_HEADER_BYTES,
    GGUF_MAX_KEY_BYTES,
    GGUF_MAX_KEYS,
    GGUF_MAX_NAME_BYTES,
    GGUF_MAX_STRINGS,
    GGUF_MAX_TENSORS,
)
from .encode import count_strings, encode_string, encode_value
from .layout import Row, check_blocks, check_extents, choose_types, padded
from .metadata import Metadata
from .reader import GGUFFile
from .spec import ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAGIC, VERSIONS, TensorType, ValueType, tensor_type

Bytes = bytes | bytearray | memoryview | npt.NDArray[Any]
_BYTES = (bytes, bytearray, memoryview, np.ndarray)


@dataclass(frozen=True)
class _Tensor:
    name: str
    type: TensorType
    ne: tuple[int, ...]
    nbytes: int
    data: Bytes | Iterable[Bytes]


class GGUFWriter:
    """Collects key-values and tensors, then writes them.

    Args:
        path: the file; replaced if it exists.
        version: 2 or 3.
        alignment: of tensors, a power of two; stored if it is not the default of 32.

    Raises:
        FormatError, LimitError, UnsupportedError: what is added breaks the format's rules or a named limit; nothing was
        added.
    """

    def __init__(self, path: str | os.PathLike[str], *, version: int = 3, alignment: int = DEFAULT_ALIGNMENT) -> None:
        if version not in VERSIONS:
            raise UnsupportedError(
                "an unsupported version of GGUF",
                where=str(path),
                expected=" or ".join(map(str, VERSIONS)),
                found=version,
            )
        if alignment < 1 or alignment.bit_count() != 1 or alignment > GGUF_MAX_ALIGNMENT:
            expected = f"a power of two up to {GGUF_MAX_ALIGNMENT}"
            raise FormatError("wrong alignment", where=str(path), expected=expected, found=alignment)
        self.path = Path(path)
        self.version = version
        self.alignment = alignment
        self._values: dict[str, bytes] = {}
        self._strings = 0
        self._tensors: dict[str, _Tensor] = {}
        if alignment != DEFAULT_ALIGNMENT:
            self._values[ALIGNMENT_KEY] = encode_value(alignment, ValueType.UINT32, ALIGNMENT_KEY)

    def add(self, key: str, value: Any, kind: ValueType | None = None) -> None:
        """Add a key-value.

        `kind` is the type of the value, or of the items of an array. Without it, bool becomes BOOL, str and bytes
        STRING, float FLOAT32, int the first of UINT32, INT32, UINT64, INT64 that holds it. NumPy arrays keep their
        dtype; other sequences become arrays of BOOL, STRING, FLOAT32, or of the first of INT32, INT64, UINT64 that
        holds all items.
        """
        where = f"{self.path}, key {key[:80]!r}"
        self._check_name(key, self._values, GGUF_MAX_KEY_BYTES, GGUF_MAX_KEYS, where)
        if key == ALIGNMENT_KEY:
            raise FormatError("the alignment is set by the writer", where=where, hint="Give it to GGUFWriter.")
        encoded = encode_value(value, kind, where)
        strings = self._strings + count_strings(encoded)
        if strings > GGUF_MAX_STRINGS:
            expected = f"at most {GGUF_MAX_STRINGS}"
            raise LimitError("too many strings in all", where=where, expected=expected, found=strings)
        self._values[key], self._strings = encoded, strings

    def add_metadata(self, file: GGUFFile, without: Container[str] = ()) -> None:
        """Add the key-values of another file, byte by byte; not its alignment, its place in a set of shards, nor the
        keys in `without`."""
        for key in file.metadata:
            if key in without or key == ALIGNMENT_KEY or key.startswith("split."):
                continue
            where = f"{self.path}, key {key[:80]!r}"
            self._check_name(key, self._values, GGUF_MAX_KEY_BYTES, GGUF_MAX_KEYS, where)
            self._values[key] = file.encoded(key)

    def add_tensor(
        self, name: str, kind: str | int | TensorType, ne: Sequence[int], data: Bytes | Iterable[Bytes]
    ) -> None:
        """Add a tensor: type, extents in ggml order (a NumPy shape reversed), its bytes in one piece or in chunks.

        An array's items are written as they are, little-endian. Chunks are asked for when the file is written.
        """
        where = f"{self.path}, tensor {name[:80]!r}"
        row = tensor_type(kind, where)
        self._check_name(name, self._tensors, GGUF_MAX_NAME_BYTES, GGUF_MAX_TENSORS, where)
        if not len(ne) or not all(isinstance(extent, int | np.integer) and extent > 0 for extent in ne):
            raise FormatError("wrong extents", where=where, expected="one or more, all positive integers", found=ne)
        extents = tuple(int(extent) for extent in ne)
        check_extents(extents, where)
        check_blocks(extents, row, where)
        nbytes = row.size(math.prod(extents))
        if isinstance(data, _BYTES) and (length := _length(data)) != nbytes:
            raise FormatError("wrong number of bytes", where=where, expected=nbytes, found=length)
        self._tensors[name] = _Tensor(name, row, extents, nbytes, data)

    def write(self) -> None:
        """Write the file.

        Raises:
            FormatError: the chunks of a tensor are not as many bytes as it has; or nothing in the file would tell in
                which of its two layouts tensors of type 42 are.
            LimitError: there is too much metadata.
            OSError: the folder or the disk does not take the file.
        """
        header = self._header()
        temporary = self.path.with_name(f".prism-{os.urandom(8).hex()}.part")
        try:
            with temporary.open("xb") as file:
                file.write(header)
                for tensor in self._tensors.values():
                    self._pad(file)
                    self._write_tensor(file, tensor)
                self._pad(file)
            temporary.replace(self.path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    def _check_name(self, name: str, taken: dict[str, Any], limit: int, most: int, where: str) -> None:
        encode_string(name, where, limit)
        if not name:
            raise FormatError("a name is empty", where=where)
        if any("\ud800" <= character <= "\udfff" for character in name):
            raise FormatError("a name is not UTF-8", where=where)
        if name in taken:
            raise FormatError("a name occurs twice", where=where)
        if len(taken) == most:
            raise LimitError("too many items", where=where, expected=f"at most {most}", found=most + 1)

    def _table(self) -> list[Row]:
        """Return the rows of the tensor table, after making sure that the reader will find the same types in it."""
        rows, offset = [], 0
        for tensor in self._tensors.values():
            rows.append(Row(tensor.name, tensor.ne, tensor.type.id, offset, f"{self.path}, tensor {tensor.name!r}"))
            offset += padded(tensor.nbytes, self.alignment)
        types = [tensor.type for tensor in self._tensors.values()]
        try:
            found = choose_types(rows, Metadata({}, str(self.path)), self.alignment, offset, str(self.path))
        except FormatError:  # both layouts of type 42 in one file
            found = []
        if found != types:
            raise FormatError(
                "nothing in the file would tell in which layout its tensors of type 42 are",
                where=str(self.path),
                expected="either Q2_0 or Q2_0_G128 throughout, and tensors that differ in size between the two",
                hint="Write Q2_0_G128 as PQ2_0: it holds the same bytes and has a number of its own.",
            )
        return rows

    def _header(self) -> bytes:
        parts = [MAGIC, struct.pack("<IQQ", self.version, len(self._tensors), len(self._values))]
        for key, value in self._values.items():
            parts += [encode_string(key, key), value]
        for row in self._table():
            dims = len(row.ne)
            parts.append(encode_string(row.name, row.name))
            parts.append(struct.pack(f"<I{dims}QIQ", dims, *row.ne, row.type_id, row.offset))
        header = b"".join(parts)
        if len(header) > GGUF_MAX_HEADER_BYTES:
            expected = f"at most {GGUF_MAX_HEADER_BYTES} bytes"
            raise LimitError("the header is too long", where=str(self.path), expected=expected, found=len(header))
        return header

    def _write_tensor(self, file: BinaryIO, tensor: _Tensor) -> None:
        written = 0
        for chunk in [tensor.data] if isinstance(tensor.data, _BYTES) else tensor.data:
            written += file.write(_little_endian(chunk) if isinstance(chunk, np.ndarray) else chunk)
            if written > tensor.nbytes:
                break  # endless chunks must not fill the disk
        if written != tensor.nbytes:
            where = f"{self.path}, tensor {tensor.name!r}"
            raise FormatError("wrong number of bytes", where=where, expected=tensor.nbytes, found=written)

    def _pad(self, file: BinaryIO) -> None:
        file.write(bytes(-file.tell() % self.alignment))


def _length(data: Bytes) -> int:
    return data.nbytes if isinstance(data, np.ndarray | memoryview) else len(data)


def _little_endian(array: npt.NDArray[Any]) -> memoryview:
    """Return an array's bytes in C order; without a copy where it is laid out so."""
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data
