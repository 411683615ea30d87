"""Model architectures: one file each, named as GGUF names it. They know graphs and metadata, neither kernels nor
files."""

from .blocks import Batch, Cache, Weights
from .config import Config, Expected
from .table import ARCHITECTURES, Architecture, architecture

__all__ = ["ARCHITECTURES", "Architecture", "Batch", "Cache", "Config", "Expected", "Weights", "architecture"]
