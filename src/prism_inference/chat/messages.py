"""Messages as plain data: checked, copied, and brought into the shapes that templates expect.

Takes the OpenAI shape: mappings with `role`, `content` (text, None, or a list of text parts), `tool_calls` and other
keys, which are passed through. Knows nothing of how a template writes them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..errors import LimitError, ParameterError, UnsupportedError
from ..limits import CHAT_MAX_DEPTH

Message = dict[str, Any]

# Names under which clients send a part that is text; templates know the first.
_TEXT_PARTS: Final = ("text", "input_text", "output_text")


class Arguments(dict[str, Any]):
    """A tool call's arguments: a mapping to templates that look inside, its JSON text to those that print it.

    Clients send the arguments as JSON text, templates want either form, and few accept both.
    """

    def __init__(self, value: Mapping[str, Any], text: str | None = None) -> None:
        """Keep the text as it was sent, or write it where the arguments came as a mapping."""
        super().__init__(value)
        self.text = json.dumps(value, ensure_ascii=False) if text is None else text

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


def copy_messages(messages: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Return checked copies, which a template may change without harm to the caller's.

    Keys that hold None are left out, as if they had not been sent, except `content`, which is always there. Arguments
    of tool calls become `Arguments` wherever they are a mapping or the JSON text of one.

    Raises:
        ParameterError: not a list of messages, or a message without role or content.
        UnsupportedError: a content part that is not text.
        LimitError: the data are nested too deeply.
    """
    if isinstance(messages, str | Mapping) or not isinstance(messages, Sequence):
        raise ParameterError("not a list of messages", where="messages", found=type(messages).__name__)
    if not messages:
        raise ParameterError("no messages", where="messages", expected="at least one message")
    return [_copy_message(message, f"messages[{index}]") for index, message in enumerate(messages)]


def copy_plain(value: Any, where: str, depth: int = 0) -> Any:
    """Copy JSON-like data: mappings with text keys, sequences, text, numbers, booleans and None.

    Raises:
        ParameterError: anything else.
        LimitError: the data are nested too deeply.
    """
    if depth > CHAT_MAX_DEPTH:
        raise LimitError("nested too deeply", where=where, expected=f"at most {CHAT_MAX_DEPTH} levels (CHAT_MAX_DEPTH)")
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise ParameterError("not a text key", where=where, expected="text", found=type(key).__name__)
        return {key: copy_plain(item, f"{where}.{key}", depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [copy_plain(item, f"{where}[{index}]", depth + 1) for index, item in enumerate(value)]
    raise ParameterError("not plain data", where=where, expected="JSON values", found=type(value).__name__)


def joined_text(content: str | list[dict[str, Any]] | None) -> str | None:
    """Return the text of a message's content; parts become lines, as llama.cpp joins them."""
    return "\n".join(part["text"] for part in content) if isinstance(content, list) else content


def _copy_message(message: Mapping[str, Any], where: str) -> Message:
    if not isinstance(message, Mapping):
        raise ParameterError("not a message", where=where, expected="a mapping", found=type(message).__name__)
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise ParameterError("a message without a role", where=f"{where}.role", expected="text", found=repr(role))
    copied: Message = {
        key: value
        for key, value in copy_plain(message, where).items()
        if value is not None and key not in ("content", "tool_calls")
    }
    calls = _copy_calls(message.get("tool_calls"), f"{where}.tool_calls")
    if calls:
        copied["tool_calls"] = calls
    elif "content" not in message:
        raise ParameterError("a message without content", where=f"{where}.content", expected="text or text parts")
    copied["content"] = _copy_content(message.get("content"), f"{where}.content")
    return copied


def _copy_content(content: Any, where: str) -> str | list[dict[str, Any]] | None:
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, list | tuple):
        raise ParameterError("wrong content", where=where, expected="text or text parts", found=type(content).__name__)
    return [_copy_part(part, f"{where}[{index}]") for index, part in enumerate(content)]


def _copy_part(part: Any, where: str) -> dict[str, Any]:
    if not isinstance(part, Mapping):
        raise ParameterError("not a content part", where=where, expected="a mapping", found=type(part).__name__)
    kind = part.get("type")
    if kind not in _TEXT_PARTS:
        raise UnsupportedError("a content part that is not text", where=where, expected="type text", found=repr(kind))
    if not isinstance(part.get("text"), str):
        raise ParameterError("a text part without text", where=f"{where}.text", found=repr(part.get("text")))
    return {"type": "text", "text": part["text"]}


def _copy_calls(calls: Any, where: str) -> list[dict[str, Any]]:
    """Copy tool calls: passed through but for their arguments, which become `Arguments` where that is possible."""
    if calls is None:
        return []
    if not isinstance(calls, list | tuple):
        raise ParameterError("not a list of tool calls", where=where, expected="a list", found=type(calls).__name__)
    copied = []
    for index, call in enumerate(calls):
        if not isinstance(call, Mapping):
            raise ParameterError("not a tool call", where=f"{where}[{index}]", found=type(call).__name__)
        plain = copy_plain(call, f"{where}[{index}]")
        for holder in (plain, plain.get("function")):
            if isinstance(holder, dict) and "arguments" in holder:
                holder["arguments"] = _arguments(holder["arguments"])
        copied.append(plain)
    return copied


def _arguments(value: Any) -> Any:
    if isinstance(value, dict):
        return Arguments(value)
    if isinstance(value, str):
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            return value
        if isinstance(parsed, dict):
            return Arguments(parsed, value)
    return value
