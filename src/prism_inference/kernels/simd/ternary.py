"""Ternary digits packed in base 3, five or four to a byte: bytes brought into the order of the weights, then their
digits.

Digit n of a byte b is ((b·3^n mod 256)·3) >> 8. The orders are those of PTQ1_0 (blocks of 128 in 24 + 2 bytes) and
TQ1_0 (blocks of 256 in 48 + 4 bytes).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from .core import HALF, I8x16, I8x32, I8x64, Vector, operation, shuffle


def _digits(name: str, part: Vector, order: list[int], powers: list[int]) -> Any:
    """Operation (a, b) → 64 digits 0 … 2: lane j is digit `powers[j]` of byte `order[j]` of a and b, counted
    through."""
    assert len(order) == len(powers) == 64
    wide = ir.VectorType(HALF, 64)

    def twin(a: Any, b: Any) -> Any:
        packed = np.concatenate([a, b]).view(np.uint8)[order].astype(np.int64)
        return (((packed * 3 ** np.array(powers)) % 256 * 3) >> 8).astype(np.int8)

    @operation(name, I8x64, (part, part), twin)
    def digits(builder: Any, a: Any, b: Any) -> Any:
        packed = builder.zext(shuffle(builder, a, b, order), wide)
        turned = builder.mul(packed, ir.Constant(wide, [3**power for power in powers]))
        low = builder.and_(turned, ir.Constant(wide, [255] * 64))
        tripled = builder.mul(low, ir.Constant(wide, [3] * 64))
        return builder.trunc(builder.lshr(tripled, ir.Constant(wide, [8] * 64)), I8x64.llvm)

    return digits


def _rows(first: int, count: int, digits: range) -> tuple[list[int], list[int]]:
    """Order and powers of `count` bytes from `first`, digit by digit."""
    order = [first + k for _ in digits for k in range(count)]
    return order, [n for n in digits for _ in range(count)]


def _joined(*parts: tuple[list[int], list[int]]) -> tuple[list[int], list[int]]:
    return [byte for order, _ in parts for byte in order], [power for _, powers in parts for power in powers]


# PTQ1_0. a: bytes 0 … 15 of the block; b: bytes 12 … 27 (so that nothing beyond the block is read): qs[16 …] is b[4 …].
ptq1_0_low = _digits("ptq1_0_low", I8x16, *_rows(0, 16, range(4)))
ptq1_0_high = _digits(
    "ptq1_0_high",
    I8x16,
    *_joined(_rows(0, 16, range(4, 5)), _rows(16 + 4, 8, range(5)), _rows(16 + 12, 2, range(4))),
)
# TQ1_0. a: bytes 0 … 31 of the block; b: bytes 20 … 51: qs[32 …] is b[12 …], qh is b[28 …].
tq1_0_quarter0 = _digits("tq1_0_quarter0", I8x32, *_rows(0, 32, range(2)))
tq1_0_quarter1 = _digits("tq1_0_quarter1", I8x32, *_rows(0, 32, range(2, 4)))
tq1_0_quarter2 = _digits("tq1_0_quarter2", I8x32, *_joined(_rows(0, 32, range(4, 5)), _rows(32 + 12, 16, range(2))))
tq1_0_quarter3 = _digits(
    "tq1_0_quarter3", I8x32, *_joined(_rows(32 + 12, 16, range(2, 5)), _rows(32 + 28, 4, range(4)))
)
