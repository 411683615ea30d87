"""Learning rates over the steps of a training. Knows no optimizer."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..errors import ParameterError

# name -> factor of the peak at a fraction 0 … 1 of the way from the end of the warm-up to the last step
SHAPES: dict[str, Callable[[float], float]] = {
    "constant": lambda fraction: 1.0,
    "linear": lambda fraction: 1.0 - fraction,
    "cosine": lambda fraction: 0.5 * (1.0 + math.cos(math.pi * fraction)),
}


def learning_rate(step: int, steps: int, peak: float, shape: str, warmup: int = 0, floor: float = 0.0) -> float:
    """Return the learning rate of a step.

    Args:
        step: counted from 0.
        steps: of the whole training.
        peak: the highest rate.
        shape: a key of `SHAPES`.
        warmup: steps in which the rate rises evenly, the first one taking peak / warmup.
        floor: what the shape falls to, as a fraction of the peak.

    Raises:
        ParameterError: an unknown shape.
    """
    if shape not in SHAPES:
        raise ParameterError("unknown schedule", expected=", ".join(SHAPES), found=repr(shape))
    if step < warmup:
        return peak * (step + 1) / warmup
    fraction = min(1.0, (step - warmup) / max(1, steps - warmup))
    return peak * (floor + (1.0 - floor) * SHAPES[shape](fraction))
