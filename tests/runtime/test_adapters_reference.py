"""Adapter files in llama.cpp itself: the same file on the same tiny model gives the same logits there and here."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_architectures import SHAPES
from test_hybrid import Hybrid, hybrid_weights, write_hybrid

import prism_inference as prism
from low_rank import adapter, random_pairs
from naive_models import random_weights
from prism_inference.runtime.adapters import Matrix, Pair, write_adapter
from tiny import write_model

# A Python that has llama-cpp-python; the package is not wanted in the process of the suite.
PYTHON = os.environ.get("PRISM_LLAMA_CPP", sys.executable)
IDS = np.random.default_rng(7).integers(0, 61, 24).tolist()
FACTOR = 0.75
PROGRAM = """
import sys
import numpy as np
from llama_cpp import Llama
model, out, ids, *lora = sys.argv[1:]
options = {"lora_path": lora[0], "lora_scale": float(lora[1])} if lora else {}
ids = [int(number) for number in ids.split(",")]
F32 = 0
llama = Llama(model, n_ctx=64, n_threads=2, logits_all=True, type_k=F32, type_v=F32, verbose=False, **options)
llama.eval(ids)
np.save(out, np.array(llama.scores[: len(ids)]))
"""


@pytest.fixture(scope="module")
def peer() -> str:
    if subprocess.run([PYTHON, "-c", "import llama_cpp"], capture_output=True).returncode:
        pytest.skip(f"{PYTHON} has no llama_cpp: set PRISM_LLAMA_CPP to a Python that has llama-cpp-python")
    return PYTHON


def theirs(peer: str, folder: Path, model: Path, *lora: object) -> np.ndarray:
    command = [peer, "-c", PROGRAM, str(model), str(folder / "out.npy"), ",".join(map(str, IDS)), *map(str, lora)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    return np.load(folder / "out.npy")


def write(name: str, folder: Path, rng: np.random.Generator) -> tuple[Path, str, dict[str, np.ndarray]]:
    """Tiny models in shapes that llama.cpp takes: it reads no size of the heads for some architectures."""
    path = folder / "model.gguf"
    if name.startswith("qwen35"):
        h = Hybrid(experts=6, used=2, shared=64) if name == "qwen35moe" else Hybrid()
        weights = hybrid_weights(h, rng)
        sizes = {"rope.dimension_sections": [3, 3, 2, 0], "vocab_size": h.vocabulary}
        return write_hybrid(path, h, weights, **sizes), name, weights
    shape = SHAPES[name]
    shape = replace(shape, head=shape.width // shape.heads) if shape.architecture in ("qwen2", "phi3") else shape
    weights = random_weights(shape, rng)
    rotated = {"rope.dimension_count": shape.head} if shape.architecture == "phi3" else {}
    return write_model(path, shape, weights, vocab_size=shape.vocabulary, **rotated), shape.architecture, weights


NAMES = [*(name for name in SHAPES if name != "phi3 window"), "qwen35", "qwen35moe"]  # it turns phi3's windows off


@pytest.mark.slow  # needs a second engine, built apart
@pytest.mark.parametrize("kind", ["F32", "F16"])
@pytest.mark.parametrize("name", NAMES)
def test_llama_cpp_gives_the_same_logits_with_the_same_file(
    name: str, kind: str, peer: str, tmp_path: Path, rng
) -> None:
    """F32 models and caches: both engines round to float32 alone, but for llama.cpp's table of GELU in float16 (the own
    difference of gemma models). Before F16 matrices it rounds the inputs to float16 too, so that those are held against
    the same numbers as an F32 file, and loosely against themselves."""
    model, architecture, weights = write(name, tmp_path, rng)
    pairs = random_pairs(weights, rng, kind=kind)
    exact = {n: Pair(*(Matrix.encode("F32", m.values()) for m in (p.a, p.b)), p.scale) for n, p in pairs.items()}
    file, float_file = tmp_path / "a.gguf", tmp_path / "exact.gguf"
    write_adapter(file, adapter(pairs, architecture))
    write_adapter(float_file, adapter(exact, architecture))
    plain = theirs(peer, tmp_path, model)
    adapted, rounded = (theirs(peer, tmp_path, model, path, FACTOR) for path in (float_file, file))
    with prism.load(model, cache_type="F32", context=64) as loaded:
        without = loaded.session().evaluate(IDS, logits="all")
    with prism.load(model, cache_type="F32", context=64, lora=[(file, FACTOR)]) as loaded:
        with_adapter = loaded.session().evaluate(IDS, logits="all")
    size = np.abs(adapted).max()
    error, own = np.abs(with_adapter - adapted).max() / size, np.abs(without - plain).max() / size
    print(f"{name}, {kind}: {error:.1e} of the largest logit with the adapter, {own:.1e} without")
    assert np.abs(adapted - plain).max() > 0.1
    assert own < (1e-3 if name.startswith("gemma") else 2e-5)
    assert error < 2 * own + 2e-5
    assert np.abs(with_adapter - rounded).max() / size < 1e-2
