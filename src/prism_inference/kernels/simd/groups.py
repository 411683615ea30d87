"""Eight rows of a matrix at a time: numbers gathered from them, and the sums of their byte products.

Lanes of a group: rows 0 … 3 of the first block of 32, rows 0 … 3 of the second, rows 4 … 7 of the first, rows 4 … 7 of
the second. Row i begins i steps after the first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from .core import BYTE, F32, HALF, I64, LONG, NONE, WORD, F32x16, I32x16, operation, pointer, shuffle
from .half import _half_to_single

ROWS = 8
_DOUBLED = [0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7, 4, 5, 6, 7]  # lanes of a group, of eight numbers


def _gather(builder: Any, kind: ir.Type, address: Any, step: Any, distances: tuple[Any, ...]) -> Any:
    """Load a number per row and distance, in the lanes of a group; with one distance, eight numbers."""
    count = ROWS * len(distances)
    vector = ir.Constant(ir.VectorType(kind, count), ir.Undefined)
    for row in range(ROWS):
        place = builder.add(address, builder.mul(step, LONG(row)))
        for block, distance in enumerate(distances):
            value = builder.load(pointer(builder, builder.add(place, distance), kind), align=1)
            lane = row if count == ROWS else 8 * (row // 4) + 4 * block + row % 4
            vector = builder.insert_element(vector, value, WORD(lane))
    return vector


def _twin(dtype: Any, result: Any) -> Any:
    def twin(rows: Any) -> Any:
        """Numbers [8 rows, 1 or 2 blocks] → the lanes of a group."""
        pairs = np.broadcast_to(rows.view(dtype).reshape(ROWS, -1), (ROWS, 2))
        return pairs.reshape(2, 4, 2).swapaxes(1, 2).reshape(16).astype(result)

    return twin


@operation("group_half", F32x16, (I64, I64), _twin(np.float16, np.float32))
def group_half(builder: Any, address: Any, step: Any) -> Any:
    """The float16 at `address` and those a step apart, for both blocks."""
    singles = _half_to_single(builder, _gather(builder, HALF, address, step, (LONG(0),)))
    return shuffle(builder, singles, singles, _DOUBLED)


@operation("group_halves", F32x16, (I64, I64, I64), _twin(np.float16, np.float32))
def group_halves(builder: Any, address: Any, step: Any, distance: Any) -> Any:
    """The same, the second block's so many bytes after the first's."""
    return _half_to_single(builder, _gather(builder, HALF, address, step, (LONG(0), distance)))


@operation("group_bytes", I32x16, (I64, I64, I64), _twin(np.int8, np.int32))
def group_bytes(builder: Any, address: Any, step: Any, distance: Any) -> Any:
    """Signed bytes, the second block's so many bytes after the first's."""
    return builder.sext(_gather(builder, BYTE, address, step, (LONG(0), distance)), I32x16.llvm)


@operation("group_pair", I32x16, (I64, I64), _twin(np.uint8, np.int32))
def group_pair(builder: Any, address: Any, step: Any) -> Any:
    """Unsigned bytes, the second block's next to the first's."""
    packed = builder.bitcast(_gather(builder, HALF, address, step, (LONG(0),)), ir.VectorType(BYTE, 16))
    order = [2 * row + block for half in (0, 4) for block in (0, 1) for row in range(half, half + 4)]
    return builder.zext(shuffle(builder, packed, packed, order), I32x16.llvm)


# --- Sums of products -------------------------------------------------------------------------------------------------


def _quad_twin(a: Any, b: Any, c: Any, d: Any) -> Any:
    return np.stack([v.reshape(4, 4).sum(1, dtype=np.int32) for v in (a, b, c, d)], 1).reshape(16)


@operation("quad_sums", I32x16, (I32x16,) * 4, _quad_twin)
def quad_sums(builder: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """In each quarter of the lanes the sums of that quarter of a, b, c and d: a transposition that adds on the way."""

    def paired(x: Any, y: Any, low: list[int], high: list[int]) -> Any:
        return builder.add(
            shuffle(builder, x, y, [4 * q + o % 16 + 16 * (o // 16) for q in range(4) for o in low]),
            shuffle(builder, x, y, [4 * q + o % 16 + 16 * (o // 16) for q in range(4) for o in high]),
        )

    ab, cd = (paired(x, y, [0, 16, 1, 17], [2, 18, 3, 19]) for x, y in ((a, b), (c, d)))
    return paired(ab, cd, [0, 1, 16, 17], [2, 3, 18, 19])


def _quarters(name: str, picked: tuple[int, ...]) -> Any:
    """Quarters picked from two vectors, those of the second counted from 4."""
    order = [4 * quarter + lane for quarter in picked for lane in range(4)]

    @operation(name, I32x16, (I32x16, I32x16), lambda a, b: np.concatenate([a, b])[order])
    def pick(builder: Any, a: Any, b: Any) -> Any:
        return shuffle(builder, a, b, order)

    return pick


# Of the quarter sums of rows 0 … 3 and of rows 4 … 7: those of the blocks' first halves, and of their second halves.
group_first = _quarters("group_first", (0, 2, 4, 6))
group_second = _quarters("group_second", (1, 3, 5, 7))


def _repeated(name: str, result: Any, dtype: Any) -> Any:
    @operation(name, result, (I64,), lambda raw: np.tile(raw.view(dtype)[:8], 2))
    def load(builder: Any, address: Any) -> Any:
        half = builder.load(pointer(builder, address, ir.VectorType(result.llvm.element, 8)), align=4)
        return shuffle(builder, half, half, [*range(8), *range(8)])

    return load


load_repeated = _repeated("load_repeated", F32x16, np.float32)


# --- Results: each row's two sums, over the even and over the odd blocks, become one number ---------------------------


@operation(
    "store_group", NONE, (I64, F32x16), lambda v: (v.reshape(2, 2, 4)[:, 0] + v.reshape(2, 2, 4)[:, 1]).tobytes()
)
def store_group(builder: Any, address: Any, total: Any) -> None:
    """Store the results of the eight rows."""
    even, odd = (shuffle(builder, total, total, [*range(i, i + 4), *range(i + 8, i + 12)]) for i in (0, 4))
    value = builder.fadd(even, odd)
    builder.store(value, pointer(builder, address, value.type), align=4)


@operation("first_of_group", F32, (F32x16,), lambda v: v[0] + v[4])
def first_of_group(builder: Any, total: Any) -> Any:
    """The result of the first row."""
    return builder.fadd(builder.extract_element(total, WORD(0)), builder.extract_element(total, WORD(4)))
