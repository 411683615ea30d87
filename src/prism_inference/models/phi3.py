"""The phi3 architecture: as llama, with queries, keys and values in one matrix, gate and up in another.

Long-context files carry two sets of divisors of the rotation frequencies, for contexts up to the original one and
beyond it, and a factor of cosine and sine.
"""

from __future__ import annotations

from dataclasses import replace

from ..gguf import Metadata
from ..graph import RopeMode, Tensor
from .blocks import Batch, Weights, attend, logits, outer_tensors, pick_outputs
from .config import Config, Expected, Reader, read_config


def read(metadata: Metadata, vocabulary: int, tied: bool) -> Config:
    """Read the hyper-parameters; a sliding window, where there is one, holds for all layers."""
    config = read_config(metadata, vocabulary, tied, RopeMode.NEOX)
    r = Reader(metadata)
    window = r.integer("attention.sliding_window", 0, low=0)
    original = r.integer("rope.scaling.original_context_length", config.context, high=config.context)
    rope = replace(config.rope, original_context=original)
    return replace(config, rope=rope, window=window, local_layers=(window > 0,) * config.blocks)


def tensors(config: Config) -> dict[str, Expected]:
    """Return the expected tensors."""
    d, ff = config.width, config.feed_forward
    q, k, v = config.heads * config.key_size, config.key_heads * config.key_size, config.key_heads * config.value_size
    expected = outer_tensors(config) | {
        "rope_factors_short.weight": Expected((config.rope.rotated // 2,), optional=True),
        "rope_factors_long.weight": Expected((config.rope.rotated // 2,), optional=True),
    }
    rows = {
        "attn_norm.weight": (d,),
        "attn_qkv.weight": (d, q + k + v),
        "attn_output.weight": (config.heads * config.value_size, d),
        "ffn_norm.weight": (d,),
        "ffn_up.weight": (d, 2 * ff),
        "ffn_down.weight": (ff, d),
    }
    return expected | {
        f"blk.{block}.{name}": Expected(ne) for block in range(config.blocks) for name, ne in rows.items()
    }


def _part(x: Tensor, ne: tuple[int, ...], start: int) -> Tensor:
    """A part of the rows of [n, tokens], seen as [values, heads, tokens] or [values, tokens]."""
    nb = (4 * ne[0], x.nb[1]) if len(ne) == 3 else (x.nb[1],)
    return x.view(ne, nb, 4 * start)


def build(config: Config, weights: Weights, batch: Batch) -> Tensor:
    """Return the logits [vocabulary, outputs]."""
    size, heads, shared, ff = config.key_size, config.heads, config.key_heads, config.feed_forward
    beyond = batch.cells_available > config.rope.original_context
    factors = weights.get("rope_factors_long.weight" if beyond else "rope_factors_short.weight")
    x = weights.embed(batch.tokens)
    for block in range(config.blocks):
        w, tokens = weights.block(block), batch.size
        mixed = w.linear("attn_qkv", w.norm("attn_norm", x, config.eps))
        q = _part(mixed, (size, heads, tokens), 0).rope(batch.positions, config.rope, factors)
        k = _part(mixed, (size, shared, tokens), size * heads).rope(batch.positions, config.rope, factors)
        v = _part(mixed, (config.value_size, shared, tokens), size * (heads + shared))
        h = w.linear("attn_output", attend(config, q, k, v, batch, block))
        x, h = pick_outputs(config, batch, block, x, h)
        x = x.add(h)
        both = w.linear("ffn_up", w.norm("ffn_norm", x, config.eps))
        outputs = both.ne[1]
        gated = _part(both, (ff, outputs), 0).swiglu(_part(both, (ff, outputs), ff))
        x = x.add(w.linear("ffn_down", gated))
    return logits(config, weights, x)
