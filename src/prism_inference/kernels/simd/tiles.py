"""Blocks of float32 in memory: a tile of a matrix product summed in registers, and a transposition of 16 by 16.

A tile has more sums than a kernel can name, so its loop is written here in LLVM's terms. Twins take and return arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from .core import I64, LONG, NONE, SINGLE, F32x16, broadcast, call, lanes_of, operation, pointer, shuffle


def _load(builder: Any, address: Any) -> Any:
    return builder.load(pointer(builder, address, F32x16.llvm), align=4)


def _store(builder: Any, address: Any, value: Any) -> None:
    builder.store(value, pointer(builder, address, F32x16.llvm), align=4)


# --- Transposition ------------------------------------------------------------------------------------


def _exchange(builder: Any, upper: Any, lower: Any, distance: int) -> tuple[Any, Any]:
    """One stage for two rows `distance` apart: the upper one's right blocks change places with the lower one's left."""
    to_upper = [16 + lane - distance if lane & distance else lane for lane in range(16)]
    to_lower = [16 + lane if lane & distance else lane + distance for lane in range(16)]
    return shuffle(builder, upper, lower, to_upper), shuffle(builder, upper, lower, to_lower)


@operation("transpose16", NONE, (I64, I64, I64, I64), lambda rows: rows.T.copy())
def transpose16(builder: Any, target: Any, step_target: Any, source: Any, step_source: Any) -> None:
    """Write 16 rows of 16 float32 as columns; rows are a step of bytes apart in both places."""
    rows = []
    for _ in range(16):
        rows.append(_load(builder, source))
        source = builder.add(source, step_source)
    for distance in (8, 4, 2, 1):
        for i in range(16):
            if not i & distance:
                rows[i], rows[i + distance] = _exchange(builder, rows[i], rows[i + distance], distance)
    for row in rows:
        _store(builder, target, row)
        target = builder.add(target, step_target)


# --- Tiles --------------------------------------------------------------------------------------------


def _opaque(builder: Any, value: Any) -> Any:
    """The same value, of which the optimizer knows nothing: an empty piece of assembly that returns its operand."""
    return builder.asm(ir.FunctionType(LONG, [LONG]), "", "=r,0", [value], side_effect=False)


def _sums(builder: Any, shape: tuple[int, int], a: Any, step_a: Any, b: Any, step_c: Any, step_p: Any, n: Any) -> Any:
    """The loop over c; returns the sums as [vector][column]."""
    vectors, columns = shape
    # Every third column has a pointer of its own that the optimizer cannot derive from another's: it would make one
    # chain of twelve additions, which takes longer than the products.
    starts = [b] + [_opaque(builder, builder.add(b, builder.mul(step_p, LONG(p)))) for p in range(3, columns, 3)]
    before = builder.block
    loop, after = builder.append_basic_block(), builder.append_basic_block()
    builder.branch(loop)
    builder.position_at_end(loop)
    left, row, *places = (builder.phi(LONG) for _ in range(2 + len(starts)))
    sums = [[builder.phi(F32x16.llvm) for _ in range(columns)] for _ in range(vectors)]
    lanes = [_load(builder, builder.add(row, LONG(64 * v))) for v in range(vectors)]
    new: list[list[Any]] = [[] for _ in range(vectors)]
    for p in range(columns):
        place = builder.add(places[p // 3], builder.mul(step_p, LONG(p % 3)))
        factor = broadcast(builder, builder.load(pointer(builder, place, SINGLE), align=4), 16)
        for v in range(vectors):
            new[v].append(call(builder, "llvm.fmuladd.v16f32", F32x16.llvm, [lanes[v], factor, sums[v][p]]))
    rest = builder.sub(left, LONG(1))
    steps = [(left, n, rest), (row, a, builder.add(row, step_a))]
    steps += [(place, start, builder.add(place, step_c)) for place, start in zip(places, starts, strict=True)]
    steps += [(sums[v][p], lanes_of(F32x16, 0.0), new[v][p]) for v in range(vectors) for p in range(columns)]
    for phi, first, following in steps:
        phi.add_incoming(first, before)
        phi.add_incoming(following, loop)
    builder.cbranch(builder.icmp_signed(">", rest, LONG(0)), loop, after)
    builder.position_at_end(after)
    return new


def _tile(vectors: int, columns: int) -> Any:
    def twin(a: Any, b: Any, y: Any, add: int) -> Any:
        """a [terms, 16·vectors], b [terms, columns], y [columns, 16·vectors] → y."""
        product = b.astype(np.float64).T @ a.astype(np.float64)
        return (product + y if add else product).astype(np.float32)

    @operation(f"tile{vectors}x{columns}", NONE, (I64,) * 9, twin)
    def tile(
        builder: Any, a: Any, step_a: Any, b: Any, step_c: Any, step_p: Any, n: Any, y: Any, step_y: Any, add: Any
    ) -> None:
        """y[p] = Σ_c a[c]·b[c, p] for c below n (at least 1), added in the order of c; with `add`, y[p] plus that sum.

        Rows a[c] and y[p] of 16·vectors lanes are `step_a` and `step_y` bytes apart, the numbers b[c, p] `step_c` and
        `step_p`.
        """
        sums = _sums(builder, (vectors, columns), a, step_a, b, step_c, step_p, n)
        adding, replacing, end = (builder.append_basic_block() for _ in range(3))
        builder.cbranch(builder.icmp_signed("!=", add, LONG(0)), adding, replacing)
        for block in (adding, replacing):
            builder.position_at_end(block)
            row = y
            for p in range(columns):
                for v in range(vectors):
                    place = builder.add(row, LONG(64 * v))
                    old = _load(builder, place) if block is adding else None
                    _store(builder, place, builder.fadd(old, sums[v][p]) if old else sums[v][p])
                row = builder.add(row, step_y)
            builder.branch(end)
        builder.position_at_end(end)

    return tile


tile2x12, tile2x4, tile2x2, tile2x1 = (_tile(2, columns) for columns in (12, 4, 2, 1))
tile1x12, tile1x6, tile1x4, tile1x2, tile1x1 = (_tile(1, columns) for columns in (12, 6, 4, 2, 1))
