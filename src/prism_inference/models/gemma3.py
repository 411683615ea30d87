"""The gemma3 architecture: scaled embeddings, norms before and after each part, GELU gate, five local layers to one
global.

Local layers see a sliding window and rotate with their own base, unscaled; published files leave the base (10,000)
and the pattern (every sixth layer is global) out.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ..gguf import Metadata
from ..graph import RopeMode, RopeParameters, Tensor
from .blocks import Batch, Weights, attention, expected_tensors, feed_forward, logits, pick_outputs
from .config import Config, Expected, Reader, read_config

_PATTERN = 6
_LOCAL_BASE = 10_000.0
_BLOCKS_27B = 62  # this size alone scales its scores by width / heads instead of the head's size


def read(metadata: Metadata, vocabulary: int, tied: bool) -> Config:
    """Read the hyper-parameters."""
    config = read_config(metadata, vocabulary, tied, RopeMode.NEOX)
    r = Reader(metadata)
    pattern = r.integer("attention.sliding_window_pattern", _PATTERN)
    base = r.number("rope.freq_base_swa", r.number("rope.local.freq_base", _LOCAL_BASE, above=1.0), above=1.0)
    scale = math.sqrt(config.width / config.heads) if config.blocks == _BLOCKS_27B else math.sqrt(config.key_size)
    return replace(
        config,
        window=r.integer("attention.sliding_window"),
        local_layers=tuple((block + 1) % pattern != 0 for block in range(config.blocks)),
        local_rope=RopeParameters(config.rope.rotated, RopeMode.NEOX, base),
        attention_scale=1.0 / scale,
    )


def tensors(config: Config) -> dict[str, Expected]:
    """Return the expected tensors."""
    return expected_tensors(config, head_norms=True, post_norms=True)


def build(config: Config, weights: Weights, batch: Batch, *, head_norms: bool = True) -> Tensor:
    """Return the logits [vocabulary, outputs]."""
    x = weights.embed(batch.tokens).scale(math.sqrt(config.width))
    for block in range(config.blocks):
        w = weights.block(block)
        rope = config.local_rope if config.local(block) and config.local_rope else config.rope
        h = attention(config, w, w.norm("attn_norm", x, config.eps), batch, block, rope=rope, head_norms=head_norms)
        x, h = pick_outputs(config, batch, block, x, h)
        x = x.add(w.norm("post_attention_norm", h, config.eps))
        h = feed_forward(w, w.norm("ffn_norm", x, config.eps), Tensor.geglu)
        x = x.add(w.norm("post_ffw_norm", h, config.eps))
    return logits(config, weights, x)
