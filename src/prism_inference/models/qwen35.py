"""The qwen35 architecture: gated delta-net layers, and gated attention in every fourth. Qwen3.5 to 3.8 and Bonsai-27B
files.

Files keep the value heads in tiled order: value head r uses key head r mod (number of key heads).
"""

from __future__ import annotations

import math
from dataclasses import replace

from ..errors import ModelError
from ..gguf import Metadata
from ..graph import RopeMode, Tensor
from .blocks import Batch, Weights, attend, feed_forward, logits, mixture, outer_tensors, pick_outputs
from .config import Config, Expected, Reader, Recurrent, read_config

_INTERVAL = 4  # where the file does not say which layers attend


def read(metadata: Metadata, vocabulary: int, tied: bool) -> Config:
    """Read the hyper-parameters; blocks that only predict further tokens are left out."""
    config = read_config(metadata, vocabulary, tied, RopeMode.NEOX)
    r = Reader(metadata)
    blocks = config.blocks - r.integer("nextn_predict_layers", 0, low=0, high=config.blocks - 1)
    value_heads, inner = r.integer("ssm.time_step_rank", high=65_536), r.integer("ssm.inner_size")
    key_heads = r.integer("ssm.group_count", high=65_536)
    if inner % value_heads or value_heads % key_heads:
        raise ModelError(
            "recurrent heads do not divide",
            where=r.key("ssm.time_step_rank"),
            expected=f"a divisor of {inner} and a multiple of {key_heads}",
            found=value_heads,
        )
    recurrent = Recurrent(
        taps=r.integer("ssm.conv_kernel", low=2, high=64),
        key_heads=key_heads,
        value_heads=value_heads,
        key_size=r.integer("ssm.state_size"),
        value_size=inner // value_heads,
    )
    sections = r.metadata.integers(r.key("rope.dimension_sections"), ())
    rope = replace(config.rope, sections=tuple(int(section) for section in sections[:4]))
    return replace(config, blocks=blocks, rope=rope, recurrent=recurrent, recurrent_layers=_layers(r, blocks))


def _layers(r: Reader, blocks: int) -> tuple[bool, ...]:
    """Return for each block whether it is recurrent."""
    key = "attention.recurrent_layers"
    if r.has(key):
        flags = r.metadata.booleans(r.key(key))
        if len(flags) < blocks:
            raise ModelError("too few flags", where=r.key(key), expected=f"{blocks} or more", found=len(flags))
        return tuple(bool(flag) for flag in flags[:blocks])
    interval = r.integer("full_attention_interval", _INTERVAL, high=1 << 10)
    return tuple((block + 1) % interval != 0 for block in range(blocks))


def tensors(config: Config) -> dict[str, Expected]:
    """Return the expected tensors."""
    d, ff, rec = config.width, config.feed_forward, config.recurrent
    assert rec is not None
    expected = outer_tensors(config)
    common = {
        "attn_norm.weight": (d,),
        "post_attention_norm.weight": (d,),
        "ffn_gate.weight": (d, ff),
        "ffn_up.weight": (d, ff),
        "ffn_down.weight": (ff, d),
    }
    attending = {
        "attn_q.weight": (d, 2 * config.heads * config.key_size),
        "attn_k.weight": (d, config.key_heads * config.key_size),
        "attn_v.weight": (d, config.key_heads * config.value_size),
        "attn_output.weight": (config.heads * config.value_size, d),
        "attn_q_norm.weight": (config.key_size,),
        "attn_k_norm.weight": (config.key_size,),
    }
    recurrent = {
        "attn_qkv.weight": (d, rec.channels),
        "attn_gate.weight": (d, rec.inner),
        "ssm_conv1d.weight": (rec.taps, rec.channels),
        "ssm_dt.bias": (rec.value_heads,),
        "ssm_a": (rec.value_heads,),
        "ssm_alpha.weight": (d, rec.value_heads),
        "ssm_beta.weight": (d, rec.value_heads),
        "ssm_norm.weight": (rec.value_size,),
        "ssm_out.weight": (rec.inner, d),
    }
    for block in range(config.blocks):
        rows = common | (recurrent if config.is_recurrent(block) else attending)
        expected |= {f"blk.{block}.{name}": Expected(ne) for name, ne in rows.items()}
    return expected


def gated_attention(config: Config, w: Weights, x: Tensor, batch: Batch, block: int) -> Tensor:
    """Attention whose heads are gated: attn_q holds, head by head, the query and then the gate."""
    tokens, size = batch.size, config.key_size
    both = w.linear("attn_q", x).reshape(2 * size, config.heads, tokens)
    q, gate = (both.view((size, config.heads, tokens), both.nb[1:3], 4 * size * part) for part in (0, 1))
    k = w.linear("attn_k", x).reshape(size, config.key_heads, tokens)
    v = w.linear("attn_v", x).reshape(config.value_size, config.key_heads, tokens)
    q, k = (w.norm(f"attn_{name}_norm", part, config.eps) for name, part in (("q", q), ("k", k)))
    q, k = (part.rope(batch.positions, config.rope) for part in (q, k))
    out = attend(config, q, k, v, batch, block)
    return w.linear("attn_output", out.mul(gate.sigmoid().reshape(config.heads * size, tokens)))


def _apart(x: Tensor, batch: Batch) -> Tensor:
    """The tokens of [..., tokens] as [..., tokens of a sequence, sequences], where there are several."""
    if batch.sequences == 1:
        return x
    last = x.ne[2] if x.ne[2] == batch.size else x.ne[1]
    inner = x.ne[:2] if x.ne[2] == batch.size else x.ne[:1]
    whole = x if x.contiguous else x.cont()
    return whole.reshape(*inner, last // batch.sequences, batch.sequences)


def delta_net(config: Config, w: Weights, x: Tensor, batch: Batch, block: int) -> Tensor:
    """A gated delta-net layer: convolution, delta rule over the state, gated norm."""
    rec, state, tokens = config.recurrent, batch.state(block), batch.size
    assert rec is not None
    inputs, matrices = (state.inputs, state.matrices) if state else (None, None)
    mixed = _apart(w.linear("attn_qkv", x), batch).causal_conv(w("ssm_conv1d.weight"), inputs)
    mixed = mixed.reshape(rec.channels, tokens)
    row, keys = mixed.nb[1], rec.key_heads * rec.key_size
    # x / sqrt(Σx² + eps) is the root-mean-square norm with eps / n, divided by sqrt(n).
    eps, shrink = config.eps / rec.key_size, 1.0 / math.sqrt(rec.key_size)
    q, k = (
        mixed.view((rec.key_size, rec.key_heads, tokens), (4 * rec.key_size, row), 4 * keys * part)
        .rms_norm(eps)
        .scale(shrink)
        for part in (0, 1)
    )
    v = mixed.view((rec.value_size, rec.value_heads, tokens), (4 * rec.value_size, row), 8 * keys)
    beta = w.linear("ssm_beta", x).sigmoid()
    gate = w.linear("ssm_alpha", x).add(w("ssm_dt.bias")).softplus().mul(w("ssm_a"))
    q, k, v, gate, beta = (_apart(part, batch) for part in (q, k, v, gate, beta))
    out = q.gated_delta_net(k, v, gate, beta, matrices).reshape(rec.value_size, rec.value_heads, tokens)
    z = w.linear("attn_gate", x).reshape(rec.value_size, rec.value_heads, tokens)
    out = z.swiglu(w.norm("ssm_norm", out, config.eps))
    if w.rotation is not None and w.rotation.grouped:
        # Rotated files fold ssm_out in the order in which the value heads of one key head lie together.
        shared = rec.value_heads // rec.key_heads
        tiled = out.reshape(rec.value_size, rec.key_heads, shared, tokens)
        out = tiled.permute(0, 2, 1, 3).cont()
    return w.linear("ssm_out", out.reshape(rec.inner, tokens))


def build(config: Config, weights: Weights, batch: Batch) -> Tensor:
    """Return the logits [vocabulary, outputs]."""
    x = weights.embed(batch.tokens)
    for block in range(config.blocks):
        w = weights.block(block)
        mixer = delta_net if config.is_recurrent(block) else gated_attention
        h = mixer(config, w, w.norm("attn_norm", x, config.eps), batch, block)
        x, h = pick_outputs(config, batch, block, x, h)
        x = x.add(h)
        f = w.norm("post_attention_norm", x, config.eps)
        x = x.add(mixture(config, w, f) if config.experts else feed_forward(w, f, Tensor.swiglu))
    return logits(config, weights, x)
