"""The rounding of activations against ggml's vectorized routine.

It rounds ties to even, where the encoder of Q8_0 rounds them away from zero.
"""

from __future__ import annotations

import platform
from collections.abc import Callable

import numpy as np
import pytest
from codec_oracles import ggml

from prism_inference import codecs
from prism_inference.gguf import tensor_type
from prism_inference.graph.rounding import round_activations

ROWS = 5_000
# All with scales that are normal float16 numbers: beyond those the package keeps float32 scales on purpose.
FAMILIES: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "normal": lambda rng: rng.standard_normal((ROWS, 32)),
    "ties": lambda rng: np.concatenate([np.full((ROWS, 1), 127.0), rng.integers(-253, 254, (ROWS, 31)) / 2], 1),
    "many sizes": lambda rng: rng.standard_normal((ROWS, 32)) * np.exp2(rng.integers(-5, 12, (ROWS, 1))),
    "zero rows": lambda rng: rng.standard_normal((ROWS, 32)) * rng.integers(0, 2, (ROWS, 1)),
}


def ggml_rounds(x: np.ndarray) -> np.ndarray:
    """float32 [n, 32] through ggml's blocks of Q8_0 and back."""
    raw = ggml().encode(tensor_type("Q8_0"), x, fast=True)
    return codecs.decode("Q8_0", raw, x.size).reshape(x.shape)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the rule followed is that of ggml on x86")
@pytest.mark.parametrize("family", FAMILIES)
def test_activations_are_rounded_as_in_ggml(family, rng):
    x = np.ascontiguousarray(FAMILIES[family](rng), np.float32)
    rounded = round_activations(x)
    assert np.array_equal(rounded, ggml_rounds(x))
    if family == "ties":  # the two rules differ here, or the comparison above would show nothing
        away = codecs.decode("Q8_0", codecs.encode("Q8_0", x), x.size).reshape(x.shape)
        assert not np.array_equal(rounded, away)
