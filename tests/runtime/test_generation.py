"""The generation loop over stand-ins: an evaluator with a queue of answers, a tokenizer of bytes."""

from __future__ import annotations

import gc
import math
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from prism_inference.errors import CancelledError, ContextError, ParameterError, PrismError, SamplingError
from prism_inference.limits import ANSWERS_MAX, LOGPROBS_MAX
from prism_inference.runtime.generation import Cancel, GenerationStream, Request
from prism_inference.sampling import SamplingParams, TokenLogprob
from stand_ins import END, VOCABULARY, Bytes, Queue


def stream_of(
    reply: str | bytes | Sequence[int],
    prompt: Sequence[int] = (1, 2, 3),
    *,
    params: SamplingParams | None = None,
    stops: Sequence[str] = (),
    max_tokens: int | None = None,
    cancel: Cancel | None = None,
    context: int = 1_000,
    position: int = 0,
) -> tuple[GenerationStream, Queue]:
    ids = reply.encode() if isinstance(reply, str) else reply
    queue = Queue(ids, context, position)
    request = Request(stops, max_tokens, cancel=cancel)
    return GenerationStream(queue, Bytes(), prompt, params, request), queue


def test_goes_on_until_the_model_ends() -> None:
    stream, queue = stream_of([*b"Hi!", END, *b"never"])
    assert list(stream) == ["H", "i", "!"]
    result = stream.result
    assert result.text == "Hi!"
    assert result.ids == tuple(b"Hi!")
    assert (result.finish_reason, result.stop) == ("stop", END)
    assert (result.usage.prompt_tokens, result.usage.completion_tokens) == (3, 4)
    assert result.seed == stream.seed
    assert result.timings.prompt_seconds > 0
    assert result.timings.decode_seconds > 0
    assert queue.calls == [[1, 2, 3], [ord("H")], [ord("i")], [ord("!")]]
    assert queue.closed == 1
    assert list(stream) == [], "it has ended"


def test_nothing_happens_before_the_first_piece_is_asked_for() -> None:
    stream, queue = stream_of("x")
    assert queue.calls == []
    assert stream.prompt_tokens == 3
    with pytest.raises(PrismError):
        _ = stream.result


def test_an_empty_answer() -> None:
    stream, _ = stream_of([END])
    assert list(stream) == []
    assert (stream.result.text, stream.result.ids, stream.result.usage.completion_tokens) == ("", (), 1)


def test_max_tokens() -> None:
    stream, queue = stream_of("abcdef", max_tokens=3)
    assert list(stream) == ["a", "b", "c"]
    assert (stream.result.finish_reason, stream.result.stop) == ("length", None)
    assert len(queue.calls) == 3, "the last token need not be evaluated"


def test_without_max_tokens_the_context_is_filled() -> None:
    stream, queue = stream_of("abcdef", context=20, position=13)
    assert "".join(stream) == "abcd"
    assert stream.result.finish_reason == "length"
    assert queue.position == 20 - 1


# --- Refusals, before anything is evaluated ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "context", "position", "needed", "available"),
    [
        (11, None, 10, 0, 12, 10),
        (10, None, 10, 0, 11, 10),
        (3, 8, 10, 0, 11, 10),
        (3, 2_147_483_647, 10, 0, 2_147_483_650, 10),
        (3, 10**18, 10, 0, 10**18 + 3, 10),
        (3, None, 10, 8, 4, 2),
    ],
)
def test_a10_what_does_not_fit_is_refused_with_both_numbers(
    prompt: int, max_tokens: int | None, context: int, position: int, needed: int, available: int
) -> None:
    with pytest.raises(ContextError) as caught:
        stream_of("x", range(prompt), max_tokens=max_tokens, context=context, position=position)
    assert (caught.value.needed, caught.value.available) == (needed, available)


def test_what_just_fits_is_not_refused() -> None:
    assert "".join(stream_of("abcdefgh", range(3), max_tokens=7, context=10)[0]) == "abcdefg"
    assert "".join(stream_of("abc", range(9), context=10)[0]) == "a"


@pytest.mark.parametrize("max_tokens", [-1, 1.5, "3", True])
def test_refuses_a_wrong_max_tokens(max_tokens: int) -> None:
    with pytest.raises(ParameterError, match="max_tokens"):
        stream_of("x", max_tokens=max_tokens)


def test_refuses_an_empty_prompt() -> None:
    with pytest.raises(ParameterError, match="empty prompt"):
        stream_of("x", [])


def test_refuses_a_wrong_stop() -> None:
    with pytest.raises(ParameterError, match="stop"):
        stream_of("x", stops=[""])


# --- Stop strings -----------------------------------------------------------------------------------------------------


def test_a01_a_stop_across_tokens_is_neither_shown_nor_begun() -> None:
    stream, _ = stream_of("L M N O P Q R", stops=["O P Q"])
    pieces = list(stream)
    assert "".join(pieces) == stream.result.text == "L M N "
    assert stream.result.stop == "O P Q"
    assert stream.result.finish_reason == "stop"
    assert all(piece for piece in pieces)


def test_a_stop_that_only_begins_is_shown_in_the_end() -> None:
    for reply, reason in (([*b"x O P", END], "stop"), ("x O P", "length")):
        stream, _ = stream_of(reply, stops=["O P Q"], max_tokens=5 + (reason == "stop"))
        assert "".join(stream) == stream.result.text == "x O P"
        assert stream.result.finish_reason == reason


# --- Characters of several tokens -------------------------------------------------------------------------------------


def test_a04_no_piece_ends_inside_a_character() -> None:
    text = "한글 👨‍👩‍👧 é"
    stream, _ = stream_of([*text.encode(), END])
    pieces = list(stream)
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)


def test_a04_an_unfinished_character_shows_only_where_the_model_ended() -> None:
    half = "a한".encode()[:-1]
    stream, _ = stream_of([*half, END])
    assert "".join(stream) == stream.result.text == "a\ufffd"
    stream, _ = stream_of(half, max_tokens=len(half))
    assert "".join(stream) == stream.result.text == "a"
    assert stream.result.ids == tuple(half), "no token is lost"


def test_a_stop_of_the_replacement_character_ends_too() -> None:
    stream, _ = stream_of([*"a한".encode()[:-1], END], stops=["\ufffd"])
    assert "".join(stream) == "a"
    assert stream.result.stop == "\ufffd"


# --- Cancelling and failing -------------------------------------------------------------------------------------------


def test_an_event_cancels_before_the_next_evaluation() -> None:
    event = threading.Event()
    stream, queue = stream_of("abcdef", cancel=event)
    assert next(stream) == "a"
    event.set()
    assert list(stream) == []
    assert (stream.result.text, stream.result.finish_reason, stream.result.stop) == ("a", "cancelled", None)
    assert len(queue.calls) == 1
    assert queue.closed == 1


def test_a_function_cancels_before_the_prompt() -> None:
    stream, queue = stream_of("abc", cancel=lambda: True)
    assert list(stream) == []
    assert stream.result.finish_reason == "cancelled"
    assert stream.result.usage.completion_tokens == 0
    assert queue.calls == []
    assert queue.closed == 1


def test_text_held_back_for_a_stop_is_shown_on_cancelling() -> None:
    stream, _ = stream_of("xEN", stops=["END"], cancel=lambda: len(stream._answers) and stream._answers[0].drawn == 3)
    assert "".join(stream) == "xEN"
    assert stream.result.finish_reason == "cancelled"


def test_an_evaluation_that_is_cancelled_from_elsewhere_ends_the_generation() -> None:
    stream, queue = stream_of("ab")
    assert next(stream) == "a"

    def cancelled(ids: Sequence[int]) -> np.ndarray:
        raise CancelledError("cancelled")

    queue.evaluate = cancelled  # type: ignore[method-assign]
    assert list(stream) == []
    assert stream.result.finish_reason == "cancelled"
    assert queue.closed == 1


def test_closing_ends_it_as_cancelled() -> None:
    stream, queue = stream_of("abc")
    next(stream)
    stream.close()
    assert (stream.result.text, stream.result.finish_reason) == ("a", "cancelled")
    assert queue.closed == 1
    stream.close()
    assert queue.closed == 1


def test_closing_before_the_start_and_after_the_end() -> None:
    stream, queue = stream_of("abc")
    stream.close()
    assert (stream.result.text, stream.result.finish_reason) == ("", "cancelled")
    assert queue.closed == 1
    assert list(stream) == []

    stream, queue = stream_of([*b"a", END])
    list(stream)
    stream.close()
    assert stream.result.finish_reason == "stop"
    assert queue.closed == 1


def test_a_stream_that_is_dropped_lets_its_evaluator_go() -> None:
    stream, queue = stream_of("abc")
    next(stream)
    del stream
    gc.collect()
    assert queue.closed == 1


def test_a_failure_passes_through_and_leaves_no_result() -> None:
    stream, queue = stream_of("ab")
    next(stream)
    queue.evaluate = lambda ids: np.full(VOCABULARY, np.nan, np.float32)  # type: ignore[method-assign]
    with pytest.raises(SamplingError):
        next(stream)
    assert queue.closed == 1
    stream.close()
    with pytest.raises(PrismError):
        _ = stream.result


# --- Sampling ---------------------------------------------------------------------------------------------------------


class Even(Queue):
    """An evaluator to which all letters from a to p are equally likely."""

    def evaluate(self, ids: Sequence[int], logits: str = "last") -> np.ndarray:
        self.calls.append(list(ids))
        self.position += len(ids)
        logits = np.full(VOCABULARY, -np.inf, dtype=np.float32)
        logits[ord("a") : ord("q")] = 0
        return logits


def drawn(seed: int | None) -> tuple[str, int]:
    params = SamplingParams(temperature=1.0, seed=seed)
    stream = GenerationStream(Even([]), Bytes(), [1], params, Request(max_tokens=30))
    return "".join(stream), stream.result.seed


def test_s06_a_seed_repeats_and_none_is_new_and_reported() -> None:
    assert drawn(4) == drawn(4)
    text, seed = drawn(None)
    other, other_seed = drawn(None)
    assert (text, seed) != (other, other_seed)
    assert drawn(seed) == (text, seed)


def test_greedy_is_the_default() -> None:
    assert "".join(GenerationStream(Even([]), Bytes(), [1], request=Request(max_tokens=3))) == "aaa"


# --- Several answers, log-probabilities, forced lengths --------------------------------------------------------------


def several(request: Request, reply: Sequence[int], **params: Any) -> tuple[GenerationStream, Queue]:
    queue = Queue(reply)
    return GenerationStream(queue, Bytes(), [1, 2, 3], SamplingParams(**params), request), queue


def test_several_answers_evaluate_the_prompt_once() -> None:
    stream, queue = several(Request(n=3), [*b"ab", END, *b"c", END, *b"d", END], seed=2**64 - 1)
    pieces = [(stream.number, piece) for piece in stream]
    assert pieces == [(0, "a"), (0, "b"), (1, "a"), (1, "c"), (2, "a"), (2, "d")]
    result = stream.result
    assert [answer.text for answer in (result, *result.alternatives)] == ["ab", "ac", "ad"]
    assert [answer.seed for answer in (result, *result.alternatives)] == [2**64 - 1, 0, 1]
    assert [answer.usage.completion_tokens for answer in (result, *result.alternatives)] == [3, 3, 3]
    assert queue.calls[0] == [1, 2, 3]
    assert [1, 2, 3] not in queue.calls[1:]
    assert queue.rewound == [3, 3]
    assert queue.closed == 1


def test_an_evaluator_that_cannot_go_back_so_far_evaluates_the_rest_of_the_prompt() -> None:
    stream, queue = several(Request(n=2), [*b"a", END, *b"-b", END])
    queue.rewind = lambda position: 1  # type: ignore[method-assign]
    assert "".join(stream) == "aab"
    assert queue.calls == [[1, 2, 3], [ord("a")], [2, 3], [ord("a")], [ord("b")]]


class Uneven(Even):
    """An evaluator to which later letters are likelier."""

    def evaluate(self, ids: Sequence[int], logits: str = "last") -> np.ndarray:
        return super().evaluate(ids) + np.arange(VOCABULARY, dtype=np.float32) / 5


def test_best_of_gives_the_likeliest_first() -> None:
    queue = Uneven([])
    params = SamplingParams(temperature=1.0, seed=3)
    stream = GenerationStream(queue, Bytes(), [1], params, Request(max_tokens=4, n=2, best_of=5))
    answers = [stream.number for _ in stream]
    assert answers == [0, 1], "each in one piece, when all are drawn"
    alone = []
    for seed in range(3, 8):
        single = GenerationStream(
            Uneven([]), Bytes(), [1], replace(params, seed=seed), Request(max_tokens=4, logprobs=0)
        )
        text = "".join(single)
        alone.append((sum(entry.logprob for entry in single.result.logprobs) / 4, text, seed))
    assert len({round(mean, 9) for mean, *_ in alone}) == 5, "a case without a tie"
    alone.sort(reverse=True)
    order = [(answer.text, answer.seed) for answer in (stream.result, *stream.result.alternatives)]
    assert order == [(text, seed) for _, text, seed in alone[:2]]


def test_cancelling_ends_all_answers() -> None:
    stream, queue = several(Request(n=3, cancel=lambda: len(queue.calls) == 3), [*b"abc", END])
    assert "".join(stream) == "abc"
    assert stream.result.finish_reason == "cancelled"
    assert stream.result.alternatives == ()


def test_cancelling_between_two_answers_shows_in_the_second() -> None:
    stream, queue = several(Request(n=3, echo="?", cancel=lambda: len(queue.calls) == 2), [*b"a", END])
    assert "".join(stream) == "?a"
    (second,) = stream.result.alternatives
    assert (stream.result.finish_reason, second.finish_reason, second.text) == ("stop", "cancelled", "")


def test_an_evaluator_cancelled_on_the_way_back_ends_the_answers() -> None:
    stream, queue = several(Request(n=3), [*b"a", END])
    queue.rewind = lambda position: 1  # type: ignore[method-assign]
    evaluate = queue.evaluate

    def cancelled_at_third(ids: Sequence[int], logits: str = "last") -> np.ndarray:
        if len(queue.calls) == 2:
            raise CancelledError("cancelled")
        return evaluate(ids, logits)

    queue.evaluate = cancelled_at_third  # type: ignore[method-assign]
    assert "".join(stream) == "a"
    assert [answer.finish_reason for answer in stream.result.alternatives] == ["cancelled"]
    assert queue.closed == 1


def test_no_new_tokens_evaluates_the_prompt_alone() -> None:
    stream, queue = several(Request(max_tokens=0), b"x")
    assert list(stream) == []
    assert queue.calls == [[1, 2, 3]]
    assert (stream.result.finish_reason, stream.result.usage.completion_tokens) == ("length", 0)


def test_echo_and_log_probabilities_of_the_prompt() -> None:
    stream, _ = several(Request(max_tokens=1, logprobs=2, echo="\x01\x02\x03"), b"x")
    assert list(stream) == ["\x01\x02\x03", "x"]
    even = -math.log(VOCABULARY)
    first, *prompt, drawn = stream.result.logprobs
    assert first == TokenLogprob(1, None, ())
    assert [entry.token for entry in prompt] == [2, 3]
    for entry in prompt:  # the stand-in's logits there are all 0: the likeliest are those of the lowest ids
        np.testing.assert_allclose([entry.logprob, *(value for _, value in entry.top)], [even] * 3, rtol=1e-6)
        assert [token for token, _ in entry.top] == [0, 1]
    total = math.log(math.e + VOCABULARY - 1)
    assert drawn.token == ord("x")
    np.testing.assert_allclose(drawn.logprob, 1 - total, rtol=1e-6)
    np.testing.assert_allclose([value for _, value in drawn.top], [1 - total, -total], rtol=1e-6)
    assert [token for token, _ in drawn.top] == [ord("x"), 0]


def test_log_probabilities_are_the_model_s_own_whatever_the_chain() -> None:
    plain, _ = several(Request(max_tokens=1, logprobs=0), b"x")
    list(plain)
    bent, _ = several(
        Request(max_tokens=1, logprobs=0),
        b"x",
        temperature=3.0,
        seed=1,
        top_k=1,
        repeat_penalty=2.0,
        logit_bias={120: 5.0},
    )
    list(bent)
    assert bent.result.logprobs == plain.result.logprobs
    without, _ = several(Request(max_tokens=1), b"x")
    list(without)
    assert without.result.logprobs is None


def test_an_answer_does_not_end_by_itself_before_min_tokens() -> None:
    """The stand-in wants the end at once; the next likeliest token has id 0."""
    stream, _ = several(Request(max_tokens=8), [END] * 8, min_tokens=3)
    assert "".join(stream) == "\0\0\0"
    assert (stream.result.finish_reason, stream.result.stop) == ("stop", END)
    stream, _ = several(Request(stops="a"), [*b"aabca", END], min_tokens=3)
    assert "".join(stream) == "aabc"
    assert stream.result.stop == "a"


def test_ignore_eos_goes_on_to_the_limit() -> None:
    stream, _ = several(Request(max_tokens=4), [END] * 4, ignore_eos=True)
    assert "".join(stream) == "\0" * 4
    assert stream.result.finish_reason == "length"


@pytest.mark.parametrize(
    ("numbers", "name"),
    [
        ({"n": 0}, "n"),
        ({"n": ANSWERS_MAX + 1}, "n"),
        ({"n": True}, "n"),
        ({"n": 2, "best_of": 1}, "best_of"),
        ({"best_of": ANSWERS_MAX + 1}, "best_of"),
        ({"logprobs": -1}, "logprobs"),
        ({"logprobs": LOGPROBS_MAX + 1}, "logprobs"),
        ({"logprobs": 1.0}, "logprobs"),
    ],
)
def test_refuses_numbers_out_of_range(numbers: dict[str, Any], name: str) -> None:
    with pytest.raises(ParameterError) as caught:
        Request(**numbers)
    assert caught.value.where == name


def test_refuses_more_tokens_at_least_than_at_most() -> None:
    with pytest.raises(ParameterError, match="min_tokens"):
        several(Request(max_tokens=3), b"x", min_tokens=4)
