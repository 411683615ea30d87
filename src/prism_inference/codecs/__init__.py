"""Tensor types as numbers: decoding to float32 and encoding, in plain NumPy. The oracle of every kernel.

Knows neither graphs nor kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import FormatError, ParameterError, UnsupportedError
from ..gguf import TensorType
from .floats import SOURCES
from .table import CODECS, Codec, get

__all__ = ["CODECS", "Codec", "decode", "encode", "get"]

_CHUNK = 1 << 16  # elements coded at a time: the temporaries stay within a few MiB, and mostly in the cache


def decode(
    kind: str | int | TensorType, raw: bytes | bytearray | memoryview | npt.NDArray[Any], count: int
) -> npt.NDArray[np.float32]:
    """Decode `count` elements to float32 [count].

    Scales that a file gives as infinite or not a number come out as such, without a warning.

    Args:
        kind: tensor type by name or number (42 is the mainline Q2_0).
        raw: the bytes of whole blocks, exactly as many as `count` elements take; an array stands for its bytes.

    Raises:
        FormatError: a partial block, or another number of bytes.
        UnsupportedError: an unknown type.
    """
    codec = get(kind)
    data = np.frombuffer(raw, np.uint8) if isinstance(raw, bytes | bytearray) else np.asarray(raw)
    if count < 0 or count % codec.type.block or codec.type.size(count) != data.nbytes:
        raise FormatError(
            f"not the bytes of {count} elements",
            where=codec.type.name,
            expected=f"blocks of {codec.type.block} elements in {codec.type.nbytes} bytes",
            found=f"{data.nbytes} bytes",
        )
    blocks = np.ascontiguousarray(data).view(np.uint8).reshape(-1).view(codec.layout)
    out = np.empty((len(blocks), codec.type.block), np.float32)
    step = _CHUNK // codec.type.block
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, len(blocks), step):
            out[start : start + step] = codec.decode(blocks[start : start + step])
    return out.reshape(-1)


def encode(kind: str | int | TensorType, array: npt.ArrayLike) -> bytes:
    """Encode an array to the bytes of a tensor type, row after row. Integer types round to nearest, ties to even.

    Raises:
        ParameterError: not real numbers; rows that do not fill whole blocks; values that are not finite, or that the
            type (an integer's range, a float16 scale) cannot hold, with the place of the first.
        UnsupportedError: an unknown type, or one that has no encoder.
    """
    codec = get(kind)
    if codec.encode is None:
        able = ", ".join(name for name, row in CODECS.items() if row.encode is not None)
        raise UnsupportedError("no encoder for this type", where=codec.type.name, expected=able)
    values = _values(codec, _numbers(codec.type.name, array))
    rows = np.ascontiguousarray(values).reshape(-1, codec.type.block)
    blocks = np.zeros(len(rows), codec.layout)
    step = _CHUNK // codec.type.block
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, len(rows), step):
            chunk = blocks[start : start + step]
            codec.encode(rows[start : start + step], chunk)
            held = _finite_blocks(codec, chunk)
            if not held.all():
                index = (start + int(held.argmin())) * codec.type.block
                place = tuple(int(i) for i in np.unravel_index(index, values.shape))
                raise ParameterError(
                    "values are too large for this type",
                    where=f"{codec.type.name}, block at index {place}",
                    found=f"magnitudes up to {np.abs(rows[index // codec.type.block]).max()}",
                )
    return blocks.tobytes()


def _numbers(name: str, array: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return an array of real numbers, or refuse what does not make one."""
    try:
        source = np.asarray(array)
    except ValueError as error:  # rows of different lengths
        raise ParameterError("not real numbers", where=name, expected="one array", found=str(error)) from None
    if source.dtype.kind not in "fiu":
        raise ParameterError("not real numbers", where=name, found=f"an array of {source.dtype}")
    return source


def _values(codec: Codec, source: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the numbers in the type that the encoder takes, after all checks that need no encoding."""
    name, block = codec.type.name, codec.type.block
    if source.ndim == 0 or source.shape[-1] % block:
        raise ParameterError(
            "rows do not fill whole blocks",
            where=name,
            expected=f"at least one dimension, and a last one that {block} divides",
            found=source.shape,
        )
    _require(np.isfinite(source), "a value is not finite", name, source)
    target = np.dtype(SOURCES.get(name, np.float32))
    if target.kind == "i":
        limits = np.iinfo(target)
        whole = np.rint(source.astype(np.float64)) if source.dtype.kind == "f" else source
        # Below the next power of two: the largest int64 is no float64.
        _require((whole >= limits.min) & (whole < limits.max + 1), "a value is out of range", name, source)
        return whole.astype(target)
    with np.errstate(over="ignore"):
        values = source.astype(target)
    _require(np.isfinite(values), f"a value is too large for {target}", name, source)
    return values


def _require(good: npt.NDArray[np.bool_], problem: str, name: str, source: npt.NDArray[Any]) -> None:
    """Refuse the first value that is not good."""
    if not good.all():
        place = tuple(int(i) for i in np.argwhere(~good)[0])
        raise ParameterError(problem, where=f"{name}, index {place}", found=source[place])


def _finite_blocks(codec: Codec, blocks: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Tell for each block whether its float fields are finite; without such fields its decoded values decide."""
    fields = [blocks[name] for name in codec.layout.names or () if codec.layout[name].kind == "f"]
    fields = fields or [codec.decode(blocks)[:, 0]]
    return np.asarray(np.isfinite(fields).all(0))
