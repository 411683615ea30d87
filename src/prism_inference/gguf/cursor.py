"""A position in a mapped file that moves only over bytes that are there: every length is checked before it is used.

Knows how values are laid out, but not which keys there are.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np

from ..errors import FormatError, LimitError, UnsupportedError
from ..limits import GGUF_MAX_ARRAY_ITEMS, GGUF_MAX_HEADER_BYTES, GGUF_MAX_STRING_BYTES, GGUF_MAX_STRINGS
from .scan import LENGTH_BYTES, scan_strings
from .spec import SCALAR_CODES, ValueType
from .values import StringArray, shown, text

_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")
_SCALARS: Final = {kind: struct.Struct(f"<{code}") for kind, code in SCALAR_CODES.items()}
_DTYPES: Final = {kind: np.dtype(f"<{code}") for kind, code in SCALAR_CODES.items()}
_TYPES: Final = {int(kind): kind for kind in ValueType}
TRUNCATED: Final = "The file may be an incomplete download: compare its size with the published one."


class Cursor:
    """Reads little-endian values from `data`, which stays referenced by what is read lazily."""

    def __init__(self, data: memoryview, path: Path) -> None:
        self.data = data
        self.path = path
        self.position = 0
        self.end = min(len(data), GGUF_MAX_HEADER_BYTES)
        self._strings_left = GGUF_MAX_STRINGS

    def where(self, what: str) -> str:
        """Return the address of the current position for an error."""
        name = what if what.isprintable() and len(what) <= 120 else shown(what)
        return f"{self.path}, byte {self.position}, {name}"

    def fail(
        self, problem: str, what: str, *, expected: object = None, found: object = None, hint: str | None = None
    ) -> NoReturn:
        """Refuse the file at the current position."""
        raise FormatError(problem, where=self.where(what), expected=expected, found=found, hint=hint)

    def exceed(self, problem: str, what: str, limit: int, found: int) -> NoReturn:
        """Refuse the file because of a named limit."""
        raise LimitError(problem, where=self.where(what), expected=f"at most {limit}", found=found)

    def need(self, count: int, what: str) -> None:
        """Refuse the file if fewer than `count` bytes are left."""
        left = self.end - self.position
        if count <= left:
            return
        if self.end < len(self.data):
            self.exceed("the header is too long", what, GGUF_MAX_HEADER_BYTES, self.position + count)
        self.fail(
            "the file ends too early",
            what,
            expected=f"{count} more bytes",
            found=left,
            hint=TRUNCATED,
        )

    def u32(self, what: str) -> int:
        """Read an unsigned 32-bit number."""
        self.need(4, what)
        value: int = _U32.unpack_from(self.data, self.position)[0]
        self.position += 4
        return value

    def u64(self, what: str) -> int:
        """Read an unsigned 64-bit number."""
        self.need(8, what)
        value: int = _U64.unpack_from(self.data, self.position)[0]
        self.position += 8
        return value

    def count(self, what: str, limit: int, smallest: int) -> int:
        """Read a number of items that take at least `smallest` bytes each; bounded by a limit and by the bytes left."""
        value = self.u64(what)
        if value > limit:
            self.position -= 8
            self.exceed("too many items", what, limit, value)
        room = (self.end - self.position) // smallest
        if value > room:
            self.position -= 8
            if self.end < len(self.data):
                self.need(8 + value * smallest, what)
            self.fail("more items than the file has room for", what, expected=f"at most {room}", found=value)
        return value

    def string(self, what: str, limit: int = GGUF_MAX_STRING_BYTES) -> bytes:
        """Read a length and that many bytes."""
        length = self.u64(what)
        if length > limit:
            self.position -= 8
            self.exceed("a string is too long", what, limit, length)
        self.need(length, what)
        raw = bytes(self.data[self.position : self.position + length])
        self.position += length
        return raw

    def name(self, what: str, limit: int) -> str:
        """Read a string that names a key or a tensor: UTF-8 and not empty."""
        begin = self.position
        raw = self.string(what, limit)
        try:
            name = raw.decode("utf-8")
        except UnicodeDecodeError:
            self.position = begin
            self.fail("a name is not UTF-8", what, found=shown(raw))
        if not name:
            self.position = begin
            self.fail("a name is empty", what)
        return name

    def value_type(self, what: str) -> ValueType:
        """Read the type of a value."""
        kind = _TYPES.get(number := self.u32(what))
        if kind is None:
            self.position -= 4
            self.fail("unknown type of value", what, expected=f"0 to {max(_TYPES)}", found=number)
        return kind

    def value(self, kind: ValueType, what: str) -> Any:
        """Read a value of any type: int, float, bool, str, a read-only NumPy view or a `StringArray`."""
        if kind is ValueType.STRING:
            return text(self.string(what))
        if kind is ValueType.ARRAY:
            return self._array(what)
        scalar = _SCALARS[kind]
        self.need(scalar.size, what)
        (value,) = scalar.unpack_from(self.data, self.position)
        if kind is ValueType.BOOL:
            if value > 1:
                self.fail("not a truth value", what, expected="0 or 1", found=value)
            value = value == 1
        self.position += scalar.size
        return value

    def _array(self, what: str) -> Any:
        kind = self.value_type(what)
        if kind is ValueType.ARRAY:
            self.position -= 4
            raise UnsupportedError("an array of arrays", where=self.where(what), expected="numbers, bools or strings")
        if kind is ValueType.STRING:
            return self._strings(self.count(what, GGUF_MAX_ARRAY_ITEMS, LENGTH_BYTES), what)
        dtype = _DTYPES[kind]
        items = self.count(what, GGUF_MAX_ARRAY_ITEMS, dtype.itemsize)
        values = np.frombuffer(self.data, dtype, items, self.position)
        if kind is ValueType.BOOL:
            if values.size and values.max() > 1:
                self.fail("not a truth value", what, expected="0 or 1", found=int(values.max()))
            values = values.view(np.bool_)
        self.position += values.nbytes
        return values

    def _strings(self, items: int, what: str) -> StringArray:
        if items > self._strings_left:
            self.exceed(
                "too many strings in all", what, GGUF_MAX_STRINGS, GGUF_MAX_STRINGS - self._strings_left + items
            )
        self._strings_left -= items
        starts, ends, self.position = scan_strings(self.data, self.position, self.end, items, GGUF_MAX_STRING_BYTES)
        if len(starts) < items:
            self.string(f"{what}[{len(starts)}]")  # says what is wrong with it
        return StringArray(self.data, starts, ends)
