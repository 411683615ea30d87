"""The shapes of PrismML's published models, as facts; imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TYPES = ("Q1_0", "Q2_0", "Q2_0_G128", "PQ2_0", "PTQ1_0", "TQ1_0", "TQ2_0", "Q4_0", "Q4_K", "Q8_0", "F16", "F32")


@dataclass(frozen=True)
class Shape:
    """A model to imitate: architecture, hyper-parameters under its prefix, rows of the embedding."""

    architecture: str
    keys: Mapping[str, Any]
    vocabulary: int
    tied: bool
    rotated: bool = False  # Bonsai 2: rotated weights, alpha and beta in BF16


def _dense(blocks: int, width: int, feed_forward: int, heads: int, context: int, tied: bool) -> Shape:
    keys = {
        "block_count": blocks,
        "context_length": context,
        "embedding_length": width,
        "feed_forward_length": feed_forward,
        "attention.head_count": heads,
        "attention.head_count_kv": 8,
        "attention.key_length": 128,
        "attention.value_length": 128,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 1e6,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": context // 4,
    }
    return Shape("qwen3", keys, 151_669, tied)


def _hybrid(rotated: bool) -> Shape:
    keys = {
        "block_count": 64,
        "context_length": 262_144,
        "embedding_length": 5120,
        "feed_forward_length": 17_408,
        "attention.head_count": 24,
        "attention.head_count_kv": 4,
        "attention.key_length": 256,
        "attention.value_length": 256,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 1e7,
        "rope.dimension_count": 64,
        "rope.dimension_sections": [11, 11, 10, 0],
        "full_attention_interval": 4,
        "ssm.conv_kernel": 4,
        "ssm.state_size": 128,
        "ssm.group_count": 16,
        "ssm.time_step_rank": 48,
        "ssm.inner_size": 6144,
    }
    return Shape("qwen35", keys, 248_320, tied=False, rotated=rotated)


SHAPES: dict[str, Shape] = {
    "bonsai-1.7b": _dense(28, 2048, 6144, 16, 32_768, tied=True),
    "bonsai-4b": _dense(36, 2560, 9728, 32, 32_768, tied=True),
    "bonsai-8b": _dense(36, 4096, 12_288, 32, 65_536, tied=False),
    "bonsai-27b": _hybrid(rotated=False),
    "bonsai-2-27b": _hybrid(rotated=True),
}
