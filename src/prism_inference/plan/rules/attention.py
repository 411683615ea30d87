"""Lowering rules of attention and its way back: which kernel, which intermediate results, one step for each batch.

Keys that lie in a cache are met by few queries at a time, one by one, whatever the number of tokens; float32 keys that
the graph computes are taken by tiles of queries. What the way back needs of the forward pass (shares: two numbers for
each query) the tiled kernel leaves behind; after another kernel it is computed again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...errors import GraphError
from ...graph import Op, Tensor
from ...graph.extents import Extents
from ...graph.rope import alibi_slopes
from ..layouts import ATTENTION_BLOCK, ATTENTION_CELLS, ATTENTION_CHUNKS, ATTENTION_KEYS, ATTENTION_LANES
from ..lowering import Lowering, Rule, source_of
from ..steps import Operand

ROW = 4 * ATTENTION_LANES
FIXED = 1024 + 5 * ROW  # transpositions; ranges, state and delta of a tile


@dataclass(frozen=True)
class _Operands:
    """What both ways read. In place of what is absent stands the queries' operand, which is not read there."""

    queries: Operand
    keys: Operand
    values: Operand
    ranges: Operand
    mask: Operand
    slopes: Operand
    sinks: Operand
    flags: tuple[int, int, int]  # whether there are ranges, a mask, sinks

    def batch(self, index: int, count: int) -> tuple[Operand, ...]:
        """Return the operands of one of `count` batches of queries: queries to slopes."""
        keys = index * int(self.keys.ne[3]) // count
        mask = _batch(self.mask, index % int(self.mask.ne[3])) if self.flags[1] else self.mask
        parts = _batch(self.queries, index), _batch(self.keys, keys), _batch(self.values, keys)
        return (*parts, self.ranges, mask, self.slopes)


def _batch(operand: Operand, index: int) -> Operand:
    """Return one batch of an operand."""
    ne = (*operand.ne[:3], 1)
    size = operand.nbytes - (int(operand.ne[3]) - 1) * operand.nb[3]
    return replace(operand, offset=operand.offset + index * operand.nb[3], ne=ne, nbytes=size)


def _contiguous(low: Lowering, ne: Extents, name: str) -> Operand:
    """Return a new F32 operand of the arena."""
    nb = [4]
    for extent in ne:
        nb.append(nb[-1] * int(extent))
    return low.temporary(ne, (nb[0], nb[1], nb[2], nb[3]), nb[4], name)


def _float32(low: Lowering, tensor: Tensor) -> Operand:
    """Return a float tensor as dense F32; shared by all that read it so."""

    def copied() -> Operand:
        copy = _contiguous(low, tensor.ne, "decoded")
        low.emit(f"copies.copy.{tensor.type.name.lower()}.f32", copy, low.operand(tensor))
        return copy

    return low.dense(tensor) if tensor.type.name == "F32" else low.once(("float32", tensor.index), copied)


def _operands(low: Lowering, node: Tensor, first: int, rest: int) -> _Operands:
    """Gather operands: queries, keys and values from source `first` on; ranges, mask and sinks from `rest` on."""
    queries, keys, values = (source_of(node, first + number) for number in range(3))
    ranges, mask, sinks = node.sources[rest : rest + 3]
    q = low.dense(queries)
    slopes = q
    if mask is not None:
        heads, bias = int(queries.ne[2]), node.params[2]
        slopes = low.constant(np.array(alibi_slopes(heads, bias) if bias > 0 else [1.0] * heads, np.float32), "slopes")
    k, v = (low.operand(t) if t.type.block > 1 or _in_cache(keys) else _float32(low, t) for t in (keys, values))
    return _Operands(
        q,
        k,
        v,
        low.operand(ranges) if ranges is not None else q,
        _float32(low, mask) if mask is not None else q,
        slopes,
        low.dense(sinks) if sinks is not None else q,
        (int(ranges is not None), int(mask is not None), int(sinks is not None)),
    )


def _in_cache(keys: Tensor) -> bool:
    return keys.type.name != "F32" or keys.root()[0].op is Op.NONE


def _tiled(low: Lowering, result: Operand, operands: _Operands, params: tuple[float, float]) -> Operand:
    """Emit the tiled forward kernel; return its shares [tokens, heads, 2, batches]."""
    q, batches = operands.queries, int(operands.queries.ne[3])
    shares = _contiguous(low, (q.ne[1], q.ne[2], 2, q.ne[3]), "attention shares")
    width = int(q.ne[0]) + int(operands.values.ne[0])
    for index in range(batches):
        low.emit(
            "attention_tiles.forward",
            _batch(result, index),
            _batch(shares, index),
            *operands.batch(index, batches),
            operands.sinks,
            params=(*params, *operands.flags),
            scratch=FIXED + ROW * (width + 2 * ATTENTION_BLOCK),
            written=2,
        )
    return shares


def _attention(low: Lowering, node: Tensor) -> None:
    keys, values = source_of(node, 1), source_of(node, 2)
    params = (float(node.params[0]), float(node.params[1]))
    if not _in_cache(keys):
        operands = _operands(low, node, 0, 3)
        low.once(("attention shares", node.index), lambda: _tiled(low, low.operand(node), operands, params))
        return
    if keys.nb[0] != keys.type.nbytes or values.nb[0] != values.type.nbytes:
        raise GraphError("keys or values have gaps", where=repr(node))
    operands = _operands(low, node, 0, 3)
    plain = operands.flags == (1, 0, 0)
    kernel = f"attention.{keys.type.name.lower()}"
    for index in range(int(node.ne[3])):
        parts = operands.batch(index, int(node.ne[3]))
        low.emit(
            kernel if plain else f"{kernel}.masked",
            _batch(low.operand(node), index),
            *(parts[:4] if plain else (*parts, operands.sinks)),
            params=params if plain else (*params, *operands.flags),
            scratch=4 * (ATTENTION_KEYS + int(values.ne[0])),
        )


# --- The way back -------------------------------------------------------------------------------------------


def _attention_back(low: Lowering, node: Tensor) -> None:
    queries, keys, values, result = (source_of(node, number) for number in (1, 2, 3, 4))
    sinks = node.sources[7]
    params = (float(node.params[0]), float(node.params[1]))
    operands = replace(_operands(low, node, 1, 5), keys=_float32(low, keys), values=_float32(low, values))
    gradient, y = low.dense(source_of(node, 0)), low.dense(result)
    shares = low.once(
        ("attention shares", result.index),
        lambda: _tiled(low, _contiguous(low, result.ne, "attention again"), operands, params),
    )
    targets = low.parts(node, queries, keys, values, *([sinks] if sinks is not None else []))
    _emit_parts(low, operands, targets[:3], (gradient, y, shares), params)
    if sinks is not None:
        low.emit("attention_back.sinks", targets[3], gradient, y, shares, operands.sinks)


def _emit_parts(
    low: Lowering,
    operands: _Operands,
    targets: list[Operand],
    forward: tuple[Operand, Operand, Operand],
    params: tuple[float, float],
) -> None:
    """Emit the steps of the gradients of queries, keys and values, batch by batch."""
    q, cells = operands.queries, int(operands.keys.ne[1])
    d, dv = int(q.ne[0]), int(operands.values.ne[0])
    blocks = -(-cells // ATTENTION_CELLS)
    chunk = ATTENTION_CELLS * -(-blocks // min(ATTENTION_CHUNKS, blocks))
    others = max(1, -(-cells // chunk) - 1)
    padded = -(-d // ATTENTION_LANES) * ROW + -(-dv // ATTENTION_LANES) * ROW
    scratch = FIXED + ROW * (2 * d + 2 * dv + 3 * ATTENTION_BLOCK) + (ATTENTION_LANES + ATTENTION_CELLS) * padded
    for index in range(int(q.ne[3])):
        parts = operands.batch(index, int(q.ne[3]))
        results = [_batch(target, index) for target in targets]
        summands = _contiguous(low, (*q.ne[:3], others), "summands of the queries' gradient")
        read = [_batch(operand, index) for operand in forward]
        low.emit(
            "attention_back.parts",
            *results,
            summands,
            *read[:2],
            *parts[:3],
            read[2],
            *parts[3:],
            params=(*params, *operands.flags[:2], chunk),
            scratch=scratch,
            written=4,
        )
        low.emit(
            "attention_back.collect",
            results[0],
            summands,
            parts[3],
            parts[1],
            params=(operands.flags[0], chunk),
            scratch=FIXED,
        )


RULES: dict[Op, Rule] = {Op.FLASH_ATTN_EXT: _attention, Op.FLASH_ATTN_BACK: _attention_back}
