"""A chat template: messages in, prompt text out, in a sandbox that bounds what the template can do.

Templates come with model files, so they are foreign programs. This module knows their variables and their faults; what
they may do is `sandbox`'s business.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from ..errors import MetadataError, ParameterError, PrismError, TemplateError, TemplateLimitError, UnsupportedError
from ..limits import TEMPLATE_MAX_BYTES, TEMPLATE_MAX_OUTPUT_BYTES, TEMPLATE_MAX_TOKENS
from .budget import new_budget
from .messages import Message, copy_messages, copy_plain, joined_text

if TYPE_CHECKING:
    import jinja2

    from .traits import Traits

METADATA_KEY = "tokenizer.chat_template"
COMPILED_TEMPLATES = 16  # kept at once; a process seldom serves more models


class ChatTemplate:
    """A template in Jinja's language, with the variables and functions of Hugging Face's templates.

    The source is compiled at the first rendering, so that a model with a broken template still loads.

    Attributes:
        source: the template's text.
    """

    def __init__(self, source: str) -> None:
        """Keep the source.

        Raises:
            ParameterError: not text.
            TemplateLimitError: more than TEMPLATE_MAX_BYTES.
        """
        if not isinstance(source, str):
            raise ParameterError("a chat template that is not text", found=type(source).__name__)
        size = len(source.encode("utf-8", "replace"))
        if size > TEMPLATE_MAX_BYTES:
            raise TemplateLimitError(
                "the chat template is too long",
                where="chat template",
                expected=f"at most {TEMPLATE_MAX_BYTES} bytes (TEMPLATE_MAX_BYTES)",
                found=f"{size} bytes",
            )
        self.source = source

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> ChatTemplate:
        """Take the template of a model file.

        Raises:
            UnsupportedError: the file has none.
            MetadataError: its key does not hold text.
        """
        source = metadata.get(METADATA_KEY)
        if source is None:
            raise UnsupportedError(
                "the model has no chat template",
                where=METADATA_KEY,
                hint="Continue a prompt of your own with `generate`, or give a template with `--template`.",
            )
        if not isinstance(source, str):
            raise MetadataError("wrong chat template", where=METADATA_KEY, expected="text", found=type(source).__name__)
        return cls(source)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        bos_token: str = "",
        eos_token: str = "",
        **variables: Any,
    ) -> str:
        """Write a conversation as the prompt that the model was trained on.

        Content goes to the template in the shape that it looks for: parts are joined to lines where it does not loop
        over them, and None becomes "" where it does not ask for it. What the template changes is a copy.

        Args:
            messages: mappings with `role`, `content` and others; see `chat.messages`.
            add_generation_prompt: end with the head of the assistant's answer.
            tools: JSON descriptions of functions; none is the same as an empty list.
            bos_token, eos_token: spellings of the model's tokens; some templates write them.
            variables: more variables of the template, such as `enable_thinking`; plain JSON data.

        Raises:
            TemplateError: the template rejects the conversation (the message is its own), breaks the sandbox's rules,
                or fails; there is never a part of a prompt.
            TemplateLimitError: it would take too many steps, bytes, or seconds.
            ParameterError, UnsupportedError, LimitError: messages, tools or variables are not as they should be.
        """
        values = {
            **copy_plain(variables, "variables"),
            "tools": copy_plain(tools, "tools") if tools else None,
            "add_generation_prompt": add_generation_prompt,
            "bos_token": bos_token,
            "eos_token": eos_token,
        }
        with _faults():
            template, traits = _compile(self.source)
            shaped = _shape(copy_messages(messages), traits)
            if traits.knows_none and any(message["content"] is None for message in shaped):
                # It asks for None in one place and may still stumble over it in another.
                with suppress(_Failure), _failures():
                    return _run(template, {**copy_plain(values, "variables"), "messages": shaped})
                shaped = _shape(copy_messages(messages), traits)
            for message in shaped:
                if message["content"] is None:
                    message["content"] = ""
            return _run(template, {**values, "messages": shaped})


class _Failure(Exception):
    """A template failed, as opposed to rejecting the conversation."""


@contextmanager
def _failures() -> Iterator[None]:
    """Turn whatever a foreign program may raise, except our own errors, into one exception."""
    try:
        yield
    except PrismError:
        raise
    except Exception as error:
        raise _Failure from error


@contextmanager
def _faults() -> Iterator[None]:
    """Turn failures of compiling and rendering into `TemplateError`."""
    try:
        with _failures():
            yield
    except _Failure as failure:
        raise _template_error(failure.__cause__) from failure.__cause__


def _template_error(error: BaseException | None) -> TemplateError:
    from jinja2.exceptions import SecurityError, TemplateSyntaxError

    where = "chat template"
    if isinstance(error, TemplateSyntaxError):
        return TemplateError(
            "the chat template does not parse", where=f"{where}, line {error.lineno}", found=error.message
        )
    if isinstance(error, SecurityError):
        return TemplateError("the chat template does what the sandbox forbids", where=where, found=str(error))
    return TemplateError("the chat template fails", where=where, found=f"{type(error).__name__}: {error}")


@lru_cache(maxsize=COMPILED_TEMPLATES)
def _compile(source: str) -> tuple[jinja2.Template, Traits]:
    from jinja2 import Template

    from .sandbox import bounded, environment
    from .traits import read_traits

    sandbox = environment()
    if any(True for _ in islice(sandbox.lex(source), TEMPLATE_MAX_TOKENS, None)):
        raise TemplateLimitError(
            "the chat template is too long to compile",
            where="chat template",
            expected=f"at most {TEMPLATE_MAX_TOKENS} tokens of its language (TEMPLATE_MAX_TOKENS)",
        )
    tree = sandbox.parse(source)
    traits = read_traits(tree)
    with new_budget():  # constants are computed while compiling
        code = sandbox.compile(bounded(tree), filename="<chat template>")
    return Template.from_code(sandbox, code, sandbox.make_globals(None)), traits


def _shape(messages: list[Message], traits: Traits) -> list[Message]:
    """Give every message's content the shape that the template looks for; None stays."""
    for message in messages:
        content = message["content"]
        if traits.only_parts and isinstance(content, str):
            message["content"] = [{"type": "text", "text": content}]
        elif not traits.knows_parts:
            message["content"] = joined_text(content)
    return messages


def _run(template: jinja2.Template, values: dict[str, Any]) -> str:
    pieces: list[str] = []
    size = 0
    with new_budget(len(values["messages"])):
        for piece in template.generate(values):
            size += len(piece.encode("utf-8", "surrogatepass"))
            if size > TEMPLATE_MAX_OUTPUT_BYTES:
                raise TemplateLimitError(
                    "the prompt that the chat template writes is too long",
                    where="chat template",
                    expected=f"at most {TEMPLATE_MAX_OUTPUT_BYTES} bytes (TEMPLATE_MAX_OUTPUT_BYTES)",
                )
            pieces.append(piece)
    return "".join(pieces)
