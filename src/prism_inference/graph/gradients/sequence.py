"""Derivatives of what runs along a sequence."""

from __future__ import annotations

from itertools import accumulate

from ..derivative import Derivative, Rule
from ..extents import contiguous_strides
from ..ops import Op
from ..tensor import Tensor


def _part(flat: Tensor, shapes: list[Tensor], number: int) -> Tensor:
    """A view of the `number`-th of several gradients that follow each other, each of its source's shape."""
    starts = [0, *accumulate(shape.elements for shape in shapes)]
    like = shapes[number]
    return flat.view(like.ne, contiguous_strides(flat.type, like.ne)[1:], 4 * starts[number])


def _rope(d: Derivative, number: int) -> Tensor:
    if number == 2:
        raise d.refuse(2, "the factors of the frequencies are not trained")
    back = d.gradient.rope_back if d.node.op is Op.ROPE else d.gradient.rope
    return back(d.source(1), d.node.params[0], d.optional(2))


def _attention(d: Derivative, number: int) -> Tensor:
    scale, cap, max_bias = d.node.params
    if number == 4:
        raise d.refuse(4, "the mask of attention is not trained")
    q, k, v, sinks = d.source(0), d.source(1), d.source(2), d.optional(5)
    if q.ne[3] != k.ne[3]:
        raise d.refuse(number, "of batches of queries that share keys none is known here", hint="Repeat the keys.")

    def parts() -> Tensor:
        options = {"mask": d.optional(4), "sinks": sinks, "max_bias": max_bias}
        return d.gradient.flash_attn_back(q, k, v, d.result, d.optional(3), scale, cap, **options)

    shapes = [q, k, v] + ([sinks] if sinks is not None else [])
    return _part(d.once("parts", parts), shapes, min(number, 3))


def _hadamard(d: Derivative, number: int) -> Tensor:
    """H is symmetric: H(s·x) goes back as s·H(g), and s·H(x) as H(s·g)."""
    block, inverse = d.node.params
    if number == 1:
        raise d.refuse(1, "the signs of a rotation are not trained")
    return d.gradient.hadamard(block, d.optional(1), inverse=not inverse)


_STATE = "the state is overwritten with another value"


def _without_state(d: Derivative, number: int, state: int) -> None:
    """Refuse the derivative of what went on from a state."""
    if d.node.sources[state] is not None:
        raise d.refuse(number, _STATE, hint="Build it without a state: every sequence starts from zeros then.")


def _causal_conv(d: Derivative, number: int) -> Tensor:
    _without_state(d, number, 2)
    x, weight = d.source(0), d.source(1)
    return _part(d.once("parts", lambda: d.gradient.causal_conv_back(x, weight)), [x, weight], number)


def _ssm_conv(d: Derivative, number: int) -> Tensor:
    return d.gradient.ssm_conv_back(d.source(1 - number), number)


def _ssm_conv_back(d: Derivative, number: int) -> Tensor:
    """Both parts are linear in the gradient and in what it meets, so that each is the other's way back."""
    g, other, u = d.source(0), d.source(1), d.gradient
    if number == 0:
        return u.ssm_conv(other) if d.node.params[0] == 0 else other.ssm_conv(u)
    return g.ssm_conv_back(u, 1 - d.node.params[0])


def _gated_delta_net(d: Derivative, number: int) -> Tensor:
    _without_state(d, number, 5)
    sources = [d.source(source) for source in range(5)]
    return _part(d.once("parts", lambda: d.gradient.gated_delta_net_back(*sources)), sources, number)


_SECOND = "its second derivative is not known here"

GRADIENTS: dict[Op, Rule | str] = {
    Op.ROPE: _rope,
    Op.ROPE_BACK: _rope,
    Op.FLASH_ATTN_EXT: _attention,
    Op.FLASH_ATTN_BACK: _SECOND,
    Op.HADAMARD: _hadamard,
    Op.CAUSAL_CONV: _causal_conv,
    Op.CAUSAL_CONV_BACK: _SECOND,
    Op.SSM_CONV: _ssm_conv,
    Op.SSM_CONV_BACK: _ssm_conv_back,
    Op.GATED_DELTA_NET: _gated_delta_net,
    Op.GATED_DELTA_NET_BACK: _SECOND,
}
IGNORED: dict[Op, frozenset[int]] = {
    Op.ROPE: frozenset({1}),
    Op.ROPE_BACK: frozenset({1}),
    Op.FLASH_ATTN_EXT: frozenset({3}),
    Op.FLASH_ATTN_BACK: frozenset({5}),
}
