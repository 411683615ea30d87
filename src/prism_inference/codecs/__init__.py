"""Tensor types as numbers: decoding to float32 and encoding, in plain NumPy. The oracle of every kernel.

Knows neither graphs nor kernels.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..errors import FormatError, ParameterError, UnsupportedError
from ..gguf import TensorType
from .table import CODECS, Codec, get

__all__ = ["CODECS", "Codec", "decode", "encode", "get", "quantize_activations"]

_CHUNK = 1 << 15  # blocks decoded at a time: bounds the temporaries


def decode(kind: str | int | TensorType, raw: bytes | npt.NDArray[np.uint8], count: int) -> npt.NDArray[np.float32]:
    """Decode `count` elements to float32 [count].

    Args:
        kind: tensor type by name or number (42 is the mainline Q2_0).
        raw: the bytes of whole blocks, exactly as many as `count` elements take.

    Raises:
        FormatError: a partial block, or another number of bytes.
        UnsupportedError: an unknown type.
    """
    codec = get(kind)
    data = np.frombuffer(raw, np.uint8) if isinstance(raw, bytes | bytearray | memoryview) else raw
    if count < 0 or count % codec.type.block or codec.type.size(count) != data.nbytes:
        raise FormatError(
            f"not the bytes of {count} elements",
            where=codec.type.name,
            expected=f"blocks of {codec.type.block} elements in {codec.type.nbytes} bytes",
            found=f"{data.nbytes} bytes",
        )
    blocks = np.ascontiguousarray(data).view(np.uint8).reshape(-1).view(codec.layout)
    out = np.empty((len(blocks), codec.type.block), np.float32)
    for start in range(0, len(blocks), _CHUNK):
        out[start : start + _CHUNK] = codec.decode(blocks[start : start + _CHUNK])
    return out.reshape(-1)


def encode(kind: str | int | TensorType, array: npt.ArrayLike) -> bytes:
    """Encode an array to the bytes of a tensor type, row after row.

    Raises:
        ParameterError: rows that do not fill whole blocks; values that are not finite, with the place of the first.
        UnsupportedError: a type that has no encoder.
    """
    codec = get(kind)
    if codec.encode is None:
        able = ", ".join(name for name, row in CODECS.items() if row.encode is not None)
        raise UnsupportedError("no encoder for this type", where=codec.type.name, expected=able)
    values = np.asarray(array, np.float32 if codec.layout.names != ("x",) or codec.layout["x"].kind != "i" else None)
    if values.ndim == 0 or values.shape[-1] % codec.type.block:
        raise ParameterError(
            "rows do not fill whole blocks",
            where=codec.type.name,
            expected=f"a last dimension that {codec.type.block} divides",
            found=values.shape,
        )
    finite = np.isfinite(values)
    if not finite.all():
        place = tuple(int(i) for i in np.argwhere(~finite)[0])
        raise ParameterError("a value is not finite", where=f"{codec.type.name}, index {place}", found=values[place])
    rows = np.ascontiguousarray(values).reshape(-1, codec.type.block)
    blocks = np.zeros(len(rows), codec.layout)
    for start in range(0, len(rows), _CHUNK):
        codec.encode(rows[start : start + _CHUNK], blocks[start : start + _CHUNK])
    return blocks.tobytes()


def quantize_activations(x: npt.NDArray[np.float32], kind: str) -> npt.NDArray[np.float32]:
    """Round activations as the kernels do before a product, and return the rounded values, float32 [n, k].

    Blocks of 32: inverse = 127 / max|x|, code = round half to even(x·inverse), value = code·float16(max|x| / 127): the
    reference's rule on x86. Q8_1 differs from Q8_0 only in the sums it stores. Rows that end within a block are allowed.

    Raises:
        ParameterError: another kind.
    """
    if kind not in ("Q8_0", "Q8_1"):
        raise ParameterError("no activation type", where="kind", expected="Q8_0 or Q8_1", found=repr(kind))
    n, k = x.shape
    padded = np.zeros((n, -(-k // 32) * 32), np.float32)
    padded[:, :k] = x
    blocks = padded.reshape(-1, 32)
    largest = np.abs(blocks).max(-1, keepdims=True)
    inverse = np.where(largest > 0, np.float32(127) / np.where(largest > 0, largest, np.float32(1)), np.float32(0))
    scale = (largest / np.float32(127)).astype(np.float16).astype(np.float32)
    return (np.rint(blocks * inverse.astype(np.float32)) * scale).reshape(n, -1)[:, :k]
