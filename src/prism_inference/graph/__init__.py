"""The tensor graph: tensors, operations, order of execution, derivatives, and a NumPy interpreter as their oracle."""

from .extents import Dim
from .graph import Graph
from .ops import Glu, Interpolation, Op, Order, Pool, RopeMode, Triangle, Unary
from .rope import RopeParameters
from .tensor import Context, Storage, Tensor

__all__ = [
    "Context",
    "Dim",
    "Glu",
    "Graph",
    "Interpolation",
    "Op",
    "Order",
    "Pool",
    "RopeMode",
    "RopeParameters",
    "Storage",
    "Tensor",
    "Triangle",
    "Unary",
]
