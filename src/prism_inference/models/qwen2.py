"""The qwen2 architecture: as llama, with biases of queries, keys and values, and rotation of the two halves."""

from __future__ import annotations

from ..gguf import Metadata
from ..graph import RopeMode
from . import llama
from .blocks import expected_tensors
from .config import Config, Expected, read_config


def read(metadata: Metadata, vocabulary: int, tied: bool) -> Config:
    """Read the hyper-parameters."""
    return read_config(metadata, vocabulary, tied, RopeMode.NEOX)


def tensors(config: Config) -> dict[str, Expected]:
    """Return the expected tensors."""
    return expected_tensors(config, biases=True)


build = llama.build
