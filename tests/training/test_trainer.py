"""The loop of a training: losses fall, batches add up, runs can be taken up again, and what fails changes nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import prism_inference as prism
from prism_inference import gguf
from prism_inference.errors import MemoryBudgetError, ParameterError, TrainingError
from prism_inference.runtime.weights import ModelFile, check
from prism_inference.training.checkpoint import load_checkpoint, save_checkpoint
from prism_inference.training.create import Sizes, create
from prism_inference.training.data import Sample, Samples, Windows
from prism_inference.training.methods import Full, LoRA, Method
from prism_inference.training.schedule import learning_rate
from prism_inference.training.step import OptimizerOptions
from prism_inference.training.trainer import Options, Report, Trainer
from prism_inference.training.vocabulary import train_vocabulary

LENGTH, TOKENS = 16, 300
SIZES = Sizes(
    width=128, blocks=2, heads=4, key_heads=2, head_size=32, feed_forward=128, context=64, tied=False, eps=1e-5
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelFile:
    folder = tmp_path_factory.mktemp("model")
    text = "one two three four five six seven eight nine ten " * 50
    path = create(folder / "m.gguf", SIZES, train_vocabulary([text], 280))
    return check(gguf.open(path))


def tokens() -> np.ndarray:
    """A sequence in which each token decides the next."""
    return np.arange(TOKENS) * 7 % 40


def windows(seed: int | None = 0) -> Windows:
    return Windows(tokens(), LENGTH, 280, seed)


SGD = OptimizerOptions("sgd")  # its steps are linear in the gradients, AdamW's first ones know only their signs
OPTIONS = Options(steps=12, sequences=2, rate=3e-3, schedule="constant", threads=2)


def run(method: Method, options: Options = OPTIONS, data: object = None) -> tuple[Trainer, list[Report]]:
    trainer = Trainer(method, data or windows(), options)
    return trainer, list(trainer.steps())


def test_the_first_loss_is_that_of_a_guess_and_falls(model: ModelFile) -> None:
    _, reports = run(Full(model), replace(OPTIONS, steps=40))
    assert reports[0].loss == pytest.approx(np.log(280), rel=0.02)
    assert reports[-1].loss < 1.5
    assert [r.step for r in reports] == list(range(1, 41))
    assert all(r.labels == 2 * LENGTH for r in reports)


def test_micro_batches_add_up_to_one_batch(model: ModelFile) -> None:
    """Four rows at once, two and two, and one by one: the same gradients up to rounding, weighted by their labels."""
    samples = [Sample([n % 40] * (4 + n % 9), [True] * (4 + n % 9)) for n in range(40)]
    results = []
    for sequences, accumulate in ((4, 1), (2, 2), (1, 4)):
        method = Full(model)
        data = Samples(samples, LENGTH, seed=1)
        options = replace(OPTIONS, steps=3, sequences=sequences, accumulate=accumulate, rate=0.5, optimizer=SGD)
        _, reports = run(method, options, data)
        results.append((method.parameters, [r.loss for r in reports], [r.labels for r in reports]))
    for parameters, losses, labels in results[1:]:
        assert labels == results[0][2]
        np.testing.assert_allclose(losses, results[0][1], rtol=1e-5)
        for one, other in zip(parameters, results[0][0], strict=True):
            np.testing.assert_allclose(one.array, other.array, atol=1e-6, err_msg=one.name)


def test_packed_samples_do_not_see_each_other(model: ModelFile) -> None:
    samples = [Sample([5, 6, 7, 8, 9], [True] * 5), Sample([9, 8, 7, 6, 5], [True] * 5)]
    losses = []
    for pack in (True, False):
        data = Samples(samples, LENGTH, seed=None, pack=pack)
        trainer = Trainer(Full(model), data, replace(OPTIONS, sequences=1, accumulate=data.rows(0)))
        losses.append(trainer.one_step().loss)
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_values_computed_again_change_no_bit_and_save_memory(model: ModelFile) -> None:
    found = []
    for recompute in (False, True):
        method = Full(model)
        options = replace(OPTIONS, steps=3, sequences=6, recompute=recompute)
        trainer, reports = run(method, options, Windows(tokens(), 48, 280))
        found.append(
            (trainer.memory["activations"], [r.loss for r in reports], [p.array.copy() for p in method.parameters])
        )
    assert found[1][0] < 0.8 * found[0][0]
    assert found[1][1] == found[0][1]
    for one, other in zip(found[1][2], found[0][2], strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("make", [Full, LoRA], ids=["full", "lora"])
@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_a_training_is_taken_up_bit_for_bit(model: ModelFile, make, optimizer: str, tmp_path: Path) -> None:
    options = replace(OPTIONS, optimizer=OptimizerOptions(optimizer, decay=0.1), schedule="cosine", warmup=3)
    whole, reports = run(make(model), options)
    first = Trainer(make(model), windows(), options)
    for _ in range(5):
        first.one_step()
    save_checkpoint(first, tmp_path / "c.gguf")
    second = Trainer(make(model), windows(), options)
    load_checkpoint(second, tmp_path / "c.gguf")
    rest = list(second.steps())
    assert [r.loss for r in rest] == [r.loss for r in reports[5:]]
    for one, other in zip(second.method.parameters, whole.method.parameters, strict=True):
        np.testing.assert_array_equal(one.array, other.array)


def test_checkpoints_of_other_trainings_are_refused(model: ModelFile, tmp_path: Path) -> None:
    trainer = Trainer(LoRA(model, rank=4), windows(), OPTIONS)
    save_checkpoint(trainer, tmp_path / "c.gguf")
    for other in (Trainer(LoRA(model, rank=2), windows(), OPTIONS), Trainer(Full(model), windows(), OPTIONS)):
        before = [p.array.copy() for p in other.method.parameters]
        with pytest.raises(TrainingError, match="another training"):
            load_checkpoint(other, tmp_path / "c.gguf")
        assert other.step == 0
        for parameter, values in zip(other.method.parameters, before, strict=True):
            np.testing.assert_array_equal(parameter.array, values)
    with pytest.raises(TrainingError, match="not a checkpoint"):
        load_checkpoint(trainer, model.file.path)


def test_a_step_without_finite_loss_changes_nothing(model: ModelFile) -> None:
    method = Full(model)
    trainer = Trainer(method, windows(), OPTIONS)
    trainer.one_step()
    before = [p.array.copy() for p in method.parameters]
    moments = [m.numpy().copy() for pair in trainer.moments.values() for m in pair]
    broken = next(p for p in method.parameters if p.name == "output.weight")
    kept = broken.array[0, 0]
    broken.array[0, 0] = np.nan
    with pytest.raises(TrainingError, match=r"step 2.*no finite number|no finite number"):
        trainer.one_step()
    broken.array[0, 0] = kept
    assert trainer.step == 1
    for parameter, values in zip(method.parameters, before, strict=True):
        np.testing.assert_array_equal(parameter.array, values)
    for moment, values in zip((m for pair in trainer.moments.values() for m in pair), moments, strict=True):
        np.testing.assert_array_equal(moment.numpy(), values)


def test_too_little_memory_is_refused_before_anything_is_taken(model: ModelFile) -> None:
    with pytest.raises(MemoryBudgetError) as info:
        Trainer(Full(model), windows(), replace(OPTIONS, memory=1 << 20))
    assert set(info.value.parts) == {"weights", "parameters", "gradients", "optimizer", "activations"}
    assert info.value.needed == sum(info.value.parts.values())


def test_adapters_start_as_nothing_and_learn(model: ModelFile) -> None:
    data = windows()
    plain = Trainer(Full(model), data, replace(OPTIONS, steps=1)).one_step().loss
    method = LoRA(model, rank=4, alpha=8)
    frozen = {name: info.data.tobytes() for name, info in model.tensors.items()}
    _, reports = run(method, replace(OPTIONS, steps=30, rate=1e-2), data)
    assert reports[0].loss == pytest.approx(plain, rel=1e-6)
    assert reports[-1].loss < reports[0].loss - 1.0
    assert {name: info.data.tobytes() for name, info in model.tensors.items()} == frozen


@pytest.mark.parametrize("kind", ["Q1_0", "Q2_0"])
def test_rounded_weights_learn(model: ModelFile, kind: str) -> None:
    method = Full(model, rounding=kind)
    assert set(method.rounding.values()) == {kind}
    _, reports = run(method, replace(OPTIONS, steps=60))
    assert reports[-1].loss < reports[0].loss - 1.5


def test_weight_decay_leaves_norms_alone(model: ModelFile) -> None:
    """With a learning rate, and gradients clipped to nothing, only the decay acts: w ← w·(1 - rate·decay)."""
    method = Full(model)
    before = [p.array.copy() for p in method.parameters]
    optimizer = OptimizerOptions("sgd", decay=0.5, clip=1e-12)
    run(method, replace(OPTIONS, steps=1, rate=0.1, optimizer=optimizer))
    for parameter, values in zip(method.parameters, before, strict=True):
        factor = 1.0 if len(parameter.ne) == 1 else 0.95
        np.testing.assert_allclose(parameter.array, values * factor, rtol=1e-5, atol=1e-8, err_msg=parameter.name)


def test_the_first_step_of_adamw_is_the_rate(model: ModelFile) -> None:
    """m̂ / √v̂ of one gradient is its sign: β, 1 - β and 1 - β^t must belong together to the last bit of float32."""
    method = Full(model)
    before = [p.array.copy() for p in method.parameters]
    run(method, replace(OPTIONS, steps=1, rate=1.0, optimizer=OptimizerOptions(eps=1e-30, clip=0.0)))
    steps = np.concatenate([np.abs(p.array - b).ravel() for p, b in zip(method.parameters, before, strict=True)])
    moved = steps[steps > 0.5]  # what no token reached has no gradient
    assert len(moved) > 1000
    np.testing.assert_allclose(moved, 1.0, rtol=2e-6)


def test_validation_is_the_mean_loss_over_the_set(model: ModelFile) -> None:
    method = Full(model)
    trainer = Trainer(method, windows(), replace(OPTIONS, steps=2, validate_every=1), windows(seed=None))
    reports = list(trainer.steps())
    assert all(r.validation is not None for r in reports)
    again = Trainer(method, windows(seed=None), replace(OPTIONS, rate=0.0, steps=windows().rows(0) // 2))
    losses = [r.loss for r in again.steps()]
    assert reports[-1].validation == pytest.approx(np.mean(losses), rel=1e-6)


def test_a_training_s_loss_is_that_of_the_engine(model: ModelFile) -> None:
    """The summed loss of a row against the logits of a session over the same file."""
    row = windows(seed=None).row(0, 0)
    trainer = Trainer(Full(model), windows(seed=None), replace(OPTIONS, sequences=1, steps=1))
    loss = trainer.one_step().loss
    session = prism.load(model.file.path, cache_type="F32").session()
    logits = session.evaluate(row.tokens.tolist(), logits="all").astype(np.float64)
    shifted = logits - logits.max(-1, keepdims=True)
    chances = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    assert loss == pytest.approx(-chances[np.arange(LENGTH), row.labels].mean(), rel=1e-5)


def test_schedules() -> None:
    assert [learning_rate(s, 10, 1.0, "constant", warmup=4) for s in (0, 3, 4, 9)] == [0.25, 1.0, 1.0, 1.0]
    assert learning_rate(5, 10, 1.0, "linear") == 0.5
    assert learning_rate(5, 10, 2.0, "cosine") == pytest.approx(1.0)
    assert learning_rate(10, 10, 2.0, "cosine", floor=0.1) == pytest.approx(0.2)
    with pytest.raises(ParameterError, match="constant, linear, cosine"):
        learning_rate(0, 10, 1.0, "step")


@pytest.mark.parametrize(
    "change", [{"steps": 0}, {"sequences": 0}, {"rate": float("nan")}, {"schedule": "x"}, {"accumulate": -1}]
)
def test_wrong_options_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(ParameterError):
        replace(OPTIONS, **change)
