"""Which architectures there are: GGUF name → module. A module is imported when a file of its name is loaded."""

from __future__ import annotations

from importlib import import_module
from typing import Protocol, cast

from ..errors import UnsupportedError
from ..gguf import Metadata
from ..graph import Tensor
from .blocks import Batch, Weights
from .config import Config, Expected

ARCHITECTURES = ("gemma2", "gemma3", "llama", "phi3", "qwen2", "qwen3", "qwen35", "qwen35moe", "qwen3moe")


class Architecture(Protocol):
    """What an architecture's module offers."""

    def read(self, metadata: Metadata, vocabulary: int, tied: bool) -> Config:
        """Read the hyper-parameters."""

    def tensors(self, config: Config) -> dict[str, Expected]:
        """Return the expected tensors by name."""

    def build(self, config: Config, weights: Weights, batch: Batch) -> Tensor:
        """Return the logits [vocabulary, outputs]."""


def architecture(name: str) -> Architecture:
    """Return the module of an architecture.

    Raises:
        UnsupportedError: there is none of that name.
    """
    if name not in ARCHITECTURES:
        raise UnsupportedError(
            "unknown architecture", where="general.architecture", expected=", ".join(ARCHITECTURES), found=repr(name)
        )
    return cast(Architecture, import_module(f"{__package__}.{name}"))
