"""What a training writes: adapters in both layouts, models; and what is refused before the training starts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import prism_inference as prism
from prism_inference import gguf
from prism_inference.errors import ParameterError, UnsupportedError
from prism_inference.runtime.weights import ModelFile, check
from prism_inference.training.create import Sizes, create
from prism_inference.training.data import Windows
from prism_inference.training.export import check_output, save
from prism_inference.training.methods import Full, LoRA, Method
from prism_inference.training.trainer import Options, Trainer
from prism_inference.training.vocabulary import train_vocabulary

LENGTH, VOCABULARY = 16, 270
SIZES = Sizes(width=128, blocks=1, heads=4, key_heads=2, head_size=32, feed_forward=128, context=64, tied=False)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelFile:
    folder = tmp_path_factory.mktemp("model")
    return check(
        gguf.open(create(folder / "m.gguf", SIZES, train_vocabulary(["one two three four " * 50], VOCABULARY)))
    )


def windows() -> Windows:
    return Windows(np.arange(100) * 7 % 40, LENGTH, VOCABULARY, None)


def trained(method: Method) -> Method:
    list(Trainer(method, windows(), Options(steps=10, rate=1e-2, schedule="constant")).steps())
    return method


def training_loss(method: Method) -> float:
    """The loss of the first row as the method stands."""
    return Trainer(method, windows(), Options(steps=1, rate=0.0)).one_step().loss


def engine_loss(path: Path, lora: list[Path]) -> float:
    """The same from the logits of a loaded model."""
    row = windows().row(0, 0)
    with prism.load(path, cache_type="F32", lora=lora) as model:
        logits = model.session().evaluate(row.tokens.tolist(), logits="all").astype(np.float64)
    shifted = logits - logits.max(-1, keepdims=True)
    chances = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return float(-chances[np.arange(LENGTH), row.labels].mean())


@pytest.mark.parametrize("name", ["adapter.gguf", "adapter"])
def test_saved_adapters_give_the_loss_that_training_saw(model: ModelFile, name: str, tmp_path: Path) -> None:
    method = trained(LoRA(model, rank=4))
    save(method, tmp_path / name)
    loss = training_loss(method)
    assert loss < engine_loss(model.file.path, []) - 0.5
    assert engine_loss(model.file.path, [tmp_path / name]) == pytest.approx(loss, rel=1e-5)


def test_a_saved_model_gives_the_loss_that_training_saw(model: ModelFile, tmp_path: Path) -> None:
    method = trained(Full(model))
    save(method, tmp_path / "out.gguf")
    assert engine_loss(tmp_path / "out.gguf", []) == pytest.approx(training_loss(method), rel=1e-5)


def test_what_cannot_be_written_is_refused_first(model: ModelFile, tmp_path: Path) -> None:
    lora, full = LoRA(model, rank=2), Full(model)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "something").write_text("kept")
    (tmp_path / "dir.gguf").mkdir()
    refused: list[tuple[Method, Path, str, type[Exception], str]] = [
        (lora, tmp_path / "none" / "a.gguf", "F32", ParameterError, "no such folder"),
        (lora, tmp_path / "full", "F32", ParameterError, "exists already"),
        (lora, tmp_path / "dir.gguf", "F32", ParameterError, "this is a folder"),
        (lora, tmp_path / "a.safetensors", "F32", ParameterError, "is a folder"),
        (full, tmp_path / "full", "F32", ParameterError, "this is a folder"),
        (full, Path(model.file.path), "F32", ParameterError, "overwrite the model"),
        (full, tmp_path / "a.gguf", "IQ2_XS", UnsupportedError, "no encoder"),
    ]
    for method, path, kind, error, text in refused:
        with pytest.raises(error, match=text):
            check_output(method, path, kind)
        with pytest.raises(error, match=text):
            save(method, path, kind)
    assert (tmp_path / "full" / "something").read_text() == "kept"
    assert not (tmp_path / "a.gguf").exists()
    for method, path in ((lora, tmp_path / "new"), (lora, tmp_path / "new.gguf"), (full, tmp_path / "new.gguf")):
        check_output(method, path)
        assert not path.exists()
