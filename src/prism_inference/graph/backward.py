"""Derivatives as nodes: walks a graph from its losses back and adds, to the same graph, the nodes of every gradient.

Only nodes on a path from a parameter to a loss take part. What a gradient needs of the forward pass is read where it
is, or computed again where the caller keeps only some values. Knows no operation: each one's rule is in `table`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from ..errors import GraphError
from .derivative import Derivative
from .ops import VIEWS, Op
from .table import IGNORED, TABLE, VIEW_LIKE
from .tensor import Storage, Tensor

if TYPE_CHECKING:
    from .graph import Graph

DIFFERENTIABLE = ("F32", "F16", "BF16")


class Backward:
    """One construction of derivatives; what it makes is in the graph, `gradients` and `accumulators`."""

    def __init__(
        self, graph: Graph, accumulators: Mapping[Tensor, Tensor], keep: Collection[Tensor] | None = None
    ) -> None:
        self.graph = graph
        self.context = graph.context
        self.gradients: dict[int, Tensor] = {}
        self.accumulators: dict[int, Tensor] = {}
        self._forward = list(graph.nodes)
        self._keep = None if keep is None else {tensor.index for tensor in keep}
        self._again: dict[int, Tensor] = {}  # forward tensors and the nodes that compute them again
        self._parts: dict[int, Tensor] = {}  # gradients that consist of those of views only, by source
        self._given = {tensor.index: accumulator for tensor, accumulator in accumulators.items()}

    def build(self) -> None:
        """Add the nodes of all gradients.

        Raises:
            GraphError: no parameter, no loss, or a node that cannot be differentiated.
        """
        needed = self._needed()
        self._check_accumulators()
        for node in self._forward:
            if node.is_loss and node.index in needed:
                self._start(node)
        for node in reversed(self._forward):
            gradient = self.gradients.get(node.index)
            if gradient is None:
                continue
            self._step(node, gradient, needed)
            self._finish(node)
        for leaf in self.graph.leafs[:]:
            self._finish(leaf)

    # --- Which nodes take part ------------------------------------------------------------------------

    def _needed(self) -> set[int]:
        """Return the tensors to which, or through which, a gradient may have to flow."""
        parameters = [t for t in (*self.graph.leafs, *self._forward) if t.is_parameter]
        losses = [node for node in self._forward if node.is_loss]
        if not parameters:
            raise GraphError("nothing to differentiate by", expected="a parameter", hint="Context.parameter makes one.")
        if not losses:
            raise GraphError("nothing to differentiate", expected="a loss", hint="Tensor.mark_loss makes one.")
        for loss in losses:
            if loss.elements != 1 or loss.type.name != "F32":
                raise GraphError("not a loss", where=repr(loss), expected="one F32 number", found=loss.type.name)
        needed = {t.index for t in parameters}
        for node in self._forward:
            numbers = [n for n, t in enumerate(node.sources) if t is not None and t.index in needed]
            wanted = [n for n in numbers if n not in IGNORED.get(node.op, ())]
            if not (wanted or node.is_parameter or node.is_loss) or node.type.name not in DIFFERENTIABLE:
                continue
            for number in wanted:
                self._check_source(node, number)
            if wanted and node.view_of is not None and node.op not in VIEWS | VIEW_LIKE:
                raise GraphError(
                    "no derivative of what is done in place", where=repr(node), hint="Use the form that makes a result."
                )
            if wanted or node.is_parameter:
                needed.add(node.index)
        return needed

    @staticmethod
    def _check_source(node: Tensor, number: int) -> None:
        source = node.sources[number]
        assert source is not None
        if source.type.name not in DIFFERENTIABLE:
            raise GraphError(
                "no gradient for this type",
                where=repr(node),
                expected=f"source {number} one of {', '.join(DIFFERENTIABLE)}",
                found=repr(source),
            )

    def _check_accumulators(self) -> None:
        for tensor in (*self.graph.leafs, *self._forward):
            accumulator = self._given.get(tensor.index)
            if accumulator is None:
                continue
            if accumulator.type.name != "F32" or accumulator.ne != tensor.ne or accumulator.op is not Op.NONE:
                raise GraphError(
                    "wrong accumulator",
                    where=repr(tensor),
                    expected=f"an F32 leaf {tensor.ne}",
                    found=repr(accumulator),
                )

    # --- The way back -----------------------------------------------------------------------------------

    def _start(self, loss: Tensor) -> None:
        """dL/dL: a number that `Graph.reset` sets to 1."""
        one = self._given.get(loss.index)
        if one is None:
            one = self.context.tensor("F32", (1,), name=f"gradient of {loss.name or loss.op.name}")
            one.storage = Storage.allocate(4)
        self.accumulators[loss.index] = self.gradients[loss.index] = one

    def _step(self, node: Tensor, gradient: Tensor, needed: set[int]) -> None:
        """Add this node's contribution to each of its sources that takes part."""
        derivative = Derivative(node, gradient, self.value)
        for number, source in enumerate(node.sources):
            if source is None or source.index not in needed or number in IGNORED.get(node.op, ()):
                continue
            rule = TABLE[node.op].gradient if node.op in TABLE else "this operation is not supported"
            if isinstance(rule, str):
                raise derivative.refuse(number, rule)
            before = self.gradients.get(source.index)
            derivative.begun = before if before is not None and self._parts.get(source.index) is before else None
            self._add(source, before, rule(derivative, number), node)

    def _add(self, source: Tensor, before: Tensor | None, contribution: Tensor, node: Tensor) -> None:
        if contribution.ne != source.ne or contribution.type.name != "F32":
            raise GraphError(
                "the rule of a derivative gave another shape",
                where=repr(node),
                expected=f"F32 {source.ne}",
                found=repr(contribution),
            )
        whole = before is None or contribution.view_of is before
        total = contribution if before is None or whole else before.add(contribution)
        self.gradients[source.index] = self.graph.expand(total)
        if whole and node.op is Op.VIEW:
            self._parts[source.index] = total

    def _finish(self, tensor: Tensor) -> None:
        """All contributions are in: keep a parameter's gradient, add it to the accumulator if it has one."""
        gradient = self.gradients.get(tensor.index)
        if gradient is None or tensor.is_loss:
            return
        accumulator = self._given.get(tensor.index)
        if accumulator is not None:
            self.accumulators[tensor.index] = accumulator
            self.gradients[tensor.index] = self.graph.expand(accumulator.add_inplace(gradient))
        elif tensor.is_parameter:
            if not gradient.contiguous:
                gradient = self.gradients[tensor.index] = self.graph.expand(gradient.cont())
            gradient.root()[0].mark_output()

    # --- Forward values ------------------------------------------------------------------------------------

    def value(self, tensor: Tensor) -> Tensor:
        """Return a forward tensor, or the node that computes it again if it is not to be kept."""
        if self._keep is None or tensor.op is Op.NONE or tensor.index in self._keep or tensor.is_output:
            return tensor
        stack = [tensor]
        while stack:
            top = stack[-1]
            if top.index in self._again:
                stack.pop()
                continue
            missing = [t for t in self._inputs(top) if self._recomputed(t) and t.index not in self._again]
            if missing:
                stack += missing
                continue
            self._again[top.index] = self._copy(top)
            stack.pop()
        return self._again[tensor.index]

    def _recomputed(self, tensor: Tensor) -> bool:
        assert self._keep is not None
        return tensor.op is not Op.NONE and tensor.index not in self._keep and not tensor.is_output

    @staticmethod
    def _inputs(tensor: Tensor) -> list[Tensor]:
        return [t for t in (*tensor.sources, tensor.view_of) if t is not None]

    def _copy(self, tensor: Tensor) -> Tensor:
        """Make the node again, from sources that are kept or made again."""
        if tensor.view_of is not None and tensor.op not in VIEWS:
            raise GraphError("cannot compute again what is done in place", where=repr(tensor), hint="Keep it.")

        def again(t: Tensor | None) -> Tensor | None:
            return None if t is None else self._again.get(t.index, t)

        made = Tensor(
            self.context,
            tensor.type,
            tensor.ne,
            tensor.nb,
            tensor.op,
            tensor.params,
            tuple(again(t) for t in tensor.sources),
            again(tensor.view_of),
            tensor.view_offset,
            f"{tensor.name} again" if tensor.name else "",
        )
        return self.context.add(made)
