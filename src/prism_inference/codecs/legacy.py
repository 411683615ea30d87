"""The types with blocks of 32: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q8_1, IQ4_NL. Low nibbles come first."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .floats import Blocks, Floats, nibbles

IQ4_VALUES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)


def column(values: npt.NDArray[Any]) -> Floats:
    """A block's number as a float32 column."""
    return values.astype(np.float32)[:, None]


def _fifth_bits(b: Blocks) -> npt.NDArray[np.uint8]:
    """The codes of 5 bits: nibble and one bit of qh."""
    high = np.unpackbits(b["qh"], axis=-1, bitorder="little")
    return np.asarray(nibbles(b["qs"]) | (high << 4))


def decode_q4_0(b: Blocks) -> Floats:
    """(code - 8)·d."""
    return np.asarray((nibbles(b["qs"]).astype(np.float32) - 8) * column(b["d"]))


def decode_q4_1(b: Blocks) -> Floats:
    """code·d + m."""
    return np.asarray(nibbles(b["qs"]).astype(np.float32) * column(b["d"]) + column(b["m"]))


def decode_q5_0(b: Blocks) -> Floats:
    """(code - 16)·d."""
    return np.asarray((_fifth_bits(b).astype(np.float32) - 16) * column(b["d"]))


def decode_q5_1(b: Blocks) -> Floats:
    """code·d + m."""
    return np.asarray(_fifth_bits(b).astype(np.float32) * column(b["d"]) + column(b["m"]))


def decode_q8(b: Blocks) -> Floats:
    """code·d (Q8_0, Q8_1, Q8_K)."""
    return np.asarray(b["qs"].astype(np.float32) * column(b["d"]))


def decode_iq4_nl(b: Blocks) -> Floats:
    """table[code]·d."""
    return np.asarray(column(b["d"]) * IQ4_VALUES[nibbles(b["qs"])])


def ratio(numerator: int, d: Floats) -> Floats:
    """numerator / d; 0 where d is 0 or so small that the quotient is infinite: as a float16 such a d is 0 as well."""
    with np.errstate(divide="ignore", over="ignore"):
        quotient = np.float32(numerator) / d
    return np.where(np.isfinite(quotient), quotient, np.float32(0))


def round_away(x: Floats) -> Floats:
    """Nearest integer, ties away from zero, as C's roundf. (Adding 0.5 would round 0.49999997 up to 1.)"""
    whole = np.trunc(x)
    return np.asarray(whole + np.copysign(np.abs(x - whole) >= 0.5, x), np.float32)


def _extreme(x: Floats) -> Floats:
    """The value of largest magnitude of each block, the first of equals, with its sign: [n, 1]."""
    place = np.abs(x).argmax(-1)[:, None]
    return np.take_along_axis(x, place, -1) + np.float32(0)  # -0 becomes 0, as in the reference


def _packed(codes: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Two halves of nibble codes to bytes."""
    half = codes.shape[-1] // 2
    q = codes.astype(np.uint8)
    return np.asarray((q[:, :half] & 15) | ((q[:, half:] & 15) << 4))


def encode_q4_0(x: Floats, b: Blocks) -> None:
    """d = extreme / -8, code = min(15, int(x/d + 8.5))."""
    d = _extreme(x) / np.float32(-8)
    b["d"] = d[:, 0].astype(np.float16)
    b["qs"] = _packed(np.minimum(15, (x * ratio(1, d) + np.float32(8.5)).astype(np.int32)))


def encode_q5_0(x: Floats, b: Blocks) -> None:
    """d = extreme / -16, code = min(31, int(x/d + 16.5))."""
    d = _extreme(x) / np.float32(-16)
    b["d"] = d[:, 0].astype(np.float16)
    codes = np.minimum(31, (x * ratio(1, d) + np.float32(16.5)).astype(np.int32))
    b["qs"] = _packed(codes)
    b["qh"] = np.packbits((codes >> 4).astype(np.uint8), axis=-1, bitorder="little")


def encode_q4_1(x: Floats, b: Blocks) -> None:
    """m = min, d = (max - min) / 15, code = min(15, int((x - m)/d + 0.5))."""
    low = x.min(-1, keepdims=True)
    d = (x.max(-1, keepdims=True) - low) / np.float32(15)
    b["d"], b["m"] = d[:, 0].astype(np.float16), low[:, 0].astype(np.float16)
    b["qs"] = _packed(np.minimum(15, ((x - low) * ratio(1, d) + np.float32(0.5)).astype(np.int32)))


def encode_q5_1(x: Floats, b: Blocks) -> None:
    """m = min, d = (max - min) / 31, code = int((x - m)/d + 0.5)."""
    low = x.min(-1, keepdims=True)
    d = (x.max(-1, keepdims=True) - low) / np.float32(31)
    b["d"], b["m"] = d[:, 0].astype(np.float16), low[:, 0].astype(np.float16)
    codes = ((x - low) * ratio(1, d) + np.float32(0.5)).astype(np.int32)
    b["qs"] = _packed(codes)
    b["qh"] = np.packbits((codes >> 4).astype(np.uint8), axis=-1, bitorder="little")


def encode_q8_0(x: Floats, b: Blocks) -> None:
    """d = max|x| / 127, code = round(x·(1/d)), ties away from zero."""
    d = np.abs(x).max(-1, keepdims=True) / np.float32(127)
    b["d"] = d[:, 0].astype(np.float16)
    b["qs"] = round_away(x * ratio(1, d))


def encode_q8_1(x: Floats, b: Blocks) -> None:
    """As Q8_0, and s = d·Σcode with the unrounded d."""
    encode_q8_0(x, b)
    d = np.abs(x).max(-1) / np.float32(127)
    b["s"] = (b["qs"].astype(np.int32).sum(-1).astype(np.float32) * d).astype(np.float16)


def encode_q8_k(x: Floats, b: Blocks) -> None:
    """d = extreme / -127 in float32, code = min(127, round half to even(x/d)), sums of 16."""
    scale = ratio(-127, _extreme(x))
    codes = np.minimum(127, np.rint(x * scale)).astype(np.int8)
    b["d"] = ratio(1, scale)[:, 0]
    b["qs"] = codes
    b["bsums"] = codes.reshape(-1, 16, 16).sum(-1, dtype=np.int16)
