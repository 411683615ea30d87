"""Building blocks of tests: random weights of every type."""

from __future__ import annotations

import numpy as np

from prism_inference.gguf import tensor_type

# Byte offsets of the float16 scales in a block: random bytes there could be NaN or infinite.
SCALE_OFFSETS = {
    "Q1_0": (0,),
    "Q2_0": (0,),
    "Q2_0_G128": (0,),
    "PQ2_0": (0,),
    "PTQ1_0": (26,),
    "TQ1_0": (52,),
    "TQ2_0": (64,),
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
}
FLOATS = {"F32": np.float32, "F16": np.float16}


def random_rows(kind: str, columns: int, rows: int, rng: np.random.Generator) -> np.ndarray:
    """Raw bytes of a random matrix [columns, rows] of a type: every code occurs, scales are finite and of both
    signs."""
    if kind in FLOATS:
        return (rng.standard_normal((rows, columns)) / 4).astype(FLOATS[kind]).view(np.uint8).reshape(-1)
    if kind == "BF16":
        values = (rng.standard_normal((rows, columns)) / 4).astype(np.float32)
        return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8).reshape(-1)
    row = tensor_type(kind)
    blocks = rng.integers(0, 256, (rows * columns // row.block, row.nbytes), dtype=np.uint8)
    for offset in SCALE_OFFSETS[kind]:
        scale = (rng.uniform(0.001, 0.02, len(blocks)) * rng.choice([-1, 1], len(blocks))).astype(np.float16)
        blocks[:, offset : offset + 2] = scale.view(np.uint8).reshape(-1, 2)
    return blocks.reshape(-1)
