"""The llama architecture: pre-norm, rotary embedding on neighbouring pairs, SwiGLU. Llama, Mistral and SmolLM files."""

from __future__ import annotations

from ..gguf import Metadata
from ..graph import RopeMode, Tensor
from .blocks import Batch, Weights, attention, expected_tensors, feed_forward, logits, pick_outputs
from .config import Config, Expected, read_config


def read(metadata: Metadata, vocabulary: int, tied: bool) -> Config:
    """Read the hyper-parameters."""
    return read_config(metadata, vocabulary, tied, RopeMode.NORM)


def tensors(config: Config) -> dict[str, Expected]:
    """Return the expected tensors; `rope_freqs` divides the rotation frequencies (Llama 3)."""
    factors = Expected((config.rope.rotated // 2,), optional=True)
    return expected_tensors(config, biases=True) | {"rope_freqs.weight": factors}


def build(config: Config, weights: Weights, batch: Batch) -> Tensor:
    """Return the logits [vocabulary, outputs]."""
    x = weights.embed(batch.tokens)
    factors = weights.get("rope_freqs.weight")
    for block in range(config.blocks):
        w = weights.block(block)
        h = w.norm("attn_norm", x, config.eps)
        h = attention(config, w, h, batch, block, rope=config.rope, factors=factors)
        x, h = pick_outputs(config, batch, block, x, h)
        x = x.add(h)
        x = x.add(feed_forward(w, w.norm("ffn_norm", x, config.eps), Tensor.swiglu))
    return logits(config, weights, x)
