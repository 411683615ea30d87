"""The GGUF container: open files, look metadata up, write files. Knows neither models nor what tensors mean."""

from .metadata import Metadata
from .reader import GGUFFile, TensorInfo, open
from .spec import TENSOR_TYPES, TensorType, ValueType, tensor_type
from .values import StringArray
from .writer import GGUFWriter

__all__ = [
    "TENSOR_TYPES",
    "GGUFFile",
    "GGUFWriter",
    "Metadata",
    "StringArray",
    "TensorInfo",
    "TensorType",
    "ValueType",
    "open",
    "tensor_type",
]
