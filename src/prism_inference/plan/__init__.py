"""From a graph to a plan: order, memory, kernel keys. Knows no compiler and runs nothing."""

from ..graph import Graph
from .lower import lower
from .memory import lay_out
from .steps import Operand, Plan, Region, Step

__all__ = ["Operand", "Plan", "Region", "Step", "make_plan"]


def make_plan(graph: Graph, isa: str) -> Plan:
    """Lower a graph for an instruction set and lay out its memory.

    Raises:
        GraphError, UnsupportedError: a node that no kernel does.
    """
    return lay_out(lower(graph, isa))
