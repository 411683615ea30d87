"""Merging adapters into models, converting and describing them."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from test_architectures import SHAPES
from test_hybrid import Hybrid, fold, hybrid_weights, write_hybrid
from test_rotation import SHAPE as ROTATED
from test_rotation import folded

import prism_inference as prism
from helpers import random_rows
from low_rank import adapted_names, adapter, random_pairs, with_added
from naive_models import Shape, forward, random_weights
from prism_inference import codecs, gguf
from prism_inference.errors import FormatError, ModelError, ParameterError, UnsupportedError
from prism_inference.gguf import GGUFWriter
from prism_inference.runtime.adapters import AdapterFile, Pair, write_adapter
from prism_inference.tools import lora
from prism_inference.tools.lora import convert, inspect, merge
from tiny import write_model
from tolerances import nmse

IDS = np.random.default_rng(7).integers(0, 61, 24).tolist()
LLAMA = Shape("llama", tied=False)
MERGED = ["llama untied", "qwen3", "phi3", "gemma3", "qwen3moe"]


def logits(path: Path, *entries: object) -> np.ndarray:
    with prism.load(path, cache_type="F32", lora=entries) as model:
        return model.session().evaluate(IDS, logits="all")


def close(actual: np.ndarray, expected: np.ndarray) -> bool:
    return bool(np.abs(actual - expected).max() < 3e-5 * np.abs(expected).max())


def written(folder: Path, pairs: dict[str, Pair], architecture: str = "llama", name: str = "adapter.gguf") -> Path:
    write_adapter(folder / name, adapter(pairs, architecture))
    return folder / name


@pytest.fixture
def tiny(tmp_path: Path, rng: np.random.Generator) -> tuple[Path, dict[str, np.ndarray], Path, dict[str, Pair]]:
    """A tiny model, its weights, an adapter on all of them, its pairs."""
    weights = random_weights(LLAMA, rng)
    pairs = random_pairs(weights, rng)
    keys = {"general.name": "Tiny", "tokenizer.ggml.tokens": [f"t{n}" for n in range(61)]}
    return write_model(tmp_path / "model.gguf", LLAMA, weights, **keys), weights, written(tmp_path, pairs), pairs


@pytest.mark.parametrize("name", MERGED)
def test_a_merged_model_is_the_naive_one_and_the_adapted_one(name: str, tmp_path: Path, rng, monkeypatch) -> None:
    monkeypatch.setattr(lora, "_CHUNK", 1_000)  # several pieces a weight
    shape = SHAPES[name]
    weights = random_weights(shape, rng)
    model = write_model(tmp_path / "m.gguf", shape, weights)
    pairs = random_pairs(weights, rng)
    path = written(tmp_path, pairs, shape.architecture)
    report = merge(model, [(path, 0.5)], tmp_path / "merged.gguf")
    expected = forward(shape, with_added(weights, pairs, 0.5), IDS)
    assert close(logits(tmp_path / "merged.gguf"), expected)
    assert close(logits(model, (path, 0.5)), expected)
    assert report.weights == len(pairs)
    assert report.rounding == 0  # F32: what is written is what was computed
    with gguf.open(tmp_path / "merged.gguf") as file:
        for weight, values in with_added(weights, pairs, 0.5).items():
            info = file.tensors[weight]
            stored = codecs.decode(info.type, info.data, info.elements).reshape(values.shape)
            np.testing.assert_allclose(stored, values, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("explicit", [True, False])
def test_rotated_weights_get_a_rotated_addition(explicit: bool, tmp_path: Path, rng) -> None:
    weights = random_weights(ROTATED, rng)
    pairs = random_pairs(weights, rng)
    rotated, keys = folded(weights, ROTATED, rng, explicit=explicit)
    model = write_model(tmp_path / "m.gguf", ROTATED, rotated, **keys)
    path = written(tmp_path, pairs, "qwen3")
    merge(model, [path], tmp_path / "merged.gguf")
    merged = logits(tmp_path / "merged.gguf")
    assert np.abs(merged - forward(ROTATED, with_added(weights, pairs), IDS)).max() < 1e-4
    assert np.abs(merged - logits(model, path)).max() < 1e-4
    assert np.abs(merged - logits(model)).max() > 0.1


@pytest.mark.parametrize("grouped", [True, False])
def test_rotated_hybrids(grouped: bool, tmp_path: Path, rng) -> None:
    h = Hybrid(width=128, feed_forward=256, s_value_heads=8)
    weights = hybrid_weights(h, rng)
    rotated, keys = fold(h, weights, rng, grouped=grouped)
    model = write_hybrid(tmp_path / "m.gguf", h, rotated, **keys)
    path = written(tmp_path, random_pairs(weights, rng), "qwen35")
    merge(model, [path], tmp_path / "merged.gguf")
    merged, adapted = logits(tmp_path / "merged.gguf"), logits(model, path)
    assert np.abs(merged - adapted).max() < 2e-4 * np.abs(adapted).max()
    assert np.abs(merged - logits(model)).max() > 0.1


def test_several_adapters_add_up(tiny, tmp_path: Path, rng) -> None:
    model, weights, one, pairs = tiny
    some = random_pairs(weights, rng, names=adapted_names(weights)[:2], rank=4, kind="F16")
    two = written(tmp_path, some, name="two.gguf")
    merge(model, [one, (two, -2)], tmp_path / "merged.gguf")
    assert close(
        logits(tmp_path / "merged.gguf"), forward(LLAMA, with_added(with_added(weights, pairs), some, -2), IDS)
    )


def test_what_is_not_changed_is_copied_byte_for_byte(tiny, tmp_path: Path, rng) -> None:
    model, weights, *_ = tiny
    path = written(tmp_path, random_pairs(weights, rng, names=["blk.1.ffn_up.weight"]), name="one.gguf")
    done: list[tuple[int, int]] = []
    merge(model, [path], tmp_path / "merged.gguf", progress=lambda a, b: done.append((a, b)))
    with gguf.open(model) as before, gguf.open(tmp_path / "merged.gguf") as after:
        assert list(after.metadata) == list(before.metadata)
        assert all(after.encoded(key) == before.encoded(key) for key in before.metadata)
        assert (after.version, after.alignment) == (before.version, before.alignment)
        assert list(after.tensors) == list(before.tensors)
        different = [n for n, info in before.tensors.items() if not np.array_equal(info.data, after.tensors[n].data)]
        assert different == ["blk.1.ffn_up.weight"]
        total = sum(info.nbytes for info in after.tensors.values())
    assert done[-1] == (total, total)
    assert [a for a, _ in done] == sorted(a for a, _ in done)


@pytest.mark.parametrize(("kind", "written_as"), [("keep", "Q8_0"), ("f16", "F16"), ("Q4_0", "Q4_0"), ("F32", "F32")])
def test_changed_weights_are_written_in_the_asked_type(kind: str, written_as: str, tmp_path: Path, rng) -> None:
    shape = replace(LLAMA, head=16)
    weights = random_weights(shape, rng)
    model = write_model(tmp_path / "m.gguf", shape, weights, "Q8_0")
    names = [name for name in adapted_names(weights) if "attn" in name]
    pairs = random_pairs(weights, rng, names=names)
    report = merge(model, [written(tmp_path, pairs)], tmp_path / "merged.gguf", kind)
    change = lost = 0.0
    with gguf.open(model) as before, gguf.open(tmp_path / "merged.gguf") as after:
        for name, info in after.tensors.items():
            old = before.tensors[name]
            assert info.type.name == (written_as if name in names else old.type.name)
            if name in names:
                plain = codecs.decode(old.type, old.data, old.elements).reshape(weights[name].shape)
                wanted = with_added({name: plain}, {name: pairs[name]})[name]
                stored = codecs.decode(info.type, info.data, info.elements).reshape(wanted.shape)
                bound = {"F32": 1e-12, "F16": 1e-6, "Q8_0": 1e-4, "Q4_0": 1e-2}[written_as]
                assert nmse(stored, wanted) < bound
                change += ((wanted - plain) ** 2).sum()
                lost += ((stored - wanted) ** 2).sum()
    if written_as != "F32":
        assert report.rounding == pytest.approx(np.sqrt(lost / change), rel=1e-3)


def test_a_set_of_shards_becomes_one_file(tiny, tmp_path: Path) -> None:
    model, weights, path, pairs = tiny
    folder = tmp_path / "shards"
    folder.mkdir()
    with gguf.open(model) as file:
        names = list(file.tensors)
        for number, part in enumerate((names[:5], names[5:])):
            writer = GGUFWriter(folder / f"m-{number + 1:05d}-of-00002.gguf")
            if number == 0:
                writer.add_metadata(file)
            writer.add("split.no", number)
            writer.add("split.count", 2)
            writer.add("split.tensors.count", len(names))
            for name in part:
                info = file.tensors[name]
                writer.add_tensor(name, info.type, info.ne, info.data)
            writer.write()
    merge(folder / "m-00002-of-00002.gguf", [path], tmp_path / "merged.gguf")
    assert close(logits(tmp_path / "merged.gguf"), forward(LLAMA, with_added(weights, pairs), IDS))
    with gguf.open(tmp_path / "merged.gguf") as file:
        assert not [key for key in file.metadata if key.startswith("split.")]


def test_a_merge_that_fails_leaves_no_file_and_no_change(tiny, tmp_path: Path) -> None:
    model, _, path, _ = tiny
    target = tmp_path / "out" / "merged.gguf"
    target.parent.mkdir()

    def stop(done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        merge(model, [path], target, progress=stop)
    assert list(target.parent.iterdir()) == []
    target.write_bytes(b"before")
    with pytest.raises(KeyboardInterrupt):
        merge(model, [path], target, progress=stop)
    assert target.read_bytes() == b"before"


def test_merges_that_cannot_be_are_refused(tiny, tmp_path: Path, rng) -> None:
    model, weights, path, _ = tiny
    out = tmp_path / "merged.gguf"
    with pytest.raises(ParameterError, match="nothing to merge"):
        merge(model, [], out)
    for input_ in (model, path):
        before = input_.read_bytes()
        with pytest.raises(ParameterError, match="overwrite"):
            merge(model, [path], input_)
        assert input_.read_bytes() == before
    with pytest.raises(UnsupportedError, match="Q4_K"):
        merge(model, [path], out, "Q4_K")
    with pytest.raises(UnsupportedError, match="Q9"):
        merge(model, [path], out, "Q9")
    with pytest.raises(FormatError, match="whole blocks"):
        merge(model, [path], out, "Q1_0")  # 128 columns a block
    other = written(tmp_path, random_pairs(weights, rng), "qwen3", "other.gguf")
    with pytest.raises(ModelError, match="architecture"):
        merge(model, [other], out)
    assert not out.exists()


def test_a_type_without_encoder_cannot_be_kept_but_replaced(tmp_path: Path, rng) -> None:
    shape = Shape("llama", width=256, feed_forward=256, head=64, blocks=1)
    weights = random_weights(shape, rng)
    plain = write_model(tmp_path / "plain.gguf", shape, weights)
    raw = random_rows("Q6_K", 256, 256, rng)
    writer = GGUFWriter(tmp_path / "m.gguf")
    with gguf.open(plain) as file:
        writer.add_metadata(file)
        for name, info in file.tensors.items():
            known = name != "blk.0.ffn_up.weight"
            writer.add_tensor(name, info.type if known else "Q6_K", info.ne, info.data if known else raw)
        writer.write()
    pairs = random_pairs(weights, rng, names=["blk.0.ffn_up.weight"])
    path = written(tmp_path, pairs)
    with pytest.raises(UnsupportedError, match="Name another type"):
        merge(tmp_path / "m.gguf", [path], tmp_path / "merged.gguf")
    merge(tmp_path / "m.gguf", [path], tmp_path / "merged.gguf", "F32")
    weights["blk.0.ffn_up.weight"] = codecs.decode("Q6_K", raw, 256 * 256).reshape(256, 256)
    assert close(logits(tmp_path / "merged.gguf"), forward(shape, with_added(weights, pairs), IDS))


# --- Converting and describing ----------------------------------------------------------------------------------------


def test_conversion_there_and_back(tiny, tmp_path: Path) -> None:
    model, _, path, pairs = tiny
    assert len(convert(path, tmp_path / "folder", model).pairs) == len(pairs)
    convert(tmp_path / "folder", tmp_path / "back.gguf", model)
    expected = logits(model, path)
    np.testing.assert_array_equal(logits(model, tmp_path / "folder"), expected)
    np.testing.assert_array_equal(logits(model, tmp_path / "back.gguf"), expected)


def test_a_model_is_needed_where_it_is(tiny, tmp_path: Path, rng) -> None:
    model, weights, path, _ = tiny
    with pytest.raises(ParameterError, match="model is needed"):
        convert(path, tmp_path / "folder")
    convert(path, tmp_path / "folder", model)
    with pytest.raises(ParameterError, match="model is needed"):
        convert(tmp_path / "folder", tmp_path / "back.gguf")
    plain = written(tmp_path, random_pairs(weights, rng), "qwen3", "qwen3.gguf")
    convert(plain, tmp_path / "without")
    assert (tmp_path / "without" / "adapter_config.json").exists()


def test_conversions_that_cannot_be_are_refused(tiny, tmp_path: Path, rng) -> None:
    model, weights, path, _ = tiny
    with pytest.raises(ParameterError, match="two GGUF files"):
        convert(path, tmp_path / "other.gguf", model)
    (tmp_path / "folder").mkdir()
    with pytest.raises(ParameterError, match="two folders"):
        convert(tmp_path / "folder", tmp_path / "other", model)
    with pytest.raises(ParameterError, match="exists"):
        convert(path, tmp_path, model)
    with pytest.raises(FormatError, match="not an adapter"):
        convert(model, tmp_path / "new", model)
    foreign = written(tmp_path, random_pairs(weights, rng, names=["blk.0.ffn_up.weight"]), "gpt2", "gpt2.gguf")
    with pytest.raises(UnsupportedError, match="gpt2"):
        convert(foreign, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    convert(path, tmp_path / "folder", model)  # an empty folder will do


def test_descriptions_of_both_layouts(tiny, tmp_path: Path, rng) -> None:
    model, weights, *_ = tiny
    names = [name for name in adapted_names(weights) if "attn_q" in name]
    pairs = random_pairs(weights, rng, names=names, rank=4, scale=2.0)
    pairs |= random_pairs(weights, rng, names=["output.weight"], rank=2, kind="F16", scale=4.0)
    path = tmp_path / "described.gguf"
    write_adapter(path, AdapterFile(path, "llama", pairs, "owner/model"))
    convert(path, tmp_path / "folder", model)
    count = 2 * 4 * (96 + 64) + 2 * (61 + 64)
    common = {
        "base": "owner/model",
        "alpha": 8.0,
        "ranks": {2: 1, 4: 2},
        "types": {"F32": 4, "F16": 2},
        "parameters": count,
        "bytes": 4 * count - 2 * 2 * (61 + 64),
    }
    assert asdict(inspect(path)) == common | {
        "path": str(path),
        "layout": "GGUF",
        "architecture": "llama",
        "targets": {"attn_q.weight": 2, "output.weight": 1},
    }
    found = asdict(inspect(tmp_path / "folder"))
    assert found == common | {
        "path": str(tmp_path / "folder"),
        "layout": "PEFT",
        "architecture": None,
        "targets": {"lm_head": 1, "self_attn.q_proj": 2},
    }
