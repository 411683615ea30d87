"""Model architectures: one file each, named as GGUF names it. They know graphs and metadata, neither kernels nor
files."""

from .adapters import column_order, module_of, place, refusal, row_order
from .blocks import Adapter, Batch, Cache, State, Weights
from .config import Config, Expected
from .rotation import Rotation, read_rotation
from .table import ARCHITECTURES, Architecture, architecture

__all__ = [
    "ARCHITECTURES",
    "Adapter",
    "Architecture",
    "Batch",
    "Cache",
    "Config",
    "Expected",
    "Rotation",
    "State",
    "Weights",
    "architecture",
    "column_order",
    "module_of",
    "place",
    "read_rotation",
    "refusal",
    "row_order",
]
