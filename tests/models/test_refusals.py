"""Files that do not make a model are refused with all their faults, and hyper-parameters are checked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import prism_inference as prism
from naive_models import Shape, random_weights
from prism_inference import gguf
from prism_inference.errors import MetadataError, ModelError, PrismError, UnsupportedError
from prism_inference.gguf import GGUFWriter
from prism_inference.runtime.weights import check
from tiny import write_model

SHAPE = Shape("qwen3")


def test_missing_and_misshapen_tensors_are_listed_together(tmp_path: Path, rng) -> None:
    weights = random_weights(SHAPE, rng)
    del weights["blk.0.attn_q.weight"], weights["blk.1.ffn_norm.weight"]
    weights["blk.0.ffn_up.weight"] = weights["blk.0.ffn_up.weight"][:, :32]
    with pytest.raises(ModelError) as caught:
        prism.load(write_model(tmp_path / "m.gguf", SHAPE, weights))
    for part in (
        "blk.0.attn_q.weight is missing",
        "blk.1.ffn_norm.weight is missing",
        "blk.0.ffn_up.weight has extents",
    ):
        assert part in str(caught.value)


def test_surplus_tensors_are_reported_and_ignored(tmp_path: Path, rng) -> None:
    weights = random_weights(SHAPE, rng) | {"v.patch_embd.weight": np.zeros((4, 4), np.float32)}
    model = check(gguf.open(write_model(tmp_path / "m.gguf", SHAPE, weights)))
    assert model.surplus == ("v.patch_embd.weight",)


def test_an_unknown_architecture_is_named(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "m.gguf")
    writer.add("general.architecture", "mamba9")
    writer.write()
    with pytest.raises(UnsupportedError, match="mamba9"):
        prism.load(tmp_path / "m.gguf")


BAD = {
    "no blocks": {"block_count": 0},
    "too many blocks": {"block_count": 5000},
    "heads that do not divide": {"attention.head_count_kv": 3},
    "zero heads": {"attention.head_count": 0},
    "eps of one": {"attention.layer_norm_rms_epsilon": 1.0},
    "eps not a number": {"attention.layer_norm_rms_epsilon": float("nan")},
    "negative base": {"rope.freq_base": -1.0},
    "odd rotation": {"rope.dimension_count": 7},
    "more rotated than there are": {"rope.dimension_count": 48},
    "unknown scaling": {"rope.scaling.type": "magic"},
    "zero factor": {"rope.scaling.type": "linear", "rope.scaling.factor": 0.0},
    "text for a number": {"embedding_length": "64"},
    "huge context": {"context_length": 2**40},
}


@pytest.mark.parametrize("name", BAD)
def test_bad_hyper_parameters_are_refused_by_key(name: str, tmp_path: Path, rng) -> None:
    path = write_model(tmp_path / "m.gguf", SHAPE, random_weights(SHAPE, rng), **BAD[name])
    with pytest.raises((ModelError, MetadataError, UnsupportedError)) as caught:
        prism.load(path)
    assert any(key in str(caught.value) for key in BAD[name])


def test_a_missing_key_is_named(tmp_path: Path, rng) -> None:
    writer = GGUFWriter(tmp_path / "m.gguf")
    writer.add("general.architecture", "llama")
    writer.add_tensor("token_embd.weight", "F32", (4, 4), np.zeros((4, 4), np.float32))
    writer.write()
    with pytest.raises(MetadataError, match=r"llama\.embedding_length"):
        prism.load(tmp_path / "m.gguf")


def test_types_without_a_kernel_are_named(tmp_path: Path, rng) -> None:
    shape = Shape("llama", width=256, head=64, feed_forward=256)
    path = write_model(tmp_path / "m.gguf", shape, random_weights(shape, rng), "F64")
    with pytest.raises(PrismError, match="F64"):
        prism.load(path)
