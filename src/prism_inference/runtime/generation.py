"""The generation loop: prompt ids in, pieces of text out, and a record of how it went.

Knows evaluators and tokenizers by the few methods it needs of them, so that it runs over a session, a share of a batch,
or a stand-in. Knows no HTTP and no templates.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, Literal, Protocol

from ..errors import CancelledError, ContextError, ParameterError, PrismError
from ..limits import ANSWERS_MAX, LOGITS_BATCH_TOKENS, LOGPROBS_MAX
from ..sampling import Breakers, Sampler, SamplingParams, TokenLogprob, new_seed
from ..sampling.logprobs import token_logprob
from .answer import Answer, Decoder, Generation, Timings, Usage
from .stops import StopMatcher

Cancel = Callable[[], bool] | threading.Event


class Evaluator(Protocol):
    """What turns ids into logits, and keeps the place."""

    @property
    def position(self) -> int:
        """Number of tokens evaluated so far."""

    @property
    def context(self) -> int:
        """Number of tokens that fit."""

    def evaluate(self, ids: Sequence[int], logits: Literal["last", "all"] = "last") -> Any:
        """Continue at `position`; return the logits after the last id, float32 [vocabulary], or after each id."""

    def rewind(self, position: int) -> int:
        """Go back to a position, or to one before it where that cannot be had; return where it went."""

    def close(self) -> None:
        """Take note that this generation needs the evaluator no more; called once."""


@dataclass(frozen=True)
class Request:
    """What is wanted of a generation, besides the choice of tokens.

    Attributes:
        stops: texts that end the answer and are not shown.
        max_tokens: most tokens to draw; 0 evaluates the prompt alone; None draws as many as fit the context.
        logprobs: how many of the likeliest tokens to report, with log-probabilities, for each token; 0 reports the
            token's own alone, None nothing.
        echo: a text to begin each answer with: the prompt's. The prompt's log-probabilities are reported too.
        n: how many answers to give. The prompt is evaluated once.
        best_of: how many to draw; the `n` of the highest mean log-probability are given, the best first.
        cancel: an event, or a function that returns true, to end the generation; asked before each evaluation.
        breakers: DRY's sequence breakers as ids.

    Raises:
        ParameterError: a number is out of its range.
    """

    stops: str | Sequence[str] | None = None
    max_tokens: int | None = None
    logprobs: int | None = None
    echo: str | None = None
    n: int = 1
    best_of: int | None = None
    cancel: Cancel | None = None
    breakers: Breakers | None = None

    def __post_init__(self) -> None:
        """Check the numbers."""
        _check_number("max_tokens", self.max_tokens, 0, None)
        _check_number("logprobs", self.logprobs, 0, LOGPROBS_MAX, "LOGPROBS_MAX")
        _check_number("n", self.n, 1, ANSWERS_MAX, "ANSWERS_MAX")
        _check_number("best_of", self.best_of, self.n, ANSWERS_MAX, "ANSWERS_MAX, and not below n")


class GenerationStream(Iterator[str]):
    """One generation as an iterator over pieces of text; no piece is empty or ends inside a character.

    A piece never holds part of a stop string. A character that the last token leaves unfinished is shown, as a
    replacement character, only where the model itself ended there. Of several answers, the pieces come one answer after
    the other; `number` says of which the last piece was. With `best_of` each answer is one piece, when all are drawn.

    Attributes:
        number: of the answer to which the last piece belongs, from 0.
        seed: the seed in use; that of a further answer is its number more.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        tokenizer: Decoder,
        prompt_ids: Sequence[int],
        params: SamplingParams | None = None,
        request: Request | None = None,
    ) -> None:
        """Check everything; nothing is evaluated before the first piece is asked for.

        Args:
            evaluator: continues at its position.
            tokenizer: turns ids into text.
            prompt_ids: at least one.
            params: how tokens are chosen; default: the likeliest.
            request: what else is wanted.

        Raises:
            ParameterError: no prompt, a wrong stop, or more `min_tokens` than `max_tokens`.
            LimitError: too many or too long stops.
            ContextError: the prompt and one token, or the prompt and `max_tokens` where it is given, do not fit.
        """
        self._prompt = list(prompt_ids)
        self._request = request = request or Request()
        params = params or SamplingParams()
        self.seed = new_seed() if params.seed is None else params.seed
        self._params = replace(params, seed=self.seed)
        self._limit = _token_limit(evaluator, len(self._prompt), request.max_tokens)
        _check_number("min_tokens", self._params.min_tokens, 0, self._limit, "max_tokens")
        StopMatcher(request.stops)
        self._cancelled = _as_function(request.cancel)
        self._evaluator: Evaluator | None = evaluator
        self._tokenizer = tokenizer
        self._prompt_logprobs: list[TokenLogprob] = []
        self._prompt_end = 0  # the evaluator's position behind the prompt
        self._prompt_seconds = 0.0
        self._answers: list[Answer] = []
        self._decode_seconds: list[float] = []
        self._results: tuple[Generation, ...] = ()
        self._run = self._generate(evaluator)
        self.number = 0

    def __iter__(self) -> GenerationStream:
        return self

    def __next__(self) -> str:
        return next(self._run)

    @property
    def prompt_tokens(self) -> int:
        """Number of tokens of the prompt."""
        return len(self._prompt)

    @property
    def result(self) -> Generation:
        """The record of the generation; of several answers the first, which holds the others.

        Raises:
            PrismError: it has not ended yet, or has failed.
        """
        if not self._results:
            raise PrismError("the generation has no result", hint="Iterate to its end, or close it, first.")
        return replace(self._results[0], alternatives=self._results[1:])

    def close(self) -> None:
        """End the generation here: it counts as cancelled, unless it has ended or failed before."""
        running = self._evaluator is not None
        self._run.close()
        self._release()
        if running:
            self._finish()

    def _generate(self, evaluator: Evaluator) -> Generator[str, None, None]:
        """Run; leave the results behind unless an evaluation fails."""
        count = self._request.best_of or self._request.n
        streaming = count == self._request.n
        try:
            try:
                logits = None if self._cancelled() else self._evaluate_prompt(evaluator)
            except CancelledError:  # in the middle of an evaluation, by whoever holds the evaluator
                logits = None
            for number in range(count):
                if number and not self._return_to_prompt(evaluator):
                    logits = None
                answer = self._start(number)
                for piece in self._continue(answer, evaluator, logits):
                    if streaming:
                        self.number = number
                        yield piece
                if answer.finish_reason == "cancelled":
                    break
            self._finish()
            if not streaming:
                for number, result in enumerate(self._results):
                    self.number = number
                    if result.text:
                        yield result.text
        finally:
            self._release()

    def _evaluate_prompt(self, evaluator: Evaluator) -> Any:
        """Return the logits behind the prompt; note its log-probabilities if they are wanted."""
        started = perf_counter()
        top = self._request.logprobs
        if self._request.echo is None or top is None:
            logits = evaluator.evaluate(self._prompt)
        else:
            logits, scored = None, [TokenLogprob(self._prompt[0], None)]
            for start in range(0, len(self._prompt), LOGITS_BATCH_TOKENS):
                if self._cancelled():
                    return None
                rows = evaluator.evaluate(self._prompt[start : start + LOGITS_BATCH_TOKENS], "all")
                following = self._prompt[start + 1 : start + 1 + len(rows)]
                scored += [token_logprob(row, token, top) for row, token in zip(rows, following, strict=False)]
                logits = rows[-1]
            self._prompt_logprobs = scored
        self._prompt_end = evaluator.position
        self._prompt_seconds = perf_counter() - started
        return logits

    def _return_to_prompt(self, evaluator: Evaluator) -> bool:
        """Take the evaluator back to the end of the prompt, for another answer; return whether nobody cancelled."""
        if self._cancelled():
            return False
        reached = evaluator.rewind(self._prompt_end)
        try:
            if reached < self._prompt_end:
                evaluator.evaluate(self._prompt[reached - self._prompt_end :])
        except CancelledError:
            return False
        return True

    def _start(self, number: int) -> Answer:
        """Begin an answer."""
        request = self._request
        sampler = Sampler(self._params, self._tokenizer.end_ids, request.breakers, number)
        sampler.accept(self._prompt)
        answer = Answer(
            sampler,
            self._tokenizer,
            self._prompt[-1],
            StopMatcher(request.stops),
            self._limit,
            request.logprobs,
            ranked=request.best_of is not None,
        )
        answer.logprobs += self._prompt_logprobs
        self._answers.append(answer)
        self._decode_seconds.append(0.0)
        return answer

    def _continue(self, answer: Answer, evaluator: Evaluator, logits: Any) -> Iterator[str]:
        """Draw one answer to its end, from the logits behind the prompt; None where that was cancelled."""
        if self._request.echo and logits is not None:
            answer.pieces.append(self._request.echo)
            yield self._request.echo
        started = perf_counter()
        while answer.finish_reason is None:
            try:
                if logits is None:
                    raise CancelledError("cancelled in the prompt")
                if answer.drawn:
                    if self._cancelled():
                        raise CancelledError("cancelled between two tokens")
                    logits = evaluator.evaluate([answer.ids[-1]])
            except CancelledError:
                piece = answer.cancel()
            else:
                first = answer.drawn == 0
                piece = answer.take(logits)
                # The first token's time goes to the prompt.
                seconds, started = perf_counter() - started, perf_counter()
                if not first:
                    self._decode_seconds[-1] += seconds
                elif len(self._answers) == 1:
                    self._prompt_seconds += seconds
            if piece:
                yield piece
                started = perf_counter()

    def _finish(self) -> None:
        """Make the records, the best first where they are ranked."""
        if not self._answers:
            self._start(0)
        made = []
        for answer, seconds in zip(self._answers, self._decode_seconds, strict=True):
            if answer.finish_reason is None:
                answer.cancel()
            result = Generation(
                text=answer.text,
                ids=tuple(answer.ids),
                finish_reason=answer.finish_reason or "cancelled",
                stop=answer.stop,
                usage=Usage(len(self._prompt), answer.drawn),
                seed=answer.sampler.seed,
                timings=Timings(self._prompt_seconds, seconds),
                logprobs=None if self._request.logprobs is None else tuple(answer.logprobs),
            )
            made.append((answer.mean_logprob, result))
        if self._request.best_of is not None:
            made.sort(key=lambda pair: -pair[0])
        self._results = tuple(result for _, result in made[: self._request.n])

    def _release(self) -> None:
        evaluator, self._evaluator = self._evaluator, None
        if evaluator is not None:
            evaluator.close()


def _check_number(name: str, value: int | None, least: int, most: int | None, limit: str = "") -> None:
    """Refuse what is not an integer in a range; None passes."""
    if value is None:
        return
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or value < least or (most is not None and value > most):
        bound = f"{least} or above" if most is None else f"{least} to {most} ({limit})"
        raise ParameterError("wrong number", where=name, expected=f"an integer, {bound}", found=repr(value))


def _token_limit(evaluator: Evaluator, prompt: int, max_tokens: int | None) -> int:
    """Return how many tokens may be drawn; nothing is ever cut off to make a request fit."""
    if prompt == 0:
        raise ParameterError("an empty prompt", where="prompt", expected="at least one token")
    available = evaluator.context - evaluator.position
    needed = prompt + (1 if max_tokens is None else max_tokens)
    if needed > available:
        raise ContextError(needed, available)
    return available - prompt if max_tokens is None else max_tokens


def _as_function(cancel: Cancel | None) -> Callable[[], bool]:
    if cancel is None:
        return lambda: False
    return cancel.is_set if isinstance(cancel, threading.Event) else cancel
