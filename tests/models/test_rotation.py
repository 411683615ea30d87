"""Rotated weights: folding a model changes nothing, every rule of the metadata is held, low-bit files equal their
twin."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import prism_inference as prism
from naive_models import Shape, forward, random_weights
from prism_inference import gguf
from prism_inference.errors import ModelError, PrismError, PrismWarning, UnsupportedError
from prism_inference.graph import Storage
from prism_inference.graph.interpret import interpret
from prism_inference.models import Batch, Cache
from prism_inference.runtime.runner import ModelGraph, SessionOptions
from prism_inference.runtime.weights import check as check_file
from tiny import write_model
from tolerances import QUANTIZED, check

SHAPE = Shape("qwen3", width=128, feed_forward=256, head=32, eps=1e-6)
BLOCK = 64
IDS = np.random.default_rng(5).integers(0, 61, 24).tolist()
FOLDED = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


def hadamard(size: int) -> np.ndarray:
    """Sylvester's construction, normalized: H(2n) is H(n) twice, and once with the sign turned."""
    matrix = np.ones((1, 1))
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix / np.sqrt(size)


def turned(rows: np.ndarray, signs: np.ndarray) -> np.ndarray:
    """H(s·row) of every row, in blocks, float64."""
    blocks = (rows.astype(np.float64) * signs).reshape(len(rows), -1, BLOCK)
    return (blocks @ hadamard(BLOCK)).reshape(rows.shape)


def folded(weights: dict[str, np.ndarray], shape: Shape, rng, *, explicit: bool = True) -> tuple[dict, dict]:
    """The same model with rotated weights, and the keys that say so."""
    widths = sorted({shape.width, shape.feed_forward, shape.heads * shape.head})
    signs = {width: rng.choice([-1, 1], width) if explicit else np.ones(width, int) for width in widths}
    names = [name for name in weights if name.split(".")[-2] in FOLDED]
    if not shape.tied:
        names.append("output.weight")
    out = dict(weights)
    for name in [*names, "token_embd.weight"]:
        rows = weights[name]
        out[name] = turned(rows, signs[rows.shape[1]]).astype(np.float32)
    keys = {
        "prism.hadamard.version": 1,
        "prism.hadamard.block_size": BLOCK,
        "prism.hadamard.transform": "normalized-sylvester-walsh-hadamard",
        "prism.hadamard.axis": "input-last-dimension",
        "prism.hadamard.sign_mode": "explicit" if explicit else "identity",
        "prism.hadamard.weight_names": names,
        "prism.hadamard.inverse_weight_names": ["token_embd.weight"],
    }
    if explicit:
        keys["prism.hadamard.sign_widths"] = widths
        keys["prism.hadamard.sign_values"] = [int(s) for width in widths for s in signs[width]]
    return out, keys


@pytest.mark.parametrize("architecture", ["qwen3", "llama"])
@pytest.mark.parametrize("explicit", [True, False])
@pytest.mark.parametrize("tied", [True, False])
def test_a_folded_model_gives_the_logits_of_the_unfolded_one(architecture, explicit, tied, tmp_path: Path, rng) -> None:
    shape = replace(SHAPE, architecture=architecture, tied=tied)
    weights = random_weights(shape, rng)
    rotated, keys = folded(weights, shape, rng, explicit=explicit)
    path = write_model(tmp_path / "m.gguf", shape, rotated, "F32", **keys)
    logits = prism.load(path, cache_type="F32").session().evaluate(IDS, logits="all")
    assert np.abs(logits - forward(shape, weights, IDS)).max() < 1e-4
    del keys["prism.hadamard.inverse_weight_names"]
    without = write_model(tmp_path / "w.gguf", shape, rotated, "F32", **keys)
    wrong = prism.load(without, cache_type="F32").session().evaluate(IDS, logits="all")
    assert np.abs(wrong - logits).max() > 1e-2, "the test does not notice a rotation that is left out"


def feed(batch: Batch, ids: list[int]) -> None:
    """Fill a batch for one sequence from position 0, and its caches with zeros."""
    n = len(ids)
    positions = np.arange(n)
    for leaf, values in ((batch.tokens, ids), (batch.positions, positions), (batch.cells, positions)):
        leaf.set(values)
    ranges = np.stack([np.zeros(n), positions + 1], 1)
    batch.ranges.set(ranges)
    batch.local_ranges.set(ranges)
    for cache in batch.caches:
        for leaf in (cache.keys, cache.values) if isinstance(cache, Cache) else (cache.inputs, cache.matrices):
            leaf.storage = Storage.allocate(leaf.nbytes)


@pytest.mark.parametrize("kind", ["PQ2_0", "PTQ1_0", "Q1_0", "Q2_0"])
def test_low_bit_rotated_models_equal_their_twin(kind: str, tmp_path: Path, rng) -> None:
    rotated, keys = folded(random_weights(SHAPE, rng), SHAPE, rng)
    path = write_model(tmp_path / "m.gguf", SHAPE, rotated, kind, **keys)
    logits = prism.load(path, context=len(IDS), cache_type="F32").session().evaluate(IDS, logits="all")
    graph = ModelGraph(check_file(gguf.open(path)), SessionOptions(len(IDS), cache_type="F32"), "all")
    feed(graph.batch, IDS)
    twin = interpret(graph.graph)[graph.logits.index].reshape(len(IDS), -1)
    # A rounding that flips in one of many thousand values enters the cache: the first positions are compared.
    check(logits[:8], twin[:8], QUANTIZED)


def test_pq2_0_and_ptq1_0_of_the_same_weights_give_the_same_logits(tmp_path: Path, rng) -> None:
    weights = random_weights(SHAPE, rng)
    ternary = {
        name: (np.clip(np.rint(value * 8), -1, 1) * 0.125).astype(np.float32) if value.ndim == 2 else value
        for name, value in weights.items()
    }
    outcomes = []
    for kind in ("PQ2_0", "PTQ1_0", "Q2_0"):
        path = write_model(tmp_path / f"{kind}.gguf", SHAPE, ternary, kind, **{"general.name": "Tiny Bonsai"})
        outcomes.append(prism.load(path).session().evaluate(IDS, logits="all"))
    np.testing.assert_array_equal(outcomes[0], outcomes[1])
    np.testing.assert_array_equal(outcomes[0], outcomes[2])


P = "prism.hadamard."
REFUSED = {
    "another version": ({P + "version": 2}, UnsupportedError, "version"),
    "block not a power of two": ({P + "block_size": 96}, ModelError, "power of two"),
    "another transform": ({P + "transform": "dct"}, UnsupportedError, "transform"),
    "another axis": ({P + "axis": "output"}, UnsupportedError, "axis"),
    "another sign mode": ({P + "sign_mode": "random"}, UnsupportedError, "sign_mode"),
    "no weights": ({P + "weight_names": []}, PrismError, "weight_names"),
    "no widths": ({P + "sign_widths": np.zeros(0, np.int32)}, ModelError, "sign_widths"),
    "width of zero": ({P + "sign_widths": [0, 128, 256]}, ModelError, "sign_widths"),
    "width not of whole blocks": ({P + "sign_widths": [96, 256]}, ModelError, "sign_widths"),
    "width twice": ({P + "sign_widths": [128, 128]}, ModelError, "twice"),
    "signs running short": ({P + "sign_values": [1] * 383}, ModelError, "sign_values"),
    "signs running long": ({P + "sign_values": [1] * 385}, ModelError, "sign_values"),
    "not a sign": ({P + "sign_values": [1] * 383 + [0]}, ModelError, "not a sign"),
    "a name twice": ({P + "weight_names": ["blk.0.attn_q.weight"] * 2}, ModelError, "twice"),
    "a weight that cannot be folded": ({P + "weight_names": ["blk.0.attn_norm.weight"]}, ModelError, "folded"),
    "another inverse": ({P + "inverse_weight_names": ["blk.0.attn_q.weight"]}, ModelError, "embedding"),
    "a missing tensor": ({P + "weight_names": ["blk.9.attn_q.weight"]}, ModelError, "missing"),
    "a width without signs": ({P + "sign_widths": [128], P + "sign_values": [1] * 128}, ModelError, "width"),
    "an unknown key": ({"prism.quantum": 1}, UnsupportedError, "prism.quantum"),
    "an unknown key of this kind": ({P + "phase": 1}, UnsupportedError, "phase"),
    "a missing key": ({P + "axis": None}, PrismError, "axis"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_metadata_that_is_not_understood_is_refused(name: str, tmp_path: Path, rng) -> None:
    change, error, words = REFUSED[name]
    rotated, keys = folded(random_weights(SHAPE, rng), SHAPE, rng)
    keys = {key: value for key, value in (keys | change).items() if value is not None}
    path = write_model(tmp_path / "m.gguf", SHAPE, rotated, **keys)
    with pytest.raises(error, match=words):
        prism.load(path)


def test_an_architecture_that_is_never_rotated_is_refused(tmp_path: Path, rng) -> None:
    shape = replace(SHAPE, architecture="gemma3", blocks=6, window=8)
    rotated, keys = folded(random_weights(shape, rng), shape, rng)
    with pytest.raises(UnsupportedError, match="gemma3"):
        prism.load(write_model(tmp_path / "m.gguf", shape, rotated, **keys))


@pytest.mark.parametrize("kind", ["PQ2_0", "PTQ1_0"])
def test_prism_types_in_an_ordinary_model_give_a_warning(kind: str, tmp_path: Path, rng) -> None:
    weights = random_weights(SHAPE, rng)
    with pytest.warns(PrismWarning, match=kind):
        prism.load(write_model(tmp_path / "m.gguf", SHAPE, weights, kind, **{"general.name": "Llama 7B"}))
    prism.load(write_model(tmp_path / "b.gguf", SHAPE, weights, kind, **{"general.name": "Ternary-Bonsai-8B"}))
