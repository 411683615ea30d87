"""The K-quants: blocks of 256 with scales of their own for groups of 16 or 32. Decoders only."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .floats import Blocks, Floats
from .legacy import column


def _two_bits(qs: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """64 bytes to 256 codes: per half of 32 bytes the four bit pairs in turn."""
    halves = qs.reshape(-1, 2, 1, 32)
    shifts = np.arange(0, 8, 2, dtype=np.uint8).reshape(1, 1, 4, 1)
    return np.asarray((halves >> shifts) & 3).reshape(-1, 256)


def six_bit_scales(s: npt.NDArray[np.uint8]) -> tuple[Floats, Floats]:
    """Scales and minima of eight groups from 12 bytes (Q4_K, Q5_K)."""
    low, high = s[:, :4], s[:, 4:8]
    rest = s[:, 8:]
    scale = np.concatenate([low & 63, (rest & 15) | ((low >> 6) << 4)], -1)
    minimum = np.concatenate([high & 63, (rest >> 4) | ((high >> 6) << 4)], -1)
    return scale.astype(np.float32), minimum.astype(np.float32)


def _grouped(codes: npt.NDArray[Any], scale: Floats, minimum: Floats | None = None) -> Floats:
    """codes·scale - minimum, one scale per group: [n, 256] and [n, groups]."""
    groups = codes.reshape(len(codes), scale.shape[-1], -1).astype(np.float32)
    values = scale[..., None] * groups
    if minimum is not None:
        values = values - minimum[..., None]
    return np.asarray(values.reshape(len(codes), 256))


def decode_q2_k(b: Blocks) -> Floats:
    """(d·scale)·code - dmin·minimum, groups of 16, both factors four bits of one byte."""
    scale = column(b["d"]) * (b["scales"] & 15).astype(np.float32)
    minimum = column(b["dmin"]) * (b["scales"] >> 4).astype(np.float32)
    return _grouped(_two_bits(b["qs"]), scale, minimum)


def decode_q3_k(b: Blocks) -> Floats:
    """(d·(scale - 32))·(code - 4 where the high bit is not set), groups of 16."""
    s = b["scales"]
    low = np.concatenate([s[:, :8] & 15, s[:, :8] >> 4], -1)
    high = np.concatenate([(s[:, 8:] >> shift) & 3 for shift in (0, 2, 4, 6)], -1)
    scale = column(b["d"]) * ((low | (high << 4)).astype(np.float32) - 32)
    bits = (b["hmask"][:, None, :] >> np.arange(8, dtype=np.uint8)[None, :, None]) & 1
    codes = _two_bits(b["qs"]).astype(np.int8) - np.where(bits.reshape(-1, 256) == 0, 4, 0).astype(np.int8)
    return _grouped(codes, scale)


def decode_q4_k(b: Blocks) -> Floats:
    """(d·scale)·code - dmin·minimum, groups of 32; 32 bytes hold one group low, the next high."""
    qs = b["qs"].reshape(-1, 4, 1, 32)
    codes = np.concatenate([qs & 15, qs >> 4], 2).reshape(-1, 256)
    scale, minimum = six_bit_scales(b["scales"])
    return _grouped(codes, column(b["d"]) * scale, column(b["dmin"]) * minimum)


def decode_q5_k(b: Blocks) -> Floats:
    """As Q4_K with a fifth bit: bit j of qh[m] belongs to value m of group j."""
    qs = b["qs"].reshape(-1, 4, 1, 32)
    codes = np.concatenate([qs & 15, qs >> 4], 2).reshape(-1, 8, 32)
    bits = (b["qh"][:, None, :] >> np.arange(8, dtype=np.uint8)[None, :, None]) & 1
    scale, minimum = six_bit_scales(b["scales"])
    return _grouped((codes | (bits << 4)).reshape(-1, 256), column(b["d"]) * scale, column(b["dmin"]) * minimum)


def decode_q6_k(b: Blocks) -> Floats:
    """(d·scale)·(code - 32), groups of 16; per half four bits from ql and two from qh."""
    ql, qh = b["ql"].reshape(-1, 2, 64), b["qh"].reshape(-1, 2, 1, 32)
    low = np.concatenate([ql & 15, ql >> 4], -1).reshape(-1, 2, 4, 32)
    high = (qh >> np.arange(0, 8, 2, dtype=np.uint8).reshape(1, 1, 4, 1)) & 3
    codes = (low | (high << 4)).reshape(-1, 256).astype(np.int8) - np.int8(32)
    return _grouped(codes, column(b["d"]) * b["scales"].astype(np.float32))
