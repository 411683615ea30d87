"""The grids of the IQ types: public tables, kept as small arrays in `grids.npz` (made by `make.py`)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt


@cache
def grid(name: str) -> npt.NDArray[np.float32]:
    """Return a type's grid, float32 [entries, 4 or 8]."""
    with np.load(Path(__file__).with_name("grids.npz")) as data:
        return np.asarray(data[name], np.float32)


def _signs() -> npt.NDArray[np.float32]:
    """Eight signs for each 7-bit code: the eighth makes the number of minus signs even."""
    code = np.arange(128)
    bits = (code[:, None] >> np.arange(7)) & 1
    all_bits = np.concatenate([bits, bits.sum(1, keepdims=True) & 1], 1)
    return np.where(all_bits == 1, -1, 1).astype(np.float32)


SIGNS = _signs()
