"""The generation loop: prompt ids in, pieces of text out, and a record of how it went.

Knows evaluators and tokenizers by the few methods it needs of them, so that it runs over a session, a share of a batch,
or a stand-in. Knows no HTTP and no templates.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Literal, Protocol

from ..errors import CancelledError, ContextError, ParameterError, PrismError
from ..sampling import Sampler, SamplingParams
from .stops import StopMatcher

FinishReason = Literal["stop", "length", "cancelled"]
Cancel = Callable[[], bool] | threading.Event


class Evaluator(Protocol):
    """What turns ids into logits, and keeps the place."""

    @property
    def position(self) -> int:
        """Number of tokens evaluated so far."""

    @property
    def context(self) -> int:
        """Number of tokens that fit."""

    def evaluate(self, ids: Sequence[int]) -> Any:
        """Continue at `position`; return the logits after the last id, float32 [vocabulary]."""

    def close(self) -> None:
        """Take note that this generation needs the evaluator no more; called once."""


class TextStream(Protocol):
    """Turns ids into text as they come; keeps the bytes of an unfinished character back."""

    def push(self, token: int) -> str:
        """Take an id; return the text that is complete."""

    def flush(self) -> str:
        """Return what is left, as replacement characters where it is not text."""


class Decoder(Protocol):
    """The side of a tokenizer that generation needs."""

    @property
    def end_ids(self) -> Collection[int]:
        """Ids that end a generation."""

    def stream(self, *, previous: int | None = None) -> TextStream:
        """Start a text that continues after the id `previous`."""


@dataclass(frozen=True)
class Usage:
    """Tokens of one generation: of the prompt, and drawn (the one that ended it included)."""

    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True)
class Timings:
    """Seconds of one generation: evaluating the prompt and drawing the first token, and the same for all later ones."""

    prompt_seconds: float
    decode_seconds: float


@dataclass(frozen=True)
class Generation:
    """How a generation went.

    Attributes:
        text: everything shown; the concatenation of the pieces.
        ids: the tokens drawn but for the one that ended the generation; those of a stop string are among them.
        finish_reason: `stop`: the model or a stop string ended it; `length`: no more tokens were allowed; `cancelled`.
        stop: the stop string or the token id that ended it, else None.
        usage: tokens of the prompt and drawn.
        seed: repeats the draw.
        timings: seconds.
    """

    text: str
    ids: tuple[int, ...]
    finish_reason: FinishReason
    stop: str | int | None
    usage: Usage
    seed: int
    timings: Timings


class GenerationStream(Iterator[str]):
    """One generation as an iterator over pieces of text; no piece is empty or ends inside a character.

    A piece never holds part of a stop string. A character that the last token leaves unfinished is shown, as a
    replacement character, only where the model itself ended there.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        tokenizer: Decoder,
        prompt_ids: Sequence[int],
        params: SamplingParams | None = None,
        stops: str | Sequence[str] | None = None,
        max_tokens: int | None = None,
        cancel: Cancel | None = None,
    ) -> None:
        """Check everything; nothing is evaluated before the first piece is asked for.

        Args:
            evaluator: continues at its position.
            tokenizer: turns ids into text.
            prompt_ids: at least one.
            params: how tokens are chosen; default: the likeliest.
            stops: texts that end the generation and are not shown.
            max_tokens: most tokens to draw; default: as many as fit the context.
            cancel: an event, or a function that returns true, to end the generation; asked before each evaluation.

        Raises:
            ParameterError: no prompt, or a wrong `max_tokens` or stop.
            LimitError: too many or too long stops.
            ContextError: the prompt and one token, or the prompt and `max_tokens` where it is given, do not fit.
        """
        self._prompt = list(prompt_ids)
        self._limit = _token_limit(evaluator, len(self._prompt), max_tokens)
        self._stops = StopMatcher(stops)
        self._sampler = Sampler(params or SamplingParams())
        self._cancelled = _as_function(cancel)
        self._evaluator: Evaluator | None = evaluator
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._pieces: list[str] = []
        self._prompt_seconds = 0.0
        self._decode_seconds = 0.0
        self._result: Generation | None = None
        self._run = self._generate(evaluator)

    def __iter__(self) -> GenerationStream:
        return self

    def __next__(self) -> str:
        return next(self._run)

    @property
    def seed(self) -> int:
        """The seed in use."""
        return self._sampler.seed

    @property
    def prompt_tokens(self) -> int:
        """Number of tokens of the prompt."""
        return len(self._prompt)

    @property
    def result(self) -> Generation:
        """The record of the generation.

        Raises:
            PrismError: it has not ended yet, or has failed.
        """
        if self._result is None:
            raise PrismError("the generation has no result", hint="Iterate to its end, or close it, first.")
        return self._result

    def close(self) -> None:
        """End the generation here: it counts as cancelled, unless it has ended or failed before."""
        running = self._evaluator is not None
        self._run.close()
        self._release()
        if running:
            self._finish("cancelled", None)

    def _generate(self, evaluator: Evaluator) -> Generator[str, None, None]:
        """Run; leave the result behind unless an evaluation fails."""
        text = self._tokenizer.stream(previous=self._prompt[-1])
        pending = self._prompt
        try:
            while not self._cancelled():
                try:
                    token = self._draw(evaluator, pending)
                except CancelledError:  # in the middle of an evaluation, by whoever holds the evaluator
                    break
                if token in self._tokenizer.end_ids:
                    shown, stop = self._stops.push(text.flush())
                    yield from self._show(shown if stop is not None else shown + self._stops.flush())
                    return self._finish("stop", token if stop is None else stop, ended_by_token=True)
                self._ids.append(token)
                shown, stop = self._stops.push(text.push(token))
                yield from self._show(shown)
                if stop is not None:
                    return self._finish("stop", stop)
                if len(self._ids) == self._limit:
                    yield from self._show(self._stops.flush())
                    return self._finish("length", None)
                pending = [token]
            yield from self._show(self._stops.flush())
            return self._finish("cancelled", None)
        finally:
            self._release()

    def _draw(self, evaluator: Evaluator, pending: list[int]) -> int:
        """Evaluate what is pending and choose the next token; the time of the first goes to the prompt."""
        started = perf_counter()
        token = self._sampler.sample(evaluator.evaluate(pending))
        seconds = perf_counter() - started
        if pending is self._prompt:
            self._prompt_seconds = seconds
        else:
            self._decode_seconds += seconds
        return token

    def _show(self, text: str) -> Iterator[str]:
        if text:
            self._pieces.append(text)
            yield text

    def _finish(self, reason: FinishReason, stop: str | int | None, ended_by_token: bool = False) -> None:
        self._result = Generation(
            text="".join(self._pieces),
            ids=tuple(self._ids),
            finish_reason=reason,
            stop=stop,
            usage=Usage(len(self._prompt), len(self._ids) + ended_by_token),
            seed=self.seed,
            timings=Timings(self._prompt_seconds, self._decode_seconds),
        )

    def _release(self) -> None:
        evaluator, self._evaluator = self._evaluator, None
        if evaluator is not None:
            evaluator.close()


def _token_limit(evaluator: Evaluator, prompt: int, max_tokens: int | None) -> int:
    """Return how many tokens may be drawn; nothing is ever cut off to make a request fit."""
    if prompt == 0:
        raise ParameterError("an empty prompt", where="prompt", expected="at least one token")
    if max_tokens is not None and (isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < 1):
        raise ParameterError(
            "wrong number of tokens", where="max_tokens", expected="an integer, 1 or above", found=repr(max_tokens)
        )
    available = evaluator.context - evaluator.position
    needed = prompt + (1 if max_tokens is None else max_tokens)
    if needed > available:
        raise ContextError(needed, available)
    return available - prompt if max_tokens is None else max_tokens


def _as_function(cancel: Cancel | None) -> Callable[[], bool]:
    if cancel is None:
        return lambda: False
    return cancel.is_set if isinstance(cancel, threading.Event) else cancel
