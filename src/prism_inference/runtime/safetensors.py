"""The safetensors container: tensors as bytes with a type and a shape, read and written. Knows no models.

Written here because the format's package hands BF16 out through frameworks only. A file is a length, so much JSON, and
bytes without gaps.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import FormatError, LimitError
from ..limits import GGUF_MAX_DIMS, GGUF_MAX_EXTENT, SAFETENSORS_MAX_HEADER_BYTES

SIZES = {"F32": 4, "F16": 2, "BF16": 2}  # bytes of the types that adapters come in


@dataclass(frozen=True, eq=False)
class Raw:
    """One tensor: the format's name of its type, NumPy shape, bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: npt.NDArray[np.uint8]


def read_tensors(path: Path) -> dict[str, Raw]:
    """Return the tensors of a file by name, their bytes mapped.

    Raises:
        FormatError: the file breaks the format's rules, or holds other numbers than `SIZES`.
        LimitError: a header or a shape beyond a named limit.
    """
    try:
        data = np.asarray(np.memmap(path, np.uint8, "r"))
    except (OSError, ValueError) as error:  # ValueError: an empty file
        raise FormatError("cannot be opened", where=str(path), found=str(error)) from error
    length = int.from_bytes(data[:8].tobytes(), "little")
    if len(data) < 8 or length > len(data) - 8:
        raise FormatError("not a safetensors file, or cut off", where=str(path), found=f"{len(data)} bytes")
    if (limit := SAFETENSORS_MAX_HEADER_BYTES) < length:
        raise LimitError("the header is too long", where=str(path), expected=f"at most {limit} bytes", found=length)
    header, body = parse_json(data[8 : 8 + length].tobytes(), str(path)), data[8 + length :]
    header.pop("__metadata__", None)
    rows = {name: _row(row, f"{path}, {name[:80]!r}") for name, row in header.items()}
    places = sorted(place for *_, place in rows.values())
    if [begin for begin, _ in places] + [len(body)] != [0] + [end for _, end in places]:
        raise FormatError("the tensors do not fill the file", where=str(path), found=f"{len(body)} bytes of data")
    return {name: Raw(kind, shape, body[slice(*place)]) for name, (kind, shape, place) in rows.items()}


def parse_json(raw: bytes, where: str) -> dict[str, Any]:
    """Return a JSON object.

    Raises:
        FormatError: it is none.
    """
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as error:  # also of bytes that are not UTF-8
        raise FormatError("not JSON", where=where, found=str(error)[:120]) from error
    if not isinstance(value, dict):
        raise FormatError("not a JSON object", where=where, found=type(value).__name__)
    return value


def _row(row: Any, where: str) -> tuple[str, tuple[int, ...], tuple[int, int]]:
    """Return type, shape, begin and end of a tensor after holding them against each other."""
    row = row if isinstance(row, dict) else {}
    kind, shape, place = row.get("dtype"), row.get("shape"), row.get("data_offsets")
    if not (isinstance(kind, str) and kind in SIZES and isinstance(shape, list) and isinstance(place, list)):
        raise FormatError("not a description of floats", where=where, found=repr(row)[:120])
    if len(place) != 2 or any(type(n) is not int or n < 0 for n in [*shape, *place]):
        raise FormatError("not a description of a tensor", where=where, found=repr(row)[:120])
    if len(shape) > GGUF_MAX_DIMS or max(shape, default=0) > GGUF_MAX_EXTENT:
        raise LimitError("the shape is too large", where=where, found=shape[:8])
    if place[1] - place[0] != SIZES[kind] * math.prod(shape):
        raise FormatError("wrong number of bytes", where=where, expected=SIZES[kind] * math.prod(shape), found=place)
    return kind, tuple(shape), (place[0], place[1])


def write_tensors(path: Path, tensors: Mapping[str, Raw]) -> None:
    """Write a new file; wider types come first, so that all are aligned."""
    names = sorted(tensors, key=lambda name: (-SIZES[tensors[name].dtype], name))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in names:
        raw = tensors[name]
        begin, end = end, end + raw.data.nbytes
        header[name] = {"dtype": raw.dtype, "shape": list(raw.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("xb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            file.write(np.ascontiguousarray(tensors[name].data).data)
