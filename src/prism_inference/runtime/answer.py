"""One answer as a state machine: logits in, the next token and the text that it completes out, and how it ended.

Knows neither evaluators nor other answers, so that a single session and a batch can drive it alike.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from ..sampling import Sampler, TokenLogprob
from ..sampling.logprobs import token_logprob
from .stops import StopMatcher

FinishReason = Literal["stop", "length", "cancelled"]


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
        text: everything shown; the concatenation of the pieces. With `echo` it begins with the prompt.
        ids: the tokens drawn but for the one that ended the generation; those of a stop string are among them.
        finish_reason: `stop`: the model or a stop string ended it; `length`: no more tokens were allowed; `cancelled`.
        stop: the stop string or the token id that ended it, else None.
        usage: tokens of the prompt and drawn.
        seed: repeats the draw.
        timings: seconds.
        logprobs: of `ids` under the model's own distribution, where they were asked for; with `echo` those of the
            prompt's tokens come first.
        alternatives: the other answers, where several were asked for.
    """

    text: str
    ids: tuple[int, ...]
    finish_reason: FinishReason
    stop: str | int | None
    usage: Usage
    seed: int
    timings: Timings
    logprobs: tuple[TokenLogprob, ...] | None = None
    alternatives: tuple[Generation, ...] = ()


class Answer:
    """One answer that grows token by token.

    Attributes:
        pieces: the text shown so far.
        ids: the tokens drawn so far but for one that ended the answer.
        finish_reason: None as long as it goes on.
    """

    def __init__(
        self,
        sampler: Sampler,
        tokenizer: Decoder,
        previous: int,
        stops: StopMatcher,
        limit: int,
        logprobs: int | None = None,
        ranked: bool = False,
    ) -> None:
        """Begin behind a prompt.

        Args:
            sampler: has taken note of the prompt.
            tokenizer: turns ids into text.
            previous: the prompt's last id.
            stops: texts that end it.
            limit: most tokens to draw.
            logprobs: how many of the likeliest tokens to report for each token drawn; None reports nothing.
            ranked: whether its likelihood is wanted.
        """
        self.pieces: list[str] = []
        self.ids: list[int] = []
        self.logprobs: list[TokenLogprob] = []
        self.finish_reason: FinishReason | None = None
        self.stop: str | int | None = None
        self.drawn = 0
        self.sampler = sampler
        self._tokenizer = tokenizer
        self._text = tokenizer.stream(previous=previous)
        self._stops = stops
        self._limit = limit
        self._reported, self._ranked = logprobs, ranked
        self._likelihood = 0.0
        if limit == 0:
            self._finish("length")

    @property
    def text(self) -> str:
        """The text shown so far."""
        return "".join(self.pieces)

    @property
    def mean_logprob(self) -> float:
        """Log-probability a token, the one that ended the answer included; of answers that are `ranked`."""
        return self._likelihood / max(1, self.drawn)

    def take(self, logits: Any) -> str:
        """Draw the next token from logits float32 [vocabulary]; return the text that may be shown now, often "".

        Raises:
            SamplingError: the logits leave no choice; the answer is as before.
        """
        token = self.sampler.sample(logits)
        self.drawn += 1
        ends = token in self._tokenizer.end_ids
        self._note_likelihood(logits, token, ends)
        if ends:
            shown, stop = self._stops.push(self._text.flush())
            return self._show(shown if stop is not None else shown + self._finish("stop", token), stop)
        self.ids.append(token)
        shown, stop = self._text.push(token), None
        if self.drawn > self.sampler.params.min_tokens:  # before, no text ends the answer
            shown, stop = self._stops.push(shown)
        if stop is None and len(self.ids) == self._limit:
            shown += self._finish("length")
        return self._show(shown, stop)

    def cancel(self) -> str:
        """End the answer here; return the text held back until now."""
        return self._show(self._finish("cancelled"), None)

    def _note_likelihood(self, logits: Any, token: int, ends: bool) -> None:
        if self._reported is None and not self._ranked:
            return
        entry = token_logprob(logits, token, self._reported or 0)
        self._likelihood += entry.logprob or 0.0
        if self._reported is not None and not ends:
            self.logprobs.append(entry)

    def _show(self, text: str, stop: str | None) -> str:
        if stop is not None:
            self.finish_reason, self.stop = "stop", stop
        if text:
            self.pieces.append(text)
        return text

    def _finish(self, reason: FinishReason, stop: int | None = None) -> str:
        """Note the end; return the text that was held back for a stop string that did not come."""
        self.finish_reason, self.stop = reason, stop
        return self._stops.flush()
