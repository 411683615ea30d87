"""Choosing and exchanging lanes of float32 vectors: selection by comparison, and the stages of a transposition."""

from __future__ import annotations

from typing import Any

import numpy as np

from .core import F32x16, operation, shuffle


@operation("where_less", F32x16, (F32x16, F32x16, F32x16, F32x16), lambda a, b, x, y: np.where(a < b, x, y))
def where_less(builder: Any, a: Any, b: Any, x: Any, y: Any) -> Any:
    """x where a < b, else y: chosen, not computed, so that nothing of what is left out gets through."""
    return builder.select(builder.fcmp_ordered("<", a, b), x, y)


def _picked(name: str, order: list[int]) -> Any:
    """Lanes picked from two vectors, those of the second counted from 16."""

    @operation(name, F32x16, (F32x16, F32x16), lambda a, b: np.concatenate([a, b])[order])
    def picked(builder: Any, a: Any, b: Any) -> Any:
        return shuffle(builder, a, b, order)

    return picked


def _swaps(distance: int) -> tuple[Any, Any]:
    """Two rows, `distance` apart, of a matrix of 16: one stage of its transposition exchanges the upper right blocks
    with the lower left ones."""
    upper = [16 + lane - distance if lane & distance else lane for lane in range(16)]
    lower = [16 + lane if lane & distance else lane + distance for lane in range(16)]
    return _picked(f"swap_upper{distance}", upper), _picked(f"swap_lower{distance}", lower)


swap_upper1, swap_lower1 = _swaps(1)
swap_upper2, swap_lower2 = _swaps(2)
swap_upper4, swap_lower4 = _swaps(4)
swap_upper8, swap_lower8 = _swaps(8)

# 32 values as 16 pairs: the first ones and the second ones of all, and back.
evens = _picked("evens", list(range(0, 32, 2)))
odds = _picked("odds", list(range(1, 32, 2)))
zip_low = _picked("zip_low", [lane // 2 + 16 * (lane % 2) for lane in range(16)])
zip_high = _picked("zip_high", [8 + lane // 2 + 16 * (lane % 2) for lane in range(16)])
