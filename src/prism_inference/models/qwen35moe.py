"""The qwen35moe architecture: as qwen35, with a mixture of experts and a shared expert in every block."""

from __future__ import annotations

from dataclasses import replace

from ..gguf import Metadata
from . import qwen35
from .blocks import with_experts
from .config import Config, Expected, read_experts


def read(metadata: Metadata, vocabulary: int, tied: bool) -> Config:
    """Read the hyper-parameters."""
    return replace(qwen35.read(metadata, vocabulary, tied), experts=read_experts(metadata))


def tensors(config: Config) -> dict[str, Expected]:
    """Return the expected tensors."""
    return with_experts(config, qwen35.tensors(config))


build = qwen35.build
