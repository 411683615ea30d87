"""Float and integer types, MXFP4 and NVFP4: decoding to float32, encoding where there is one way to do it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Blocks = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]


def decode_number(b: Blocks) -> Floats:
    """Numbers that NumPy knows."""
    return b["x"].astype(np.float32)[:, None]


def decode_bf16(b: Blocks) -> Floats:
    """The upper half of a float32."""
    return (b["x"].astype(np.uint32) << 16).view(np.float32)[:, None]


def encode_bf16(x: Floats, b: Blocks) -> None:
    """Round to nearest, ties to even."""
    bits = np.ascontiguousarray(x[:, 0]).view(np.uint32).astype(np.uint64)
    b["x"] = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16


# What an encoder is given: these types would lose digits as float32; all others take float32.
SOURCES: dict[str, type[np.number[Any]]] = {
    "F64": np.float64,
    "I8": np.int8,
    "I16": np.int16,
    "I32": np.int32,
    "I64": np.int64,
}


def encode_number(x: npt.NDArray[Any], b: Blocks) -> None:
    """Numbers that NumPy knows, given in the type of `SOURCES`; float16 rounds to nearest, ties to even."""
    b["x"] = x[:, 0]


def nibbles(qs: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Low nibbles of all bytes, then the high ones: [n, k] → [n, 2k]."""
    return np.concatenate([qs & 15, qs >> 4], axis=-1)


# E2M1 values times two, by code.
FP4 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)


def decode_mxfp4(b: Blocks) -> Floats:
    """One exponent (E8M0) for 32 codes; it is halved because the table is doubled."""
    scale = np.ldexp(np.float32(1), b["e"].astype(np.int32) - 128).astype(np.float32)
    return np.asarray(FP4[nibbles(b["qs"])] * scale[:, None])


def _ue4m3() -> Floats:
    """Values of the unsigned E4M3 scale codes, halved because the table is doubled; 0 and 127 mean 0."""
    code = np.arange(256)
    exponent, mantissa = (code >> 3) & 15, (code & 7).astype(np.float64)
    value = np.where(exponent == 0, mantissa * 2.0**-9, (1 + mantissa / 8) * np.exp2(exponent - 7.0))
    value[[0, 0x7F]] = 0
    return (0.5 * value).astype(np.float32)


UE4M3 = _ue4m3()


def decode_nvfp4(b: Blocks) -> Floats:
    """Four groups of 16 codes, each with a scale; a group's bytes hold its first half in the low nibbles."""
    codes = nibbles(b["qs"].reshape(-1, 4, 8))
    return np.asarray((FP4[codes] * UE4M3[b["d"]][..., None]).reshape(len(b), 64))
