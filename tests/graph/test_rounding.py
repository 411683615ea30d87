"""The rounding of activations, written out value by value."""

from __future__ import annotations

import numpy as np
import pytest

from prism_inference.graph.rounding import round_activations


@pytest.mark.parametrize("factor", [1.0, 1e-9, 1e9])
def test_activations_are_rounded_by_the_reference_s_rule(factor: float, rng) -> None:
    """q = round half to even(x·127/max), value = q·(max/127), that scale in float16 where it is a normal number
    there."""
    x = (rng.standard_normal((4, 70)) * factor).astype(np.float32)
    x[0, :32] = 0
    rounded = round_activations(x)
    for row in range(4):
        for start in (0, 32, 64):
            part = x[row, start : start + 32]
            largest = np.abs(part).max()
            scale = largest / np.float32(127)
            if 2.0**-14 <= scale <= 65504:
                scale = np.float32(np.float16(scale))
            for i, value in enumerate(part):
                inverse = np.float32(127) / largest if largest else np.float32(0)
                assert rounded[row, start + i] == np.float32(round(float(value * inverse))) * scale
    np.testing.assert_allclose(rounded, x, atol=float(np.abs(x).max()) / 200)
