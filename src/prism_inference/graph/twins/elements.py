"""Twins of what is done element by element."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ... import codecs
from ..ops import Glu, Op, Unary
from ..tensor import Tensor
from .memory import Array, Memory, Twin, repeated, wide_inputs


def _binary(function: Callable[[Array, Array], Array]) -> Twin:
    """Twin of an operation on two tensors, the second repeated to the first."""

    def twin(memory: Memory, node: Tensor) -> None:
        a, b = wide_inputs(memory, node)
        memory.write(node, function(a, repeated(b, a)))

    return twin


def _function(function: Callable[..., Array]) -> Twin:
    """Twin of a function of one value and the operation's parameters."""

    def twin(memory: Memory, node: Tensor) -> None:
        memory.write(node, function(wide_inputs(memory, node)[0], *node.params))

    return twin


def _add_id(memory: Memory, node: Tensor) -> None:
    a, b, index = wide_inputs(memory, node)
    memory.write(node, a + b[0, 0][index[0, 0]][None])


def _fill(memory: Memory, node: Tensor) -> None:
    memory.write(node, np.asarray(node.params[0]))


def _arange(memory: Memory, node: Tensor) -> None:
    start, _, step = node.params
    memory.write(node, start + step * np.arange(int(node.ne[0])))


def _round_to(memory: Memory, node: Tensor) -> None:
    a = wide_inputs(memory, node)[0].astype(np.float32)
    kind = node.params[0]
    raw = np.frombuffer(codecs.encode(kind, a.reshape(-1, a.shape[-1])), np.uint8)
    memory.write(node, codecs.decode(kind, raw, a.size).reshape(a.shape))


# --- Functions of one value ---------------------------------------------------------------------------


def sigmoid(a: Array) -> Array:
    """1 / (1 + e^-x)."""
    return np.asarray(1.0 / (1.0 + np.exp(-a)))


def silu(a: Array) -> Array:
    """x / (1 + e^-x)."""
    return np.asarray(a / (1.0 + np.exp(-a)))


def _silu_slope(a: Array) -> Array:
    s = sigmoid(a)
    return np.asarray(s * (1.0 + a * (1.0 - s)))


_erf = np.vectorize(math.erf, otypes=[np.float64])
_C = math.sqrt(2.0 / math.pi)


def _normal_cdf(a: Array) -> Array:
    return np.asarray(0.5 * (1.0 + _erf(a / math.sqrt(2.0))))


def _gelu(a: Array) -> Array:
    return np.asarray(0.5 * a * (1.0 + np.tanh(_C * (a + 0.044715 * a**3))))


def _gelu_slope(a: Array) -> Array:
    t = np.tanh(_C * (a + 0.044715 * a**3))
    return np.asarray(0.5 * (1.0 + t) + 0.5 * a * (1.0 - t * t) * _C * (1.0 + 3 * 0.044715 * a * a))


def _gelu_erf(a: Array) -> Array:
    return a * _normal_cdf(a)


def _gelu_erf_slope(a: Array) -> Array:
    return np.asarray(_normal_cdf(a) + a * np.exp(-0.5 * a * a) / math.sqrt(2 * math.pi))


def _gelu_quick(a: Array) -> Array:
    return a * sigmoid(1.702 * a)


def _gelu_quick_slope(a: Array) -> Array:
    s = sigmoid(1.702 * a)
    return np.asarray(s * (1.0 + 1.702 * a * (1.0 - s)))


def _xielu(a: Array, alpha_n: float, alpha_p: float, beta: float, eps: float) -> Array:
    negative = (np.expm1(np.minimum(a, eps)) - a) * alpha_n + beta * a
    return np.where(a > 0, alpha_p * a * a + beta * a, negative)


def _xielu_slope(a: Array, alpha_n: float, alpha_p: float, beta: float, eps: float) -> Array:
    negative = (np.exp(np.minimum(a, eps)) * (a < eps) - 1.0) * alpha_n + beta
    return np.where(a > 0, 2 * alpha_p * a + beta, negative)


_UNARY: dict[Unary, Callable[..., Array]] = {
    Unary.ABS: np.abs,
    Unary.SGN: np.sign,
    Unary.NEG: np.negative,
    Unary.STEP: lambda a: (a > 0).astype(np.float64),
    Unary.TANH: np.tanh,
    Unary.ELU: lambda a: np.asarray(np.where(a > 0, a, np.expm1(np.minimum(a, 0)))),
    Unary.RELU: lambda a: np.maximum(a, 0),
    Unary.SIGMOID: sigmoid,
    Unary.GELU: _gelu,
    Unary.GELU_QUICK: _gelu_quick,
    Unary.SILU: silu,
    Unary.HARDSWISH: lambda a: a * np.clip((a + 3) / 6, 0, 1),
    Unary.HARDSIGMOID: lambda a: np.clip((a + 3) / 6, 0, 1),
    Unary.EXP: np.exp,
    Unary.EXPM1: np.expm1,
    Unary.SOFTPLUS: lambda a: np.logaddexp(0.0, a),
    Unary.GELU_ERF: _gelu_erf,
    Unary.XIELU: _xielu,
    Unary.FLOOR: np.floor,
    Unary.CEIL: np.ceil,
    Unary.ROUND: lambda a: np.sign(a) * np.floor(np.abs(a) + 0.5),
    Unary.TRUNC: np.trunc,
}

# Derivatives of those whose way back is UNARY_BACK.
_SLOPES: dict[Unary, Callable[..., Array]] = {
    Unary.ELU: lambda a: np.where(a > 0, 1.0, np.exp(np.minimum(a, 0))),
    Unary.GELU: _gelu_slope,
    Unary.GELU_QUICK: _gelu_quick_slope,
    Unary.GELU_ERF: _gelu_erf_slope,
    Unary.HARDSWISH: lambda a: np.where(a <= -3, 0.0, np.where(a >= 3, 1.0, (2 * a + 3) / 6)),
    Unary.HARDSIGMOID: lambda a: ((a > -3) & (a < 3)) / 6.0,
    Unary.XIELU: _xielu_slope,
}


def _unary(memory: Memory, node: Tensor) -> None:
    kind, *params = node.params
    memory.write(node, _UNARY[kind](wide_inputs(memory, node)[0], *params))


def _unary_back(memory: Memory, node: Tensor) -> None:
    g, a = wide_inputs(memory, node)
    kind, *params = node.params
    memory.write(node, g * _SLOPES[kind](a, *params))


def _silu_back(memory: Memory, node: Tensor) -> None:
    g, a = wide_inputs(memory, node)
    memory.write(node, g * _silu_slope(a))


# --- Gated units -------------------------------------------------------------------------------------

_GATES: dict[Glu, Callable[[Array], Array]] = {
    Glu.REGLU: lambda a: np.maximum(a, 0),
    Glu.GEGLU: _gelu,
    Glu.SWIGLU: silu,
    Glu.GEGLU_ERF: _gelu_erf,
    Glu.GEGLU_QUICK: _gelu_quick,
}


def _glu(memory: Memory, node: Tensor) -> None:
    parts = wide_inputs(memory, node)
    kind, *params, swapped = node.params
    if len(parts) == 1:
        half = parts[0].shape[-1] // 2
        parts = [parts[0][..., :half], parts[0][..., half:]]
        if swapped:
            parts.reverse()
    a, b = parts
    if kind is Glu.SWIGLU_OAI:
        alpha, limit = params
        x = np.minimum(a, limit)
        memory.write(node, x * sigmoid(alpha * x) * (1.0 + np.clip(b, -limit, limit)))
    else:
        memory.write(node, _GATES[kind](a) * b)


TWINS: dict[Op, Twin] = {
    Op.ADD: _binary(np.add),
    Op.ADD1: _binary(np.add),
    Op.ADD_ID: _add_id,
    Op.SUB: _binary(np.subtract),
    Op.MUL: _binary(np.multiply),
    Op.DIV: _binary(np.divide),
    Op.SQR: _function(np.square),
    Op.SQRT: _function(np.sqrt),
    Op.LOG: _function(np.log),
    Op.SIN: _function(np.sin),
    Op.COS: _function(np.cos),
    Op.SCALE: _function(lambda a, factor, offset: a * factor + offset),
    Op.CLAMP: _function(np.clip),
    Op.LEAKY_RELU: _function(lambda a, slope: np.where(a > 0, a, slope * a)),
    Op.FILL: _fill,
    Op.ARANGE: _arange,
    Op.ROUND_TO: _round_to,
    Op.UNARY: _unary,
    Op.UNARY_BACK: _unary_back,
    Op.SILU_BACK: _silu_back,
    Op.GLU: _glu,
}
