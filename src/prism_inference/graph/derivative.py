"""What a rule of differentiation sees of one node: its gradient, and the forward values that it may use.

Rules (`gradients/`) build ordinary nodes from these; `backward` decides which rules are asked and adds up the answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ..errors import GraphError
from .tensor import Tensor


@dataclass
class Derivative:
    """One node on the way back: dL/dnode in `gradient` (F32, the node's shape)."""

    node: Tensor
    gradient: Tensor
    value: Callable[[Tensor], Tensor]  # a forward tensor, or the node that computes it again
    begun: Tensor | None = None  # the gradient so far of the source asked for, where it may be added to in place
    _shared: dict[str, Tensor] = field(default_factory=dict)

    def source(self, number: int) -> Tensor:
        """Return the forward value of a source."""
        tensor = self.node.sources[number]
        assert tensor is not None, self.node
        return self.value(tensor)

    def optional(self, number: int) -> Tensor | None:
        """Return the forward value of a source that may be absent."""
        return None if len(self.node.sources) <= number or self.node.sources[number] is None else self.source(number)

    @property
    def result(self) -> Tensor:
        """The forward value of the node itself."""
        return self.value(self.node)

    def once(self, key: str, make: Callable[[], Tensor]) -> Tensor:
        """Return a tensor that the rules of several sources share, made on first use."""
        if key not in self._shared:
            self._shared[key] = make()
        return self._shared[key]

    def refuse(self, number: int, reason: str, *, hint: str | None = None) -> GraphError:
        """Return the error of a source to which no gradient can flow; it names the node and the source."""
        return GraphError(
            f"no derivative: {reason}",
            where=repr(self.node),
            expected="no gradient wanted",
            found=f"source {number}, {self.node.sources[number]!r}, which needs one",
            hint=hint,
        )


Rule = Callable[[Derivative, int], Tensor]
"""(derivative, number of the source) → this node's contribution to that source's gradient, in the source's shape."""
