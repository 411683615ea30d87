"""Functions of one value, their derivatives, and gated units, element by element: rows without gaps between values.

`x.<kind>` is y = f(a); `slope.<kind>` is y = a · f'(b), the way back; `gate.<kind>` is y = f(a) · b.
"""

from __future__ import annotations

import numpy as np

from . import mathematics as m
from .elementwise import mapped, paired
from .jit import helper
from .operands import parameter_f32
from .simd import absolute, maximum, minimum, splat, square_roots, where_less

_ZERO, _ONE, _MINUS, _TWO = np.float32(0), np.float32(1), np.float32(-1), np.float32(2)
_THREE, _SIX = np.float32(3), np.float32(6)

# In `maximum` and `minimum` the bound comes first: of NaN the second operand is kept.


@helper
def _sgn(x):
    return where_less(splat(_ZERO), x, splat(_ONE), where_less(x, splat(_ZERO), splat(_MINUS), x))


@helper
def _neg(x):
    return x * splat(_MINUS)


@helper
def _step(x):
    return where_less(splat(_ZERO), x, splat(_ONE), splat(_ZERO))


@helper
def _relu(x):
    return maximum(splat(_ZERO), x)


@helper
def _elu(x):
    return where_less(splat(_ZERO), x, x, m.expm1(x))


@helper
def _elu_slope(x):
    return where_less(splat(_ZERO), x, splat(_ONE), m.exp(x))


@helper
def _hardsigmoid(x):
    return minimum(splat(_ONE), maximum(splat(_ZERO), (x + splat(_THREE)) / splat(_SIX)))


@helper
def _hardsigmoid_slope(x):
    inside = where_less(x, splat(_THREE), splat(_ONE / _SIX), splat(_ZERO))
    return where_less(splat(-_THREE), x, inside, splat(_ZERO))


@helper
def _hardswish(x):
    return x * _hardsigmoid(x)


@helper
def _hardswish_slope(x):
    inside = where_less(x, splat(_THREE), (x + x + splat(_THREE)) / splat(_SIX), splat(_ONE))
    return where_less(splat(-_THREE), x, inside, splat(_ZERO))


@helper
def _xielu(desc, x):
    """Parameters alpha_n, alpha_p, beta, eps."""
    linear = splat(parameter_f32(desc, 2)) * x
    negative = (m.expm1(minimum(splat(parameter_f32(desc, 3)), x)) - x) * splat(parameter_f32(desc, 0)) + linear
    return where_less(splat(_ZERO), x, splat(parameter_f32(desc, 1)) * x * x + linear, negative)


@helper
def _xielu_slope(desc, x):
    eps, beta = splat(parameter_f32(desc, 3)), splat(parameter_f32(desc, 2))
    power = where_less(x, eps, m.exp(x), splat(_ZERO))
    negative = (power - splat(_ONE)) * splat(parameter_f32(desc, 0)) + beta
    return where_less(splat(_ZERO), x, splat(_TWO * parameter_f32(desc, 1)) * x + beta, negative)


@helper
def _leaky_relu(desc, x):
    return where_less(splat(_ZERO), x, x, splat(parameter_f32(desc, 0)) * x)


@helper
def _swiglu_oai(desc, a, b):
    """Parameters alpha, limit."""
    alpha, limit = splat(parameter_f32(desc, 0)), splat(parameter_f32(desc, 1))
    x = minimum(limit, a)
    y = minimum(limit, maximum(splat(-parameter_f32(desc, 1)), b))
    return x * m.sigmoid(alpha * x) * (y + splat(_ONE))


def _plain(function):
    """Kernel of a function without parameters."""

    @helper
    def applied(desc, x):
        return function(x)

    return mapped(applied)


def _slope(function):
    """Kernel y = a · function(b)."""

    @helper
    def applied(desc, a, b):
        return a * function(b)

    return paired(applied)


def _slope_by_parameters(function):
    @helper
    def applied(desc, a, b):
        return a * function(desc, b)

    return paired(applied)


def _gate(function):
    """Kernel y = function(a) · b."""

    @helper
    def applied(desc, a, b):
        return function(a) * b

    return paired(applied)


_FUNCTIONS = {
    "abs": absolute,
    "sgn": _sgn,
    "neg": _neg,
    "step": _step,
    "tanh": m.tanh,
    "elu": _elu,
    "relu": _relu,
    "sigmoid": m.sigmoid,
    "gelu": m.gelu_tanh,
    "gelu_quick": m.gelu_quick,
    "silu": m.silu,
    "hardswish": _hardswish,
    "hardsigmoid": _hardsigmoid,
    "exp": m.exp,
    "expm1": m.expm1,
    "softplus": m.softplus,
    "gelu_erf": m.gelu_erf,
    "floor": m.floor,
    "ceil": m.ceil,
    "round": m.round_away,
    "trunc": m.trunc,
    "sqrt": square_roots,
    "log": m.log,
}
_SLOPES = {
    "elu": _elu_slope,
    "gelu": m.gelu_tanh_slope,
    "gelu_quick": m.gelu_quick_slope,
    "gelu_erf": m.gelu_erf_slope,
    "silu": m.silu_slope,
    "hardswish": _hardswish_slope,
    "hardsigmoid": _hardsigmoid_slope,
}
_GATES = {
    "reglu": _relu,
    "geglu": m.gelu_tanh,
    "swiglu": m.silu,
    "geglu_erf": m.gelu_erf,
    "geglu_quick": m.gelu_quick,
}

KERNELS = {
    **{f"x.{kind}": _plain(function) for kind, function in _FUNCTIONS.items()},
    "x.xielu": mapped(_xielu),
    "x.leaky_relu": mapped(_leaky_relu),
    **{f"slope.{kind}": _slope(function) for kind, function in _SLOPES.items()},
    "slope.xielu": _slope_by_parameters(_xielu_slope),
    **{f"gate.{kind}": _gate(function) for kind, function in _GATES.items()},
    "gate.swiglu_oai": paired(_swiglu_oai),
}
