"""A position in a mapped file that moves only over bytes that are there: every length is checked before it is used."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from ..errors import FormatError, LimitError, UnsupportedError
from ..limits import GGUF_MAX_ARRAY_ITEMS, GGUF_MAX_HEADER_BYTES, GGUF_MAX_STRING_BYTES
from .spec import SCALAR_CODES, ValueType
from .values import StringArray, text

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


class Cursor:
    """Reads little-endian values from `data`, which stays referenced by what is read lazily."""

    def __init__(self, data: memoryview, path: Path) -> None:
        self.data = data
        self.path = path
        self.position = 0
        self.end = min(len(data), GGUF_MAX_HEADER_BYTES)

    def fail(self, problem: str, what: str = "", *, expected: object = None, found: object = None) -> NoReturn:
        """Refuse the file at the current position."""
        where = f"{self.path}, byte {self.position}" + (f", {what}" if what else "")
        raise FormatError(problem, where=where, expected=expected, found=found)

    @property
    def left(self) -> int:
        """Bytes that may still be read."""
        return self.end - self.position

    def need(self, count: int, what: str) -> None:
        """Refuse the file if fewer than `count` bytes are left."""
        if count > self.left:
            if self.end < len(self.data):
                raise LimitError(
                    "the header is too long",
                    where=f"{self.path}, {what}",
                    expected=f"at most {GGUF_MAX_HEADER_BYTES} bytes",
                    found=f"{self.position + count} bytes or more",
                )
            self.fail("the file ends too early", what, expected=f"{count} more bytes", found=f"{self.left}")

    def u32(self, what: str) -> int:
        """Read an unsigned 32-bit number."""
        self.need(4, what)
        (value,) = _U32.unpack_from(self.data, self.position)
        self.position += 4
        return int(value)

    def u64(self, what: str) -> int:
        """Read an unsigned 64-bit number."""
        self.need(8, what)
        (value,) = _U64.unpack_from(self.data, self.position)
        self.position += 8
        return int(value)

    def count(self, what: str, limit: int, smallest: int) -> int:
        """Read a number of items that take at least `smallest` bytes each; bounded by a limit and by the bytes left."""
        value = self.u64(what)
        if value > limit:
            where = f"{self.path}, byte {self.position - 8}"
            raise LimitError(f"too many {what}", where=where, expected=f"at most {limit}", found=value)
        if value * smallest > self.left:
            self.fail(
                f"more {what} than the file has room for", expected=f"at most {self.left // smallest}", found=value
            )
        return value

    def string(self, what: str, limit: int = GGUF_MAX_STRING_BYTES) -> bytes:
        """Read a length and that many bytes."""
        length = self.u64(what)
        if length > limit:
            where = f"{self.path}, byte {self.position - 8}, {what}"
            raise LimitError("the text is too long", where=where, expected=f"at most {limit} bytes", found=length)
        self.need(length, what)
        raw = bytes(self.data[self.position : self.position + length])
        self.position += length
        return raw

    def value_type(self, what: str) -> ValueType:
        """Read the type of a value."""
        number = self.u32(what)
        try:
            return ValueType(number)
        except ValueError:
            self.fail("unknown type of value", what, expected="0 to 12", found=number)

    def value(self, kind: ValueType, what: str) -> Any:
        """Read a value of any type."""
        if kind is ValueType.STRING:
            return text(self.string(what))
        if kind is ValueType.ARRAY:
            return self.array(what)
        code = SCALAR_CODES[kind]
        size = struct.calcsize(f"<{code}")
        self.need(size, what)
        (value,) = struct.unpack_from(f"<{code}", self.data, self.position)
        self.position += size
        if kind is ValueType.BOOL:
            if value > 1:
                self.fail("not a truth value", what, expected="0 or 1", found=value)
            return value == 1
        return value

    def array(self, what: str) -> Any:
        """Read an array: NumPy for numbers, `StringArray` for texts. Arrays of arrays are refused."""
        kind = self.value_type(what)
        if kind is ValueType.ARRAY:
            raise UnsupportedError("an array of arrays", where=f"{self.path}, byte {self.position}, {what}")
        code = SCALAR_CODES.get(kind)
        size = 8 if code is None else struct.calcsize(f"<{code}")
        items = self.count(f"items of {what}", GGUF_MAX_ARRAY_ITEMS, size)
        if code is None:
            return self._strings(items, what)
        values = np.frombuffer(self.data, np.dtype(f"<{code}"), items, self.position)
        self.position += items * size
        if kind is ValueType.BOOL:
            if values.size and values.max() > 1:
                self.fail("not a truth value", what, expected="0 or 1", found=int(values.max()))
            return values.astype(np.bool_)
        return values

    def _strings(self, items: int, what: str) -> StringArray:
        """Walk over the lengths of `items` texts and remember where each lies."""
        position, end, data, unpack = self.position, self.end, self.data, _U64.unpack_from
        starts = [0] * items
        ends = [0] * items
        for number in range(items):
            if position + 8 > end:
                self.position = position
                self.need(8, f"{what}[{number}]")
            (length,) = unpack(data, position)
            position += 8
            if length > end - position or length > GGUF_MAX_STRING_BYTES:
                self.position = position - 8
                self.string(f"{what}[{number}]")
            starts[number] = position
            position += length
            ends[number] = position
        self.position = position
        return StringArray(data, np.array(starts, np.int64), np.array(ends, np.int64))
