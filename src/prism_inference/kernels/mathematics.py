"""Functions of float32 vectors: exponential, logarithm, logistic, hyperbolic and rounding functions, the normal
distribution, and what networks make of them; sine, cosine and logarithm of float64 numbers.

Series and expansions after range reduction, the same operations on every target. Errors are stated with each function
in units in the last place (ulp) of the result, measured (tests/kernels/test_functions.py). NaN stays NaN unless said
otherwise. Knows nothing of operands.
"""

from __future__ import annotations

import numpy as np

from .jit import helper
from .simd import (
    absolute,
    bits_of,
    copy_sign,
    fma,
    from_bits,
    maximum,
    minimum,
    power_of_two,
    round_even,
    splat,
    splat_i32,
    to_float,
    truncate,
    where_less,
    zeros_i32,
)

_LOG2E = np.float32(1.4426950408889634)
# ln 2 in two parts: the first has few bits, so that n times it is exact (Cody and Waite).
_LN2_HIGH = np.float32(-0.693359375)
_LN2_LOW = np.float32(2.12194440e-4)
# Where the exponential is cut off. Beyond 127.5·ln 2 = 88.38 the power of two overflows, below -126.5·ln 2 = -87.68 it
# underflows: the wider bounds let results become infinite and 0 there.
_EXP_LOW, _EXP_ZERO = np.float32(-87.0), np.float32(-88.0)
_EXP_HIGH, _EXP_INFINITE = np.float32(88.0), np.float32(89.0)
_EXPM1_LOW = np.float32(-30)  # e^x - 1 is -1 below
_C2, _C3, _C4, _C5, _C6, _C7, _C8 = (np.float32(1.0 / f) for f in (2, 6, 24, 120, 720, 5040, 40320))
_ZERO, _HALF, _ONE, _TWO = np.float32(0), np.float32(0.5), np.float32(1), np.float32(2)


# --- Exponentials ---------------------------------------------------------------------------------------


@helper
def _reduced(x):
    """x = n·ln 2 + r with |r| <= ln 2 / 2: n as integers and as floats, and r."""
    n = round_even(x * splat(_LOG2E))
    nf = to_float(n)
    return n, nf, fma(nf, splat(_LN2_LOW), fma(nf, splat(_LN2_HIGH), x))


@helper
def _series(r):
    """e^r for |r| <= 0.43."""
    p = fma(splat(_C7), r, splat(_C6))
    p = fma(p, r, splat(_C5))
    p = fma(p, r, splat(_C4))
    p = fma(p, r, splat(_C3))
    p = fma(p, r, splat(_C2))
    p = fma(p, r, splat(_ONE))
    return fma(p, r, splat(_ONE))


@helper
def _bounded(x, low, high):
    """e^x with x cut off at two bounds."""
    # The bounds come first in the comparisons: of NaN the second operand is kept.
    n, _, r = _reduced(minimum(splat(high), maximum(splat(low), x)))
    return _series(r) * power_of_two(n)


@helper
def exponential(x):
    """e^x; below -87 the value at -87 (1.6e-38), above 88 the value at 88: never infinite, never subnormal. 2 ulp."""
    return _bounded(x, _EXP_LOW, _EXP_HIGH)


@helper
def _scaled(p, n, nf):
    """p·2^n for n from -150 to 128 and p near 1, rounded once: in two steps, because 2^n itself may not exist."""
    half = round_even(nf * splat(_HALF))
    return p * power_of_two(half) * power_of_two(n - half)


@helper
def exp(x):
    """e^x over the whole range: infinite above 88.72, subnormal below -87.34, 0 below -103.97. 2 ulp."""
    n, nf, r = _reduced(minimum(splat(np.float32(89)), maximum(splat(np.float32(-104)), x)))
    return _scaled(_series(r), n, nf)


@helper
def _less_one(r):
    """e^r - 1 for |r| <= ln 2 / 2."""
    p = fma(splat(_C8), r, splat(_C7))
    p = fma(p, r, splat(_C6))
    p = fma(p, r, splat(_C5))
    p = fma(p, r, splat(_C4))
    p = fma(p, r, splat(_C3))
    p = fma(p, r, splat(_C2))
    return fma(p, r * r, r)


@helper
def expm1(x):
    """e^x - 1 = 2^n·((e^r - 1) + (1 - 2^-n)), exact near 0. 2 ulp."""
    n, nf, r = _reduced(minimum(splat(np.float32(89)), maximum(splat(_EXPM1_LOW), x)))
    # From n = 60 on 2^-n no longer matters.
    rest = splat(_ONE) - power_of_two(round_even(splat(_ZERO) - minimum(splat(np.float32(60)), nf)))
    return _scaled(_less_one(r) + rest, n, nf)


@helper
def sigmoid(x):
    """1 / (1 + e^-x); 0 below -88.4. 3 ulp."""
    return splat(_ONE) / (splat(_ONE) + _bounded(splat(_ZERO) - x, _EXP_LOW, _EXP_INFINITE))


@helper
def silu(x):
    """x · sigmoid(x). 3 ulp."""
    return x / (splat(_ONE) + _bounded(splat(_ZERO) - x, _EXP_LOW, _EXP_INFINITE))


@helper
def tanh(x):
    """-u / (2 + u) with u = e^-2|x| - 1, and the sign of x. 3 ulp, near 0 too."""
    a = absolute(x)
    n, _, r = _reduced(maximum(splat(_EXPM1_LOW), splat(_ZERO) - (a + a)))
    u = (_less_one(r) + (splat(_ONE) - power_of_two(zeros_i32() - n))) * power_of_two(n)
    return copy_sign(u / (splat(_TWO) + u), x)


@helper
def softplus(x):
    """ln(1 + e^x) = max(x, 0) + ln(1 + u) with u = e^-|x|; ln(1 + u) = 2·artanh(u / (2 + u)) by its series. 3 ulp."""
    u = _bounded(splat(_ZERO) - absolute(x), _EXP_ZERO, _EXP_HIGH)
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
    return fma(splat(_TWO) * s, p, maximum(splat(_ZERO), x))


# --- Logarithm --------------------------------------------------------------------------------------------

_SMALLEST = np.float32(2.0**-126)  # normal number
_LIFT = np.float32(2.0**25)  # makes subnormal numbers normal
_MIDDLE = 0x3F800000 - 0x3F3504F3  # bits of 1 less those of √½: exponents change at √½·2^n
_BIAS = 127
_INFINITE = np.float32(np.inf)
_NAN = np.float32(np.nan)


@helper
def log(x):
    """The natural logarithm: -inf of 0, NaN of negative numbers. 1 ulp.

    x = m·2^e with √½ <= m < √2; with f = m - 1 and s = f / (2 + f), ln(1 + f) = 2·artanh(s) = f - s·(f - R), where
    R = 2s²/3 + 2s⁴/5 + …
    """
    tiny = splat(_SMALLEST)
    bits = bits_of(where_less(x, tiny, x * splat(_LIFT), x))
    biased = (bits + splat_i32(_MIDDLE)) >> 23
    e = to_float(biased - splat_i32(_BIAS)) - where_less(x, tiny, splat(np.float32(25)), splat(_ZERO))
    f = from_bits(bits - ((biased - splat_i32(_BIAS)) << 23)) - splat(_ONE)
    s = f / (splat(_TWO) + f)
    z = s * s
    p = fma(z, splat(np.float32(2 / 11)), splat(np.float32(2 / 9)))
    p = fma(z, p, splat(np.float32(2 / 7)))
    p = fma(z, p, splat(np.float32(2 / 5)))
    p = fma(z, p, splat(np.float32(2 / 3)))
    near = f - fma(e, splat(_LN2_LOW), s * (f - z * p))
    value = fma(splat(_ZERO) - e, splat(_LN2_HIGH), near)
    value = where_less(x, splat(_INFINITE), value, x)  # infinity and NaN
    pole = where_less(x, splat(_ZERO), splat(_NAN), x) - splat(_INFINITE)
    return where_less(splat(_ZERO), x, value, pole)


@helper
def logarithm_wide(x):
    """ln x of a float64 x >= 1, as sums of exponentials are. 2e-16·ln x, or 1e-16 near 1."""
    e = 0
    while x > 1.4142135623730951 and e < 1024:
        x *= 0.5
        e += 1
    s = (x - 1.0) / (x + 1.0)
    z = s * s
    p = 0.0
    for k in range(21, -1, -2):
        p = p * z + 1.0 / k
    return 2.0 * s * p + e * 0.6931471805599453


# --- Rounding to integers ---------------------------------------------------------------------------------

_WHOLE = np.float32(2.0**23)  # from here on all float32 numbers are integers


@helper
def trunc(x):
    """The next integer towards zero. Exact."""
    a = absolute(x)
    whole = copy_sign(to_float(truncate(minimum(a, splat(_WHOLE)))), x)
    return where_less(a, splat(_WHOLE), whole, x)


@helper
def floor(x):
    """The next integer below. Exact."""
    whole = trunc(x)
    return where_less(x, whole, whole - splat(_ONE), whole)


@helper
def ceil(x):
    """The next integer above. Exact."""
    whole = trunc(x)
    return where_less(whole, x, whole + splat(_ONE), whole)


@helper
def round_away(x):
    """The nearest integer, ties away from zero. Exact."""
    whole = trunc(x)
    rest = absolute(x - whole)  # exact, where adding ½ to x might round
    return where_less(rest, splat(_HALF), whole, whole + copy_sign(splat(_ONE), x))


# --- The normal distribution ------------------------------------------------------------------------------

# (1 + a/4)·Φ(-a)·e^(a²/2) as a polynomial of t = (a - 4) / (a + 4): such an expansion of e^(x²)·erfc(x) holds over all
# of [0, inf) (Shepherd and Laframboise, Math. Comp. 36, 1981, with a variable of this kind). The coefficients are those
# of the Chebyshev expansion, computed with 40 digits and cut off after t¹¹: 2.3e-10.
_TAIL = (
    *(0.188821283, -0.151974158, 0.0967843485, -0.04663054, 0.0150991621, -0.00188442929),
    *(-0.000869988659, 0.000405510026, 3.34133468e-05, -5.38934441e-05, -4.32770575e-07, 5.29574606e-06),
)
_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7, _T8, _T9, _T10, _T11 = (np.float32(c) for c in _TAIL)
_UPPER_HALF = -4096  # mask of the upper bits of a float32: 12 of its mantissa, whose square is exact
_ROOT = np.float32(0.3989422804014327)  # 1 / √(2π)


@helper
def _normal(x):
    """Φ(-|x|) and φ(x) of the standard normal distribution. 8 ulp."""
    a = minimum(splat(np.float32(20)), absolute(x))
    # -a²/2 in two parts, the first exact, so that the exponential is as exact as its series.
    upper = from_bits(bits_of(a) & splat_i32(_UPPER_HALF))
    high = splat(np.float32(-0.5)) * upper * upper
    low = splat(np.float32(-0.5)) * (a - upper) * (a + upper)
    n, nf, r = _reduced(maximum(splat(np.float32(-104)), high))
    bell = _scaled(_series(r + low), n, nf)
    inverse = splat(_ONE) / (a + splat(np.float32(4)))
    t = (a - splat(np.float32(4))) * inverse
    p = fma(splat(_T11), t, splat(_T10))
    p = fma(p, t, splat(_T9))
    p = fma(p, t, splat(_T8))
    p = fma(p, t, splat(_T7))
    p = fma(p, t, splat(_T6))
    p = fma(p, t, splat(_T5))
    p = fma(p, t, splat(_T4))
    p = fma(p, t, splat(_T3))
    p = fma(p, t, splat(_T2))
    p = fma(p, t, splat(_T1))
    p = fma(p, t, splat(_T0))
    return splat(np.float32(4)) * inverse * p * bell, bell * splat(_ROOT)


@helper
def gelu_erf(x):
    """x·Φ(x). 8 ulp."""
    tail, _ = _normal(x)
    return x * where_less(splat(_ZERO), x, splat(_ONE) - tail, tail)


@helper
def gelu_erf_slope(x):
    """Φ(x) + x·φ(x)."""
    tail, density = _normal(x)
    return where_less(splat(_ZERO), x, splat(_ONE) - tail, tail) + x * density


# --- Other gates and their derivatives ----------------------------------------------------------------


@helper
def _gate(x):
    """σ = 1 / (1 + e^-x) and 1 - σ, both without cancellation."""
    e = _bounded(splat(_ZERO) - x, _EXP_LOW, _EXP_HIGH)
    s = splat(_ONE) / (splat(_ONE) + e)
    return s, e * s


@helper
def silu_slope(x):
    """σ·(1 + x·(1 - σ)) with σ = sigmoid(x)."""
    s, rest = _gate(x)
    return s * fma(x, rest, splat(_ONE))


# 0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))) = x·sigmoid(x·(c + d·x²)): the same function without cancellation.
_GELU_C, _GELU_D = np.float32(1.5957691216057308), np.float32(0.07135481627260025)
_SATURATED = np.float32(256)  # squares from which on the gate is 0 or 1 anyway


@helper
def gelu_tanh(x):
    """x·Φ(x) by its tanh form. The sigmoid's argument u is rounded: 1.5·|u| + 3 ulp."""
    return x * sigmoid(x * fma(x * x, splat(_GELU_D), splat(_GELU_C)))


@helper
def gelu_tanh_slope(x):
    """σ + x·σ·(1 - σ)·(c + 3·d·x²) with σ = sigmoid(x·(c + d·x²))."""
    square = minimum(splat(_SATURATED), x * x)  # so that nothing large is multiplied with 0
    s, rest = _gate(x * fma(square, splat(_GELU_D), splat(_GELU_C)))
    growth = fma(square, splat(np.float32(3) * _GELU_D), splat(_GELU_C))
    return fma(s * rest * x, growth, s)


_QUICK = np.float32(1.702)


@helper
def gelu_quick(x):
    """x · sigmoid(u) with u = 1.702·x. 1.5·|u| + 3 ulp."""
    return x * sigmoid(splat(_QUICK) * x)


@helper
def gelu_quick_slope(x):
    """σ·(1 + 1.702·x·(1 - σ)) with σ = sigmoid(1.702·x)."""
    u = splat(_QUICK) * x
    s, rest = _gate(u)
    return s * fma(u, rest, splat(_ONE))


# --- Float64 angles -------------------------------------------------------------------------------------

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
