"""Tiles of byte products against their twins: whole numbers and scales that are powers of two, so that nothing rounds.

`test_targets.py` runs this file again with the target forced to plainer ones.
"""

from __future__ import annotations

import numpy as np
import pytest
from test_simd import link

from prism_inference.kernels import matmul  # noqa: F401  (makes the tiles)
from prism_inference.kernels.simd import OPERATIONS, load_i64
from prism_inference.kernels.simd.byte_tiles import TILES, panel_bytes
from prism_inference.kernels.target import target
from prism_inference.plan.layouts import CHUNK_BYTES, CHUNK_SCALES, CHUNK_SUMS, CHUNK_TOTALS

ABLE = {"generic": ("generic",), "avx2": ("generic", "avx2"), "avx512vnni": ("generic", "avx2", "avx512vnni")}
NAMES = [name for name, tile in TILES.items() if tile.isa in ABLE[target().isa]]
assert len(NAMES) > 10


def chunk_of(rng: np.random.Generator) -> np.ndarray:
    """A chunk of activations with all its sums."""
    chunk = np.zeros(CHUNK_BYTES, np.uint8)
    values = rng.integers(-127, 128, 64)
    scales = 2.0 ** rng.integers(-3, 4, 2)
    chunk[:64] = values.astype(np.int8).view(np.uint8)
    chunk[CHUNK_SCALES:CHUNK_SUMS] = np.repeat(scales, 4).astype(np.float32).view(np.uint8)
    chunk[CHUNK_SUMS:CHUNK_TOTALS] = (
        np.repeat(scales * values.reshape(2, 32).sum(1), 4).astype(np.float32).view(np.uint8)
    )
    chunk[CHUNK_TOTALS:] = np.repeat(values.reshape(4, 16).sum(1), 4).astype(np.int32).view(np.uint8)
    return chunk


@pytest.mark.parametrize("name", NAMES)
def test_tile_equals_twin(name: str, rng: np.random.Generator) -> None:
    tile = TILES[name]
    operation, _, _, twin = OPERATIONS[name]
    kernel, engine = link(
        lambda desc, ith, nth: operation(
            load_i64(desc), load_i64(desc + 8), load_i64(desc + 16), load_i64(desc + 24), load_i64(desc + 32)
        )
    )
    codes, lanes = tile.codes, 1024 * tile.vectors
    for chunks in (1, 3):
        panel = np.zeros((chunks, panel_bytes(tile.vectors, codes.groups, codes.minima)), np.uint8)
        smallest = -codes.largest if codes.signed else 0
        panel[:, :lanes] = rng.integers(smallest, min(codes.largest, 127) + 1, (chunks, lanes)).astype(np.uint8)
        panel[:, 0] = codes.largest  # the extreme, next to extreme activations
        numbers = panel[:, lanes:].view(np.float32)
        numbers[:] = 2.0 ** rng.integers(-3, 4, numbers.shape)
        x = np.stack([[chunk_of(rng) for _ in range(chunks + 1)] for _ in range(tile.columns)])
        sums = rng.integers(-99, 100, (tile.columns, tile.vectors, 2, 16)).astype(np.float32)
        expected = twin(panel, x[:, :chunks], sums)
        words = np.array([panel.ctypes.data, x.ctypes.data, x.strides[0], chunks, sums.ctypes.data], np.int64)
        kernel(words.ctypes.data, 0, 1)
        np.testing.assert_array_equal(sums, expected)
    del engine
