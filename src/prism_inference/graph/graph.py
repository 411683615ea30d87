"""A graph: the nodes that a result needs, in an order in which each comes after its sources.

Knows no executor: `compute` asks the engine, which registers itself by name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib import import_module

import numpy as np

from ..errors import GraphError
from ..limits import GRAPH_DEFAULT_CAPACITY
from .backward import Backward
from .ops import Op
from .tensor import Context, Storage, Tensor

# Where `compute` finds the engine: named, not imported, because the graph may not depend on what runs it.
EXECUTOR = ("prism_inference.engine.run", "compute")


class Graph:
    """Nodes in order of execution, at most `capacity` of them; with `gradients`, derivatives can be added."""

    def __init__(self, context: Context, capacity: int = GRAPH_DEFAULT_CAPACITY, gradients: bool = False) -> None:
        self.context = context
        self.capacity = capacity
        self.gradients = gradients
        self.nodes: list[Tensor] = []
        self.leafs: list[Tensor] = []
        self._seen: set[int] = set()
        self._gradients: dict[int, Tensor] = {}
        self._accumulators: dict[int, Tensor] = {}

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

    # --- Derivatives ------------------------------------------------------------------------------------

    def build_backward(
        self, accumulators: Mapping[Tensor, Tensor] | None = None, keep: Collection[Tensor] | None = None
    ) -> None:
        """Add the nodes that compute the gradient of the losses by every parameter. Several losses add up.

        Args:
            accumulators: for a parameter, an F32 leaf of its shape to which each run adds the gradient, until `reset`
                clears it. Parameters without one get the gradient of the last run.
            keep: forward values that stay in memory for the way back; others are computed again from them when they
                are wanted. None keeps all.

        Raises:
            GraphError: no parameter, no loss, an operation without derivative on the way, the graph is full. Nothing
                has changed then.
        """
        if not self.gradients:
            raise GraphError("this graph has no gradients", hint="Make it with gradients=True.")
        tensors, nodes, leafs = len(self.context.tensors), len(self.nodes), len(self.leafs)
        flags = [tensor.is_output for tensor in self.context.tensors]
        backward = Backward(self, accumulators or {}, keep)
        try:
            backward.build()
        except BaseException:
            self._seen.difference_update(t.index for t in (*self.nodes[nodes:], *self.leafs[leafs:]))
            del self.context.tensors[tensors:], self.nodes[nodes:], self.leafs[leafs:]
            for tensor, flag in zip(self.context.tensors, flags, strict=True):
                tensor.is_output = flag
            raise
        self._gradients, self._accumulators = backward.gradients, backward.accumulators

    def gradient(self, tensor: Tensor) -> Tensor | None:
        """Return the node of a tensor's gradient; None where no path leads from it to a loss, or none was built.

        Values are kept after a run for parameters; of a parameter with an accumulator it is the accumulated one.
        """
        self._check_owner(tensor)
        return self._gradients.get(tensor.index)

    def gradient_accumulator(self, tensor: Tensor) -> Tensor | None:
        """Return the leaf that adds up a tensor's gradients (for a loss: its factor, which `reset` sets to 1)."""
        self._check_owner(tensor)
        return self._accumulators.get(tensor.index)

    def reset(self) -> None:
        """Set the accumulators of losses to 1, all others to 0, and the moments of AdamW steps to 0.

        Parameters and forward values stay. Accumulators and moments without data get it.
        """
        losses = {node.index for node in self.nodes if node.is_loss}
        moments = [t for node in self.nodes if node.op is Op.OPT_STEP_ADAMW for t in node.sources[2:4]]
        values = [(accumulator, float(index in losses)) for index, accumulator in self._accumulators.items()]
        for tensor, value in [*values, *((moment, 0.0) for moment in moments if moment is not None)]:
            if tensor.storage is None:
                tensor.storage = Storage.allocate(tensor.nbytes)
            tensor.storage.array.view(np.float32)[:] = value

    def _check_owner(self, tensor: Tensor) -> None:
        if tensor.context is not self.context:
            raise GraphError("tensor of another context", where=repr(tensor))
