"""Numbers of eight and of sixteen rows gathered from memory, against their twins; `test_targets.py` has plainer targets
too."""

from __future__ import annotations

import numpy as np
import pytest
from test_simd import STORE, link

from prism_inference.kernels.simd import OPERATIONS, load_i64
from prism_inference.kernels.simd.core import F32x16, I32x16

FAMILIES = ("group_hal", "group_b", "group_p")
GATHERS = {name: len(row[2]) for name, row in OPERATIONS.items() if name.startswith(FAMILIES)}
assert len(GATHERS) == 4
SIZES = {"group_half": 2, "group_halves": 2, "group_bytes": 1, "group_pair": 2}


def kernel_of(name):
    gather, result = OPERATIONS[name][0], OPERATIONS[name][1]
    store = STORE[result]
    if GATHERS[name] == 2:
        return lambda desc, ith, nth: store(desc + 64, gather(load_i64(desc), load_i64(desc + 8)))
    return lambda desc, ith, nth: store(desc + 64, gather(load_i64(desc), load_i64(desc + 8), load_i64(desc + 16)))


@pytest.mark.parametrize("name", GATHERS)
@pytest.mark.parametrize("step", [0, 3, 18, 1152])
def test_gather_equals_twin(name: str, step: int, rng) -> None:
    kernel, engine = link(kernel_of(name))
    size = SIZES[name]
    for distance in (0, 2, 18) if GATHERS[name] == 3 else (0,):
        memory = rng.integers(0, 256, 8 * step + 64, dtype=np.uint8)
        memory[1::2] &= 0x7B  # float16 without infinities
        words = np.zeros(64, np.int64)
        words[:3] = memory.ctypes.data, step, distance
        kernel(words.ctypes.data, 0, 1)
        blocks = (0, distance) if GATHERS[name] == 3 else (0,)
        rows = np.stack([[memory[row * step + b : row * step + b + size] for b in blocks] for row in range(8)])
        expected = OPERATIONS[name][3](np.ascontiguousarray(rows))
        np.testing.assert_array_equal(words[8:16].view(expected.dtype), expected)
    del engine


@pytest.mark.parametrize("step", [0, 16, 18, 1152])
def test_words_of_sixteen_rows_become_lanes(step: int, rng) -> None:
    (words, *_, words_twin), (word, *_, word_twin) = OPERATIONS["gather_words"], OPERATIONS["gather_word"]
    half, *_, half_twin = OPERATIONS["gather_half"]
    store, store_half = STORE[I32x16], STORE[F32x16]

    def kernel(desc, ith, nth):
        words(desc + 64, load_i64(desc), load_i64(desc + 8))
        store(desc + 320, word(load_i64(desc), load_i64(desc + 8)))
        store_half(desc + 384, half(load_i64(desc), load_i64(desc + 8)))

    function, engine = link(kernel)
    memory = rng.integers(0, 256, 16 * step + 16, dtype=np.uint8)
    memory[1::2] &= 0x7B  # float16 without infinities
    rows = np.stack([memory[row * step : row * step + 16] for row in range(16)])
    block = np.zeros(64, np.int64)
    block[:2] = memory.ctypes.data, step
    function(block.ctypes.data, 0, 1)
    found = block[8:56].view(np.int32).reshape(6, 16)
    np.testing.assert_array_equal(found[:4], words_twin(rows))
    np.testing.assert_array_equal(found[4], word_twin(np.ascontiguousarray(rows[:, :4])))
    np.testing.assert_array_equal(found[5].view(np.float32), half_twin(np.ascontiguousarray(rows[:, :2])))
    del engine
