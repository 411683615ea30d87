"""Measures PyTorch at the trainings that `training_inputs.py` writes; run by an interpreter that has torch, and for
`lora` also transformers and peft. Prints one JSON line.

    python benchmarks/worker_torch.py full INPUTS THREADS mkl|onednn
    PYTHONPATH=src python benchmarks/worker_torch.py lora INPUTS THREADS mkl|onednn MODEL

INPUTS names INPUTS.npz and INPUTS.json. `mkl` is eager PyTorch as everybody runs it: float32 products go to MKL.
`onednn` sends them to oneDNN, which PyTorch ships but keeps for other types; on AMD processors it is the faster.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

WARM_UP = 3  # steps that are not measured

# Parts of a block, in a GGUF file and in transformers' LlamaForCausalLM.
BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
OUTER = {"token_embd": "embed_tokens", "output_norm": "norm"}
ADAPTED = [path.rpartition(".")[2] for path in BLOCK.values() if path.endswith("_proj")]


class OneDnnProduct(torch.autograd.Function):
    """x·wᵀ in float32 by oneDNN: x [..., in], w [out, in]."""

    @staticmethod
    def multiply(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, w, None, "none", [], "")

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, w)
        return OneDnnProduct.multiply(x, w)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        x, w = ctx.saved_tensors
        need_x, need_w = ctx.needs_input_grad
        of_x = OneDnnProduct.multiply(gradient, w.t()) if need_x else None
        of_w = OneDnnProduct.multiply(gradient.flatten(0, -2).t(), x.flatten(0, -2).t()) if need_w else None
        return of_x, of_w


class Llama:
    """A llama from its weights by their names in a GGUF file; as many key heads as heads, and no ties."""

    def __init__(self, weights: dict[str, np.ndarray], hyper: dict[str, Any], length: int) -> None:
        # Copied: torch aligns its memory better than the archive's reader does.
        self.weights = {name: torch.tensor(array, requires_grad=True) for name, array in weights.items()}
        self.blocks = sum(name.endswith(".attn_q.weight") for name in weights)
        self.heads, self.eps = hyper["heads"], hyper["eps"]
        size = len(weights["blk.0.attn_q.weight"]) // self.heads
        angles = np.arange(length)[:, None] * hyper["rope_base"] ** (-np.arange(0, size, 2) / size)
        self.turns = torch.tensor(np.exp(1j * angles).astype(np.complex64))

    def rotate(self, x: torch.Tensor) -> torch.Tensor:
        """Turn neighbouring pairs of [B, heads, T, size] by their position: products of complex numbers."""
        pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
        return torch.view_as_real(pairs * self.turns).flatten(-2)

    def norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        weight = self.weights[f"{name}.weight"]
        return F.rms_norm(x, weight.shape, weight, self.eps)

    def linear(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weights[f"{name}.weight"])

    def logits(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return float32 [B, T, vocabulary] for integers [B, T]."""
        x = F.embedding(tokens, self.weights["token_embd.weight"])
        for block in (f"blk.{number}" for number in range(self.blocks)):
            h = self.norm(f"{block}.attn_norm", x)
            q, k, v = (
                self.linear(f"{block}.attn_{name}", h).unflatten(-1, (self.heads, -1)).transpose(1, 2) for name in "qkv"
            )
            h = F.scaled_dot_product_attention(self.rotate(q), self.rotate(k), v, is_causal=True)
            x = x + self.linear(f"{block}.attn_output", h.transpose(1, 2).flatten(2))
            h = self.norm(f"{block}.ffn_norm", x)
            h = F.silu(self.linear(f"{block}.ffn_gate", h)) * self.linear(f"{block}.ffn_up", h)
            x = x + self.linear(f"{block}.ffn_down", h)
        return self.linear("output", self.norm("output_norm", x))


def halves(array: np.ndarray, heads: int) -> np.ndarray:
    """Reorder the rows of each head from neighbouring pairs, as GGUF files rotate, to halves, as transformers does."""
    rows = array.reshape(heads, -1, 2, array.shape[-1])
    return np.ascontiguousarray(rows.swapaxes(1, 2)).reshape(array.shape)


def ordered(name: str, array: np.ndarray, config: Any) -> np.ndarray:
    """Return a weight or LoRA's B [rows, ...] of a GGUF name with its rows in transformers' order."""
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    part = name.split(".")[2] if name.startswith("blk.") else ""
    return halves(array, heads[part]) if part in heads else array


def path_of(name: str) -> str:
    """Return where transformers' model has the module of a GGUF tensor."""
    if not name.startswith("blk."):
        return f"model.{OUTER[name.removesuffix('.weight')]}"
    _, number, part, *_ = name.split(".")
    return f"model.layers.{number}.{BLOCK[part]}"


def load_model(path: str) -> torch.nn.Module:
    """Load a llama file with a tied head in transformers, its weights decoded to float32."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from prism_inference import codecs, gguf

    with gguf.open(path) as file:
        keys = file.metadata
        assert keys["general.architecture"] == "llama"
        assert "output.weight" not in file.tensors
        config = LlamaConfig(
            vocab_size=int(file.tensors["token_embd.weight"].ne[1]),
            hidden_size=int(keys["llama.embedding_length"]),
            intermediate_size=int(keys["llama.feed_forward_length"]),
            num_hidden_layers=int(keys["llama.block_count"]),
            num_attention_heads=int(keys["llama.attention.head_count"]),
            num_key_value_heads=int(keys["llama.attention.head_count_kv"]),
            max_position_embeddings=int(keys["llama.context_length"]),
            rms_norm_eps=float(keys["llama.attention.layer_norm_rms_epsilon"]),
            rope_parameters={"rope_type": "default", "rope_theta": float(keys["llama.rope.freq_base"])},
            tie_word_embeddings=True,
            use_cache=False,
            attn_implementation="sdpa",
        )
        model = LlamaForCausalLM(config)
        unset = {name for name, _ in model.named_parameters()}
        for name, info in file.tensors.items():
            array = codecs.decode(info.type, info.data, info.elements).reshape(tuple(int(e) for e in reversed(info.ne)))
            target = f"{path_of(name)}.weight"
            model.get_parameter(target).data.copy_(torch.from_numpy(ordered(name, array, config)))
            unset.remove(target)
    assert not unset, unset
    return model


def load_adapted(path: str, adapters: dict[str, np.ndarray], hyper: dict[str, Any]) -> torch.nn.Module:
    """Wrap the model with PEFT's LoRA, its A and B as given."""
    from peft import LoraConfig, get_peft_model

    base = load_model(path)
    options = LoraConfig(r=hyper["rank"], lora_alpha=hyper["alpha"], target_modules=ADAPTED, lora_dropout=0.0)
    model = get_peft_model(base, options)
    unset = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    for name, array in adapters.items():
        weight, _, part = name.rpartition(".")
        values = ordered(weight, array, base.config) if part == "lora_b" else array
        target = f"base_model.model.{path_of(weight)}.{part[:-1]}{part[-1].upper()}.default.weight"
        model.get_parameter(target).data.copy_(torch.from_numpy(values))
        unset.remove(target)
    assert not unset, unset
    return model.train()


def train(
    logits: Callable[[torch.Tensor], torch.Tensor],
    parameters: list[torch.Tensor],
    hyper: dict[str, Any],
    batches: torch.Tensor,
) -> tuple[list[float], list[float]]:
    """Train on batches int64 [steps, B, T + 1]; return mean losses in nats before each step, and seconds of each."""
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": hyper["weight_decay"]},
        {"params": [p for p in parameters if p.ndim == 1], "weight_decay": 0.0},
    ]
    betas = (hyper["beta1"], hyper["beta2"])
    groups = [group for group in groups if group["params"]]
    optimizer = torch.optim.AdamW(groups, lr=hyper["lr"], betas=betas, eps=hyper["adam_eps"], fused=True)
    losses, seconds = [], []
    for batch in batches:
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = F.cross_entropy(logits(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
    return losses, seconds


def main(job: str, inputs: str, threads: str, products: str, model: str = "") -> None:
    torch.set_num_threads(int(threads))
    if products == "onednn":
        F.linear = lambda x, w, bias=None: OneDnnProduct.apply(x, w)  # no matrix of these models has a bias
    hyper = json.loads(Path(f"{inputs}.json").read_text())
    with np.load(f"{inputs}.npz") as archive:
        arrays = dict(archive)
    batches = torch.from_numpy(arrays.pop("tokens").astype(np.int64))
    if job == "full":
        llama = Llama(arrays, hyper, batches.shape[2] - 1)
        logits, parameters = llama.logits, list(llama.weights.values())
    else:
        adapted = load_adapted(model, arrays, hyper)
        logits = lambda tokens: adapted(tokens).logits  # noqa: E731
        parameters = [p for p in adapted.parameters() if p.requires_grad]
    arrays.clear()
    losses, seconds = train(logits, parameters, hyper, batches)
    median = statistics.median(seconds[WARM_UP:])
    result = {
        "losses": losses,
        "seconds_per_step": median,
        "steps_per_second": 1.0 / median,
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "products": products,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
