"""Turns Python and NumPy values into GGUF values: chooses a type where none is given.

Knows no keys and writes no files.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ..errors import FormatError, LimitError
from ..limits import GGUF_MAX_ARRAY_ITEMS, GGUF_MAX_STRING_BYTES
from .spec import SCALAR_CODES, ValueType
from .values import StringArray, shown

# The first type that holds an integer, or all integers of an array, is chosen.
_INTEGER_RANGES: Final = (
    (ValueType.UINT32, 0, 2**32 - 1),
    (ValueType.INT32, -(2**31), 2**31 - 1),
    (ValueType.UINT64, 0, 2**64 - 1),
    (ValueType.INT64, -(2**63), 2**63 - 1),
)
_ARRAY_INTEGER_RANGES: Final = (_INTEGER_RANGES[1], _INTEGER_RANGES[3], _INTEGER_RANGES[2])  # other tools write INT32
_DTYPES: Final = {
    kind: np.dtype(np.bool_ if kind is ValueType.BOOL else f"<{code}") for kind, code in SCALAR_CODES.items()
}
_STRINGS: Final = struct.pack("<II", ValueType.ARRAY, ValueType.STRING)
_KINDS: Final = {dtype: kind for kind, dtype in _DTYPES.items()}


def encode_value(value: Any, kind: ValueType | None, where: str) -> bytes:
    """Return a value's type and bytes as they stand after its key.

    `kind` is the type of the value, or of the items of an array; None chooses one (see `GGUFWriter.add`).

    Raises:
        FormatError: GGUF cannot hold the value, or the type cannot.
        LimitError: a string or an array is too long.
    """
    if isinstance(value, np.ndarray | Sequence | StringArray) and not isinstance(value, str | bytes):
        kind, raw = _encode_array(value, kind, where)
        return struct.pack("<IIQ", ValueType.ARRAY, kind, len(value)) + raw
    kind = _infer([value], _INTEGER_RANGES, where) if kind is None else kind
    return struct.pack("<I", kind) + _encode_items([value], kind, where)


def count_strings(encoded: bytes) -> int:
    """Return how many strings are in an array, given the bytes of `encode_value`; 0 for other values."""
    if encoded.startswith(_STRINGS):
        (count,) = struct.unpack_from("<Q", encoded, len(_STRINGS))
        return int(count)
    return 0


def encode_string(value: str | bytes, where: str, limit: int = GGUF_MAX_STRING_BYTES) -> bytes:
    """Return a string's length and bytes; surrogate escapes become the bytes that they stand for.

    Raises:
        FormatError: it is neither text nor bytes, or holds half a surrogate pair.
        LimitError: it is longer than `limit` bytes.
    """
    try:
        raw = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else bytes(memoryview(value))
    except (UnicodeEncodeError, TypeError) as error:
        raise FormatError("not a text", where=where, expected="text or bytes", found=shown(value)) from error
    if len(raw) > limit:
        raise LimitError("a string is too long", where=where, expected=f"at most {limit} bytes", found=len(raw))
    return struct.pack("<Q", len(raw)) + raw


def _encode_array(value: Any, kind: ValueType | None, where: str) -> tuple[ValueType, bytes]:
    """Return the type of an array's items and their bytes."""
    if isinstance(value, np.ndarray) and (value.ndim != 1 or value.dtype.newbyteorder("<") not in _KINDS):
        found = f"{value.ndim} dimensions of {value.dtype}"
        expected = "one dimension of numbers or bools"
        raise FormatError("an array that GGUF cannot hold", where=where, expected=expected, found=found)
    if len(value) > GGUF_MAX_ARRAY_ITEMS:
        raise LimitError(
            "an array is too long", where=where, expected=f"at most {GGUF_MAX_ARRAY_ITEMS} items", found=len(value)
        )
    if isinstance(value, StringArray):
        value = value.raw()
    if isinstance(value, np.ndarray):
        stored = _KINDS[value.dtype.newbyteorder("<")]
        if kind in (None, stored):
            return stored, value.astype(_DTYPES[stored], copy=False).tobytes()
        value = value.tolist()
    items = list(value)
    if kind is None:
        kind = _infer(items, _ARRAY_INTEGER_RANGES, where)
    return kind, _encode_items(items, kind, where)


def _encode_items(items: list[Any], kind: ValueType, where: str) -> bytes:
    if kind is ValueType.STRING:
        return b"".join([encode_string(item, where) for item in items])
    if kind is ValueType.ARRAY:
        raise FormatError("an array of arrays", where=where, expected="numbers, bools or strings")
    truths = sum(isinstance(item, bool | np.bool_) for item in items)
    try:
        if truths != (len(items) if kind is ValueType.BOOL else 0):
            raise TypeError("truth values and others")
        if truths:
            return bytes(map(bool, items))
        return struct.pack(f"<{len(items)}{SCALAR_CODES[kind]}", *items)
    except (struct.error, TypeError, OverflowError) as error:
        found = _some(items)
        raise FormatError("the value does not fit its type", where=where, expected=kind.name, found=found) from error


def _infer(items: list[Any], ranges: Sequence[tuple[ValueType, int, int]], where: str) -> ValueType:
    """Return the type that holds all items; that of integers for an empty array."""
    if all(isinstance(item, bool | np.bool_) for item in items) and items:
        return ValueType.BOOL
    if all(isinstance(item, str | bytes) for item in items) and items:
        return ValueType.STRING
    if all(isinstance(item, int | np.integer) for item in items):
        low, high = min(items, default=0), max(items, default=0)
        for kind, least, most in ranges:
            if least <= low and high <= most:
                return kind
    elif all(isinstance(item, int | float | np.integer | np.floating) for item in items):
        return ValueType.FLOAT32
    raise FormatError("a value that GGUF cannot hold", where=where, found=_some(items))


def _some(items: list[Any]) -> str:
    """Return a value, or the first of many, for a message."""
    return shown(items[0] if len(items) == 1 else items[:8])
