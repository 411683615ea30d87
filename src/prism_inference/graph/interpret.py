"""The NumPy interpreter of a graph: slow, obvious, in float64. It is the oracle of every kernel.

Each operation has one twin (`twins/`) that says what it means; quantized products round the activations as the
reference does, so that only the order of additions differs from a kernel.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import GraphError
from .graph import Graph
from .ops import VIEWS
from .table import TABLE
from .twins.memory import Array, Memory


def interpret(graph: Graph, *, wide: bool = False, leaves: Mapping[int, Array] | None = None) -> dict[int, Array]:
    """Run a graph; return the values of its nodes by tensor index, in NumPy order with four dimensions.

    Leaves are read from their storage; nodes that write into a leaf (SET_ROWS, CPY) write into a copy of it.

    Args:
        graph: what to run.
        wide: keep F32 tensors as float64 throughout, so that small differences of inputs can be seen.
        leaves: values in place of those of leaves, by tensor index, in NumPy order.
    """
    memory = Memory(wide, leaves)
    results: dict[int, Array] = {}
    for node in graph.nodes:
        if node.op not in VIEWS:
            if node.op not in TABLE:
                raise GraphError("the interpreter does not know this operation", where=repr(node))
            TABLE[node.op].twin(memory, node)
        results[node.index] = memory.read(node).copy()
    return results
