"""The tensor graph: tensors, operations, the order of their execution, and a NumPy interpreter that is their oracle."""

from .extents import Dim
from .graph import Graph
from .operations import RopeParameters
from .ops import Glu, Op, RopeMode, Unary
from .tensor import Context, Storage, Tensor

__all__ = ["Context", "Dim", "Glu", "Graph", "Op", "RopeMode", "RopeParameters", "Storage", "Tensor", "Unary"]
