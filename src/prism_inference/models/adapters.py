"""How adapters of transformers' models name weights and order their rows, as tables: module names ↔ GGUF names.

Facts of transformers' modelling files and of llama.cpp's converter, which permutes the rows of some matrices. Knows
neither files nor bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import UnsupportedError
from .config import Config
from .rotation import EMBEDDING

Order = npt.NDArray[np.int64]

# Within a block: GGUF name without `.weight` → module within a transformers layer. {} stands for an expert's number.
_ATTENTION = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
}
_FEED_FORWARD = {"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
_EXPERTS = {
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.{}.gate_proj",
    "ffn_up_exps": "mlp.experts.{}.up_proj",
    "ffn_down_exps": "mlp.experts.{}.down_proj",
}
_SHARED_EXPERT = {
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
}
_DELTA_NET = {
    "attn_qkv": "linear_attn.in_proj_qkv",
    "attn_gate": "linear_attn.in_proj_z",
    "ssm_alpha": "linear_attn.in_proj_a",
    "ssm_beta": "linear_attn.in_proj_b",
    "ssm_out": "linear_attn.out_proj",
}
_FUSED = {
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_up": "mlp.gate_up_proj",
    "ffn_down": "mlp.down_proj",
}
MODULES: dict[str, dict[str, str]] = {
    "gemma2": _ATTENTION | _FEED_FORWARD,
    "gemma3": _ATTENTION | _FEED_FORWARD,
    "llama": _ATTENTION | _FEED_FORWARD,
    "phi3": _FUSED,
    "qwen2": _ATTENTION | _FEED_FORWARD,
    "qwen3": _ATTENTION | _FEED_FORWARD,
    "qwen35": _ATTENTION | _DELTA_NET | _FEED_FORWARD,
    "qwen35moe": _ATTENTION | _DELTA_NET | _EXPERTS | _SHARED_EXPERT,
    "qwen3moe": _ATTENTION | _EXPERTS,
}
HEAD, HEAD_MODULE = "output.weight", "lm_head"

_WEIGHT = re.compile(r"blk\.(?P<block>\d+)\.(?P<name>\w+)\.weight")
_MODULE = re.compile(r"(?:(?:model\.)?language_model\.)?(?:model\.)?layers\.(?P<block>\d{1,9})\.(?P<name>.+)")
_EXPERT = re.compile(r"(?<=mlp\.experts\.)\d{1,9}(?=\.)")

_REASONS = {
    "embed_tokens": "an embedding is looked up, not multiplied",
    "mlp.shared_expert_gate": "GGUF files keep this matrix of one row as a vector",
    "linear_attn.conv1d": "a convolution is no product",
    "mlp.experts": "adapters on the fused matrices of all experts do not say which of them they belong to; "
    "those on single experts are known",
}


@dataclass(frozen=True)
class Place:
    """Where a module's matrix lies: in the weight of this name, as that expert's part if there is a number."""

    weight: str
    expert: int | None = None


def place(architecture: str, module: str) -> Place:
    """Return where the matrix of a module (`model.layers.0.self_attn.q_proj`) lies in a GGUF file.

    Raises:
        UnsupportedError: the architecture has no such module here; says why where that is known.
    """
    if module.removeprefix("language_model.") == HEAD_MODULE:
        return Place(HEAD)
    match = _MODULE.fullmatch(module)
    if match is not None:
        number = _EXPERT.search(match["name"])
        wanted = _EXPERT.sub("{}", match["name"])
        for name, known in MODULES.get(architecture, {}).items():
            if known == wanted:
                return Place(f"blk.{int(match['block'])}.{name}.weight", int(number[0]) if number else None)
    raise UnsupportedError(
        f"an adapter on a module without known place in {architecture} files",
        where=module[:120],
        expected=", ".join([*MODULES.get(architecture, {}).values(), HEAD_MODULE]),
        hint=next((f"Reason: {why}." for part, why in _REASONS.items() if part in module), None),
    )


def module_of(architecture: str, weight: str, expert: int | None = None) -> str:
    """Return the module whose matrix (or whose expert's) a weight is; the inverse of `place`.

    Raises:
        UnsupportedError: none is known.
    """
    if weight == HEAD:
        return HEAD_MODULE
    match = _WEIGHT.fullmatch(weight)
    known = MODULES.get(architecture, {}).get(match["name"]) if match else None
    if match is None or known is None:
        raise UnsupportedError(f"no module of transformers is known for this {architecture} weight", where=weight)
    return f"model.layers.{match['block']}.{known.format(expert)}"


def refusal(architecture: str, weight: str, dims: int) -> str | None:
    """Return why a weight of so many extents cannot have an adapter; None where it can: products alone use it."""
    if weight == EMBEDDING:
        return _REASONS["embed_tokens"]
    if dims < 2:
        return "a vector is added or multiplied value by value, which leaves nothing of low rank"
    match = _WEIGHT.fullmatch(weight)
    if weight != HEAD and (match is None or match["name"] not in MODULES[architecture]):
        return "it is no matrix of a product"
    return None


def _halves_to_pairs(heads: int, size: int) -> Order:
    """Rows of heads that transformers rotates as two halves, in the order of neighbouring pairs (llama files)."""
    return np.arange(heads * size).reshape(heads, 2, size // 2).swapaxes(1, 2).reshape(-1)


def _grouped_to_tiled(config: Config, size: int) -> Order:
    """Value heads, grouped by key head in transformers, in the order in which qwen35 files tile them."""
    rec = config.recurrent
    assert rec is not None
    heads = np.arange(rec.value_heads * size).reshape(rec.key_heads, -1, size)
    return heads.swapaxes(0, 1).reshape(-1)


def _value_rows(config: Config) -> Order:
    rec = config.recurrent
    assert rec is not None
    keys = 2 * rec.key_heads * rec.key_size
    return np.concatenate([np.arange(keys), keys + _grouped_to_tiled(config, rec.value_size)])


def _value_size(config: Config) -> int:
    assert config.recurrent is not None
    return config.recurrent.value_size


_Rows = Callable[[Config], Order]
_LLAMA_ROWS: dict[str, _Rows] = {
    "attn_q": lambda config: _halves_to_pairs(config.heads, config.key_size),
    "attn_k": lambda config: _halves_to_pairs(config.key_heads, config.key_size),
}
_DELTA_NET_ROWS: dict[str, _Rows] = {
    "attn_qkv": _value_rows,
    "attn_gate": lambda config: _grouped_to_tiled(config, _value_size(config)),
    "ssm_alpha": lambda config: _grouped_to_tiled(config, 1),
    "ssm_beta": lambda config: _grouped_to_tiled(config, 1),
}
_ROWS = {"llama": _LLAMA_ROWS, "qwen35": _DELTA_NET_ROWS, "qwen35moe": _DELTA_NET_ROWS}


def row_order(config: Config, weight: str) -> Order | None:
    """Return the transformers row of each row of a file's weight [out], None where they are the same."""
    match = _WEIGHT.fullmatch(weight)
    maker = _ROWS.get(config.architecture, {}).get(match["name"]) if match else None
    return None if maker is None else maker(config)


def column_order(config: Config, weight: str, grouped: bool) -> Order | None:
    """Return the same for the columns [in]. `grouped`: the file is rotated and keeps the inputs of ssm_out in
    transformers' order (`Rotation.grouped`)."""
    if grouped or config.recurrent is None or not weight.endswith(".ssm_out.weight"):
        return None
    return _grouped_to_tiled(config, config.recurrent.value_size)


def reordered(architecture: str) -> bool:
    """Whether files of an architecture have other rows than transformers somewhere, so that sizes must be known."""
    return architecture in _ROWS
