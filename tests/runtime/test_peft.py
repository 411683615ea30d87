"""PEFT's folders: names and orders of every architecture against their published descriptions, settings, refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_architectures import SHAPES
from test_hybrid import Hybrid, fold, hybrid_weights, write_hybrid

import prism_inference as prism
from low_rank import adapted_names, adapter, random_pairs
from naive_models import Shape, forward, random_weights
from prism_inference import gguf, limits
from prism_inference.errors import FormatError, LimitError, ModelError, ParameterError, PrismError, UnsupportedError
from prism_inference.runtime.adapters import Pair, read_adapter, write_adapter
from prism_inference.runtime.lora import open_adapter
from prism_inference.runtime.peft import CONFIG, TENSORS, write_folder
from prism_inference.runtime.safetensors import Raw, read_tensors, write_tensors
from prism_inference.runtime.weights import check
from tiny import write_model

IDS = np.random.default_rng(7).integers(0, 61, 24).tolist()
LLAMA = Shape("llama", tied=False)
RNG = np.random.default_rng(21)
H = Hybrid(width=128, feed_forward=256, s_value_heads=8)


def safe(folder: Path, tensors: dict[str, np.ndarray], **settings: Any) -> Path:
    """Write a folder as PEFT does: float32 arrays by module (`….A`, `….B`), settings over the common ones."""
    folder.mkdir()
    rank = next(iter(tensors.values())).shape[0] if tensors else 1
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 6, "bias": "none", "base_model_name_or_path": "o/m"}
    (folder / CONFIG).write_text(json.dumps(config | settings))
    raws = {}
    for name, values in tensors.items():
        module, part = name.rsplit(".", 1)
        full = f"base_model.model.{module}.lora_{part}.weight"
        raws[full] = Raw("F32", values.shape, np.ascontiguousarray(values, np.float32).reshape(-1).view(np.uint8))
    write_tensors(folder / TENSORS, raws)
    return folder


def pair(module: str, outputs: int, inputs: int, rank: int = 2) -> dict[str, np.ndarray]:
    return {
        f"{module}.A": (RNG.standard_normal((rank, inputs)) / np.sqrt(inputs)).astype(np.float32),
        f"{module}.B": (RNG.standard_normal((outputs, rank)) * 0.3).astype(np.float32),
    }


Q = "model.layers.1.self_attn.q_proj"
SIZE = LLAMA.heads * LLAMA.head


@pytest.fixture
def tiny(tmp_path: Path, rng: np.random.Generator) -> Path:
    return write_model(tmp_path / "model.gguf", LLAMA, random_weights(LLAMA, rng))


def logits(path: Path, *entries: object) -> np.ndarray:
    with prism.load(path, cache_type="F32", lora=entries) as model:
        return model.session().evaluate(IDS, logits="all")


def test_rows_of_llama_files_are_transformers_rows_in_pairs(tmp_path: Path, rng) -> None:
    """transformers' llama rotates halves of heads: a NumPy model that does so, with the matrices as they are there."""
    halves = replace(LLAMA, architecture="qwen2")  # without its biases: llama that rotates halves
    theirs = {name: value for name, value in random_weights(halves, rng).items() if not name.endswith(".bias")}

    def paired(values: np.ndarray, heads: int) -> np.ndarray:
        rows = []
        for head in range(heads):
            for i in range(LLAMA.head // 2):
                rows += [values[head * LLAMA.head + i], values[head * LLAMA.head + i + LLAMA.head // 2]]
        return np.array(rows)

    ours = dict(theirs)
    for block in range(LLAMA.blocks):
        for name, heads in (("attn_q", LLAMA.heads), ("attn_k", LLAMA.key_heads)):
            ours[f"blk.{block}.{name}.weight"] = paired(theirs[f"blk.{block}.{name}.weight"], heads)
    model = write_model(tmp_path / "m.gguf", LLAMA, ours)
    modules = {
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }
    tensors: dict[str, np.ndarray] = {}
    changed = dict(theirs)
    names = {f"model.layers.{b}.{m}": f"blk.{b}.{n}.weight" for b in range(LLAMA.blocks) for m, n in modules.items()}
    for module, name in (names | {"lm_head": "output.weight"}).items():
        tensors |= pair(module, *theirs[name].shape)
        changed[name] = theirs[name] + 3.0 * (tensors[f"{module}.B"].astype(np.float64) @ tensors[f"{module}.A"])
    expected = forward(halves, changed, IDS)
    actual = logits(model, safe(tmp_path / "folder", tensors))
    assert np.abs(actual - expected).max() < 3e-5 * np.abs(expected).max()
    assert np.abs(forward(halves, theirs, IDS) - expected).max() > 0.1


# Names in GGUF, modules in transformers: written down again, from the modelling files, for the tiny models' shapes.
PHI3 = {
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_up": "mlp.gate_up_proj",
    "ffn_down": "mlp.down_proj",
}
DELTA = {
    "attn_qkv": "linear_attn.in_proj_qkv",
    "attn_gate": "linear_attn.in_proj_z",
    "ssm_beta": "linear_attn.in_proj_b",
    "ssm_alpha": "linear_attn.in_proj_a",
    "ssm_out": "linear_attn.out_proj",
}


def model_of(name: str, folder: Path, rng: np.random.Generator) -> tuple[Path, str, dict[str, np.ndarray]]:
    if name in SHAPES:
        weights = random_weights(SHAPES[name], rng)
        return write_model(folder / "m.gguf", SHAPES[name], weights), SHAPES[name].architecture, weights
    h = replace(H, experts=4, used=2, shared=64) if name == "qwen35moe" else H
    weights = hybrid_weights(h, rng)
    stored, keys = fold(h, weights, rng, grouped=True) if name == "qwen35 grouped" else (weights, {})
    return write_hybrid(folder / "m.gguf", h, stored, **keys), name.removesuffix(" grouped"), weights


EVERY = [*SHAPES, "qwen35", "qwen35moe", "qwen35 grouped"]


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("name", EVERY)
def test_there_and_back_changes_no_bit(name: str, kind: str, tmp_path: Path, rng) -> None:
    path, architecture, weights = model_of(name, tmp_path, rng)
    with gguf.open(path) as file:
        model = check(file)
        names = [weight for weight in model.tensors if weight in adapted_names(weights)]
        made = adapter(random_pairs(weights, rng, names=names, kind=kind), architecture)
        write_adapter(tmp_path / "first.gguf", made)
        write_folder(tmp_path / "folder", read_adapter(tmp_path / "first.gguf"), model)
        back = open_adapter(tmp_path / "folder", model)
        write_adapter(tmp_path / "second.gguf", replace(back, base=""))
        assert (tmp_path / "second.gguf").read_bytes() == (tmp_path / "first.gguf").read_bytes()
        stored = read_tensors(tmp_path / "folder" / TENSORS)
        assert {raw.dtype for raw in stored.values()} == {kind}
        modules = {key.removeprefix("base_model.model.").rsplit(".lora_", 1)[0] for key in stored}
    expected = set()
    for weight in names:
        if weight == "output.weight":
            expected.add("lm_head")
            continue
        _, block, short, _ = weight.split(".")
        table = PHI3 if architecture == "phi3" else DELTA
        common = {"attn_output": "self_attn.o_proj"} | {f"attn_{x}": f"self_attn.{x}_proj" for x in "qkv"}
        common |= {f"ffn_{x}": f"mlp.{x}_proj" for x in ("gate", "up", "down")} | {"ffn_gate_inp": "mlp.gate"}
        common |= {f"ffn_{x}_shexp": f"mlp.shared_expert.{x}_proj" for x in ("gate", "up", "down")}
        if short.endswith("_exps"):
            part = short.split("_")[1]
            expected |= {f"model.layers.{block}.mlp.experts.{e}.{part}_proj" for e in range(len(weights[weight]))}
        else:
            expected.add(f"model.layers.{block}.{(common | table)[short]}")
    assert modules == expected


@pytest.mark.parametrize("grouped", [False, True])
def test_value_heads_of_hybrids_are_tiled(grouped: bool, tmp_path: Path, rng) -> None:
    """transformers groups value heads by key head, files count them the other way round; ssm_out's inputs keep
    transformers' order in grouped rotated files. Written out head by head."""
    path, architecture, weights = model_of("qwen35 grouped" if grouped else "qwen35", tmp_path, rng)
    made = random_pairs(weights, rng)
    with gguf.open(path) as file:
        write_folder(tmp_path / "folder", adapter(made, architecture), check(file))
    stored = read_tensors(tmp_path / "folder" / TENSORS)

    def theirs(module: str, part: str) -> np.ndarray:
        raw = stored[f"base_model.model.model.layers.0.linear_attn.{module}.lora_{part}.weight"]
        return raw.data.view(np.float32).reshape(raw.shape)

    def ours(name: str, part: str) -> np.ndarray:
        return getattr(made[f"blk.0.{name}.weight"], part).values()

    shared, keys = H.s_value_heads // H.s_key_heads, 2 * H.s_key_heads * H.s_size
    sizes = {"in_proj_qkv": ("attn_qkv", H.s_value, keys), "in_proj_z": ("attn_gate", H.s_value, 0)}
    sizes |= {"in_proj_a": ("ssm_alpha", 1, 0), "in_proj_b": ("ssm_beta", 1, 0)}
    for module, (name, size, first) in sizes.items():
        a, b = theirs(module, "A"), theirs(module, "B")
        np.testing.assert_array_equal(a, ours(name, "a"))
        np.testing.assert_array_equal(b[:first], ours(name, "b")[:first])
        for key_head in range(H.s_key_heads):
            for number in range(shared):
                from_, to = (key_head * shared + number) * size, (number * H.s_key_heads + key_head) * size
                np.testing.assert_array_equal(
                    b[first + from_ : first + from_ + size], ours(name, "b")[first + to : first + to + size]
                )
    a = theirs("out_proj", "A")
    for key_head in range(H.s_key_heads):
        for number in range(shared):
            from_ = (key_head * shared + number) * H.s_value
            to = from_ if grouped else (number * H.s_key_heads + key_head) * H.s_value
            np.testing.assert_array_equal(a[:, from_ : from_ + H.s_value], ours("ssm_out", "a")[:, to : to + H.s_value])


def test_experts_are_stacked_and_those_without_adapter_get_nothing(tmp_path: Path, rng) -> None:
    shape = SHAPES["qwen3moe"]
    weights = random_weights(shape, rng)
    model = write_model(tmp_path / "m.gguf", shape, weights)
    tensors: dict[str, np.ndarray] = {}
    changed = {name: value.astype(np.float64) for name, value in weights.items()}
    for expert in (0, 4):
        tensors |= pair(f"model.layers.1.mlp.experts.{expert}.up_proj", shape.feed_forward, shape.width)
        a, b = list(tensors.values())[-2:]
        changed["blk.1.ffn_up_exps.weight"][expert] += 3.0 * b.astype(np.float64) @ a
    actual, expected = logits(model, safe(tmp_path / "folder", tensors)), forward(shape, changed, IDS)
    assert np.abs(actual - expected).max() < 3e-5 * np.abs(expected).max()


@pytest.mark.parametrize("prefix", ["model.", "model.language_model.", "language_model.model."])
def test_models_with_other_parts_around_are_understood(prefix: str, tiny: Path, tmp_path: Path) -> None:
    module = f"{prefix}layers.0.mlp.up_proj"
    tensors = pair(module, LLAMA.feed_forward, LLAMA.width)
    plain = {name.replace(prefix, "model."): values for name, values in tensors.items()}
    np.testing.assert_array_equal(
        logits(tiny, safe(tmp_path / "a", tensors)), logits(tiny, safe(tmp_path / "b", plain))
    )


# --- Settings ---------------------------------------------------------------------------------------------------------

UP = "model.layers.0.mlp.up_proj"
SCALES: dict[str, tuple[dict[str, Any], float]] = {
    "alpha / r": ({"lora_alpha": 6}, 1.5),
    "a fraction": ({"lora_alpha": 0.5}, 0.125),
    "alpha / √r": ({"use_rslora": True}, 3.0),
    "a pattern of the end": ({"alpha_pattern": {"q_proj": 1, "up_proj": 8}}, 2.0),
    "the first that fits": ({"alpha_pattern": {"mlp.up_proj": 4, "up_proj": 8}}, 1.0),
    "of the whole name": ({"alpha_pattern": {f"^{UP}": 4}}, 1.0),
    "of another start": ({"alpha_pattern": {"^mlp.up_proj": 4}}, 1.5),
    "no part of a word": ({"alpha_pattern": {"p_proj": 4}}, 1.5),
    "ranks": ({"r": 9, "rank_pattern": {"up_proj": 4}, "lora_alpha": 8}, 2.0),
    "both": ({"r": 9, "rank_pattern": {UP: 4}, "alpha_pattern": {"up_proj": 1}, "use_rslora": True}, 0.5),
}


@pytest.mark.parametrize("name", SCALES)
def test_scales(name: str, tiny: Path, tmp_path: Path) -> None:
    settings, scale = SCALES[name]
    folder = safe(tmp_path / "folder", pair(UP, LLAMA.feed_forward, LLAMA.width, rank=4), **settings)
    with gguf.open(tiny) as file:
        assert open_adapter(folder, check(file)).pairs["blk.0.ffn_up.weight"].scale == scale


def test_ranks_and_alphas_that_differ_come_back(tiny: Path, tmp_path: Path, rng) -> None:
    with gguf.open(tiny) as file:
        model = check(file)
        weights = {name: np.empty(tuple(reversed(info.ne))) for name, info in model.tensors.items()}
        names = adapted_names(weights)
        made: dict[str, Pair] = {}
        for number, rank in enumerate((4, 4, 2, 8)):
            made |= random_pairs(weights, rng, names=names[number::4], rank=rank, scale=(2.0, 2.0, 4.0, 0.1)[number])
        write_folder(tmp_path / "folder", adapter(made), model)
        settings = json.loads((tmp_path / "folder" / CONFIG).read_text())
        back = open_adapter(tmp_path / "folder", model)
    assert (settings["r"], settings["lora_alpha"], settings["peft_type"]) == (4, 8, "LORA")
    assert set(settings["rank_pattern"].values()) == {2, 8}
    for name, one in made.items():
        assert back.pairs[name].scale == pytest.approx(one.scale, rel=1e-7)
        np.testing.assert_array_equal(back.pairs[name].a.data, one.a.data)
        np.testing.assert_array_equal(back.pairs[name].b.data, one.b.data)


def test_the_base_is_passed_on(tiny: Path, tmp_path: Path) -> None:
    folder = safe(tmp_path / "a", pair(UP, LLAMA.feed_forward, LLAMA.width))
    with gguf.open(tiny) as file:
        found = open_adapter(folder, check(file))
        assert found.base == "o/m"
        write_folder(tmp_path / "b", found, check(file))
    assert json.loads((tmp_path / "b" / CONFIG).read_text())["base_model_name_or_path"] == "o/m"


def test_a_copy_of_the_model_s_own_weight_is_passed_over(tiny: Path, tmp_path: Path) -> None:
    """PEFT saves the head beside an adapter on it."""
    folder = safe(tmp_path / "a", pair("lm_head", LLAMA.vocabulary, LLAMA.width))
    expected = logits(tiny, folder)
    tensors = read_tensors(folder / TENSORS)
    tensors["base_model.model.lm_head.base_layer.weight"] = Raw("F32", (1,), np.zeros(4, np.uint8))
    data = {name: Raw(raw.dtype, raw.shape, raw.data.copy()) for name, raw in tensors.items()}
    (folder / TENSORS).unlink()
    write_tensors(folder / TENSORS, data)
    np.testing.assert_array_equal(logits(tiny, folder), expected)


SETTINGS_REFUSED = {
    "another kind": ({"peft_type": "IA3"}, "peft_type"),
    "DoRA": ({"use_dora": True}, "use_dora"),
    "QALoRA": ({"use_qalora": True}, "use_qalora"),
    "transposed": ({"fan_in_fan_out": True}, "fan_in_fan_out"),
    "biases": ({"bias": "lora_only"}, "bias"),
    "biases of its own": ({"lora_bias": True}, "lora_bias"),
    "whole modules": ({"modules_to_save": ["embed_tokens"]}, "modules_to_save"),
    "rows of the embedding": ({"trainable_token_indices": [1]}, "trainable_token_indices"),
    "fused experts": ({"target_parameters": ["mlp.experts.gate_up_proj"]}, "target_parameters"),
    "repeated blocks": ({"layer_replication": [[0, 2], [1, 2]]}, "layer_replication"),
    "after certain tokens": ({"alora_invocation_tokens": [1]}, "alora_invocation_tokens"),
    "a changed base": ({"init_lora_weights": "pissa_niter_4"}, "init_lora_weights"),
    "a regular expression": ({"alpha_pattern": {"(a+)+$": 1}}, "alpha_pattern"),
    "patterns that are none": ({"rank_pattern": [1]}, "rank_pattern"),
}


@pytest.mark.parametrize("name", SETTINGS_REFUSED)
def test_settings_that_change_more_than_a_product_are_refused(name: str, tiny: Path, tmp_path: Path) -> None:
    settings, words = SETTINGS_REFUSED[name]
    folder = safe(tmp_path / "folder", pair(UP, LLAMA.feed_forward, LLAMA.width), **settings)
    with pytest.raises(UnsupportedError, match=words):
        prism.load(tiny, lora=[folder])


FAULTS: dict[str, tuple[dict[str, np.ndarray], dict[str, Any], type[PrismError], str]] = {
    "another rank": (pair(UP, 96, 64), {"r": 3}, FormatError, "rank"),
    "no alpha": (pair(UP, 96, 64), {"lora_alpha": None}, FormatError, "alpha"),
    "alpha 0": (pair(UP, 96, 64), {"lora_alpha": 0}, FormatError, "alpha"),
    "no end of alpha": (pair(UP, 96, 64), {"lora_alpha": float("inf")}, FormatError, "alpha"),
    "nothing": ({}, {}, FormatError, "without matrices"),
    "a matrix alone": ({f"{UP}.A": np.zeros((2, 64))}, {}, FormatError, "not a pair"),
    "ranks that differ": ({f"{UP}.A": np.zeros((2, 64)), f"{UP}.B": np.zeros((96, 3))}, {}, FormatError, "not a pair"),
    "vectors": ({f"{UP}.A": np.zeros(64), f"{UP}.B": np.zeros(96)}, {}, FormatError, "not a pair"),
    "an unknown module": (pair("model.layers.0.mlp.fc1", 96, 64), {}, UnsupportedError, "fc1"),
    "the embedding": (pair("model.embed_tokens", 61, 64), {}, UnsupportedError, "looked up"),
    "a block that is not there": (pair("model.layers.7.mlp.up_proj", 96, 64), {}, ModelError, r"no blk\.7"),
    "another width": (pair(UP, 96, 63), {}, ModelError, "extents"),
    "another height": (pair(Q, SIZE - 1, 64), {}, ModelError, "extents"),
    "an expert": (pair("model.layers.0.mlp.experts.1.up_proj", 96, 64), {}, UnsupportedError, "experts"),
    "a number without end": (pair(f"model.layers.{10**30}.mlp.up_proj", 96, 64), {}, UnsupportedError, "module"),
    "values that are not finite": (
        {f"{UP}.A": np.full((2, 64), np.nan), f"{UP}.B": np.zeros((96, 2))},
        {},
        ModelError,
        "finite",
    ),
    "a large rank": (pair(UP, 96, 64, limits.ADAPTER_MAX_RANK + 1), {}, LimitError, "rank"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_folders_that_do_not_fit_are_refused(name: str, tiny: Path, tmp_path: Path) -> None:
    tensors, settings, error, words = FAULTS[name]
    with pytest.raises(error, match=words):
        prism.load(tiny, lora=[safe(tmp_path / "folder", tensors, **settings)])


def test_experts_beyond_or_of_different_ranks_are_refused(tmp_path: Path, rng) -> None:
    shape = SHAPES["qwen3moe"]
    model = write_model(tmp_path / "m.gguf", shape, random_weights(shape, rng))
    module = "model.layers.0.mlp.experts.{}.up_proj"
    beyond = pair(module.format(10**8), shape.feed_forward, shape.width)
    with pytest.raises(ModelError, match="expert"):
        prism.load(model, lora=[safe(tmp_path / "a", beyond)])
    two = pair(module.format(0), shape.feed_forward, shape.width)
    two |= pair(module.format(1), shape.feed_forward, shape.width, rank=3)
    with pytest.raises(UnsupportedError, match="ranks"):
        prism.load(model, lora=[safe(tmp_path / "b", two, rank_pattern={"experts.1.up_proj": 3})])
    fused = pair("model.layers.0.mlp.experts", shape.feed_forward, shape.width)
    with pytest.raises(UnsupportedError, match="fused"):
        prism.load(model, lora=[safe(tmp_path / "c", fused)])


def test_the_model_is_needed_where_heads_order_rows(tiny: Path, tmp_path: Path, rng) -> None:
    made = random_pairs(random_weights(LLAMA, rng), rng)
    with pytest.raises(ParameterError, match="model is needed"):
        write_folder(tmp_path / "folder", adapter(made))
    write_folder(tmp_path / "folder", adapter(made, "qwen3"))
    with pytest.raises(ParameterError, match="exists"):
        write_folder(tmp_path / "folder", adapter(made, "qwen3"))
    with pytest.raises(UnsupportedError, match=r"blk\.0\.attn_gate"):
        write_folder(
            tmp_path / "other", adapter(random_pairs({"blk.0.attn_gate.weight": np.ones((2, 2))}, rng), "qwen3")
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "model.gguf"]


# --- The container ----------------------------------------------------------------------------------------------------


def test_the_format_s_own_package_reads_what_is_written_and_the_reverse(tmp_path: Path, rng) -> None:
    package = pytest.importorskip("safetensors.numpy", reason="pip install safetensors")
    arrays = {"b": rng.standard_normal((3, 5)).astype(np.float32), "a": rng.standard_normal(7).astype(np.float16)}
    raws = {
        n: Raw({"f": "F32", "e": "F16"}[v.dtype.char], v.shape, v.reshape(-1).view(np.uint8)) for n, v in arrays.items()
    }
    write_tensors(tmp_path / "ours", raws)
    for name, values in package.load_file(tmp_path / "ours").items():
        np.testing.assert_array_equal(values, arrays[name])
    package.save_file(arrays, tmp_path / "theirs")
    found = read_tensors(tmp_path / "theirs")
    assert set(found) == set(arrays)
    for name, raw in found.items():
        np.testing.assert_array_equal(raw.data, raws[name].data)
        assert (raw.dtype, raw.shape) == (raws[name].dtype, raws[name].shape)


def container(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def row(begin: int = 0, end: int = 8, shape: object = (2,), dtype: object = "F32") -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


BROKEN = {
    "empty": b"",
    "cut off in the length": b"\x01\x00",
    "cut off in the header": container({"a": row()}, bytes(8))[:20],
    "cut off in the data": container({"a": row()}, bytes(7)),
    "bytes left over": container({"a": row()}, bytes(9)),
    "a length without end": container({}, length=2**64 - 1),
    "no JSON": container(b"{"),
    "no UTF-8": container(b'{"\xff": 1}'),
    "nested without end": container(b'{"a":' + b"[" * 100_000),
    "a number of many digits": container(b'{"a": ' + b"9" * 10_000 + b"}"),
    "a list": container([]),
    "no row": container({"a": 1}),
    "an unknown type": container({"a": row(dtype="I64", shape=[1])}, bytes(8)),
    "a type that is none": container({"a": row(dtype=["F32"])}, bytes(8)),
    "a shape that is none": container({"a": row(shape="2")}, bytes(8)),
    "a negative extent": container({"a": row(shape=[-2])}, bytes(8)),
    "a fraction": container({"a": row(shape=[2.0])}, bytes(8)),
    "a truth value": container({"a": row(end=4, shape=[True])}, bytes(4)),
    "too many extents": container({"a": row(shape=[2, 1, 1, 1, 1])}, bytes(8)),
    "an extent without end": container({"a": row(shape=[2**62])}, bytes(8)),
    "three offsets": container({"a": row() | {"data_offsets": [0, 4, 8]}}, bytes(8)),
    "offsets turned round": container({"a": row(8, 0)}, bytes(8)),
    "more elements than bytes": container({"a": row(shape=[3])}, bytes(8)),
    "an overlap": container({"a": row(), "b": row(4, 12)}, bytes(12)),
    "a gap": container({"a": row(), "b": row(12, 20)}, bytes(20)),
    "beyond the end": container({"a": row(8, 16)}, bytes(8)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(BROKEN[name])
    with pytest.raises((FormatError, LimitError)):
        read_tensors(tmp_path / "t")


def test_headers_and_settings_beyond_their_limits_are_refused(tmp_path: Path, tiny: Path) -> None:
    size = limits.SAFETENSORS_MAX_HEADER_BYTES + 1
    with (tmp_path / "t").open("wb") as file:  # mostly a hole
        file.write(size.to_bytes(8, "little"))
        file.truncate(8 + size)
    with pytest.raises(LimitError, match="header"):
        read_tensors(tmp_path / "t")
    folder = safe(tmp_path / "folder", pair(UP, 96, 64))
    with (folder / CONFIG).open("ab") as file:
        file.truncate(limits.ADAPTER_MAX_CONFIG_BYTES + 1)
    with pytest.raises(LimitError, match="too long"):
        prism.load(tiny, lora=[folder])


def test_a_folder_without_its_files_is_refused(tmp_path: Path, tiny: Path) -> None:
    folder = safe(tmp_path / "folder", pair(UP, 96, 64))
    (folder / TENSORS).unlink()
    with pytest.raises(FormatError, match=TENSORS):
        prism.load(tiny, lora=[folder])
    (folder / CONFIG).unlink()
    with pytest.raises(FormatError, match=CONFIG):
        prism.load(tiny, lora=[folder])
