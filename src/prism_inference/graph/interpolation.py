"""Where the values of a resized dimension come from: two places and a weight, as ggml has them. Knows no tensor."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .ops import Interpolation

Taps = tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.float32]]


def taps(size: int, source: int, mode: Interpolation, align_corners: bool) -> Taps:
    """Return for each of `size` values two places among `source` values, and the weight of the second.

    NEAREST takes floor(i·source / size). BILINEAR puts the middles of the first and last values on each other, or, with
    `align_corners`, the values themselves; places beyond the ends are those of the ends.
    """
    index = np.arange(size, dtype=np.float32)
    if mode is Interpolation.NEAREST:
        place = np.minimum((index / np.float32(size / source)).astype(np.int32), source - 1)
        return place, place, np.zeros(size, np.float32)
    factor, offset = np.float32(size / source), np.float32(0.5)
    if align_corners:
        offset = np.float32(0)
        factor = np.float32((size - 1) / (source - 1)) if source > 1 and size > 1 else factor
    x = (index + offset) / factor - offset
    first = np.clip(np.floor(x), 0, source - 1).astype(np.int32)
    second = np.clip(np.floor(x) + 1, 0, source - 1).astype(np.int32)
    return first, second, np.clip(x - first, 0, 1).astype(np.float32)
