"""The dense qwen3 architecture: as llama, with normalized heads and rotation of the two halves. Qwen3 and Bonsai
files."""

from __future__ import annotations

from ..gguf import Metadata
from ..graph import RopeMode, Tensor
from .blocks import Batch, Weights, attention, expected_tensors, feed_forward, logits, mixture, pick_outputs
from .config import Config, Expected, read_config


def read(metadata: Metadata, vocabulary: int, tied: bool) -> Config:
    """Read the hyper-parameters."""
    return read_config(metadata, vocabulary, tied, RopeMode.NEOX)


def tensors(config: Config) -> dict[str, Expected]:
    """Return the expected tensors."""
    return expected_tensors(config, head_norms=True)


def build(config: Config, weights: Weights, batch: Batch) -> Tensor:
    """Return the logits [vocabulary, outputs]."""
    x = weights.embed(batch.tokens)
    for block in range(config.blocks):
        w = weights.block(block)
        h = attention(config, w, w.norm("attn_norm", x, config.eps), batch, block, rope=config.rope, head_norms=True)
        x, h = pick_outputs(config, batch, block, x, h)
        x = x.add(h)
        f = w.norm("ffn_norm", x, config.eps)
        x = x.add(mixture(config, w, f) if config.experts else feed_forward(w, f, Tensor.swiglu))
    return logits(config, weights, x)
