"""Lowers a graph to steps: which kernel does each node.

The rules are in `rules/`, by family; what they share is in `lowering`.
"""

from __future__ import annotations

from ..errors import UnsupportedError
from ..graph import Graph, Op
from ..graph.ops import VIEWS
from .lowering import Lowering, Rule
from .rules import FAMILIES
from .steps import Step

RULES: dict[Op, Rule] = {op: rule for family in FAMILIES for op, rule in family.RULES.items()}


def lower(graph: Graph, isa: str) -> list[Step]:
    """Return the steps of a graph for an instruction set (`avx512vnni` or `generic`).

    Raises:
        GraphError, UnsupportedError: an operation or a type that has no kernel; names the node.
    """
    lowering = Lowering(graph, isa)
    for node in graph.nodes:
        if node.op in VIEWS:
            lowering.operand(node)  # a view that is kept keeps what it looks at
            continue
        if node.index in lowering.done:
            continue
        rule = RULES.get(node.op)
        if rule is None:
            raise UnsupportedError("no kernel for this operation", where=repr(node))
        rule(lowering, node)
    return lowering.steps
