"""A loaded model: text in, text out. Brings file, tokenizer, template, sessions and sampling together."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Unpack

from .. import gguf
from ..engine.team import default_threads, team
from ..errors import ParameterError
from ..graph.operations.checks import CACHE_TYPES
from ..limits import GIB, IDLE_SESSIONS, KIB, MAX_THREADS, MIB
from .lora import Entry, open_adapters
from .progress import kernel_progress
from .runner import SessionOptions
from .session import Session
from .weights import ModelFile, check

if TYPE_CHECKING:
    from ..chat.template import ChatTemplate
    from ..sampling import SamplingOptions
    from ..tokenizer import Tokenizer
    from .answer import Generation
    from .generation import GenerationStream

_UNITS = {"": 1, "B": 1, "KIB": KIB, "MIB": MIB, "GIB": GIB, "KB": 10**3, "MB": 10**6, "GB": 10**9}


def load(
    path: str | os.PathLike[str],
    threads: int | None = None,
    context: int | None = None,
    memory: int | str | None = None,
    deterministic: bool = False,
    cache_type: str = "F16",
    lora: Sequence[Entry] = (),
) -> Model:
    """Load a model file.

    Args:
        path: a GGUF file (any shard of a set), or `default` for the default model, which is fetched at first use.
        threads: processor threads; default: the physical cores that this process may use.
        context: positions of a session; default: those the model was trained with, fewer where half of the free memory
            (of what `memory` leaves beside the weights, if that is less) does not hold their cache.
        memory: most bytes for the weights and the cache and activations of one session, as a number or as text like
            `2GiB`; default: no bound. Sessions side by side have it each.
        deterministic: ask for the same logits whatever the batch and the number of threads; every kernel here already
            gives them, so this changes nothing yet.
        cache_type: tensor type of the keys and values that a session keeps: `F16`, `F32`, or `Q8_0` and `Q4_0` in
            about a half and a quarter of the memory of F16.
        lora: low-rank adapters, each a path (llama.cpp's GGUF layout, or a folder of PEFT's), or a pair of a path and
            a number that its scale is multiplied by. What they add to the model's products adds up.

    Raises:
        FormatError, ModelError, UnsupportedError: the file is not a model that this package runs, or an adapter does
            not fit it.
        MemoryBudgetError: the memory does not suffice.
    """
    from .pull import resolve

    del deterministic
    file = gguf.open(resolve(os.fspath(path)))
    try:
        return Model(check(file), threads, context, parse_memory(memory), cache_type, lora)
    except BaseException:
        file.close()
        raise


def load_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """Load the tokenizer of a model file; reads metadata only."""
    from ..tokenizer import from_metadata
    from .pull import resolve

    with gguf.open(resolve(os.fspath(path))) as file:
        return from_metadata(file.metadata)


def parse_memory(value: int | str | None) -> int | None:
    """Return bytes: a number as it is, text as number and unit (B, KiB, MiB, GiB, kB, MB, GB).

    Raises:
        ParameterError: neither.
    """
    if value is None:
        return None
    if isinstance(value, str):
        text = value.strip()
        number = text.rstrip("BKMGIbkmgi ")
        unit = text[len(number) :].strip().upper()
        try:
            value = int(float(number) * _UNITS[unit])
        except (ValueError, KeyError, OverflowError):
            value = -1
    if value <= 0:
        raise ParameterError(
            "not an amount of memory", where="memory", expected="bytes, or text like 2GiB", found=value
        )
    return value


class Model:
    """A model ready to answer. Sessions, and calls from several threads, may go on side by side."""

    def __init__(
        self,
        model: ModelFile,
        threads: int | None = None,
        context: int | None = None,
        memory: int | None = None,
        cache_type: str = "F16",
        lora: Sequence[Entry] = (),
    ) -> None:
        """Check the sizes and build the first session, so that what cannot work fails here."""
        if threads is not None and not 1 <= threads <= MAX_THREADS:
            raise ParameterError(
                "wrong number of threads", where="threads", expected=f"1 to {MAX_THREADS}", found=threads
            )
        trained = model.config.context
        if context is not None and not 1 <= context <= trained:
            raise ParameterError(
                "wrong context", where="context", expected=f"1 to {trained} (as trained)", found=context
            )
        cache_type = cache_type.upper()
        if cache_type not in CACHE_TYPES:
            raise ParameterError(
                "wrong type", where="cache_type", expected=", ".join(CACHE_TYPES), found=repr(cache_type)
            )
        if lora:
            model = replace(model, adapters=open_adapters(lora, model))
        self.file = model
        self._threads = team(threads or default_threads())
        self._options = SessionOptions(context or default_context(model, memory, cache_type), memory, cache_type)
        self._idle: list[Session] = []
        self._lock = threading.Lock()
        self._idle.append(self.session())

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        config = self.file.config
        return f"<Model {config.architecture}, {config.blocks} blocks, context {self.context}: {self.path}>"

    def close(self) -> None:
        """Let the file go; sessions and arrays that still use it keep it open."""
        self._idle.clear()
        self.file.file.close()

    @property
    def path(self) -> Path:
        """Where the model came from."""
        return Path(self.file.file.path)

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The file's metadata."""
        return self.file.file.metadata

    @property
    def context(self) -> int:
        """Positions of a session."""
        return self._options.context

    @property
    def threads(self) -> int:
        """Processor threads."""
        return self._threads.size

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The file's tokenizer."""
        from ..tokenizer import from_metadata

        return from_metadata(self.file.file.metadata)

    @cached_property
    def template(self) -> ChatTemplate | None:
        """The file's chat template, or None."""
        from ..chat.template import ChatTemplate

        if "tokenizer.chat_template" not in self.metadata:
            return None
        return ChatTemplate.from_metadata(self.metadata)

    def require_template(self) -> ChatTemplate:
        """Return the chat template.

        Raises:
            UnsupportedError: there is none.
        """
        from ..chat.template import ChatTemplate

        return self.template or ChatTemplate.from_metadata(self.metadata)

    def session(self) -> Session:
        """Start a sequence of its own."""
        with kernel_progress() as progress:
            return Session(self.file, self._options, self._threads, progress)

    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        max_tokens: int | None = None,
        stop: str | Sequence[str] = (),
        cancel: threading.Event | None = None,
        logprobs: int | None = None,
        echo: bool = False,
        n: int = 1,
        best_of: int | None = None,
        **sampling: Unpack[SamplingOptions],
    ) -> GenerationStream:
        """Continue a text (or token ids); iterate over the result for its pieces as they come.

        Args:
            prompt: text (special tokens are read as such, and the model's own start token is added) or ids as they are.
            max_tokens: most new tokens; 0 evaluates the prompt alone; default: until the model ends or the context is
                full.
            stop: texts that end the answer and are not part of it.
            cancel: set it to end the answer.
            logprobs: report each token's log-probability under the model's own distribution, and those of so many of
                the likeliest tokens.
            echo: begin the answer with the prompt, and report the log-probabilities of its tokens too.
            n: how many answers; the prompt is evaluated once.
            best_of: how many to draw; the `n` of the highest mean log-probability are given.
            sampling: how tokens are chosen: the fields of `sampling.SamplingParams` (temperature, top_k, top_p, min_p,
                seed, repeat_penalty …). What is not given is as the file's `general.sampling.*` keys say, else as
                documented there: by default the likeliest token is taken.

        Raises:
            ContextError: prompt and new tokens do not fit the context.
            ParameterError: a parameter is unknown or out of its range.
        """
        from ..sampling.params import SamplingParams
        from .breakers import text_breakers
        from .generation import GenerationStream, Request

        tokenizer = self.tokenizer
        ids = tokenizer.encode(prompt, special="parse", insert="model") if isinstance(prompt, str) else list(prompt)
        params = SamplingParams.from_metadata(self.metadata, **sampling)
        params.check_ids(len(tokenizer))
        dry = params.dry_multiplier > 0 and params.dry_sequence_breakers
        request = Request(
            stops=stop,
            max_tokens=max_tokens,
            logprobs=logprobs,
            echo=(prompt if isinstance(prompt, str) else tokenizer.decode(ids)) if echo else None,
            n=n,
            best_of=best_of,
            cancel=cancel,
            breakers=text_breakers(tokenizer, params.dry_sequence_breakers) if dry else None,
        )
        # What is reported for the prompt's tokens must be evaluated.
        lease = _Lease(self, reuse=not (echo and logprobs is not None))
        return GenerationStream(lease, tokenizer, ids, params, request)

    def chat_stream(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> GenerationStream:
        """Answer a conversation; iterate over the result for the pieces. Options are those of `generate`.

        Raises:
            UnsupportedError: the file has no chat template.
            TemplateError: the template rejects the conversation.
        """
        template, tokenizer = self.require_template(), self.tokenizer
        text = template.render(
            list(messages),
            bos_token=_spelling(tokenizer, tokenizer.bos_id),
            eos_token=_spelling(tokenizer, tokenizer.eos_id),
        )
        return self.generate(text, **options)

    def chat(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> Generation:
        """Answer a conversation and return the whole reply. Options are those of `generate`."""
        stream = self.chat_stream(messages, **options)
        for _ in stream:
            pass
        return stream.result

    def take(self, ids: Sequence[int]) -> Session:
        """Lend an idle session, the one that shares the longest beginning with `ids`, rewound to it."""
        with self._lock:
            best = max(self._idle, key=lambda session: _shared(session.ids, ids), default=None)
            if best is not None:
                self._idle.remove(best)
        session = best or self.session()
        # The last token is always evaluated: its logits are wanted.
        session.rewind(min(_shared(session.ids, ids), len(ids) - 1))
        return session

    def give_back(self, session: Session) -> None:
        """Take a lent session back for the next call; the one idle for longest goes if there are too many."""
        with self._lock:
            self._idle.append(session)
            del self._idle[:-IDLE_SESSIONS]


class _Lease:
    """An evaluator for one generation: borrows a session when the prompt comes, skips what that session already
    holds."""

    def __init__(self, model: Model, reuse: bool) -> None:
        self._model = model
        self._reuse = reuse
        self._session: Session | None = None
        self.context = model.context

    @property
    def position(self) -> int:
        """Tokens evaluated so far."""
        return self._session.position if self._session else 0

    def evaluate(self, ids: Sequence[int], logits: Literal["last", "all"] = "last") -> Any:
        """Append tokens; return the logits behind the last, or behind each."""
        if self._session is None:
            self._session = self._model.take(ids)
            if not self._reuse:
                self._session.rewind(0)
            ids = ids[self._session.position :]
        return self._session.evaluate(ids, logits)

    def rewind(self, position: int) -> int:
        """Go back; return the position reached."""
        assert self._session is not None
        return self._session.rewind(position)

    def close(self) -> None:
        """Return the session."""
        session, self._session = self._session, None
        if session is not None:
            self._model.give_back(session)


def default_context(model: ModelFile, memory: int | None, cache_type: str) -> int:
    """Return the trained context, or fewer positions where half of the free memory, or of what a budget leaves beside
    the weights, does not hold their cache."""
    import psutil

    config, free = model.config, psutil.virtual_memory().available
    room = free if memory is None else min(free, memory - model.nbytes - model.adapter_bytes)
    attending = sum(not config.is_recurrent(block) for block in range(config.blocks))
    kind = gguf.tensor_type(cache_type)
    per_position = attending * config.key_heads * (kind.size(config.key_size) + kind.size(config.value_size))
    return max(1, min(config.context, int(room) // 2 // max(1, per_position)))


def _shared(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the common beginning."""
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count


def _spelling(tokenizer: Tokenizer, token: int | None) -> str:
    return "" if token is None else tokenizer.token_bytes(token).decode("utf-8", "replace")
