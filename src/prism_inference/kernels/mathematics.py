"""Exponential, logistic and hyperbolic functions of float32 vectors, sine and cosine of float64 angles.

Taylor series after range reduction, the same operations on every target; errors stay below 2 units in the last place
(float32) and 1e-15 (angles up to 2^20). Knows nothing of operands.
"""

from __future__ import annotations

import numpy as np

from .jit import helper
from .simd import absolute, fma, maximum, minimum, power_of_two, round_even, splat, to_float

_LOG2E = np.float32(1.4426950408889634)
# ln 2 in two parts: the first has few bits, so that n times it is exact (Cody and Waite).
_LN2_HIGH = np.float32(-0.693359375)
_LN2_LOW = np.float32(2.12194440e-4)
_EXP_LOW, _EXP_HIGH = np.float32(-87.0), np.float32(88.0)
_C2, _C3, _C4, _C5, _C6, _C7 = (np.float32(1.0 / f) for f in (2, 6, 24, 120, 720, 5040))
_ONE = np.float32(1)
_TWO = np.float32(2)


@helper
def exponential(x):
    """e^x; below -87 the value at -87 (1.6e-38), above 88 the value at 88: never infinite, never subnormal."""
    x = minimum(maximum(x, splat(_EXP_LOW)), splat(_EXP_HIGH))
    n = round_even(x * splat(_LOG2E))
    nf = to_float(n)
    r = fma(nf, splat(_LN2_LOW), fma(nf, splat(_LN2_HIGH), x))
    p = fma(splat(_C7), r, splat(_C6))
    p = fma(p, r, splat(_C5))
    p = fma(p, r, splat(_C4))
    p = fma(p, r, splat(_C3))
    p = fma(p, r, splat(_C2))
    p = fma(p, r, splat(_ONE))
    p = fma(p, r, splat(_ONE))
    return p * power_of_two(n)


@helper
def sigmoid(x):
    """1 / (1 + e^-x)."""
    return splat(_ONE) / (splat(_ONE) + exponential(splat(np.float32(0)) - x))


@helper
def silu(x):
    """x · sigmoid(x)."""
    return x / (splat(_ONE) + exponential(splat(np.float32(0)) - x))


@helper
def tanh(x):
    """(e^2x - 1) / (e^2x + 1), as 2·sigmoid(2x) - 1: absolute errors of one unit of 1."""
    return splat(_TWO) * sigmoid(x + x) - splat(_ONE)


@helper
def softplus(x):
    """ln(1 + e^x) = max(x, 0) + ln(1 + u) with u = e^-|x|; ln(1 + u) = 2·artanh(u / (2 + u)) by its series."""
    u = exponential(splat(np.float32(0)) - absolute(x))
    s = u / (splat(_TWO) + u)
    square = s * s
    p = splat(np.float32(1 / 15))
    p = fma(p, square, splat(np.float32(1 / 13)))
    p = fma(p, square, splat(np.float32(1 / 11)))
    p = fma(p, square, splat(np.float32(1 / 9)))
    p = fma(p, square, splat(np.float32(1 / 7)))
    p = fma(p, square, splat(np.float32(1 / 5)))
    p = fma(p, square, splat(np.float32(1 / 3)))
    p = fma(p, square, splat(_ONE))
    return fma(splat(_TWO) * s, p, maximum(x, splat(np.float32(0))))


@helper
def gelu_tanh(x):
    """0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))), written as x · sigmoid(2·…): the same function without
    cancellation."""
    inner = x * splat(np.float32(0.7978845608028654)) * fma(x * x, splat(np.float32(0.044715)), splat(_ONE))
    return x * sigmoid(inner + inner)


_HALF_PI_1 = 1.5707963267341256  # π/2 in two parts, the first with 33 bits
_HALF_PI_2 = 6.077100506506192e-11
_TWO_OVER_PI = 0.6366197723675814
_ROUND = 6755399441055744.0  # 1.5 · 2^52: adding and subtracting rounds to the nearest integer


@helper
def sine_cosine(angle):
    """(sin, cos) of a float64 angle."""
    n = (angle * _TWO_OVER_PI + _ROUND) - _ROUND
    r = (angle - n * _HALF_PI_1) - n * _HALF_PI_2
    q = np.int64(n) & 3
    s = r * r
    sine = 1.0 + s * (
        -1 / 6 + s * (1 / 120 + s * (-1 / 5040 + s * (1 / 362880 + s * (-1 / 39916800 + s / 6227020800))))
    )
    sine = r * sine
    cosine = 1.0 + s * (
        -1 / 2
        + s * (1 / 24 + s * (-1 / 720 + s * (1 / 40320 + s * (-1 / 3628800 + s * (1 / 479001600 - s / 87178291200)))))
    )
    if q == 0:
        return sine, cosine
    if q == 1:
        return cosine, -sine
    if q == 2:
        return -sine, -cosine
    return -cosine, sine
