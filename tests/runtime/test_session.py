"""Sessions and models: bounds, failures that change nothing, cancelling, budgets, reuse of what is evaluated
already."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import prism_inference as prism
from naive_models import Shape, random_weights
from prism_inference.errors import CancelledError, ContextError, MemoryBudgetError, ParameterError, UnsupportedError
from prism_inference.limits import BATCH_TOKENS, IDLE_SESSIONS
from prism_inference.runtime.model import parse_memory
from prism_inference.runtime.runner import Runner
from tiny import write_model

SHAPE = Shape("llama", context=64)
IDS = list(range(20))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    weights = random_weights(SHAPE, np.random.default_rng(3))
    return write_model(tmp_path_factory.mktemp("model") / "tiny.gguf", SHAPE, weights)


@pytest.fixture
def model(path: Path):
    with prism.load(path, threads=2) as loaded:
        yield loaded


def test_position_advances_and_rewinds(model) -> None:
    session = model.session()
    first = session.evaluate(IDS)
    assert (session.position, session.ids) == (20, tuple(IDS))
    session.evaluate([1, 2, 3])
    session.rewind(19)
    np.testing.assert_array_equal(session.evaluate(IDS[19:]), first)
    with pytest.raises(ParameterError, match="0 to 20"):
        session.rewind(21)


def test_a_full_context_is_an_error_with_both_numbers_and_changes_nothing(model) -> None:
    session = model.session()
    before = session.evaluate(IDS)
    with pytest.raises(ContextError) as caught:
        session.evaluate([1] * 45)
    assert (caught.value.needed, caught.value.available) == (65, 64)
    assert "65" in str(caught.value)
    assert "64" in str(caught.value)
    assert session.position == 20
    session.rewind(19)
    np.testing.assert_array_equal(session.evaluate(IDS[19:]), before)
    session.evaluate([1] * 44)
    assert session.position == 64


@pytest.mark.parametrize("ids", [[], [-1], [61], [[1, 2]], [0.5], [1, 2, 2**40]])
def test_wrong_ids_are_refused(model, ids) -> None:
    session = model.session()
    with pytest.raises(ParameterError, match="ids"):
        session.evaluate(ids)
    assert session.position == 0


def test_an_unknown_choice_of_logits_is_refused(model) -> None:
    with pytest.raises(ParameterError, match="'last' or 'all'"):
        model.session().evaluate([1], logits="first")


def test_cancel_leaves_the_position_and_the_next_call_is_whole(path: Path) -> None:
    shape = Shape("llama", blocks=6, width=256, feed_forward=1024, context=2048)
    big = write_model(path.parent / "big.gguf", shape, random_weights(shape, np.random.default_rng(4)))
    session = prism.load(big, threads=2).session()
    ids = [i % 61 for i in range(1500)]
    session.evaluate([5])
    expected = session.evaluate(ids)
    cancelled = 0
    for attempt in range(10):
        session.rewind(1)
        timer = threading.Timer(0.002 * (attempt + 1), session.cancel)
        timer.start()
        try:
            session.evaluate(ids)
        except CancelledError:
            cancelled += 1
            assert session.position == 1
        timer.join()
    assert cancelled > 0, "no call was ever cancelled"
    session.rewind(1)
    np.testing.assert_array_equal(session.evaluate(ids), expected)


def test_a_cancel_between_two_batches_is_not_lost(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = Shape("llama", context=4 * BATCH_TOKENS)
    wide = write_model(path.parent / "long.gguf", shape, random_weights(shape, np.random.default_rng(3)))
    session = prism.load(wide).session()
    run, calls = Runner.run, []

    def run_and_cancel(runner: Runner, *args: object) -> np.ndarray:
        calls.append(args)
        result = run(runner, *args)
        session.cancel()
        return result

    monkeypatch.setattr(Runner, "run", run_and_cancel)
    with pytest.raises(CancelledError):
        session.evaluate([1] * (3 * BATCH_TOKENS))
    assert (len(calls), session.position) == (1, 0)
    monkeypatch.setattr(Runner, "run", run)
    session.evaluate(IDS)  # a cancel that came too late, or was done with, does not stop the next call
    assert session.position == len(IDS)


def test_sessions_of_one_model_do_not_disturb_each_other(model) -> None:
    a, b = model.session(), model.session()
    alone = a.evaluate(IDS)
    a.rewind(0)
    for token in IDS:
        last = a.evaluate([token])
        b.evaluate([60 - token])
    np.testing.assert_array_equal(last, alone)


def test_two_threads_may_use_one_model(model) -> None:
    expected = model.session().evaluate(IDS)
    results: list[np.ndarray] = []

    def work() -> None:
        session = model.session()
        for _ in range(10):
            session.rewind(0)
            results.append(session.evaluate(IDS))

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(results) == 40
    for result in results:
        np.testing.assert_array_equal(result, expected)


def test_the_memory_budget_is_admitted_before_anything_is_taken(path: Path) -> None:
    with pytest.raises(MemoryBudgetError) as caught:
        prism.load(path, context=64, memory=1000)
    assert caught.value.budget == 1000
    assert caught.value.needed == sum(caught.value.parts.values())
    assert set(caught.value.parts) == {"weights", "state", "activations"}
    prism.load(path, context=64, memory=caught.value.needed)
    with pytest.raises(MemoryBudgetError):
        prism.load(path, context=64, memory=caught.value.needed - 1)


@pytest.mark.parametrize(("cache_type", "bytes_per_position"), [("F32", 768), ("F16", 384)])
def test_the_default_context_fits_half_of_what_a_budget_leaves(
    path: Path, cache_type: str, bytes_per_position: int
) -> None:
    """2 blocks of 2 key heads with keys and values of 24 numbers."""
    shape = Shape("llama", context=1 << 20)
    wide = write_model(path.parent / "wide.gguf", shape, random_weights(shape, np.random.default_rng(3)))
    weights = prism.load(wide, context=64).file.nbytes
    model = prism.load(wide, memory=weights + (8 << 20), cache_type=cache_type)
    assert model.context == (4 << 20) // bytes_per_position
    assert prism.load(path, memory="1GiB").context == SHAPE.context, "never more than trained"


def test_wrong_sizes_are_refused(path: Path) -> None:
    for wrong in (
        {"threads": 0},
        {"threads": 257},
        {"context": 0},
        {"context": 65},
        {"memory": 0},
        {"cache_type": "Q9"},
    ):
        with pytest.raises(ParameterError, match=next(iter(wrong))):
            prism.load(path, **wrong)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2GiB", 2 << 30),
        ("1.5 MiB", 3 << 19),
        ("10kB", 10_000),
        ("512", 512),
        (7, 7),
        (None, None),
        (" 3 GB ", 3 * 10**9),
    ],
)
def test_memory_is_read(text, expected) -> None:
    assert parse_memory(text) == expected


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1 parsec", "inf", "nan", "1e400", 0, -5])
def test_nonsense_amounts_are_refused(text) -> None:
    with pytest.raises(ParameterError, match="2GiB"):
        parse_memory(text)


def test_generation_reuses_what_a_session_holds(model, monkeypatch) -> None:
    """A prompt that extends an earlier one evaluates only its new part, and gives what a cold run gives."""
    prompt = [3, 1, 4, 1, 5, 9, 2, 6]
    session = model.take(prompt)
    session.evaluate(prompt)
    model.give_back(session)
    longer = [*prompt, 5, 3, 5]
    again = model.take(longer)
    assert again is session
    assert again.position == len(prompt)
    warm = again.evaluate(longer[again.position :])
    np.testing.assert_array_equal(warm, model.session().evaluate(longer))
    model.give_back(again)
    assert model.take(prompt).position == len(prompt) - 1, "the last token is evaluated again: its logits are wanted"


GROWTH = """
import sys, psutil, prism_inference as prism
ids = list(range(20))
prism.load(sys.argv[1], context=64).session().evaluate(ids)  # the kernels are compiled
before = psutil.Process().memory_info().rss
model = prism.load(sys.argv[1], context=1 << 20)
model.session().evaluate(ids)
print(psutil.Process().memory_info().rss - before)
"""


def test_a_large_context_takes_memory_only_as_it_fills(path: Path) -> None:
    """In a process of its own: the memory of this one also moves with what other tests left behind."""
    shape = Shape("llama", context=1 << 20)
    wide = write_model(path.parent / "wide.gguf", shape, random_weights(shape, np.random.default_rng(3)))
    cells = shape.blocks * shape.key_heads * 2 * shape.head * 2 * (1 << 20)
    assert cells > 300 << 20
    done = subprocess.run([sys.executable, "-c", GROWTH, str(wide)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 64 << 20


def test_idle_sessions_are_bounded(model) -> None:
    lent = [model.take([1, 2, 3]) for _ in range(IDLE_SESSIONS + 3)]
    assert len({id(session) for session in lent}) == len(lent)
    for session in lent:
        model.give_back(session)
    again = [model.take([1, 2, 3]) for _ in range(IDLE_SESSIONS + 1)]
    assert sum(session in lent for session in again) == IDLE_SESSIONS


def test_a_file_without_template_or_tokenizer_says_so(model) -> None:
    with pytest.raises(UnsupportedError, match="chat template"):
        model.chat([{"role": "user", "content": "hi"}])
    with pytest.raises(prism.PrismError, match="none"):
        _ = model.tokenizer
