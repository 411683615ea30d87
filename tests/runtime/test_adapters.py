"""Adapters at inference, and llama.cpp's adapter files: against NumPy models of W + scale·B·A, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_architectures import SHAPES
from test_hybrid import Hybrid, fold, hybrid_weights, naive, write_hybrid
from test_rotation import SHAPE as ROTATED
from test_rotation import folded

import gguf as reference
import prism_inference as prism
from low_rank import adapted_names, adapter, random_pairs, with_added
from naive_models import Shape, forward, random_weights
from prism_inference import limits
from prism_inference.errors import (
    FormatError,
    LimitError,
    MemoryBudgetError,
    MetadataError,
    ModelError,
    ParameterError,
    PrismError,
    PrismWarning,
    UnsupportedError,
)
from prism_inference.gguf import GGUFWriter
from prism_inference.models import ARCHITECTURES
from prism_inference.runtime.adapters import AdapterFile, Matrix, Pair, read_adapter, write_adapter
from tiny import write_model
from tolerances import nmse

IDS = np.random.default_rng(7).integers(0, 61, 24).tolist()
LLAMA = Shape("llama", tied=False)
H = Hybrid()
MOE = Hybrid(experts=6, used=3, shared=64)
HYBRIDS = {"qwen35": H, "qwen35moe": MOE}
assert {s.architecture for s in SHAPES.values()} | set(HYBRIDS) == set(ARCHITECTURES)


def logits(path: Path, *entries: object, **options: object) -> np.ndarray:
    with prism.load(path, cache_type="F32", lora=entries, **options) as model:
        return model.session().evaluate(IDS, logits="all")


def close(actual: np.ndarray, expected: np.ndarray) -> bool:
    """As near as the plain models are to their NumPy twins."""
    return bool(np.abs(actual - expected).max() < 3e-5 * np.abs(expected).max())


@pytest.fixture
def tiny(tmp_path: Path, rng: np.random.Generator) -> tuple[Path, dict[str, np.ndarray]]:
    """A tiny llama model and its weights."""
    weights = random_weights(LLAMA, rng)
    return write_model(tmp_path / "model.gguf", LLAMA, weights), weights


def written(folder: Path, pairs: dict[str, Pair], architecture: str = "llama", name: str = "adapter.gguf") -> Path:
    write_adapter(folder / name, adapter(pairs, architecture))
    return folder / name


# --- At inference -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHAPES)
def test_every_product_of_every_architecture_has_its_addition(name: str, tmp_path: Path, rng) -> None:
    shape = SHAPES[name]
    weights = random_weights(shape, rng)
    model = write_model(tmp_path / "m.gguf", shape, weights)
    pairs = random_pairs(weights, rng)
    expected = forward(shape, with_added(weights, pairs), IDS)
    assert np.abs(expected - forward(shape, weights, IDS)).max() > 0.1, "the adapter changes next to nothing"
    assert close(logits(model, written(tmp_path, pairs, shape.architecture)), expected)


@pytest.mark.parametrize("name", HYBRIDS)
def test_every_product_of_hybrids_has_its_addition(name: str, tmp_path: Path, rng) -> None:
    h = HYBRIDS[name]
    weights = hybrid_weights(h, rng)
    model = write_hybrid(tmp_path / "m.gguf", h, weights)
    pairs = random_pairs(weights, rng)
    expected = naive(h, with_added(weights, pairs), IDS)
    assert np.abs(expected - naive(h, weights, IDS)).max() > 0.1
    assert close(logits(model, written(tmp_path, pairs, name)), expected)


@pytest.mark.parametrize("explicit", [True, False])
def test_adapters_of_rotated_models_see_the_input_as_it_is(explicit: bool, tmp_path: Path, rng) -> None:
    weights = random_weights(ROTATED, rng)
    pairs = random_pairs(weights, rng)
    rotated, keys = folded(weights, ROTATED, rng, explicit=explicit)
    model = write_model(tmp_path / "m.gguf", ROTATED, rotated, **keys)
    actual = logits(model, written(tmp_path, pairs, "qwen3"))
    expected = forward(ROTATED, with_added(weights, pairs), IDS)
    assert np.abs(actual - expected).max() < 1e-4


def test_adapters_add_up_by_their_scales(tiny, tmp_path: Path, rng) -> None:
    model, weights = tiny
    some = adapted_names(weights)[3:]
    one, two = random_pairs(weights, rng, names=some), random_pairs(weights, rng, rank=5, scale=2.0)
    paths = [written(tmp_path, one, name="one.gguf"), written(tmp_path, two, name="two.gguf")]
    expected = forward(LLAMA, with_added(with_added(weights, one, 0.5), two, -0.25), IDS)
    assert close(logits(model, (paths[0], 0.5), (str(paths[1]), -0.25)), expected)
    twice = forward(LLAMA, with_added(weights, one, 2.0), IDS)
    assert close(logits(model, paths[0], paths[0]), twice)
    np.testing.assert_array_equal(logits(model, (paths[0], 0)), logits(model))


@pytest.mark.parametrize("rank", [1, 2, 16, 33])
@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
def test_ranks_and_float_types(kind: str, rank: int, tiny, tmp_path: Path, rng) -> None:
    model, weights = tiny
    pairs = random_pairs(weights, rng, rank=rank, kind=kind)
    assert close(logits(model, written(tmp_path, pairs)), forward(LLAMA, with_added(weights, pairs), IDS))


def test_an_eight_bit_adapter(tiny, tmp_path: Path, rng) -> None:
    """Inputs are rounded to eight bits before such products, an error of some 2.5e-5 of the power: the largest of 32
    is 2.2 deviations, the step 1/127 of it. A dozen of them follow one another."""
    model, weights = tiny
    names = [name for name in adapted_names(weights) if "ffn" in name]
    pairs = random_pairs(weights, rng, names=names, rank=32, kind="Q8_0")
    plain, expected = forward(LLAMA, weights, IDS), forward(LLAMA, with_added(weights, pairs), IDS)
    actual = logits(model, written(tmp_path, pairs))
    assert nmse(actual, expected) < 12 * 2.5e-5
    assert nmse(plain, expected) > 1e-1


def test_chunks_and_threads_change_no_bit(tmp_path: Path, rng) -> None:
    shape = replace(LLAMA, head=32)
    weights = random_weights(shape, rng)
    model = write_model(tmp_path / "m.gguf", shape, weights, "Q4_0")
    path = written(tmp_path, random_pairs(weights, rng, kind="F16"))
    whole = logits(model, path, threads=1)
    for threads in (1, 2):
        session = prism.load(model, threads=threads, cache_type="F32", lora=[path]).session()
        for chunk in (1, 5):
            session.rewind(0)
            parts = [session.evaluate(IDS[i : i + chunk], logits="all") for i in range(0, len(IDS), chunk)]
            np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_the_budget_counts_adapters(tiny, tmp_path: Path, rng) -> None:
    model, weights = tiny
    pairs = random_pairs(weights, rng, rank=512)
    path = written(tmp_path, pairs)
    size = sum(4 * 512 * sum(weights[name].shape) for name in pairs)
    prism.load(model, context=16, memory="3MiB")
    with pytest.raises(MemoryBudgetError) as caught:
        prism.load(model, context=16, memory="3MiB", lora=[path])
    assert caught.value.parts["adapters"] == size
    assert size > 3 << 20


# --- llama.cpp's files ------------------------------------------------------------------------------------------------


def test_a_file_has_the_published_keys_and_tensors(tiny, tmp_path: Path, rng) -> None:
    """Read by the reference's own reader. Extents: A [in, rank], B [rank, out]."""
    pairs = random_pairs(tiny[1], rng, kind="F16", scale=4.0)
    found = reference.GGUFReader(written(tmp_path, pairs))
    keys = {name: field.contents() for name, field in found.fields.items() if not name.startswith("GGUF.")}
    assert keys == {
        "general.type": "adapter",
        "general.architecture": "llama",
        "adapter.type": "lora",
        "adapter.lora.alpha": 12.0,  # scale · rank
    }
    assert found.fields["adapter.lora.alpha"].types == [reference.GGUFValueType.FLOAT32]
    tensors = {tensor.name: tensor for tensor in found.tensors}
    assert set(tensors) == {f"{name}.lora_{part}" for name in pairs for part in "ab"}
    for name, pair in pairs.items():
        for part, matrix in (("a", pair.a), ("b", pair.b)):
            tensor = tensors[f"{name}.lora_{part}"]
            assert tensor.tensor_type == reference.GGMLQuantizationType.F16
            np.testing.assert_array_equal(tensor.data.astype(np.float32), matrix.values())
    assert tensors["blk.0.ffn_down.weight.lora_a"].shape.tolist() == [LLAMA.feed_forward, 3]
    assert tensors["blk.0.ffn_down.weight.lora_b"].shape.tolist() == [3, LLAMA.width]


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
def test_a_file_read_and_written_again_is_the_same(kind: str, tmp_path: Path, rng) -> None:
    weights = random_weights(SHAPES["qwen3moe"], rng)
    first = written(tmp_path, random_pairs(weights, rng, kind=kind), "qwen3moe", "first.gguf")
    write_adapter(tmp_path / "second.gguf", read_adapter(first))
    assert (tmp_path / "second.gguf").read_bytes() == first.read_bytes()


def raw_adapter(path: Path, change: Callable[[dict, dict], None] = lambda keys, tensors: None) -> Path:
    """An adapter on one weight of the tiny model, rank 2, before whose writing `change` may do anything."""
    keys = {
        "general.type": "adapter",
        "general.architecture": "llama",
        "adapter.type": "lora",
        "adapter.lora.alpha": 6.0,
    }
    size = LLAMA.heads * LLAMA.head
    tensors = {
        "blk.1.attn_q.weight.lora_a": np.linspace(-1, 1, 2 * LLAMA.width, dtype=np.float32).reshape(2, -1),
        "blk.1.attn_q.weight.lora_b": np.linspace(1, -1, 2 * size, dtype=np.float32).reshape(-1, 2),
    }
    change(keys, tensors)
    writer = GGUFWriter(path)
    for key, value in keys.items():
        writer.add(key, value)
    for name, values in tensors.items():
        stored = {"float16": "F16", "float64": "F64"}.get(str(values.dtype), "F32")
        writer.add_tensor(name, stored, tuple(reversed(values.shape)), values)
    writer.write()
    return path


def without_alpha(keys: dict, tensors: dict) -> None:
    del keys["adapter.lora.alpha"]


def zero_alpha(keys: dict, tensors: dict) -> None:
    keys["adapter.lora.alpha"] = 0.0


@pytest.mark.parametrize(("change", "scale"), [(lambda *_: None, 3.0), (without_alpha, 1.0), (zero_alpha, 1.0)])
def test_the_scale_is_alpha_by_rank_or_one_without_alpha(change, scale: float, tiny, tmp_path: Path) -> None:
    model, weights = tiny
    parts: dict[str, np.ndarray] = {}
    path = raw_adapter(tmp_path / "a.gguf", lambda keys, tensors: (change(keys, tensors), parts.update(tensors)))
    a, b = parts.values()
    changed = weights | {"blk.1.attn_q.weight": weights["blk.1.attn_q.weight"] + scale * b.astype(np.float64) @ a}
    assert close(logits(model, path), forward(LLAMA, changed, IDS))


def test_pairs_of_different_alphas_are_written_with_one(tiny, tmp_path: Path, rng) -> None:
    model, weights = tiny
    pairs = random_pairs(weights, rng, scale=0.5) | random_pairs(weights, rng, names=["output.weight"], scale=3.0)
    assert adapter(pairs).alpha is None
    path = written(tmp_path, pairs)
    assert read_adapter(path).alpha == 1.5
    assert close(logits(model, path), forward(LLAMA, with_added(weights, pairs), IDS))


def test_norms_beside_the_pairs_are_left_out_with_a_warning(tiny, tmp_path: Path) -> None:
    def with_norm(keys: dict, tensors: dict) -> None:
        tensors["blk.0.attn_norm.weight"] = np.ones(LLAMA.width, np.float32)

    plain, normed = raw_adapter(tmp_path / "a.gguf"), raw_adapter(tmp_path / "b.gguf", with_norm)
    expected = logits(tiny[0], plain)
    with pytest.warns(PrismWarning, match="attn_norm"):
        np.testing.assert_array_equal(logits(tiny[0], normed), expected)


# --- Refusals ---------------------------------------------------------------------------------------------------------

A, B = "blk.1.attn_q.weight.lora_a", "blk.1.attn_q.weight.lora_b"


def renamed(name: str, shape: tuple[int, int] | None = None) -> Callable[[dict, dict], None]:
    """Move the pair to another weight [out, in], in its shape if given."""

    def change(keys: dict, tensors: dict) -> None:
        a, b = tensors.pop(A), tensors.pop(B)
        if shape is not None:
            a, b = np.zeros((2, shape[1]), np.float32), np.zeros((shape[0], 2), np.float32)
        tensors |= {f"{name}.lora_a": a, f"{name}.lora_b": b}

    return change


def key(name: str, value: object) -> Callable[[dict, dict], None]:
    return lambda keys, tensors: keys.__setitem__(name, value) if value is not None else keys.__delitem__(name)


def tensor(name: str, make: Callable[[np.ndarray], np.ndarray]) -> Callable[[dict, dict], None]:
    return lambda keys, tensors: tensors.__setitem__(name, make(tensors[name]))


def poisoned(values: np.ndarray) -> np.ndarray:
    values[1, 1] = np.nan
    return values


REFUSED = {
    "a model": (key("general.type", "model"), FormatError, "not an adapter"),
    "no kind": (key("general.type", None), FormatError, "not an adapter"),
    "another kind of adapter": (key("adapter.type", "control-vector"), UnsupportedError, "adapter.type"),
    "no kind of adapter": (key("adapter.type", None), MetadataError, "adapter.type"),
    "after certain tokens": (key("adapter.alora.invocation_tokens", [1, 2]), UnsupportedError, "certain tokens"),
    "alpha that is no number": (key("adapter.lora.alpha", float("nan")), MetadataError, "alpha"),
    "another architecture": (key("general.architecture", "qwen3"), ModelError, "another architecture"),
    "no pairs": (lambda keys, tensors: tensors.clear(), FormatError, "without matrices"),
    "A alone": (lambda keys, tensors: tensors.pop(B), FormatError, "partner"),
    "B alone": (lambda keys, tensors: tensors.pop(A), FormatError, "partner"),
    "a tensor of another kind": (
        lambda keys, tensors: tensors.setdefault("blk.0.ffn_up.weight", np.zeros((2, 2), np.float32)),
        FormatError,
        "no adapter has",
    ),
    "a weight that is not there": (renamed("blk.9.attn_q.weight"), ModelError, r"has no blk\.9"),
    "the embedding": (renamed("token_embd.weight", (61, 64)), UnsupportedError, "looked up"),
    "a vector": (renamed("blk.0.attn_norm.weight", (1, 64)), UnsupportedError, "vector"),
    "A of another width": (tensor(A, lambda a: a[:, :-2].copy()), ModelError, r"lora_a has extents \(62, 2\)"),
    "B of another height": (tensor(B, lambda b: b[:-1].copy()), ModelError, r"lora_b has extents \(2, 95\)"),
    "ranks that differ": (tensor(A, lambda a: a[:1].copy()), FormatError, "not a pair"),
    "experts in one of them": (tensor(A, lambda a: np.stack([a, a])), FormatError, "not a pair"),
    "experts that the weight does not have": (
        lambda keys, tensors: tensors.update({name: np.stack([v, v]) for name, v in tensors.items()}),
        ModelError,
        "extents",
    ),
    "a rank beyond the limit": (
        lambda keys, tensors: tensors.update(
            {
                A: np.zeros((limits.ADAPTER_MAX_RANK + 1, 64), np.float32),
                B: np.zeros((96, limits.ADAPTER_MAX_RANK + 1), np.float32),
            }
        ),
        LimitError,
        "rank",
    ),
    "NaN in A": (tensor(A, poisoned), ModelError, "lora_a has values that are not finite"),
    "NaN in B": (tensor(B, poisoned), ModelError, "lora_b has values that are not finite"),
    "infinity in F16": (
        tensor(A, lambda a: np.full(a.shape, np.inf, np.float16)),
        ModelError,
        "lora_a has values that are not finite",
    ),
    "another type": (tensor(A, lambda a: a.astype(np.float64)), UnsupportedError, "F64"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_adapter_of_this_model_is_refused(name: str, tiny, tmp_path: Path) -> None:
    change, error, words = REFUSED[name]
    with pytest.raises(error, match=words):
        prism.load(tiny[0], lora=[raw_adapter(tmp_path / "a.gguf", change)])


def test_an_adapter_on_the_head_of_a_tied_model_is_refused(tmp_path: Path, rng) -> None:
    shape = replace(LLAMA, tied=True)
    model = write_model(tmp_path / "m.gguf", shape, random_weights(shape, rng))
    with pytest.raises(ModelError, match="embedding's table"):
        prism.load(model, lora=[raw_adapter(tmp_path / "a.gguf", renamed("output.weight", (61, 64)))])


def test_an_adapter_on_a_convolution_is_refused(tmp_path: Path, rng) -> None:
    model = write_hybrid(tmp_path / "m.gguf", H, hybrid_weights(H, rng))

    def change(keys: dict, tensors: dict) -> None:
        keys["general.architecture"] = "qwen35"
        renamed("blk.0.ssm_conv1d.weight", (H.channels, H.taps))(keys, tensors)

    with pytest.raises(UnsupportedError, match="no matrix of a product"):
        prism.load(model, lora=[raw_adapter(tmp_path / "a.gguf", change)])


def test_a_missing_file_and_a_broken_one_are_refused(tiny, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="nowhere"):
        prism.load(tiny[0], lora=[tmp_path / "nowhere.gguf"])
    whole = raw_adapter(tmp_path / "a.gguf").read_bytes()
    for cut in range(0, len(whole) - 1, 97):
        (tmp_path / "cut.gguf").write_bytes(whole[:cut])
        with pytest.raises(PrismError):
            prism.load(tiny[0], lora=[tmp_path / "cut.gguf"])


@pytest.mark.parametrize(
    ("entries", "error", "words"),
    [
        ("adapter.gguf", ParameterError, "not a list"),
        ([("adapter.gguf", float("nan"))], ParameterError, "not a scale"),
        ([("adapter.gguf", "1")], ParameterError, "not a scale"),
        ([("adapter.gguf", True)], ParameterError, "not a scale"),
        (["adapter.gguf"] * (limits.ADAPTER_MAX_COUNT + 1), LimitError, "too many adapters"),
    ],
)
def test_entries_that_are_none_are_refused(entries, error, words: str, tiny) -> None:
    with pytest.raises(error, match=words):
        prism.load(tiny[0], lora=entries)


def test_rotation_and_grouping_of_a_hybrid(tmp_path: Path, rng) -> None:
    """The inputs of ssm_out stand in transformers' order in grouped files; an adapter's A has the file's order."""
    h = Hybrid(width=128, feed_forward=256, s_value_heads=8)
    weights = hybrid_weights(h, rng)
    pairs = random_pairs(weights, rng)
    rotated, keys = fold(h, weights, rng, grouped=True)
    model = write_hybrid(tmp_path / "m.gguf", h, rotated, **keys)
    tiled = {}
    for name, pair in pairs.items():
        a = pair.a.values()
        if name.endswith("ssm_out.weight"):
            shared = h.s_value_heads // h.s_key_heads
            a = a.reshape(len(a), h.s_key_heads, shared, h.s_value).swapaxes(1, 2).reshape(len(a), -1)
        tiled[name] = Pair(Matrix.encode("F32", a), pair.b, pair.scale)
    expected = naive(h, with_added(weights, tiled), IDS)
    actual = logits(model, written(tmp_path, pairs, "qwen35"))
    assert np.abs(actual - expected).max() < 2e-4 * np.abs(expected).max()


def test_an_adapter_file_says_what_it_holds(tmp_path: Path, rng) -> None:
    pairs = random_pairs(random_weights(LLAMA, rng), rng, rank=4, scale=4.0)
    made = AdapterFile(tmp_path, "llama", pairs, "owner/model")
    write_adapter(tmp_path / "a.gguf", made)
    found = read_adapter(tmp_path / "a.gguf")
    assert (found.alpha, found.base, found.architecture, found.nbytes) == (16.0, "owner/model", "llama", made.nbytes)
