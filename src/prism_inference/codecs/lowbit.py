"""One-bit, ternary and two-bit types: Q1_0, Q2_0 (both group sizes), PQ2_0, PTQ1_0, TQ1_0, TQ2_0.

Ternary digits are packed in base 3, the first digit the most significant: digit n of a byte b is
((b·3^n mod 256)·3) >> 8.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .floats import Blocks, Floats
from .legacy import column, ratio, round_away

_POWERS = np.array([1, 3, 9, 27, 81], np.uint8)


def _digits(packed: npt.NDArray[np.uint8], count: int) -> npt.NDArray[np.uint8]:
    """Digits 0, 1, 2 of each byte, digit by digit: [n, k] → [n, count, k]."""
    rotated = packed[:, None, :] * _POWERS[:count, None]  # wraps modulo 256
    return ((rotated.astype(np.uint16) * 3) >> 8).astype(np.uint8)


def _pack_digits(digits: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """The inverse: [n, count, k] → [n, k]; bytes of four digits carry a zero as the fifth."""
    value = np.zeros((len(digits), digits.shape[2]), np.uint16)
    for n in range(digits.shape[1]):
        value = value * 3 + digits[:, n].astype(np.uint16)
    if digits.shape[1] == 4:
        value *= 3
    return ((value * 256 + 242) // 243).astype(np.uint8)


def _decode_trits(b: Blocks, first: int) -> Floats:
    """Bytes of five digits (the first `first` of qs, then the others), then qh with four digits."""
    qs = b["qs"]
    parts = [_digits(qs[:, :first], 5), _digits(qs[:, first:], 5), _digits(b["qh"], 4)]
    codes = np.concatenate([part.reshape(len(b), -1) for part in parts], -1)
    return np.asarray((codes.astype(np.float32) - 1) * column(b["d"]))


def _encode_trits(codes: npt.NDArray[np.uint8], b: Blocks, first: int) -> None:
    n, rest = len(b), b["qs"].shape[1] - first
    middle, last = 5 * first, 5 * (first + rest)
    b["qs"] = np.concatenate(
        [
            _pack_digits(codes[:, :middle].reshape(n, 5, first)),
            _pack_digits(codes[:, middle:last].reshape(n, 5, rest)),
        ],
        -1,
    )
    b["qh"] = _pack_digits(codes[:, last:].reshape(n, 4, -1))


def decode_q1_0(b: Blocks) -> Floats:
    """+d where the bit is set, -d elsewhere; least significant bit first."""
    bits = np.unpackbits(b["qs"], axis=-1, bitorder="little").astype(np.float32)
    return np.asarray((2 * bits - 1) * column(b["d"]))


def encode_q1_0(x: Floats, b: Blocks) -> None:
    """d = mean|x|, bit = x >= 0."""
    b["d"] = _mean_magnitude(x).astype(np.float16)
    b["qs"] = np.packbits(x >= 0, axis=-1, bitorder="little")


def _mean_magnitude(x: Floats) -> Floats:
    """Mean of |x| per block, added one after another in float32 as the reference does."""
    total = np.zeros(len(x), np.float32)
    for j in range(x.shape[1]):
        total += np.abs(x[:, j])
    return total / np.float32(x.shape[1])


def decode_q2_0(b: Blocks) -> Floats:
    """(code - 1)·d, code 0 … 3, two bits each, least significant first (Q2_0, PQ2_0 and the older Q2_0)."""
    codes = (b["qs"][:, :, None] >> np.arange(0, 8, 2, dtype=np.uint8)) & 3
    return np.asarray((codes.reshape(len(b), -1).astype(np.float32) - 1) * column(b["d"]))


def _scaled_codes(x: Floats) -> tuple[Floats, npt.NDArray[np.uint8]]:
    """d = max|x| and code = round(x/d) + 1, ties away from zero.

    No |x/d| exceeds 1 by more than a rounding: codes are 0, 1 and 2, and the reference's bounds change nothing.
    """
    d = np.abs(x).max(-1, keepdims=True)
    return d[:, 0], (round_away(x * ratio(1, d)) + 1).astype(np.uint8)


def encode_q2_0(x: Floats, b: Blocks) -> None:
    """d = max|x|, code = round(x/d) + 1; the fourth code is never written."""
    d, codes = _scaled_codes(x)
    b["d"] = d.astype(np.float16)
    quads = codes.reshape(len(b), -1, 4)
    b["qs"] = quads[..., 0] | (quads[..., 1] << 2) | (quads[..., 2] << 4) | (quads[..., 3] << 6)


def decode_ptq1_0(b: Blocks) -> Floats:
    """(digit - 1)·d: 16 and 8 bytes of five digits, 2 bytes of four."""
    return _decode_trits(b, 16)


def encode_ptq1_0(x: Floats, b: Blocks) -> None:
    """d = max|x|, digit = round(x/d) + 1."""
    d, codes = _scaled_codes(x)
    b["d"] = d.astype(np.float16)
    _encode_trits(codes, b, 16)


def decode_tq1_0(b: Blocks) -> Floats:
    """(digit - 1)·d: 32 and 16 bytes of five digits, 4 bytes of four."""
    return _decode_trits(b, 32)


def encode_tq1_0(x: Floats, b: Blocks) -> None:
    """d = max|x|, digit = round(x/d) + 1."""
    d, codes = _scaled_codes(x)
    b["d"] = d.astype(np.float16)
    _encode_trits(codes, b, 32)


def decode_tq2_0(b: Blocks) -> Floats:
    """(code - 1)·d: per half of 32 bytes the four bit pairs in turn."""
    halves = b["qs"].reshape(-1, 2, 1, 32)
    codes = (halves >> np.arange(0, 8, 2, dtype=np.uint8).reshape(1, 1, 4, 1)) & 3
    return np.asarray((codes.reshape(-1, 256).astype(np.float32) - 1) * column(b["d"]))


def encode_tq2_0(x: Floats, b: Blocks) -> None:
    """d = max|x|, code = round(x/d) + 1."""
    d, codes = _scaled_codes(x)
    b["d"] = d.astype(np.float16)
    parts = codes.reshape(len(b), 2, 4, 32)
    b["qs"] = (parts[:, :, 0] | (parts[:, :, 1] << 2) | (parts[:, :, 2] << 4) | (parts[:, :, 3] << 6)).reshape(-1, 64)
