"""Answers of real and tiny models: several from one prompt, log-probabilities, seeds beside other work."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import prism_inference as prism
from prism_inference.errors import ParameterError
from prism_inference.limits import LOGITS_BATCH_TOKENS
from prism_inference.runtime.defaults import DEFAULT_MODEL, KNOWN_MODELS
from prism_inference.runtime.generation import GenerationStream, Request
from prism_inference.runtime.model import _Lease
from prism_inference.runtime.session import Session
from prism_inference.sampling import SamplingParams
from stand_ins import Bytes

PROMPT = "The lighthouse on the northern shore was built in"


@pytest.fixture(scope="module")
def model(models: Path):
    path = models / KNOWN_MODELS[DEFAULT_MODEL].file_name
    if not path.exists():
        pytest.skip(f"{path.name} was not fetched: python tests/fetch_models.py")
    with prism.load(path, threads=2, context=512) as loaded:
        yield loaded


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lengths of all evaluations of the test."""
    lengths: list[int] = []
    evaluate = Session.evaluate

    def counted(self: Session, ids: Any, logits: Any = "last") -> Any:
        lengths.append(len(ids))
        return evaluate(self, ids, logits)

    monkeypatch.setattr(Session, "evaluate", counted)
    return lengths


def text_of(model: prism.Model, **options: Any) -> str:
    return "".join(model.generate(PROMPT, **options))


OPTIONS: dict[str, Any] = {
    "max_tokens": 12,
    "temperature": 1.1,
    "top_p": 0.95,
    "repeat_penalty": 1.1,
    "dry_multiplier": 0.5,
}


def test_several_answers_are_those_of_their_seeds(model: prism.Model, evaluated: list[int]) -> None:
    stream = model.generate(PROMPT, n=3, seed=40, **OPTIONS)
    for _ in stream:
        pass
    assert sum(length > 1 for length in evaluated) == 1, "the prompt is evaluated once"
    answers = [stream.result, *stream.result.alternatives]
    assert [answer.seed for answer in answers] == [40, 41, 42]
    assert len({answer.text for answer in answers}) == 3
    assert [answer.text for answer in answers] == [text_of(model, seed=seed, **OPTIONS) for seed in (40, 41, 42)]


def test_s06_an_unset_seed_is_reported_and_repeats(model: prism.Model) -> None:
    reply = model.chat([{"role": "user", "content": "Say something."}], temperature=1.5, max_tokens=12)
    again = model.chat([{"role": "user", "content": "Say something."}], temperature=1.5, max_tokens=12, seed=reply.seed)
    assert again.text == reply.text
    other = model.chat([{"role": "user", "content": "Say something."}], temperature=1.5, max_tokens=12)
    assert other.seed != reply.seed


def test_a_seed_gives_the_same_text_whatever_runs_beside_it(model: prism.Model) -> None:
    seeds = range(4)
    alone = [text_of(model, seed=seed, **OPTIONS) for seed in seeds]
    with ThreadPoolExecutor(4) as pool:
        beside = list(pool.map(lambda seed: text_of(model, seed=seed, **OPTIONS), seeds))
    assert beside == alone


def test_s07_the_same_prompt_eight_times_at_once_gives_one_text(model: prism.Model) -> None:
    ids = model.tokenizer.encode(PROMPT)

    def logits_and_text(_: int) -> tuple[bytes, str]:
        return model.session().evaluate(ids).tobytes(), text_of(model, max_tokens=16)

    with ThreadPoolExecutor(8) as pool:
        seen = set(pool.map(logits_and_text, range(8)))
    assert len(seen) == 1


def log_soft_max(logits: np.ndarray) -> np.ndarray:
    exact = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return exact - np.log(np.exp(exact).sum(axis=-1, keepdims=True))


@pytest.mark.parametrize("repeat", [1, 20])
def test_log_probabilities_of_prompt_and_answer(model: prism.Model, repeat: int, evaluated: list[int]) -> None:
    prompt = PROMPT * repeat
    text_of(model, max_tokens=2)  # leaves a session that holds the beginning
    stream = model.generate(prompt, max_tokens=5, logprobs=3, echo=True, temperature=2.0, top_k=3, seed=1)
    pieces = list(stream)
    assert pieces[0] == prompt
    result = stream.result
    assert result.text == "".join(pieces)
    ids = [*model.tokenizer.encode(prompt, special="parse", insert="model"), *result.ids]
    assert (len(ids) > 2 * LOGITS_BATCH_TOKENS) == (repeat > 1), "in one batch and in several"
    exact = log_soft_max(model.session().evaluate(ids, logits="all"))
    assert result.logprobs is not None
    assert [entry.token for entry in result.logprobs] == ids
    first, *others = result.logprobs
    assert (first.logprob, first.top) == (None, ())
    for row, entry in zip(exact, others, strict=False):
        assert abs(entry.logprob - row[entry.token]) < 1e-5
        likeliest = np.argsort(-row, kind="stable")[:3]
        assert [token for token, _ in entry.top] == likeliest.tolist()
        np.testing.assert_allclose([value for _, value in entry.top], row[likeliest], atol=1e-5)


def test_the_prompt_alone(model: prism.Model) -> None:
    stream = model.generate(PROMPT, max_tokens=0, echo=True, logprobs=0)
    assert list(stream) == [PROMPT]
    assert stream.result.finish_reason == "length"
    assert len(stream.result.logprobs) == stream.prompt_tokens


def test_min_tokens_and_ignore_eos(model: prism.Model) -> None:
    messages = [{"role": "user", "content": "Answer with one word: what is the capital of France?"}]
    short = model.chat(messages, max_tokens=60)
    assert short.finish_reason == "stop"
    count = short.usage.completion_tokens
    longer = model.chat(messages, max_tokens=60, min_tokens=count + 5)
    assert longer.usage.completion_tokens > count + 5
    assert longer.ids[: len(short.ids)] == short.ids
    endless = model.chat(messages, max_tokens=60, ignore_eos=True)
    assert (endless.finish_reason, endless.usage.completion_tokens) == ("length", 60)


def test_words_and_biases(model: prism.Model) -> None:
    plain = model.generate(PROMPT, max_tokens=6)
    list(plain)
    ids = list(plain.result.ids)
    without = model.generate(PROMPT, max_tokens=6, bad_words=[ids[1:3]])
    list(without)
    assert without.result.ids[:2] == tuple(ids[:2])
    assert without.result.ids[2] != ids[2]
    biased = model.generate(PROMPT, max_tokens=2, logit_bias={ids[3]: 100.0})
    list(biased)
    assert biased.result.ids == (ids[3], ids[3])
    with pytest.raises(ParameterError, match="logit_bias"):
        model.generate(PROMPT, logit_bias={len(model.tokenizer): 1.0})
    with pytest.raises(ParameterError, match="temperature"):
        model.generate(PROMPT, temprature=1.0)


@pytest.mark.parametrize("memory", [None, "small"])
def test_a_hybrid_model_returns_to_the_prompt(shared: Path, memory: str | None) -> None:
    """Its recurrent state is restored; without room for copies, the prompt is evaluated again."""
    path = shared / "golden" / "tiny_qwen35.gguf"
    with prism.load(path, context=128) as model:
        session = model.session()
        params = SamplingParams(temperature=1.5, seed=3)
        prompt = [5, 6, 7, 8, 9]
        if memory:
            session._states.bound_copies(0)
            model._idle[:] = [session]

        def answers(params: SamplingParams, n: int) -> list[tuple[int, ...]]:
            stream = GenerationStream(_Lease(model, True), Bytes(), prompt, params, Request(max_tokens=9, n=n))
            list(stream)
            return [answer.ids for answer in (stream.result, *stream.result.alternatives)]

        together = answers(params, 3)
        alone = [answers(SamplingParams(temperature=1.5, seed=seed), 1)[0] for seed in (3, 4, 5)]
        assert together == alone
        assert len(set(together)) == 3
