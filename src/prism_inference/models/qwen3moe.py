"""The qwen3moe architecture: as qwen3, with a mixture of experts in every block."""

from __future__ import annotations

from dataclasses import replace

from ..gguf import Metadata
from . import qwen3
from .blocks import with_experts
from .config import Config, Expected, read_experts


def read(metadata: Metadata, vocabulary: int, tied: bool) -> Config:
    """Read the hyper-parameters."""
    return replace(qwen3.read(metadata, vocabulary, tied), experts=read_experts(metadata))


def tensors(config: Config) -> dict[str, Expected]:
    """Return the expected tensors."""
    return with_experts(config, qwen3.tensors(config))


build = qwen3.build
