"""Adapters on frozen quantized weights of every architecture: gradients against differences of the loss itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from differences import STENCIL
from test_architectures import SHAPES
from test_hybrid import Hybrid, fold, hybrid_weights, write_hybrid
from test_rotation import SHAPE, folded

import prism_inference as prism
from naive_models import random_weights
from prism_inference import gguf
from prism_inference.models import ARCHITECTURES
from prism_inference.runtime.weights import check
from prism_inference.training.data import Sample, Samples
from prism_inference.training.methods import LoRA
from prism_inference.training.trainer import Options, Trainer
from tiny import write_model

LENGTH, SEQUENCES = 16, 2
STEP = 1e-4  # small enough that no token changes its experts
RNG = np.random.default_rng(5)
SAMPLES = [
    Sample(RNG.integers(0, 61, n).tolist(), [False] * (n // 3) + [True] * (n - n // 3)) for n in (17, 9, 8, 12, 5, 17)
]


def plain(folder: Path, name: str, rng: np.random.Generator) -> Path:
    shape = replace(SHAPES[name], head=32, width=64)
    return write_model(folder / "m.gguf", shape, random_weights(shape, rng), "Q8_0")


def hybrid(folder: Path, experts: int, rng: np.random.Generator) -> Path:
    h = Hybrid(blocks=4, experts=experts, used=2 if experts else 0, shared=64 if experts else 0)
    return write_hybrid(folder / "m.gguf", h, hybrid_weights(h, rng), "Q8_0")


def rotated(folder: Path, rng: np.random.Generator) -> Path:
    weights, keys = folded(random_weights(SHAPE, rng), SHAPE, rng)
    return write_model(folder / "m.gguf", SHAPE, weights, "Q2_0", **keys)


def rotated_hybrid(folder: Path, rng: np.random.Generator) -> Path:
    h = Hybrid(blocks=4, width=128, feed_forward=256, s_value_heads=8)
    weights, keys = fold(h, hybrid_weights(h, rng), rng, grouped=True)
    return write_hybrid(folder / "m.gguf", h, weights, "PTQ1_0", **keys)


MODELS = {name: lambda folder, rng, name=name: plain(folder, name, rng) for name in SHAPES} | {
    "qwen35": lambda folder, rng: hybrid(folder, 0, rng),
    "qwen35moe": lambda folder, rng: hybrid(folder, 6, rng),
    "llama rotated, Q2_0": rotated,
    "qwen35 rotated, PTQ1_0": rotated_hybrid,
}
assert {s.architecture for s in SHAPES.values()} | {"qwen35", "qwen35moe"} == set(ARCHITECTURES)


def trainer(method: LoRA, rate: float, steps: int = 1) -> Trainer:
    pack = method.model.config.recurrent is None
    data = Samples(SAMPLES, LENGTH, seed=None, pack=pack)
    accumulate, rest = divmod(data.rows(0), SEQUENCES)
    assert rest == 0, "a step would take some rows twice"
    options = Options(steps, SEQUENCES, accumulate, rate=rate, schedule="constant", threads=2)
    return Trainer(method, data, options)


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_the_slope_of_the_loss(name: str, tmp_path: Path, rng: np.random.Generator) -> None:
    """Along a random direction of all adapters: differences of the loss against the gradient's share of it."""
    with gguf.open(MODELS[name](tmp_path, rng)) as file:
        method = LoRA(check(file), rank=4, alpha=4)
        for parameter in method.parameters:  # B is zero at first, and A's gradient with it
            parameter.array[...] = rng.standard_normal(parameter.array.shape) * 0.1
        start = [p.array.copy() for p in method.parameters]
        trained = trainer(method, rate=0.0)
        report = trained.one_step()
        gradients = [trained.gradient(p.name) / report.labels for p in method.parameters]
        direction = [g / np.linalg.norm(g) + rng.standard_normal(g.shape) * 0.1 for g in gradients]
        slope = 0.0
        for k, factor in STENCIL:
            for p, values, d in zip(method.parameters, start, direction, strict=True):
                p.array[...] = values + k * STEP * d
            slope += factor / STEP * trainer(method, rate=0.0).one_step().loss
    expected = sum(float((g * d).sum()) for g, d in zip(gradients, direction, strict=True))
    assert abs(expected) > 1e-2
    assert slope == pytest.approx(expected, rel=5e-3)


@pytest.mark.parametrize("name", MODELS)
def test_adapters_learn(name: str, tmp_path: Path, rng: np.random.Generator) -> None:
    with gguf.open(MODELS[name](tmp_path, rng)) as file:
        method = LoRA(check(file), rank=8)
        reports = list(trainer(method, rate=1e-2, steps=30).steps())
    assert reports[-1].loss < 0.6 * reports[0].loss


def test_the_first_loss_is_the_engine_s(tmp_path: Path, rng: np.random.Generator) -> None:
    """Of float weights, whose products the engine does not round."""
    shape = SHAPES["qwen3"]
    path = write_model(tmp_path / "m.gguf", shape, random_weights(shape, rng))
    with gguf.open(path) as file:
        report = trainer(LoRA(check(file)), rate=0.0).one_step()
    total, count = 0.0, 0
    with prism.load(path, cache_type="F32") as model:
        for sample in SAMPLES:
            logits = model.session().evaluate(sample.ids[:-1], logits="all").astype(np.float64)
            chances = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
            for t, learned in enumerate(sample.learned[1:]):
                total -= chances[t, sample.ids[t + 1]] if learned else 0.0
                count += learned
    assert report.labels == count
    assert report.loss == pytest.approx(total / count, rel=1e-5)
