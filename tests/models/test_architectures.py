"""Every architecture, tiny and random, against an independent NumPy model; and what must not change its results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import prism_inference as prism
from naive_models import Shape, forward, random_weights
from prism_inference.models import ARCHITECTURES
from tiny import write_model

SHAPES = {
    "llama": Shape("llama"),
    "llama untied": Shape("llama", tied=False, key_heads=4, head=16),
    "qwen3": Shape("qwen3", eps=1e-6, base=1e6),
    "qwen2": Shape("qwen2", eps=1e-6, base=1e6),
    "qwen3moe": Shape("qwen3moe", experts=6, used=3, eps=1e-6),
    "gemma2": Shape("gemma2", blocks=3, window=6, head=32, eps=1e-6),
    "phi3": Shape("phi3", base=1e4),
    "phi3 window": Shape("phi3", tied=False, window=7),
    "gemma3": Shape("gemma3", blocks=7, window=5, head=32, key_heads=1, eps=1e-6, base=1e6),
}
NAIVE_ELSEWHERE = {"qwen35", "qwen35moe"}  # test_hybrid.py
assert {s.architecture for s in SHAPES.values()} | NAIVE_ELSEWHERE == set(ARCHITECTURES), "one has no tiny model"
IDS = np.random.default_rng(7).integers(0, 61, 40).tolist()


@pytest.mark.parametrize("name", SHAPES)
def test_logits_equal_the_naive_model_s(name: str, tmp_path: Path, rng) -> None:
    shape = SHAPES[name]
    weights = random_weights(shape, rng)
    path = write_model(tmp_path / "tiny.gguf", shape, weights)
    with prism.load(path, cache_type="F32") as model:
        logits = model.session().evaluate(IDS, logits="all")
    expected = forward(shape, weights, IDS)
    assert np.abs(logits - expected).max() < 2e-5 * np.abs(expected).max()


@pytest.mark.parametrize("kind", ["F32", "Q8_0", "Q4_0"])
@pytest.mark.parametrize("name", SHAPES)
def test_chunks_threads_and_choice_of_logits_change_no_bit(name: str, kind: str, tmp_path: Path, rng) -> None:
    shape = replace(SHAPES[name], head=32, width=64)
    path = write_model(tmp_path / "tiny.gguf", shape, random_weights(shape, rng), kind)
    whole = prism.load(path, threads=1).session().evaluate(IDS, logits="all")
    for threads in (1, 2):
        session = prism.load(path, threads=threads).session()
        for chunk in (1, 3, 17):
            session.rewind(0)
            parts = [session.evaluate(IDS[i : i + chunk], logits="all") for i in range(0, len(IDS), chunk)]
            np.testing.assert_array_equal(np.concatenate(parts), whole)
        session.rewind(0)
        for i, token in enumerate(IDS):
            np.testing.assert_array_equal(session.evaluate([token]), whole[i])


def test_rotation_factors_divide_the_frequencies(tmp_path: Path, rng) -> None:
    """Llama 3 files carry divisors: all ones change nothing, others do, and positions 0 do not turn at all."""
    shape = Shape("llama")
    weights = random_weights(shape, rng)
    outcomes = {}
    for name, factors in {"none": None, "ones": np.ones(12), "eights": np.full(12, 8.0)}.items():
        extra = {} if factors is None else {"rope_freqs.weight": factors.astype(np.float32)}
        path = write_model(tmp_path / f"{name}.gguf", shape, weights | extra)
        outcomes[name] = prism.load(path).session().evaluate(IDS, logits="all")
    np.testing.assert_array_equal(outcomes["none"], outcomes["ones"])
    np.testing.assert_array_equal(outcomes["none"][0], outcomes["eights"][0])
    assert np.abs(outcomes["none"][5:] - outcomes["eights"][5:]).max() > 1e-3


def test_biases_are_added(tmp_path: Path, rng) -> None:
    shape = Shape("llama")
    weights = random_weights(shape, rng)
    plain = prism.load(write_model(tmp_path / "a.gguf", shape, weights)).session().evaluate(IDS)
    zero = weights | {f"blk.{b}.attn_q.bias": np.zeros(96, np.float32) for b in range(shape.blocks)}
    some = weights | {f"blk.{b}.attn_v.bias": np.ones(48, np.float32) for b in range(shape.blocks)}
    np.testing.assert_array_equal(
        prism.load(write_model(tmp_path / "b.gguf", shape, zero)).session().evaluate(IDS), plain
    )
    assert (
        np.abs(prism.load(write_model(tmp_path / "c.gguf", shape, some)).session().evaluate(IDS) - plain).max() > 1e-3
    )
