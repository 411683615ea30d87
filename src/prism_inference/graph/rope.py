"""The numbers of rotary embedding: inverse frequencies and magnitude, YaRN included. Knows no tensor."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from .operations import RopeParameters


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
