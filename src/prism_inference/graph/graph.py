"""A graph: the nodes that a result needs, in an order in which each comes after its sources.

Knows no executor: `compute` asks the engine, which registers itself by name.
"""

from __future__ import annotations

from importlib import import_module

from ..errors import GraphError
from ..limits import GRAPH_DEFAULT_CAPACITY
from .ops import Op
from .tensor import Context, Tensor

# Where `compute` finds the engine: named, not imported, because the graph may not depend on what runs it.
EXECUTOR = ("prism_inference.engine.run", "compute")


class Graph:
    """Nodes in order of execution, at most `capacity` of them."""

    def __init__(self, context: Context, capacity: int = GRAPH_DEFAULT_CAPACITY) -> None:
        self.context = context
        self.capacity = capacity
        self.nodes: list[Tensor] = []
        self.leafs: list[Tensor] = []
        self._seen: set[int] = set()

    def expand(self, result: Tensor) -> Tensor:
        """Add what `result` needs and is not here yet; return it.

        Raises:
            GraphError: the tensor belongs to another context, or the graph would outgrow its capacity; nothing is
            added.
        """
        if result.context is not self.context:
            raise GraphError("tensor of another context", where=repr(result))
        nodes, leafs = self._missing(result)
        if len(self.nodes) + len(nodes) > self.capacity:
            raise GraphError(
                "the graph is full",
                where=repr(result),
                expected=f"at most {self.capacity} nodes",
                found=len(self.nodes) + len(nodes),
            )
        self.nodes += nodes
        self.leafs += leafs
        self._seen.update(tensor.index for tensor in (*nodes, *leafs))
        return result

    def _missing(self, result: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Walk down from `result` without recursion; return new nodes and leafs, sources first."""
        nodes: list[Tensor] = []
        leafs: list[Tensor] = []
        done: set[int] = set(self._seen)
        stack: list[tuple[Tensor, bool]] = [(result, False)]
        while stack:
            tensor, expanded = stack.pop()
            if tensor.index in done:
                continue
            if not expanded:
                stack.append((tensor, True))
                stack.extend((source, False) for source in reversed(tensor.sources) if source is not None)
                continue
            done.add(tensor.index)
            (leafs if tensor.op is Op.NONE else nodes).append(tensor)
        return nodes, leafs

    def compute(self, threads: int | None = None) -> None:
        """Run the graph; results of outputs and of the last node are kept and can be read with `numpy()`."""
        module, name = EXECUTOR
        getattr(import_module(module), name)(self, threads)
