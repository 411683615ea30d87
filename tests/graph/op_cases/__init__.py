"""One table of small graphs for every operation: each is run against its twin, differentiated numerically, and given to
libggml and torch. A case builds a node from fresh operands; nothing in it says what is expected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from helpers import random_rows
from prism_inference.graph import Context, Graph, Op, Storage, Tensor
from tolerances import ELEMENTS, Tolerance


class Maker:
    """Makes the operands of a case, from one seed."""

    def __init__(self, seed: int = 1) -> None:
        self.context = Context()
        self.rng = np.random.default_rng(seed)

    def parameter(self, *ne: int, low: float = -1.0, high: float = 1.0) -> Tensor:
        """An F32 leaf by which the case is differentiated, uniform in [low, high)."""
        return self.leaf(*ne, low=low, high=high).mark_parameter()

    def leaf(self, *ne: int, low: float = -1.0, high: float = 1.0) -> Tensor:
        """An F32 leaf that is not."""
        shape = tuple(reversed(ne))
        return self.context.tensor("F32", ne).set(self.rng.uniform(low, high, shape).astype(np.float32))

    def apart(self, *ne: int, gap: float = 0.05) -> Tensor:
        """A parameter of distinct values, none nearer than gap / 2 to 0 or to another: no kink and no tie is near."""
        count = int(np.prod(ne))
        values = (self.rng.permutation(count) - count // 2 + 0.5) * gap
        return self.values(values.reshape(tuple(reversed(ne)))).mark_parameter()

    def values(self, array: object) -> Tensor:
        """An F32 leaf of given values, in NumPy order."""
        given = np.asarray(array, np.float32)
        return self.context.tensor("F32", tuple(reversed(given.shape))).set(given)

    def integers(self, array: object) -> Tensor:
        """An I32 leaf of given values, in NumPy order."""
        given = np.asarray(array, np.int32)
        return self.context.tensor("I32", tuple(reversed(given.shape))).set(given)

    def weights(self, kind: str, *ne: int) -> Tensor:
        """A leaf of any tensor type with random blocks."""
        storage = Storage(random_rows(kind, ne[0], int(np.prod(ne[1:])), self.rng))
        return self.context.tensor(kind, ne, storage=storage)


@dataclass
class OpCase:
    """A graph whose result exercises `op`; `smooth` is False where it has no derivative to check."""

    op: Op
    name: str
    build: Callable[[Maker], Tensor]
    tolerance: Tolerance = field(default=ELEMENTS)
    smooth: bool = True

    def __str__(self) -> str:
        return f"{self.op.name} {self.name}".strip()

    def graph(self, seed: int = 1) -> tuple[Graph, Tensor]:
        """Build it: the graph and its result."""
        maker = Maker(seed)
        result = self.build(maker).mark_output()
        graph = Graph(maker.context, capacity=4096, gradients=True)
        graph.expand(result)
        return graph, result


def all_cases() -> list[OpCase]:
    """Return the cases of all families."""
    from . import elements, layout, learning, products, rows, sequence, spatial

    families = (elements, rows, products, layout, spatial, sequence, learning)
    cases = [case for family in families for case in family.CASES]
    assert len({str(case) for case in cases}) == len(cases), "two cases have one name"
    return cases
