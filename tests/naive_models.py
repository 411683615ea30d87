"""Architectures written out in NumPy, float64, one token after another: the oracle of whole models.

Written from the published formulas, independent of the package's graphs. Weights are float32 arrays in NumPy order
[out, in].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Shape:
    """Sizes of a tiny model; the defaults exercise grouped heads and a head size that differs from width / heads."""

    architecture: str
    blocks: int = 2
    width: int = 64
    feed_forward: int = 96
    heads: int = 4
    key_heads: int = 2
    head: int = 24
    vocabulary: int = 61
    context: int = 128
    eps: float = 1e-5
    base: float = 10_000.0
    window: int = 0
    pattern: int = 6
    tied: bool = True
    experts: int = 0
    used: int = 0


def weight_shapes(s: Shape) -> dict[str, tuple[int, ...]]:
    """Names and NumPy shapes of the tensors."""
    q, kv = s.heads * s.head, s.key_heads * s.head
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (s.vocabulary, s.width),
        "output_norm.weight": (s.width,),
    }
    if not s.tied:
        shapes["output.weight"] = (s.vocabulary, s.width)
    for b in range(s.blocks):
        block = {
            "attn_norm": (s.width,),
            "attn_q": (q, s.width),
            "attn_k": (kv, s.width),
            "attn_v": (kv, s.width),
            "attn_output": (s.width, q),
            "ffn_norm": (s.width,),
            "ffn_gate": (s.feed_forward, s.width),
            "ffn_up": (s.feed_forward, s.width),
            "ffn_down": (s.width, s.feed_forward),
        }
        if s.experts:
            for name in ("ffn_gate", "ffn_up", "ffn_down"):
                block[f"{name}_exps"] = (s.experts, *block.pop(name))
            block["ffn_gate_inp"] = (s.experts, s.width)
        if s.architecture in ("qwen3", "qwen3moe", "gemma3"):
            block |= {"attn_q_norm": (s.head,), "attn_k_norm": (s.head,)}
        if s.architecture == "phi3":
            q_k_v = sum(block.pop(f"attn_{name}")[0] for name in "qkv")
            block["attn_qkv"] = (q_k_v, s.width)
            block["ffn_up"] = (block.pop("ffn_gate")[0] + s.feed_forward, s.width)
        if s.architecture in ("gemma2", "gemma3"):
            block |= {"post_attention_norm": (s.width,), "post_ffw_norm": (s.width,)}
        shapes |= {f"blk.{b}.{name}.weight": shape for name, shape in block.items()}
        if s.architecture == "qwen2":
            shapes |= {f"blk.{b}.attn_{name}.bias": (size,) for name, size in (("q", q), ("k", kv), ("v", kv))}
    return shapes


def random_weights(s: Shape, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Weights of a size that keeps activations near one."""
    return {
        name: (rng.standard_normal(shape) / (np.sqrt(shape[-1]) if len(shape) > 1 else 4) + (len(shape) == 1)).astype(
            np.float32
        )
        for name, shape in weight_shapes(s).items()
    }


def rms(x: np.ndarray, w: np.ndarray, eps: float) -> np.ndarray:
    return w * x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)


def rotate(x: np.ndarray, position: int, base: float, neighbours: bool) -> np.ndarray:
    """Rotary embedding of heads [heads, n]: pairs (2i, 2i+1) or (i, i + n/2)."""
    n = x.shape[-1]
    angle = position * base ** (-2.0 * np.arange(n // 2) / n)
    c, s = np.cos(angle), np.sin(angle)
    a, b = (x[:, 0::2], x[:, 1::2]) if neighbours else (x[:, : n // 2], x[:, n // 2 :])
    y = np.empty_like(x)
    first, second = a * c - b * s, a * s + b * c
    if neighbours:
        y[:, 0::2], y[:, 1::2] = first, second
    else:
        y[:, : n // 2], y[:, n // 2 :] = first, second
    return y


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def feed(gate: np.ndarray, up: np.ndarray, down: np.ndarray, f: np.ndarray, act=silu) -> np.ndarray:
    return down @ (act(gate @ f) * (up @ f))


def mixed(s: Shape, p: dict[str, np.ndarray], f: np.ndarray) -> np.ndarray:
    """The likeliest experts, their chances made to sum to one."""
    scores = p["ffn_gate_inp"] @ f
    chances = np.exp(scores - scores.max())
    chances /= chances.sum()
    best = sorted(range(s.experts), key=lambda e: -chances[e])[: s.used]
    parts = [chances[e] * feed(p["ffn_gate_exps"][e], p["ffn_up_exps"][e], p["ffn_down_exps"][e], f) for e in best]
    return sum(parts) / sum(chances[e] for e in best)


def forward(s: Shape, weights: dict[str, np.ndarray], ids: list[int]) -> np.ndarray:
    """Logits [len(ids), vocabulary], float64."""
    w = {name: value.astype(np.float64) for name, value in weights.items()}
    gemma = s.architecture in ("gemma2", "gemma3")
    capped = s.architecture == "gemma2"
    keys: list[list[np.ndarray]] = [[] for _ in range(s.blocks)]
    values: list[list[np.ndarray]] = [[] for _ in range(s.blocks)]
    out = []
    for position, token in enumerate(ids):
        x = w["token_embd.weight"][token] * (np.sqrt(s.width) if gemma else 1.0)
        for b in range(s.blocks):
            mine = {name.split(".", 2)[2]: value for name, value in w.items() if name.startswith(f"blk.{b}.")}
            p = {name.removesuffix(".weight"): value for name, value in mine.items()}
            if s.architecture == "phi3":
                fused, sizes = p.pop("attn_qkv"), np.cumsum([s.heads, s.key_heads]) * s.head
                p["attn_q"], p["attn_k"], p["attn_v"] = np.split(fused, sizes)
                p["ffn_gate"], p["ffn_up"] = np.split(p["ffn_up"], 2)
            local = s.window > 0 and ((capped and b % 2 == 0) or (gemma and not capped and (b + 1) % s.pattern != 0))
            local = local or (s.window > 0 and s.architecture == "phi3")
            base = 10_000.0 if local and not capped and gemma else s.base
            h = rms(x, p["attn_norm"], s.eps)
            q, k, v = ((p[f"attn_{name}"] @ h + p.get(f"attn_{name}.bias", 0.0)).reshape(-1, s.head) for name in "qkv")
            if "attn_q_norm" in p:
                q, k = rms(q, p["attn_q_norm"], s.eps), rms(k, p["attn_k_norm"], s.eps)
            keys[b].append(rotate(k, position, base, s.architecture == "llama"))
            values[b].append(v)
            q = rotate(q, position, base, s.architecture == "llama")
            first = max(0, position + 1 - s.window) if local else 0
            heads = []
            for i in range(s.heads):
                shared = i // (s.heads // s.key_heads)
                scores = np.array([q[i] @ key[shared] for key in keys[b][first:]]) / np.sqrt(s.head)
                scores = 50 * np.tanh(scores / 50) if capped else scores
                soft = np.exp(scores - scores.max())
                heads.append(
                    sum(a * value[shared] for a, value in zip(soft / soft.sum(), values[b][first:], strict=True))
                )
            h = p["attn_output"] @ np.concatenate(heads)
            x = x + (rms(h, p["post_attention_norm"], s.eps) if gemma else h)
            f = rms(x, p["ffn_norm"], s.eps)
            h = (
                mixed(s, p, f)
                if s.experts
                else feed(p["ffn_gate"], p["ffn_up"], p["ffn_down"], f, gelu if gemma else silu)
            )
            x = x + (rms(h, p["post_ffw_norm"], s.eps) if gemma else h)
        head = w["token_embd.weight"] if s.tied else w["output.weight"]
        y = head @ rms(x, w["output_norm.weight"], s.eps)
        out.append(30 * np.tanh(y / 30) if capped else y)
    return np.array(out)
