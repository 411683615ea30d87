"""Derivatives of what is done element by element."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..derivative import Derivative, Rule
from ..ops import Glu, Op, Unary
from ..tensor import Tensor


def folded(gradient: Tensor, source: Tensor) -> Tensor:
    """A gradient added up to the shape of a source that was repeated."""
    return gradient if gradient.ne == source.ne else gradient.repeat_back(*source.ne)


def _add(d: Derivative, number: int) -> Tensor:
    return folded(d.gradient, d.source(number))


def _add1(d: Derivative, number: int) -> Tensor:
    # The one value meets all of them: the sum, where ggml takes the mean of each row.
    return d.gradient if number == 0 else d.gradient.sum().reshape(*d.source(1).ne)


def _add_id(d: Derivative, number: int) -> Tensor:
    if number == 0:
        return d.gradient
    rows, index, table = d.gradient, d.source(2), d.source(1)
    count = rows.ne[1] * rows.ne[2]
    return _flat(rows, rows.ne[0], count).get_rows_back(_flat(index, count), table)


def _flat(tensor: Tensor, *ne: int) -> Tensor:
    return (tensor if tensor.contiguous else tensor.cont()).reshape(*ne)


def _sub(d: Derivative, number: int) -> Tensor:
    return d.gradient if number == 0 else folded(d.gradient.neg(), d.source(1))


def _mul(d: Derivative, number: int) -> Tensor:
    a, b = d.source(0), d.source(1)
    if number == 0:
        return d.gradient.mul(b)
    return folded(d.gradient.mul(a), b)


def _div(d: Derivative, number: int) -> Tensor:
    b = d.source(1)
    if number == 0:
        return d.gradient.div(b)
    return folded(d.gradient.mul(d.result).div(b).neg(), b)


def _sqr(d: Derivative, number: int) -> Tensor:
    return d.gradient.mul(d.source(0)).scale(2.0)


def _sqrt(d: Derivative, number: int) -> Tensor:
    return d.gradient.div(d.result).scale(0.5)


def _log(d: Derivative, number: int) -> Tensor:
    return d.gradient.div(d.source(0))


def _sin(d: Derivative, number: int) -> Tensor:
    return d.gradient.mul(d.source(0).cos())


def _cos(d: Derivative, number: int) -> Tensor:
    return d.gradient.mul(d.source(0).sin()).neg()


def _scale(d: Derivative, number: int) -> Tensor:
    return d.gradient.scale(d.node.params[0])


def _clamp(d: Derivative, number: int) -> Tensor:
    # step(x - low)·step(high - x): 1 within the bounds, 0 beyond them and on them.
    low, high = d.node.params
    x = d.source(0)
    inside = d.gradient
    if low > float("-inf"):
        inside = inside.mul(x.scale(1.0, -low).step())
    return inside if high == float("inf") else inside.mul(x.scale(-1.0, high).step())


def _leaky_relu(d: Derivative, number: int) -> Tensor:
    # slope + (1 - slope)·step(x)
    slope = d.node.params[0]
    return d.gradient.mul(d.source(0).step().scale(1.0 - slope, slope))


def _same(d: Derivative, number: int) -> Tensor:
    return d.gradient


# --- Functions of one value ---------------------------------------------------------------------------

# f'(x)·g as nodes, where that is shortest; the others have a kernel of their own (UNARY_BACK).
_FUNCTIONS: dict[Unary, Callable[[Derivative], Tensor]] = {
    Unary.ABS: lambda d: d.gradient.mul(d.source(0).sgn()),
    Unary.NEG: lambda d: d.gradient.neg(),
    Unary.RELU: lambda d: d.gradient.mul(d.source(0).step()),
    Unary.EXP: lambda d: d.gradient.mul(d.result),
    Unary.EXPM1: lambda d: d.gradient.mul(d.source(0).exp()),
    Unary.SOFTPLUS: lambda d: d.gradient.mul(d.source(0).sigmoid()),
    Unary.TANH: lambda d: d.gradient.mul(d.result.sqr().scale(-1.0, 1.0)),
    Unary.SIGMOID: lambda d: d.gradient.mul(d.result.mul(d.result.scale(-1.0, 1.0))),
    Unary.SILU: lambda d: d.gradient.silu_back(d.source(0)),
}
_STEPS = (Unary.SGN, Unary.STEP, Unary.FLOOR, Unary.CEIL, Unary.ROUND, Unary.TRUNC)


def _unary(d: Derivative, number: int) -> Tensor:
    kind, *params = d.node.params
    if kind in _STEPS:
        # Piecewise constant: zero wherever it has a derivative. `fill` reads nothing, so that no NaN passes.
        return d.source(0).fill(0.0)
    rule = _FUNCTIONS.get(kind)
    return rule(d) if rule else d.gradient.unary_back(d.source(0), kind, *params)


def _silu_back(d: Derivative, number: int) -> Tensor:
    """y = g·s(x): by g it is silu_back again, by x g·silu''(x) with silu'' = σ(1 - σ)(2 + x(1 - 2σ))."""
    x = d.source(1)
    if number == 0:
        return d.gradient.silu_back(x)
    sigma = x.sigmoid()
    slope = sigma.mul(sigma.scale(-1.0, 1.0))
    bend = slope.mul(x.mul(sigma.scale(-2.0, 1.0)).scale(1.0, 2.0))
    return d.gradient.mul(d.source(0)).mul(bend)


def _gelu_bend(x: Tensor) -> Tensor:
    """f = x/2·(1 + t) with t = tanh(u), u = c·(x + a·x³): f'' = (1 - t²)·(u' + x/2·u'' - x·t·u'²).

    u' + x/2·u'' is c·(1 + 6a·x²).
    """
    square = x.sqr()
    t = x.mul(square.scale(_GELU_A * _GELU_C, _GELU_C)).tanh()
    slope = square.scale(3 * _GELU_A * _GELU_C, _GELU_C)
    rise = square.scale(6 * _GELU_A * _GELU_C, _GELU_C)
    return t.sqr().scale(-1.0, 1.0).mul(rise.sub(x.mul(t).mul(slope.sqr())))


def _gelu_quick_bend(x: Tensor) -> Tensor:
    """f = x·σ(c·x): f'' = c·σ·(1 - σ)·(2 + c·x·(1 - 2σ))."""
    sigma = x.scale(_QUICK_C).sigmoid()
    slope = sigma.mul(sigma.scale(-_QUICK_C, _QUICK_C))
    return slope.mul(x.mul(sigma.scale(-2 * _QUICK_C, _QUICK_C)).scale(1.0, 2.0))


def _gelu_erf_bend(x: Tensor) -> Tensor:
    """f = x·Φ(x): f'' = φ(x)·(2 - x²)."""
    square = x.sqr()
    return square.scale(-0.5).exp().mul(square.scale(-1.0, 2.0)).scale(1.0 / math.sqrt(2 * math.pi))


def _elu_bend(x: Tensor) -> Tensor:
    """e^x where x <= 0, 0 elsewhere; the exponent is cut off so that nothing infinite is multiplied with 0."""
    return x.clamp(float("-inf"), 0.0).exp().mul(x.step().scale(-1.0, 1.0))


_GELU_A, _GELU_C, _QUICK_C = 0.044715, math.sqrt(2.0 / math.pi), 1.702
# f'' of those whose way back can itself be differentiated by the argument.
_BENDS: dict[Unary, Callable[[Tensor], Tensor]] = {
    Unary.GELU: _gelu_bend,
    Unary.GELU_QUICK: _gelu_quick_bend,
    Unary.GELU_ERF: _gelu_erf_bend,
    Unary.ELU: _elu_bend,
}


def _unary_back(d: Derivative, number: int) -> Tensor:
    """y = g·f'(x): by g it is unary_back again, by x g·f''(x)."""
    kind, *params = d.node.params
    if number == 0:
        return d.gradient.unary_back(d.source(1), kind, *params)
    if kind not in _BENDS:
        raise d.refuse(1, f"no second derivative of {kind.name} is known here")
    return d.gradient.mul(d.source(0)).mul(_BENDS[kind](d.source(1)))


# --- Gated units -------------------------------------------------------------------------------------

# glu kind -> the function of its gate
_GATES = {
    Glu.REGLU: Unary.RELU,
    Glu.GEGLU: Unary.GELU,
    Glu.SWIGLU: Unary.SILU,
    Glu.GEGLU_ERF: Unary.GELU_ERF,
    Glu.GEGLU_QUICK: Unary.GELU_QUICK,
}


def _glu(d: Derivative, number: int) -> Tensor:
    kind, *params, swapped = d.node.params
    if d.node.sources[1] is not None:
        return _glu_part(d, kind, params, d.source(0), d.source(1), number)
    both = d.source(0)
    half = both.ne[0] // 2
    first, second = (both.view((half, *both.ne[1:]), both.nb[1:], both.nb[0] * half * part) for part in (0, 1))
    a, b = (second, first) if swapped else (first, second)
    parts = [_glu_part(d, kind, params, a, b, part) for part in (0, 1)]
    return parts[1].concat(parts[0]) if swapped else parts[0].concat(parts[1])


def _glu_part(d: Derivative, kind: Glu, params: list[float], a: Tensor, b: Tensor, number: int) -> Tensor:
    g = d.gradient
    if kind is Glu.SWIGLU_OAI:
        return _swiglu_oai(g, a, b, number, *params)
    if number == 1:
        return a.glu(kind, g)
    gate, through = _GATES[kind], g.mul(b)
    if gate is Unary.RELU:
        return through.mul(a.step())
    return through.silu_back(a) if gate is Unary.SILU else through.unary_back(a, gate)


def _swiglu_oai(g: Tensor, a: Tensor, b: Tensor, number: int, alpha: float, limit: float) -> Tensor:
    x, y = a.clamp(float("-inf"), limit), b.clamp(-limit, limit)
    if number == 1:
        inside = b.scale(1.0, limit).step().mul(b.scale(-1.0, limit).step())
        return g.mul(x.mul(x.scale(alpha).sigmoid())).mul(inside)
    # x·σ(αx) = silu(αx) / α, so its derivative is silu'(αx).
    return g.mul(y.scale(1.0, 1.0)).silu_back(x.scale(alpha)).mul(a.scale(-1.0, limit).step())


_CONSTANT = "it depends on no source"

GRADIENTS: dict[Op, Rule | str] = {
    Op.ADD: _add,
    Op.ADD1: _add1,
    Op.ADD_ID: _add_id,
    Op.SUB: _sub,
    Op.MUL: _mul,
    Op.DIV: _div,
    Op.SQR: _sqr,
    Op.SQRT: _sqrt,
    Op.LOG: _log,
    Op.SIN: _sin,
    Op.COS: _cos,
    Op.SCALE: _scale,
    Op.CLAMP: _clamp,
    Op.LEAKY_RELU: _leaky_relu,
    Op.UNARY: _unary,
    Op.UNARY_BACK: _unary_back,
    Op.SILU_BACK: _silu_back,
    Op.GLU: _glu,
    Op.FILL: _CONSTANT,
    Op.ARANGE: _CONSTANT,
    Op.ROUND_TO: _same,
}
IGNORED: dict[Op, frozenset[int]] = {Op.ADD_ID: frozenset({2})}
