"""Numbers of positions: parameters, inverse frequencies and magnitude of rotary embedding, YaRN included; slopes of
ALiBi. Knows no tensor."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .ops import RopeMode


@dataclass(frozen=True)
class RopeParameters:
    """Rotary embedding as the reference defines it.

    `rotated` values of each head turn; pair i turns by position·base^(-2i/rotated)·scale, mixed towards the unscaled
    angle by YaRN's ramp where `extension` > 0 (arXiv 2309.00071); cosine and sine are multiplied by the YaRN
    magnitude.
    """

    rotated: int
    mode: RopeMode = RopeMode.NORM
    base: float = 10000.0
    scale: float = 1.0
    extension: float = 0.0
    magnitude: float = 1.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    original_context: int = 0
    sections: tuple[int, ...] = ()  # pairs that turn by time, height and width in turn, where positions have channels


def frequencies(p: RopeParameters) -> npt.NDArray[np.float64]:
    """Return the angle per position of each pair, float64 [rotated / 2].

    Plain: base^(-2i/n)·scale. With YaRN (extension > 0) pair i goes from the scaled to the unscaled angle as a ramp
    says (arXiv 2309.00071, section 3.2; the reference clips the ramp's ends to whole pairs).
    """
    n = p.rotated
    i = np.arange(n // 2, dtype=np.float64)
    plain = p.base ** (-2.0 * i / n)
    if p.extension == 0.0:
        return plain * p.scale

    def pair_of(turns: float) -> float:
        return n * math.log(p.original_context / (turns * 2 * math.pi)) / (2 * math.log(p.base))

    low = max(0.0, math.floor(pair_of(p.beta_fast)))
    high = min(n - 1.0, math.ceil(pair_of(p.beta_slow)))
    ramp = (1.0 - np.clip((i - low) / max(0.001, high - low), 0.0, 1.0)) * p.extension
    return plain * p.scale * (1.0 - ramp) + plain * ramp


def magnitude(p: RopeParameters) -> float:
    """Return the factor of cosine and sine: YaRN adds 0.1·ln(1/scale) to 1 before multiplying."""
    if p.extension == 0.0:
        return p.magnitude
    return p.magnitude * (1.0 + 0.1 * math.log(1.0 / p.scale))


def channels(p: RopeParameters) -> npt.NDArray[np.int64]:
    """Return which channel of the positions turns each pair, int64 [rotated / 2].

    Interleaved sections: pair i belongs to channel i mod 3 while i < 3·section of that channel, else to time.
    """
    i = np.arange(p.rotated // 2)
    limits = 3 * np.array([*p.sections, 0, 0, 0][:3])
    return np.where(i < limits[i % 3], i % 3, 0).astype(np.int64)


def alibi_slopes(heads: int, max_bias: float) -> list[float]:
    """Return m_h of arXiv 2108.12409, as ggml spreads them over heads that are no power of two."""
    power = 1 << (heads.bit_length() - 1)
    m0, m1 = 2.0 ** (-max_bias / power), 2.0 ** (-max_bias / 2.0 / power)
    return [m0 ** (h + 1) if h < power else m1 ** (2 * (h - power) + 1) for h in range(heads)]
