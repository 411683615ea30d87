"""Lowering rules: what runs along a sequence."""

from __future__ import annotations

from ...errors import GraphError
from ...graph import Op, RopeMode, RopeParameters, Tensor
from ..layouts import ATTENTION_KEYS
from ..lowering import Lowering, Rule, source_of


def _hadamard(low: Lowering, node: Tensor) -> None:
    if node.index not in low.rotated:
        low.emit_rotation("hadamard.rotate", node, low.operand(node), low.dense(source_of(node, 0)))


def _causal_conv(low: Lowering, node: Tensor) -> None:
    x, weight, state = (source_of(node, number) for number in range(3))
    taps = int(weight.ne[0])
    low.emit(
        "recurrent.causal_conv",
        low.operand(node),
        low.operand(state),
        low.dense(x),
        low.dense(weight),
        scratch=64 * (2 * taps - 1),
        written=2,
    )


def _gated_delta_net(low: Lowering, node: Tensor) -> None:
    q, k, v, gate, beta, state = (source_of(node, number) for number in range(6))
    low.emit(
        "recurrent.gated_delta_net",
        low.operand(node),
        low.operand(state),
        *(low.dense(tensor) for tensor in (q, k, v, gate, beta)),
        written=2,
    )


def _rope(low: Lowering, node: Tensor) -> None:
    x, positions, factors = source_of(node, 0), source_of(node, 1), node.sources[2]
    parameters: RopeParameters = node.params[0]
    table = low.rope_table(positions, parameters, factors)
    pairing = {RopeMode.NORM: (1, 2), RopeMode.NEOX: (parameters.rotated // 2, 1)}[parameters.mode]
    low.emit("rope.rotate", low.operand(node), low.dense(x), table, params=pairing)


def _attention(low: Lowering, node: Tensor) -> None:
    queries, keys, values, ranges = (source_of(node, number) for number in range(4))
    if keys.nb[0] != keys.type.nbytes or values.nb[0] != values.type.nbytes:
        raise GraphError("keys or values have gaps", where=repr(node))
    low.emit(
        f"attention.{keys.type.name.lower()}",
        low.operand(node),
        low.dense(queries),
        low.operand(keys),
        low.operand(values),
        low.operand(ranges),
        params=(float(node.params[0]), float(node.params[1])),
        scratch=4 * (ATTENTION_KEYS + int(values.ne[0])),
    )


RULES: dict[Op, Rule] = {
    Op.HADAMARD: _hadamard,
    Op.CAUSAL_CONV: _causal_conv,
    Op.GATED_DELTA_NET: _gated_delta_net,
    Op.ROPE: _rope,
    Op.FLASH_ATTN_EXT: _attention,
}
