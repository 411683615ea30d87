"""Lowering rules: what runs along a sequence."""

from __future__ import annotations

import math

from ...graph import Op, RopeMode, RopeParameters, Tensor
from ..layouts import DELTA_ROWS, STATE_ROWS
from ..lowering import Lowering, Rule, source_of
from . import attention


def _hadamard(low: Lowering, node: Tensor) -> None:
    if node.index not in low.rotated:
        low.emit_rotation("hadamard.rotate", node, low.operand(node), low.dense(source_of(node, 0)))


def _causal_conv(low: Lowering, node: Tensor) -> None:
    x, weight, state = low.dense(source_of(node, 0)), low.dense(source_of(node, 1)), node.sources[2]
    low.emit(
        "recurrent.causal_conv" if state is not None else "recurrent.causal_conv_from_zeros",
        low.operand(node),
        low.operand(state) if state is not None else x,
        x,
        weight,
        scratch=64 * (2 * int(weight.ne[0]) - 1),
        written=2 if state is not None else 1,
    )


def _causal_conv_back(low: Lowering, node: Tensor) -> None:
    gradient, x, weight = (source_of(node, number) for number in range(3))
    low.emit(
        "convolution.causal_conv_back",
        *low.parts(node, x, weight),
        *(low.dense(tensor) for tensor in (gradient, x, weight)),
        scratch=64 * 5 * int(weight.ne[0]),
        written=2,
    )


def _ssm_conv(low: Lowering, node: Tensor) -> None:
    low.emit("convolution.ssm_conv", low.operand(node), *(low.dense(source_of(node, number)) for number in range(2)))


def _ssm_conv_back(low: Lowering, node: Tensor) -> None:
    kernel = f"convolution.ssm_conv_back.{('inputs', 'weights')[node.params[0]]}"
    low.emit(kernel, low.operand(node), *(low.dense(source_of(node, number)) for number in range(2)))


def _gated_delta_net(low: Lowering, node: Tensor) -> None:
    sources, state = [low.dense(source_of(node, number)) for number in range(5)], node.sources[5]
    low.emit(
        "recurrent.gated_delta_net" if state is not None else "recurrent.gated_delta_net_from_zeros",
        low.operand(node),
        low.operand(state) if state is not None else sources[0],
        *sources,
        scratch=0 if state is not None else 4 * STATE_ROWS * int(source_of(node, 0).ne[0]),
        written=2 if state is not None else 1,
    )


def _gated_delta_net_back(low: Lowering, node: Tensor) -> None:
    sources = [source_of(node, number) for number in range(1, 6)]
    size, tokens = int(sources[0].ne[0]), int(sources[2].ne[2])
    run = math.isqrt(tokens - 1) + 1
    row = 64 * -(-size // 16)
    states = 1 + -(-tokens // run) + run + 1  # the gradient, those before each run, those of a run
    low.emit(
        "recurrent_back.gated_delta_net_back",
        *low.parts(node, *sources),
        low.dense(source_of(node, 0)),
        *(low.dense(source) for source in sources),
        params=(run,),
        scratch=256 + 4 * row + DELTA_ROWS * row * states + 64 * run,
        written=5,
    )


def _rope(low: Lowering, node: Tensor) -> None:
    x, positions, factors = source_of(node, 0), source_of(node, 1), node.sources[2]
    parameters: RopeParameters = node.params[0]
    table = low.rope_table(positions, parameters, factors)
    pairing = {RopeMode.NORM: (1, 2), RopeMode.NEOX: (parameters.rotated // 2, 1)}[parameters.mode]
    kernel = {Op.ROPE: "rope.rotate", Op.ROPE_BACK: "rope.rotate_back"}[node.op]
    low.emit(kernel, low.operand(node), low.dense(x), table, params=pairing)


RULES: dict[Op, Rule] = {
    Op.HADAMARD: _hadamard,
    Op.CAUSAL_CONV: _causal_conv,
    Op.CAUSAL_CONV_BACK: _causal_conv_back,
    Op.SSM_CONV: _ssm_conv,
    Op.SSM_CONV_BACK: _ssm_conv_back,
    Op.GATED_DELTA_NET: _gated_delta_net,
    Op.GATED_DELTA_NET_BACK: _gated_delta_net_back,
    Op.ROPE: _rope,
    Op.ROPE_BACK: _rope,
    **attention.RULES,
}
