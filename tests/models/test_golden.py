"""Whole models against reference data: llama.cpp's logits of tiny models, exact-arithmetic logits of real ones."""

from __future__ import annotations

import json

import numpy as np
import pytest

import prism_inference as prism


def log_softmax(logits: np.ndarray) -> np.ndarray:
    x = logits.astype(np.float64)
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def mean_kl(reference: np.ndarray, other: np.ndarray) -> float:
    """Mean over rows of KL(reference ‖ other), in nats."""
    p, q = log_softmax(reference), log_softmax(other)
    return float((np.exp(p) * (p - q)).sum(-1).mean())


def evaluated(path, ids, chunk: int) -> np.ndarray:
    session = prism.load(path, context=256, cache_type="F32").session()
    parts = [session.evaluate(ids[i : i + chunk], logits="all") for i in range(0, len(ids), chunk)]
    return np.concatenate(parts)


@pytest.mark.parametrize("chunk", [1, 7, 90])
def test_tiny_qwen3_within_1e_4(shared, chunk: int) -> None:
    reference = np.load(shared / "golden" / "ref_qwen3.npz")
    logits = evaluated(shared / "golden" / "tiny_qwen3.gguf", reference["toks"].tolist(), chunk)
    assert np.abs(logits - reference["a"]).max() < 1e-4


@pytest.mark.parametrize("name", ["q1", "q2"])
def test_tiny_low_bit_models(shared, name: str) -> None:
    """Equal until a rounding flips (the reference itself would differ between machines then), close in distribution
    after."""
    reference = np.load(shared / "golden" / f"ref_{name}.npz")
    logits = evaluated(shared / "golden" / f"tiny_{name}.gguf", reference["toks"].tolist(), 64)
    difference = np.abs(logits - reference["a"]).max(1)
    kl = mean_kl(reference["a"], logits)
    print(
        f"{name}: first 8 positions within {difference[:8].max():.2e}, all within {difference.max():.2e}, KL {kl:.2e}"
    )
    assert difference[:8].max() < 1e-5
    assert kl < 1e-3


MODELS = {"smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf", "gemma3": "gemma-3-270m-q4_k_m.gguf"}


@pytest.mark.parametrize("name", MODELS)
def test_real_models_are_closer_to_exact_arithmetic_than_the_reference(shared, models, name: str) -> None:
    path = models / MODELS[name]
    if not path.exists():
        pytest.skip(f"{path.name} was not fetched: python tests/fetch_models.py")
    data = json.loads((shared / "golden" / "refs" / f"{name}.json").read_text())
    arrays = np.load(shared / "golden" / "refs" / f"{name}_logits.npz")
    exact, peer = arrays["f32"].astype(np.float32), arrays["llamacpp"].astype(np.float32)
    model = prism.load(path, context=2048)
    session = model.session()
    logits = []
    for prompt in data["prompts"]:
        ids = model.tokenizer.encode(prompt["text"], special="parse", insert="model")
        assert ids == prompt["ids"], prompt["name"]
        session.rewind(0)
        logits.append(session.evaluate(ids))
    ours = np.array(logits)
    kl, peer_kl = mean_kl(exact, ours), mean_kl(exact, peer)
    ordered = np.sort(exact, -1)
    clear = ordered[:, -1] - ordered[:, -2] > 1.0
    same = ours.argmax(-1) == exact.argmax(-1)
    print(
        f"{name}: mean KL {kl:.2e} (llama.cpp {peer_kl:.2e}); "
        f"first token equal {same.sum()} of {len(same)}, clear {clear.sum()}"
    )
    assert clear.any()
    assert same[clear].all()
    assert kl <= peer_kl
