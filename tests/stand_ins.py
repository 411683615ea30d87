"""Stand-ins: an evaluator with a queue of answers, a tokenizer of bytes, and a model made of both."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Any

import numpy as np

from prism_inference.chat import ChatTemplate
from prism_inference.runtime.generation import GenerationStream, Request
from prism_inference.sampling import SamplingParams

END = 256
VOCABULARY = 257
TEMPLATE = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]"


class Bytes:
    """A tokenizer whose ids are bytes, and one more that ends."""

    end_ids = frozenset({END})

    def encode(self, text: str, special: str = "literal", insert: str = "none") -> list[int]:
        """UTF-8, before which `insert="model"` puts id 0; `special="parse"` reads `<end>` as the end."""
        start = [0] if insert == "model" else []
        parts = text.split("<end>") if special == "parse" else [text]
        ids = [token for part in parts for token in [*part.encode(), END]]
        return start + ids[:-1]

    def token_bytes(self, token: int) -> bytes:
        return bytes([token]) if token < END else b"<end>"

    def stream(self, *, previous: int | None = None) -> Bytes.Stream:
        return Bytes.Stream()

    class Stream:
        def __init__(self) -> None:
            self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

        def push(self, token: int) -> str:
            return self._decoder.decode(bytes([token]))

        def flush(self) -> str:
            return self._decoder.decode(b"", final=True)


class Queue:
    """An evaluator that wants the queued tokens, one after the other, and notes what it was given."""

    def __init__(self, reply: Sequence[int], context: int = 1_000, position: int = 0) -> None:
        self.reply = list(reply)
        self.context = context
        self.position = position
        self.calls: list[list[int]] = []
        self.rewound: list[int] = []
        self.closed = 0

    def evaluate(self, ids: Sequence[int], logits: str = "last") -> np.ndarray:
        self.calls.append(list(ids))
        self.position += len(ids)
        rows = np.zeros((len(ids), VOCABULARY), dtype=np.float32)
        rows[-1, self.reply.pop(0)] = 1
        return rows if logits == "all" else rows[-1]

    def rewind(self, position: int) -> int:
        self.rewound.append(position)
        self.position = position
        return position

    def close(self) -> None:
        self.closed += 1


class StandInModel:
    """Answers with the queued replies; notes the prompts and options that it was given."""

    def __init__(self) -> None:
        self.replies: list[str] = ["Hello!"]
        self.loaded: tuple[Any, dict[str, Any]] | None = None
        self.prompts: list[str] = []
        self.options: list[dict[str, Any]] = []
        self.evaluators: list[Queue] = []
        self.tokenizer = Bytes()
        self.metadata: dict[str, Any] = {"tokenizer.chat_template": TEMPLATE}
        self.template: ChatTemplate | None = ChatTemplate(TEMPLATE)
        self.context = 1_000
        self.closed = False

    def load(self, path: Any, **options: Any) -> StandInModel:
        self.loaded = (path, options)
        return self

    def __enter__(self) -> StandInModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True

    def generate(
        self, prompt: str, *, max_tokens: int | None = None, stop: Sequence[str] = (), **options: Any
    ) -> GenerationStream:
        self.prompts.append(prompt)
        self.options.append({"max_tokens": max_tokens, "stop": stop, **options})
        wanted = {name: options.pop(name) for name in ("n", "best_of", "logprobs") if name in options}
        echo = prompt if options.pop("echo", False) else None
        request = Request(stop, max_tokens, echo=echo, **wanted)
        replies = [self.replies.pop(0) for _ in range(request.best_of or request.n)]
        # The first token of every answer is drawn from the same logits, those behind the prompt.
        rest = [token for reply in replies for token in [*reply.encode()[1:], END]]
        queue = Queue([*[*replies[0].encode(), END][:1], *rest], self.context)
        self.evaluators.append(queue)
        params = SamplingParams(**options)
        return GenerationStream(queue, self.tokenizer, prompt.encode(), params, request)

    def chat_stream(self, messages: Sequence[dict[str, Any]], **options: Any) -> GenerationStream:
        return self.generate(self.require_template().render(messages), **options)

    def require_template(self) -> ChatTemplate:
        return self.template or ChatTemplate.from_metadata({})
