"""Where the values of a resized dimension come from: two places and a weight, as ggml has them. Knows no tensor."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .extents import Extents
from .ops import Interpolation

Taps = tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.float32]]


def all_taps(ne: Extents, source: Extents, mode: Interpolation, align_corners: bool) -> list[Taps]:
    """Return the `taps` of each dimension: the mode is that of the first two, channels and images are never mixed."""
    planes = [taps(int(ne[d]), int(source[d]), mode, align_corners) for d in (0, 1)]
    return planes + [taps(int(ne[d]), int(source[d]), Interpolation.NEAREST, False) for d in (2, 3)]


def taps(size: int, source: int, mode: Interpolation, align_corners: bool) -> Taps:
    """Return for each of `size` values two places among `source` values, and the weight of the second.

    The middles of the first and last values lie on each other, or, with `align_corners`, the values themselves.
    BILINEAR goes in a straight line from one value to the next; places beyond the ends are those of the ends. NEAREST
    takes floor(i / factor). All in float32, as in ggml: a place may differ by one where i / factor is an integer.
    """
    index = np.arange(size, dtype=np.float32)
    factor, offset = np.float32(size / source), np.float32(0.5)
    if align_corners:
        offset = np.float32(0)
        factor = np.float32((size - 1) / (source - 1)) if source > 1 and size > 1 else factor
    if mode is Interpolation.NEAREST:
        place = np.minimum((index / factor).astype(np.int32), source - 1)
        return place, place, np.zeros(size, np.float32)
    x = (index + offset) / factor - offset
    first = np.clip(np.floor(x), 0, source - 1).astype(np.int32)
    second = np.clip(np.floor(x) + 1, 0, source - 1).astype(np.int32)
    return first, second, np.clip(x - first, 0, 1).astype(np.float32)
