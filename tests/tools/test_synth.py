"""Synthetic models: exact shapes and sizes, the same weights in every type, files that run."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import prism_inference as prism
from prism_inference import codecs, gguf
from prism_inference.errors import ParameterError
from prism_inference.gguf import GGUFWriter, tensor_type
from prism_inference.tools.shapes import SHAPES
from prism_inference.tools.synth import _extents, _type_of, write

# Published: tensor bytes of the dense models in Q1_0, sizes and counts of Bonsai 2.
DENSE_BYTES = {"bonsai-1.7b": (242_357_152, 310), "bonsai-4b": (566_320_264, 398), "bonsai-8b": (1_152_704_128, 399)}
HYBRID_BYTES = {"PTQ1_0": 5_935_527_936, "PQ2_0": 7_195_047_936}


def tensor_bytes(name: str, kind: str) -> tuple[int, int]:
    shape = SHAPES[name]
    extents = _extents(shape, shape.keys, shape.vocabulary)
    sizes = [tensor_type(_type_of(shape, tensor, ne, kind)).size(math.prod(ne)) for tensor, ne in extents.items()]
    return sum(sizes), len(sizes)


@pytest.mark.parametrize("name", DENSE_BYTES)
def test_dense_shapes_have_the_published_bytes(name: str) -> None:
    assert tensor_bytes(name, "Q1_0") == DENSE_BYTES[name]


@pytest.mark.parametrize("kind", HYBRID_BYTES)
def test_bonsai_2_has_the_published_bytes(kind: str) -> None:
    assert tensor_bytes("bonsai-2-27b", kind) == (HYBRID_BYTES[kind], 851)


def test_rotated_names_are_those_of_the_published_file(tmp_path: Path) -> None:
    """401 names over 64 blocks: ffn ×3, qkv, gate and ssm_out in 48, q, k, v and output in 16, and the head."""
    shape = SHAPES["bonsai-2-27b"]
    extents = _extents(shape, shape.keys, shape.vocabulary)
    from prism_inference.tools.synth import _add_rotation

    writer = GGUFWriter(tmp_path / "k.gguf")
    writer.add("general.architecture", "qwen35")
    _add_rotation(writer, extents, 0)
    writer.write()
    with gguf.open(tmp_path / "k.gguf") as file:
        assert len(file.metadata.strings("prism.hadamard.weight_names")) == 401
        assert file.metadata["prism.hadamard.sign_widths"].tolist() == [5120, 6144, 17_408]
        assert len(file.metadata["prism.hadamard.sign_values"]) == 28_672


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vocabulary") / "v.gguf"
    writer = GGUFWriter(path)
    writer.add("general.architecture", "qwen3")
    writer.add("tokenizer.ggml.model", "gpt2")
    writer.add("tokenizer.ggml.tokens", [f"t{n}" for n in range(384)])
    writer.add("tokenizer.ggml.bos_token_id", 3)
    writer.write()
    return path


def test_the_same_weights_in_every_ternary_type(tmp_path: Path, vocabulary: Path) -> None:
    logits = []
    for kind in ("Q2_0", "Q2_0_G128", "PQ2_0", "PTQ1_0"):
        path = write("bonsai-1.7b", tmp_path / f"{kind}.gguf", kind, vocabulary, seed=4, blocks=1)
        with prism.load(path, context=16) as model:
            logits.append(model.session().evaluate([5, 300, 17], logits="all"))
    assert np.isfinite(logits[0]).all()
    assert 0.2 < logits[0].std() < 5
    for others in logits[1:]:
        np.testing.assert_array_equal(logits[0], others)


def test_random_q4_k_weights_are_scaled_as_the_others_are(tmp_path: Path, vocabulary: Path) -> None:
    spread = []
    for kind in ("Q4_K", "Q4_0"):
        path = write("bonsai-1.7b", tmp_path / f"{kind}.gguf", kind, vocabulary, blocks=1)
        with gguf.open(path) as file:
            info = file.tensors["blk.0.ffn_down.weight"]
            assert info.type.name == kind
            spread.append(codecs.decode(kind, info.data, info.elements).std())
        with prism.load(path, context=8) as model:
            assert np.isfinite(model.session().evaluate([1, 2, 3])).all()
    assert 0.5 < spread[0] / spread[1] < 2


def test_the_seed_decides(tmp_path: Path, vocabulary: Path) -> None:
    def weights(seed: int) -> np.ndarray:
        path = write("bonsai-1.7b", tmp_path / "m.gguf", "Q1_0", vocabulary, seed=seed, blocks=1)
        with gguf.open(path) as file:
            info = file.tensors["blk.0.attn_q.weight"]
            return codecs.decode(info.type, info.data, info.elements)

    first = weights(1)
    np.testing.assert_array_equal(first, weights(1))
    assert 0.4 < (first == weights(2)).mean() < 0.6


def test_a_rotated_hybrid_runs(tmp_path: Path, vocabulary: Path) -> None:
    done: list[tuple[int, int]] = []
    write(
        "bonsai-2-27b", tmp_path / "m.gguf", "PTQ1_0", vocabulary, blocks=1, progress=lambda a, b: done.append((a, b))
    )
    assert done[-1][0] == done[-1][1]
    assert [a for a, _ in done] == sorted(a for a, _ in done)
    with prism.load(tmp_path / "m.gguf", context=8) as model:
        assert model.file.rotation is not None
        assert np.isfinite(model.session().evaluate([1, 2, 3])).all()


def test_the_tokenizer_is_copied(tmp_path: Path, vocabulary: Path) -> None:
    write("bonsai-1.7b", tmp_path / "m.gguf", "Q1_0", vocabulary, blocks=1)
    with gguf.open(tmp_path / "m.gguf") as file, gguf.open(vocabulary) as source:
        assert list(file.metadata["tokenizer.ggml.tokens"]) == list(source.metadata["tokenizer.ggml.tokens"])
        assert file.metadata["tokenizer.ggml.bos_token_id"] == 3
        assert file.tensors["token_embd.weight"].ne == (2048, 384)


def test_unknown_names_and_types_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"bonsai-1\.7b"):
        write("bonsai-9b", tmp_path / "m.gguf")
    with pytest.raises(ParameterError, match="Q1_0"):
        write("bonsai-8b", tmp_path / "m.gguf", "Q5_K")
    assert list(tmp_path.iterdir()) == []
