"""A model of one's own: a file with random weights, to be trained from nothing."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ParameterError
from ..gguf import GGUFWriter, Metadata
from ..models import architecture

DEVIATION = 0.02  # of the weights at first, as GPT-2's


@dataclass(frozen=True)
class Sizes:
    """Sizes of a plain transformer. Widths count values; `context` counts tokens."""

    architecture: str = "qwen3"
    width: int = 256
    blocks: int = 6
    heads: int = 4
    key_heads: int = 2
    head_size: int = 64
    feed_forward: int = 768
    context: int = 512
    eps: float = 1e-6
    rope_base: float = 10_000.0
    tied: bool = True

    def keys(self) -> dict[str, Any]:
        """Return the metadata keys, without the architecture's prefix."""
        return {
            "block_count": self.blocks,
            "context_length": self.context,
            "embedding_length": self.width,
            "feed_forward_length": self.feed_forward,
            "attention.head_count": self.heads,
            "attention.head_count_kv": self.key_heads,
            "attention.key_length": self.head_size,
            "attention.value_length": self.head_size,
            "attention.layer_norm_rms_epsilon": float(self.eps),
            "rope.freq_base": float(self.rope_base),
        }


PLAIN = ("llama", "qwen2", "qwen3")  # architectures that these keys describe


def create(
    path: str | os.PathLike[str], sizes: Sizes, vocabulary: Mapping[str, Any], name: str = "untrained", seed: int = 0
) -> Path:
    """Write a model file in F32.

    Matrices are normal with deviation 0.02, those whose results are added to the residual stream divided by
    sqrt(2·blocks); norms are ones, biases zeros.

    Args:
        path: the file.
        sizes: its shape.
        vocabulary: tokenizer keys, as `train_vocabulary` or another file's metadata have them.
        name: its `general.name`.
        seed: of the weights.

    Raises:
        ParameterError: an architecture that these sizes do not describe.
        ModelError: sizes that do not fit each other.
    """
    if sizes.architecture not in PLAIN:
        raise ParameterError(
            "cannot create this architecture", expected=", ".join(PLAIN), found=repr(sizes.architecture)
        )
    tokens = vocabulary["tokenizer.ggml.tokens"]
    keys = {f"{sizes.architecture}.{key}": value for key, value in sizes.keys().items()}
    module = architecture(sizes.architecture)
    config = module.read(
        Metadata({"general.architecture": sizes.architecture} | keys, str(path)), len(tokens), sizes.tied
    )
    writer = GGUFWriter(path)
    writer.add("general.architecture", sizes.architecture)
    writer.add("general.name", name)
    for key, value in (*keys.items(), *vocabulary.items()):
        writer.add(key, value)
    rng = np.random.default_rng(seed)
    for tensor, row in module.tensors(config).items():
        if row.optional and not (tensor == "output.weight" and not sizes.tied):
            continue
        values = _initial(tensor, row.ne, sizes.blocks, rng)
        writer.add_tensor(tensor, "F32", row.ne, values)
    writer.write()
    return Path(path)


def _initial(name: str, ne: tuple[int, ...], blocks: int, rng: np.random.Generator) -> Any:
    if len(ne) == 1:
        return np.zeros(ne, np.float32) if name.endswith(".bias") else np.ones(ne, np.float32)
    deviation = DEVIATION
    if name.endswith(("attn_output.weight", "ffn_down.weight")):
        deviation /= math.sqrt(2 * blocks)
    return (rng.standard_normal(tuple(reversed(ne)), np.float32) * np.float32(deviation)).astype(np.float32)
