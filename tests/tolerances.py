"""Every numerical budget of the suite, with its reason. The metric: NMSE = mean((a - b)²) / mean(b²)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Tolerance:
    """A bound on the NMSE and why it is that large."""

    nmse: float
    why: str


EXACT = Tolerance(0.0, "no rounding, or the same ones")
ELEMENTS = Tolerance(1e-12, "one or two float32 roundings a value: (2^-24)² is 3.6e-15")
FUNCTIONS = Tolerance(1e-11, "float32 exponential with errors below two units in the last place")
SUMS = Tolerance(1e-11, "float32 sums of some hundred products in another order than the float64 twin")
ATTENTION = Tolerance(
    1e-10, "exponentials of float32 scores; an error of a score becomes a relative error of its weight"
)
# The twin rounds activations with the codecs, the kernel by itself: a value that falls on a tie may round to either
# side, one step of 127 in one of K values.
QUANTIZED = Tolerance(1e-7, "exact integer sums; float32 scales; rare ties of the activation rounding")
TARGETS = Tolerance(1e-10, "targets without fused multiply-add round once more")


def nmse(actual: object, expected: object) -> float:
    """Normalized mean squared error in float64; infinite where a value is not finite."""
    a, b = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    assert a.shape == b.shape, (a.shape, b.shape)
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return float("inf")
    power = float((b * b).mean())
    error = float(((a - b) ** 2).mean())
    return error / power if power else (0.0 if error == 0 else float("inf"))


def check(actual: object, expected: object, tolerance: Tolerance) -> None:
    """Fail where the error exceeds the budget."""
    error = nmse(actual, expected)
    assert error <= tolerance.nmse, f"NMSE {error:.3e} above {tolerance.nmse:.0e} ({tolerance.why})"
