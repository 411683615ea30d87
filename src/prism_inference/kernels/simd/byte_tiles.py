"""Tiles of a product of bytes: sums of codes of 16 or 32 rows with some columns of rounded activations, in registers.

A panel holds chunk by chunk what `kernels/matmul.py` packs: 16 steps of 4 codes for each of 16 lanes (and again for the
second vector of lanes), then the scales of the chunk's groups, then its minima. The activations are chunks of
`kernels/activations.py`. Each result has two sums in memory, one over the even and one over the odd blocks of 32,
which a tile reads, goes on with, and writes back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir

from ...plan.layouts import CHUNK_BYTES, CHUNK_SCALES, CHUNK_SUMS, CHUNK_TOTALS
from .core import (
    I64,
    LONG,
    NONE,
    OPERATIONS,
    SINGLE,
    WORD,
    F32x16,
    I8x64,
    I32x16,
    broadcast,
    call,
    lanes_of,
    operation,
    pointer,
    shuffle,
)
from .integers import (
    add_pairs,
    halves_of,
    magnitude_and_sign,
    multiply_add_generic,
    multiply_add_vnni,
    pair_products,
)


def panel_bytes(vectors: int, groups: int, minima: bool) -> int:
    """Bytes of a chunk of a panel."""
    return 64 * vectors * (16 + groups + (2 if minima else 0))


@dataclass(frozen=True)
class Codes:
    """What a tile must know of the codes: scales of a chunk (2 or 4), whether there are minima, what is subtracted (as
    a power of two, None: nothing), the largest code; signed ones have magnitudes up to 128."""

    groups: int
    minima: bool
    offset: int | None
    largest: int

    @property
    def signed(self) -> bool:
        return self.largest > 127


class _Tile:
    """Writes the code of a tile of `vectors`·16 rows and `columns` columns."""

    def __init__(self, builder: Any, shape: tuple[int, int], codes: Codes) -> None:
        self.builder, self.codes = builder, codes
        self.vectors, self.columns = range(shape[0]), range(shape[1])
        self.groups, self.minima, self.offset = codes.groups, codes.minima, codes.offset

    def load(self, vector: Any, address: Any, offset: int) -> Any:
        place = self.builder.add(address, LONG(offset))
        return self.builder.load(pointer(self.builder, place, vector.llvm), align=4)

    def number(self, kind: ir.Type, address: Any, offset: int) -> Any:
        """The number at an address in all lanes."""
        place = pointer(self.builder, self.builder.add(address, LONG(offset)), kind)
        return broadcast(self.builder, self.builder.load(place, align=4), 16)

    def start(self, x: Any, block: int, group: int) -> Any:
        """What a group's integer sum starts from: minus the offset times the sum of the activations."""
        if self.offset is None:
            return lanes_of(I32x16, 0)
        halves = [0, 1] if self.groups == 2 else [group]
        totals = [self.number(WORD, x, CHUNK_TOTALS + 16 * (2 * block + half)) for half in halves]
        total = totals[0] if len(totals) == 1 else self.builder.add(*totals)
        return self.builder.sub(lanes_of(I32x16, 0), self.builder.shl(total, lanes_of(I32x16, self.offset)))

    def group(self, panel: Any, columns: list[Any], block: int, group: int) -> list[list[Any]]:
        """Integer sums [vector][column] of one group of 32 or 16 codes."""
        starts = [self.start(x, block, group) for x in columns]
        sums = [[starts[p] for p in self.columns] for _ in self.vectors]
        steps = 16 // self.groups
        first = 8 * block + steps * group
        self.products(panel, columns, range(first, first + steps), sums)
        return sums

    def products(self, panel: Any, columns: list[Any], steps: range, sums: list[list[Any]]) -> None:
        """Add the products of some steps of four codes."""
        raise NotImplementedError

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        return call(self.builder, "llvm.fmuladd.v16f32", F32x16.llvm, [a, b, c])

    def chunk(self, panel: Any, columns: list[Any], sums: list[Any]) -> list[Any]:
        """Add a chunk; sums are [column][vector][block], flat."""
        builder, count = self.builder, len(self.vectors)
        place = {(p, v, b): (p * count + v) * 2 + b for p in self.columns for v in self.vectors for b in (0, 1)}
        new = list(sums)
        scales, minima = 64 * 16 * count, 64 * (16 + self.groups) * count
        for block in (0, 1):
            for group in range(self.groups // 2):
                found = self.group(panel, columns, block, group)
                at = scales + 64 * count * (block * self.groups // 2 + group)
                for v in self.vectors:
                    scale = self.load(F32x16, panel, at + 64 * v)
                    for p in self.columns:
                        factor = builder.fmul(scale, self.number(SINGLE, columns[p], CHUNK_SCALES + 16 * block))
                        i = place[p, v, block]
                        new[i] = self.fma(builder.sitofp(found[v][p], F32x16.llvm), factor, new[i])
            for v in self.vectors if self.minima else ():
                minimum = self.load(F32x16, panel, minima + 64 * (count * block + v))
                for p in self.columns:
                    i = place[p, v, block]
                    new[i] = self.fma(minimum, self.number(SINGLE, columns[p], CHUNK_SUMS + 16 * block), new[i])
        return new


class _Whole(_Tile):
    """Adds four products to 32 bits at once."""

    dot: Any

    def products(self, panel: Any, columns: list[Any], steps: range, sums: list[list[Any]]) -> None:
        for step in steps:
            codes = [self.load(I8x64, panel, 64 * (len(self.vectors) * step + v)) for v in self.vectors]
            for p in self.columns:
                four = self.builder.bitcast(self.number(WORD, columns[p], 4 * step), I8x64.llvm)
                for v in self.vectors:
                    sums[v][p] = type(self).dot(self.builder, sums[v][p], codes[v], four)


class _Vnni(_Whole):
    dot = staticmethod(multiply_add_vnni)


class _Generic(_Whole):
    dot = staticmethod(multiply_add_generic)


class _Avx2(_Tile):
    """Adds up sums of two products in 16 bits, as many as cannot overflow."""

    def products(self, panel: Any, columns: list[Any], steps: range, sums: list[list[Any]]) -> None:
        builder = self.builder
        run = max(1, (2**15 - 1) // (2 * 127 * self.codes.largest))
        for start in range(steps.start, steps.stop, run):
            pairs: dict[tuple[int, int, int], Any] = {}
            for step in range(start, min(start + run, steps.stop)):
                for v in self.vectors:
                    parts = halves_of(builder, self.load(I8x64, panel, 64 * (len(self.vectors) * step + v)))
                    for p in self.columns:
                        four = halves_of(builder, builder.bitcast(self.number(WORD, columns[p], 4 * step), I8x64.llvm))[
                            0
                        ]
                        for half, part in enumerate(parts):
                            both = magnitude_and_sign(builder, part, four) if self.codes.signed else (part, four)
                            new = pair_products(builder, *both)
                            old = pairs.get((v, p, half))
                            pairs[v, p, half] = new if old is None else builder.add(old, new)
            for v in self.vectors:
                for p in self.columns:
                    low, high = (add_pairs(builder, pairs[v, p, half]) for half in (0, 1))
                    sums[v][p] = builder.add(sums[v][p], shuffle(builder, low, high, list(range(16))))


_WRITERS: dict[str, type[_Tile]] = {"avx512vnni": _Vnni, "avx2": _Avx2, "generic": _Generic}


def _twin(vectors: int, columns: int, kind: Codes) -> Any:
    groups, minima, offset = kind.groups, kind.minima, kind.offset

    def twin(panel: Any, x: Any, sums: Any) -> Any:
        """panel uint8 [chunks, bytes], x uint8 [columns, chunks, 192], sums [columns, vectors, 2, 16] → sums."""
        sums, lanes = sums.copy(), (vectors, 16)
        for c, chunk in enumerate(panel):
            codes = (
                chunk[: 1024 * vectors]
                .reshape(16, *lanes, 4)
                .view(np.int8 if kind.signed else np.uint8)
                .astype(np.int64)
            )
            numbers = chunk[1024 * vectors :].view(np.float32).reshape(-1, *lanes)
            for p in range(columns):
                values = x[p, c, :64].view(np.int8).reshape(16, 4).astype(np.int64)
                scale, total = (x[p, c, at : at + 32].view(np.float32)[::4] for at in (CHUNK_SCALES, CHUNK_SUMS))
                for block in (0, 1):
                    for g in range(groups // 2):
                        span = slice(8 * block + 16 // groups * g, 8 * block + 16 // groups * (g + 1))
                        shifted = codes[span] - (0 if offset is None else 1 << offset)
                        whole = (shifted * values[span, None, None]).sum((0, 3)).astype(np.float32)
                        factor = numbers[block * groups // 2 + g] * scale[block]
                        product = whole.astype(np.float64) * factor
                        sums[p, :, block] = (product + sums[p, :, block]).astype(np.float32)
                    if minima:
                        product = numbers[groups + block].astype(np.float64) * total[block]
                        sums[p, :, block] = (product + sums[p, :, block]).astype(np.float32)
        return sums

    return twin


@dataclass(frozen=True)
class Made:
    """A tile that was made."""

    isa: str
    vectors: int
    columns: int
    codes: Codes


TILES: dict[str, Made] = {}  # by the name of its operation


def byte_tile(isa: str, vectors: int, columns: int, codes: Codes) -> Any:
    """Make the operation (panel, x, step_x, chunks, sums): add `chunks` (at least 1) chunks to the sums.

    Columns of x are a step apart; sums are float32 [columns, vectors, 2 blocks, 16 rows] without gaps.
    """
    name = f"bytes {isa} {vectors}x{columns} {codes}"
    size = panel_bytes(vectors, codes.groups, codes.minima)
    if name in TILES:
        return OPERATIONS[name][0]
    TILES[name] = Made(isa, vectors, columns, codes)

    @operation(name, NONE, (I64,) * 5, _twin(vectors, columns, codes))
    def tile(builder: Any, panel: Any, x: Any, step_x: Any, chunks: Any, sums: Any) -> None:
        made = _WRITERS[isa](builder, (vectors, columns), codes)
        places = [builder.add(sums, LONG(64 * i)) for i in range(2 * vectors * columns)]
        firsts = [made.load(F32x16, place, 0) for place in places]
        steps = [builder.mul(step_x, LONG(p)) for p in range(columns)]
        before, loop, after = builder.block, builder.append_basic_block(), builder.append_basic_block()
        builder.branch(loop)
        builder.position_at_end(loop)
        left, row, column, *old = (builder.phi(kind) for kind in (LONG, LONG, LONG, *[F32x16.llvm] * len(places)))
        new = made.chunk(row, [builder.add(column, step) for step in steps], old)
        rest = builder.sub(left, LONG(1))
        moved = builder.add(row, LONG(size)), builder.add(column, LONG(CHUNK_BYTES))
        for phi, first, following in zip(
            (left, row, column, *old), (chunks, panel, x, *firsts), (rest, *moved, *new), strict=True
        ):
            phi.add_incoming(first, before)
            phi.add_incoming(following, loop)
        builder.cbranch(builder.icmp_signed(">", rest, LONG(0)), loop, after)
        builder.position_at_end(after)
        for place, value in zip(places, new, strict=True):
            builder.store(value, pointer(builder, place, F32x16.llvm), align=4)

    return tile
