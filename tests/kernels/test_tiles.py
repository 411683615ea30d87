"""Tiles and the transposition against their twins: whole numbers, so that every order of addition gives the same bits.

`test_targets.py` runs this file again with the target forced to plainer ones.
"""

from __future__ import annotations

import numpy as np
import pytest
from test_simd import link

from prism_inference.kernels.simd import OPERATIONS, load_i64

TILES = [name for name in OPERATIONS if name.startswith("tile")]
assert len(TILES) == 9
# For how b's numbers lie in memory: (terms, columns) → a view [terms, columns] of a new array.
PLACES = {
    "terms in a row": lambda terms, columns: np.zeros((columns, terms + 3), np.float32)[:, :terms].T,
    "columns in a row": lambda terms, columns: np.zeros((terms, columns + 1), np.float32)[:, :columns],
    "scattered": lambda terms, columns: np.zeros((columns, 2, terms, 3), np.float32)[:, 0, :, 1].T,
}


def kernel_of(name):
    """A kernel that reads the operation's arguments as int64 from `desc`."""
    operation = OPERATIONS[name][0]
    if name == "transpose16":
        return lambda desc, ith, nth: operation(
            load_i64(desc), load_i64(desc + 8), load_i64(desc + 16), load_i64(desc + 24)
        )
    return lambda desc, ith, nth: operation(
        load_i64(desc),
        load_i64(desc + 8),
        load_i64(desc + 16),
        load_i64(desc + 24),
        load_i64(desc + 32),
        load_i64(desc + 40),
        load_i64(desc + 48),
        load_i64(desc + 56),
        load_i64(desc + 64),
    )


def call(kernel, *arguments):
    words = np.array(arguments, np.int64)
    kernel(words.ctypes.data, 0, 1)


@pytest.mark.parametrize("name", TILES)
def test_tile_equals_twin(name, rng):
    twin = OPERATIONS[name][3]
    kernel, engine = link(kernel_of(name))
    vectors, columns = map(int, name.removeprefix("tile").split("x"))
    lanes = 16 * vectors
    for place in PLACES.values():
        for terms in (1, 2, 7, 256):
            for add in (0, 1):
                a = rng.integers(-20, 21, (terms, lanes + 5)).astype(np.float32)
                b = place(terms, columns)
                b[:] = rng.integers(-20, 21, b.shape)
                y = rng.integers(-99, 100, (columns + 1, lanes + 3)).astype(np.float32)
                expected = y.copy()
                expected[:columns, :lanes] = twin(a[:, :lanes], b, y[:columns, :lanes], add)
                steps = (a.ctypes.data, a.strides[0], b.ctypes.data, *b.strides, terms)
                call(kernel, *steps, y.ctypes.data, y.strides[0], add)
                np.testing.assert_array_equal(y, expected)
    del engine


def test_transposition_equals_twin(rng):
    kernel, engine = link(kernel_of("transpose16"))
    for gap_source, gap_target in ((0, 0), (5, 0), (0, 7), (48, 16)):
        source = rng.standard_normal((16, 16 + gap_source)).astype(np.float32)
        target = rng.standard_normal((17, 16 + gap_target)).astype(np.float32)
        expected = target.copy()
        expected[:16, :16] = OPERATIONS["transpose16"][3](source[:, :16])
        call(kernel, target.ctypes.data, target.strides[0], source.ctypes.data, source.strides[0])
        np.testing.assert_array_equal(target, expected)
    del engine
