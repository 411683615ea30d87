"""The IQ types: codes that pick points of a grid, signs and scales apart. Decoders only."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .floats import Blocks, Floats, nibbles
from .grids import SIGNS, grid
from .legacy import IQ4_VALUES, column

_HALF, _QUARTER = np.float32(0.5), np.float32(0.25)
_DELTA = np.float32(0.125)


def _words(qs: npt.NDArray[Any]) -> npt.NDArray[np.uint32]:
    """Bytes or 16-bit numbers as little-endian 32-bit words: [n, k]."""
    return np.ascontiguousarray(qs).view("<u4").reshape(len(qs), -1)


def _signs_of(words: npt.NDArray[np.uint32]) -> Floats:
    """Four 7-bit sign codes of each word: [n, 8] → [n, 8, 4, 8]."""
    codes = (words[..., None] >> np.array([0, 7, 14, 21], np.uint32)) & 127
    return np.asarray(SIGNS[codes])


def _bit_signs(signs: npt.NDArray[np.uint8]) -> Floats:
    """Bytes to eight signs each, least significant bit first: [..., k] → [..., k, 8]."""
    bits = (signs[..., None] >> np.arange(8, dtype=np.uint8)) & 1
    return np.where(bits == 1, np.float32(-1), np.float32(1))


def _pair_scales(scales: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Low and high nibble of each byte in turn: [n, k] → [n, 2k]."""
    return np.stack([scales & 15, scales >> 4], -1).reshape(len(scales), -1)


def decode_iq2_xxs(b: Blocks) -> Floats:
    """Groups of 32: four grid numbers, four sign codes and a scale of four bits in two words."""
    words = _words(b["qs"]).reshape(-1, 8, 2)
    index = np.ascontiguousarray(words[..., 0]).view(np.uint8).reshape(-1, 8, 4)
    scale = column(b["d"]) * (_HALF + (words[..., 1] >> 28).astype(np.float32)) * _QUARTER
    values = scale[..., None, None] * grid("IQ2_XXS")[index] * _signs_of(words[..., 1])
    return np.asarray(values.reshape(len(b), 256))


def decode_iq2_xs(b: Blocks) -> Floats:
    """Nine bits of grid number and seven of sign code per eight values; a scale per 16."""
    q = b["qs"].reshape(-1, 16, 2)
    scale = column(b["d"]) * (_HALF + _pair_scales(b["scales"]).astype(np.float32)) * _QUARTER
    values = scale[..., None, None] * grid("IQ2_XS")[q & 511] * SIGNS[q >> 9]
    return np.asarray(values.reshape(len(b), 256))


def decode_iq2_s(b: Blocks) -> Floats:
    """Ten bits of grid number, the upper two in qh; a byte of signs per eight values; a scale per 16."""
    high = (b["qh"][:, :, None].astype(np.uint16) << np.array([8, 6, 4, 2], np.uint16)) & 0x300
    index = b["qs"][:, :32].reshape(-1, 8, 4) | high
    scale = column(b["d"]) * (_HALF + _pair_scales(b["scales"]).astype(np.float32)) * _QUARTER
    signs = _bit_signs(b["qs"][:, 32:]).reshape(-1, 16, 2, 8)
    values = scale[..., None, None] * grid("IQ2_S")[index.reshape(-1, 16, 2)] * signs
    return np.asarray(values.reshape(len(b), 256))


def decode_iq3_xxs(b: Blocks) -> Floats:
    """Groups of 32: eight grid numbers of four values, then words of sign codes and scale."""
    index = b["qs"][:, :64].reshape(-1, 8, 8)
    words = _words(b["qs"][:, 64:])
    scale = column(b["d"]) * (_HALF + (words >> 28).astype(np.float32)) * _HALF
    points = grid("IQ3_XXS")[index].reshape(-1, 8, 4, 8)
    return np.asarray((scale[..., None, None] * points * _signs_of(words)).reshape(len(b), 256))


def decode_iq3_s(b: Blocks) -> Floats:
    """Nine bits of grid number, the upper one in qh; a byte of signs per eight values; a scale 1 + 2·code per 32."""
    high = (b["qh"][:, :, None].astype(np.uint16) << np.arange(8, 0, -1, dtype=np.uint16)) & 256
    points = grid("IQ3_S")[b["qs"].reshape(-1, 8, 8) | high].reshape(-1, 8, 4, 8)
    scale = column(b["d"]) * (1 + 2 * _pair_scales(b["scales"]).astype(np.float32))
    signs = _bit_signs(b["signs"]).reshape(-1, 8, 4, 8)
    return np.asarray((scale[..., None, None] * points * signs).reshape(len(b), 256))


def decode_iq1_s(b: Blocks) -> Floats:
    """Groups of 32: eleven bits of grid number, a scale 1 + 2·code, and an offset of ±1/8 to all values."""
    qh = b["qh"]
    high = ((qh[..., None] >> np.array([0, 3, 6, 9], np.uint16)) & 7) << 8
    points = grid("IQ1_S")[b["qs"].reshape(-1, 8, 4) | high]
    scale = column(b["d"]) * (2 * ((qh >> 12) & 7).astype(np.float32) + 1)
    delta = np.where(qh & 0x8000, -_DELTA, _DELTA)
    return np.asarray((scale[..., None, None] * (points + delta[..., None, None])).reshape(len(b), 256))


def decode_iq1_m(b: Blocks) -> Floats:
    """As IQ1_S with a scale per 16, an offset per eight, and the float16 scale in the top nibbles of `scales`."""
    sc = b["scales"]
    bits = (sc[:, 0] >> 12) | ((sc[:, 1] >> 8) & 0x00F0) | ((sc[:, 2] >> 4) & 0x0F00) | (sc[:, 3] & 0xF000)
    d = column(bits.astype("<u2").view("<f2"))
    codes = (sc[..., None] >> np.array([0, 3, 6, 9], np.uint16)) & 7
    scale = d * (2 * codes.reshape(len(b), 16).astype(np.float32) + 1)
    qh = b["qh"].astype(np.uint16)
    high = np.stack([(qh << 8) & 0x700, (qh << 4) & 0x700], -1).reshape(len(b), 32)
    delta = np.stack([qh & 0x08, qh & 0x80], -1).reshape(len(b), 16, 2)
    points = grid("IQ1_S")[b["qs"] | high].reshape(-1, 16, 2, 8)
    values = scale[..., None, None] * (points + np.where(delta != 0, -_DELTA, _DELTA)[..., None])
    return np.asarray(values.reshape(len(b), 256))


def decode_iq4_xs(b: Blocks) -> Floats:
    """Groups of 32 with a six-bit scale minus 32, codes into the same table as IQ4_NL."""
    high = (b["scales_h"][:, None] >> np.arange(0, 16, 2, dtype=np.uint16)) & 3
    scale = column(b["d"]) * ((_pair_scales(b["scales_l"]) | (high << 4)).astype(np.float32) - 32)
    points = IQ4_VALUES[nibbles(b["qs"].reshape(-1, 8, 16))]
    return np.asarray((scale[..., None] * points).reshape(len(b), 256))
