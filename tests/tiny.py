"""Writes tiny models as GGUF files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from naive_models import Shape
from prism_inference import codecs
from prism_inference.gguf import GGUFWriter


def write_model(path: Path, s: Shape, weights: dict[str, np.ndarray], kind: str = "F32", **metadata: object) -> Path:
    """Write a model; matrices in the tensor type `kind`, norms in F32.

    `metadata` adds keys: under the architecture, or as they are where they begin with general., prism. or tokenizer.
    """
    keys = {
        "block_count": s.blocks,
        "context_length": s.context,
        "embedding_length": s.width,
        "feed_forward_length": s.feed_forward,
        "attention.head_count": s.heads,
        "attention.head_count_kv": s.key_heads,
        "attention.key_length": s.head,
        "attention.value_length": s.head,
        "attention.layer_norm_rms_epsilon": s.eps,
        "rope.freq_base": s.base,
        **({"attention.sliding_window": s.window} if s.window else {}),
        **({"expert_count": s.experts, "expert_used_count": s.used} if s.experts else {}),
        **({"expert_feed_forward_length": s.feed_forward} if s.experts else {}),
        **metadata,
    }
    return write_keys(path, s.architecture, keys, weights, lambda name: kind)


def write_keys(
    path: Path,
    architecture: str,
    keys: dict[str, object],
    weights: dict[str, np.ndarray],
    kind_of: Callable[[str], str],
) -> Path:
    """Write a model from keys and weights; `kind_of` names the tensor type of each matrix."""
    writer = GGUFWriter(path)
    writer.add("general.architecture", architecture)
    for key, value in keys.items():
        full = key if key.startswith(("general.", "prism.", "tokenizer.")) else f"{architecture}.{key}"
        writer.add(full, value)
    writer.add("tokenizer.ggml.model", "none")
    for name, array in weights.items():
        stored = kind_of(name) if array.ndim > 1 else "F32"
        writer.add_tensor(name, stored, tuple(reversed(array.shape)), codecs.encode(stored, array))
    writer.write()
    return path
