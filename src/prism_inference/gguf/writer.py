"""Writes GGUF files, version 3, little-endian: a new file comes into place whole or not at all.

Tensor bytes may come as arrays or as iterables of chunks, so that large tensors need not be held in memory.
"""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from ..errors import FormatError
from ..limits import GGUF_MAX_ALIGNMENT, GGUF_MAX_DIMS, GGUF_MAX_KEY_BYTES, GGUF_MAX_NAME_BYTES
from .spec import DEFAULT_ALIGNMENT, MAGIC, SCALAR_CODES, TensorType, ValueType, tensor_type
from .values import StringArray

Bytes = bytes | memoryview | npt.NDArray[Any]
_ARRAY_TYPES = {
    np.dtype(code).newbyteorder("<"): kind for kind, code in SCALAR_CODES.items() if kind is not ValueType.BOOL
}


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
        alignment: a power of two; stored if it is not the default of 32.
    """

    def __init__(self, path: str | os.PathLike[str], alignment: int = DEFAULT_ALIGNMENT) -> None:
        if alignment < 1 or alignment & (alignment - 1) or alignment > GGUF_MAX_ALIGNMENT:
            expected = f"a power of two up to {GGUF_MAX_ALIGNMENT}"
            raise FormatError("wrong alignment", where=str(path), expected=expected, found=alignment)
        self.path = Path(path)
        self.alignment = alignment
        self._values: dict[str, bytes] = {}
        self._tensors: dict[str, _Tensor] = {}
        if alignment != DEFAULT_ALIGNMENT:
            self.add("general.alignment", alignment, ValueType.UINT32)

    def add(self, key: str, value: Any, kind: ValueType | None = None) -> None:
        """Add a key-value.

        Without `kind` the type is inferred: bool, str, float (FLOAT32), int (UINT32, INT32, UINT64 or INT64, the first that
        holds it), NumPy arrays by their dtype, sequences by their first item.
        """
        if not key or len(key.encode()) > GGUF_MAX_KEY_BYTES:
            raise FormatError(
                "wrong key", where=str(self.path), expected=f"1 to {GGUF_MAX_KEY_BYTES} bytes", found=repr(key[:80])
            )
        if key in self._values:
            raise FormatError("a key occurs twice", where=f"{self.path}, {key}")
        kind = kind if kind is not None else _infer(value, key)
        self._values[key] = struct.pack("<I", kind) + _encode(kind, value, key)

    def add_tensor(
        self, name: str, kind: str | int | TensorType, ne: Sequence[int], data: Bytes | Iterable[Bytes]
    ) -> None:
        """Add a tensor: type, extents in ggml order, bytes (or chunks of them, read when the file is written)."""
        row = tensor_type(kind)
        where = f"{self.path}, tensor {name}"
        if not 1 <= len(name.encode()) <= GGUF_MAX_NAME_BYTES:
            raise FormatError(
                "wrong name", where=where, expected=f"1 to {GGUF_MAX_NAME_BYTES} bytes", found=len(name.encode())
            )
        if name in self._tensors:
            raise FormatError("a tensor occurs twice", where=where)
        extents = tuple(int(extent) for extent in ne)
        if not 1 <= len(extents) <= GGUF_MAX_DIMS or min(extents) < 1 or extents[0] % row.block:
            expected = f"1 to {GGUF_MAX_DIMS} extents, the first a multiple of {row.block}"
            raise FormatError("wrong extents", where=where, expected=expected, found=extents)
        count = int(np.prod([int(extent) for extent in extents], dtype=object))
        nbytes = row.size(count)
        if isinstance(data, bytes | memoryview | np.ndarray) and _length(data) != nbytes:
            raise FormatError("wrong number of bytes", where=where, expected=nbytes, found=_length(data))
        self._tensors[name] = _Tensor(name, row, extents, nbytes, data)

    def write(self) -> None:
        """Write the file."""
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.", suffix=".part")
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(self._header())
                for tensor in self._tensors.values():
                    self._pad(file)
                    self._write_tensor(file, tensor)
                self._pad(file)
            temporary.chmod(0o644)
            temporary.replace(self.path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    def _header(self) -> bytes:
        parts = [MAGIC, struct.pack("<IQQ", 3, len(self._tensors), len(self._values))]
        for key, value in self._values.items():
            parts += [_string(key), value]
        offset = 0
        for tensor in self._tensors.values():
            parts += [
                _string(tensor.name),
                struct.pack("<I", len(tensor.ne)),
                struct.pack(f"<{len(tensor.ne)}Q", *tensor.ne),
            ]
            parts.append(struct.pack("<IQ", tensor.type.id, offset))
            offset += -(-tensor.nbytes // self.alignment) * self.alignment
        return b"".join(parts)

    def _write_tensor(self, file: BinaryIO, tensor: _Tensor) -> None:
        whole = isinstance(tensor.data, bytes | memoryview | np.ndarray)
        written = 0
        for chunk in [tensor.data] if whole else tensor.data:
            written += file.write(np.ascontiguousarray(chunk).data if isinstance(chunk, np.ndarray) else chunk)
        if written != tensor.nbytes:
            where = f"{self.path}, tensor {tensor.name}"
            raise FormatError("wrong number of bytes", where=where, expected=tensor.nbytes, found=written)

    def _pad(self, file: BinaryIO) -> None:
        file.write(bytes(-file.tell() % self.alignment))


def _length(data: Bytes) -> int:
    return data.nbytes if isinstance(data, np.ndarray | memoryview) else len(data)


def _string(value: str | bytes) -> bytes:
    raw = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def _infer(value: Any, key: str) -> ValueType:
    if isinstance(value, bool | np.bool_):
        return ValueType.BOOL
    if isinstance(value, str | bytes):
        return ValueType.STRING
    if isinstance(value, float | np.floating):
        return ValueType.FLOAT32
    if isinstance(value, int | np.integer):
        ranges = (
            (ValueType.UINT32, 0, 2**32),
            (ValueType.INT32, -(2**31), 0),
            (ValueType.UINT64, 0, 2**64),
            (ValueType.INT64, -(2**63), 0),
        )
        for kind, low, end in ranges:
            if low <= value < end:
                return kind
    if isinstance(value, np.ndarray | Sequence | StringArray):
        return ValueType.ARRAY
    raise FormatError("a value that GGUF cannot hold", where=key, found=f"{type(value).__name__} {value!r}"[:80])


def _encode(kind: ValueType, value: Any, key: str) -> bytes:
    if kind is ValueType.STRING:
        return _string(value)
    if kind is ValueType.ARRAY:
        return _encode_array(value, key)
    try:
        return struct.pack(f"<{SCALAR_CODES[kind]}", value)
    except (struct.error, TypeError) as error:
        raise FormatError(
            "the value does not fit its type", where=key, expected=kind.name, found=repr(value)
        ) from error


def _encode_array(value: Any, key: str) -> bytes:
    if isinstance(value, np.ndarray) and value.dtype != np.bool_:
        dtype = value.dtype.newbyteorder("<")
        if dtype not in _ARRAY_TYPES or value.ndim != 1:
            raise FormatError(
                "an array that GGUF cannot hold", where=key, found=f"{value.dtype}, {value.ndim} dimensions"
            )
        return struct.pack("<IQ", _ARRAY_TYPES[dtype], len(value)) + value.astype(dtype).tobytes()
    items = list(value)
    kind = _infer(items[0], key) if items else ValueType.UINT32
    if kind in (ValueType.UINT32, ValueType.INT32) and not all(-(2**31) <= item < 2**31 for item in items):
        kind = ValueType.INT64
    elif kind is ValueType.UINT32:
        kind = ValueType.INT32
    return struct.pack("<IQ", kind, len(items)) + b"".join(_encode(kind, item, key) for item in items)
