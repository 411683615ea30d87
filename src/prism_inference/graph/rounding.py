"""The rounding of activations before a product with quantized weights, in NumPy: the twin of
`kernels/activations.py`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

HALF_NORMAL = (np.float32(2.0**-14), np.float32(65504))  # smallest and largest normal number of float16


def round_activations(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Round rows to eight bits in blocks of 32; return the rounded values, float32 [n, k].

    inverse = 127 / max|x|, code = round half to even(x·inverse), value = code·scale with scale = max|x| / 127, rounded
    to float16 where that has a normal number for it. Within float16's range this is the reference's rule on x86 (Q8_0).
    Its Q8_1 differs in the sums alone; for K-quants, IQ and TQ types it takes blocks of 256 instead
    (docs/decisions.md). Rows may end within a block.
    """
    n, k = x.shape
    padded = np.zeros((n, -(-k // 32) * 32), np.float32)
    padded[:, :k] = x
    blocks = padded.reshape(-1, 32)
    largest = np.abs(blocks).max(-1, keepdims=True)
    inverse = np.where(largest > 0, np.float32(127) / np.where(largest > 0, largest, np.float32(1)), np.float32(0))
    exact = largest / np.float32(127)
    normal = (exact >= HALF_NORMAL[0]) & (exact <= HALF_NORMAL[1])
    scale = np.where(normal, np.where(normal, exact, 0).astype(np.float16).astype(np.float32), exact)
    rounded = np.rint(blocks * inverse.astype(np.float32)) * scale
    return np.asarray(rounded.reshape(n, -1)[:, :k])
