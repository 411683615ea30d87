"""Messages: what is refused and where, and the shapes in which content and tool calls reach a template."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prism_inference.chat.messages import Arguments, copy_messages, copy_plain, joined_text
from prism_inference.errors import LimitError, ParameterError, PrismError, UnsupportedError
from prism_inference.limits import CHAT_MAX_DEPTH

USER = {"role": "user", "content": "hi"}


def called(arguments: Any) -> dict[str, Any]:
    function = {"name": "f", "arguments": arguments}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": function}]}


REFUSED: list[tuple[Any, type[PrismError], str]] = [
    ([], ParameterError, "messages"),
    ("hi", ParameterError, "messages"),
    ({"role": "user"}, ParameterError, "messages"),
    (["hi"], ParameterError, "messages[0]"),
    ([USER, {"content": "x"}], ParameterError, "messages[1].role"),
    ([{"role": "", "content": "x"}], ParameterError, "messages[0].role"),
    ([{"role": 3, "content": "x"}], ParameterError, "messages[0].role"),
    ([{"role": "user"}], ParameterError, "messages[0].content"),
    ([{"role": "user", "content": 3}], ParameterError, "messages[0].content"),
    ([{"role": "user", "content": ["x"]}], ParameterError, "messages[0].content[0]"),
    ([{"role": "user", "content": [{"type": "text"}]}], ParameterError, "messages[0].content[0].text"),
    (
        [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}],
        UnsupportedError,
        "messages[0].content[0]",
    ),
    ([{"role": "user", "content": [{"text": "x"}]}], UnsupportedError, "messages[0].content[0]"),
    ([{"role": "user", "content": "x", "extra": {1: 2}}], ParameterError, "messages[0].extra"),
    ([{"role": "user", "content": "x", "extra": {"a": [object()]}}], ParameterError, "messages[0].extra.a[0]"),
    ([{"role": "assistant", "tool_calls": "f"}], ParameterError, "messages[0].tool_calls"),
    ([{"role": "assistant", "tool_calls": ["f"]}], ParameterError, "messages[0].tool_calls[0]"),
]
assert REFUSED


@pytest.mark.parametrize(("messages", "kind", "where"), REFUSED)
def test_refuses_with_the_address(messages: Any, kind: type[PrismError], where: str) -> None:
    with pytest.raises(kind) as caught:
        copy_messages(messages)
    assert caught.value.where == where


def test_refuses_deep_nesting() -> None:
    value: Any = "x"
    for _ in range(CHAT_MAX_DEPTH + 1):
        value = [value]
    with pytest.raises(LimitError, match="CHAT_MAX_DEPTH"):
        copy_plain(value, "tools")
    assert copy_plain(value[0], "tools") == value[0]


def test_copies_all_the_way_down() -> None:
    original = [{**USER, "extra": {"list": [1, {"deep": True}]}}]
    kept = json.dumps(original)
    copied = copy_messages(original)
    assert copied == original
    copied[0]["extra"]["list"][1]["deep"] = False
    copied[0]["extra"]["list"].append(2)
    assert json.dumps(original) == kept


def test_keys_that_hold_none_count_as_not_sent_but_content_is_always_there() -> None:
    assert copy_messages([{**USER, "name": None, "tool_calls": None}]) == [USER]
    without = called("{}")
    del without["content"]
    assert copy_messages([without])[0]["content"] is None
    assert copy_messages([{"role": "assistant", "content": None}])[0]["content"] is None


def test_text_parts_of_every_spelling_become_one_kind() -> None:
    parts = [{"type": kind, "text": kind} for kind in ("text", "input_text", "output_text")]
    content = copy_messages([{"role": "user", "content": parts}])[0]["content"]
    assert content == [{"type": "text", "text": text} for text in ("text", "input_text", "output_text")]
    assert joined_text(content) == "text\ninput_text\noutput_text"
    assert joined_text("as it is") == "as it is"
    assert joined_text(None) is None


def test_arguments_are_a_mapping_inside_and_their_text_outside() -> None:
    text = '{"z": "Köln",  "a": [1, 2]}'
    arguments = copy_messages([called(text)])[0]["tool_calls"][0]["function"]["arguments"]
    assert isinstance(arguments, Arguments)
    assert list(arguments.items()) == [("z", "Köln"), ("a", [1, 2])]
    assert str(arguments) == text, "as it was sent, to the space"

    sent = {"z": "Köln", "a": None}
    arguments = copy_messages([called(sent)])[0]["tool_calls"][0]["function"]["arguments"]
    assert arguments == sent
    assert str(arguments) == '{"z": "Köln", "a": null}'


@pytest.mark.parametrize("text", ["", "not json", '"text"', "[1]", "{", "[" * 100_000])
def test_arguments_that_are_no_object_stay_text(text: str) -> None:
    assert copy_messages([called(text)])[0]["tool_calls"][0]["function"]["arguments"] == text


def test_calls_in_the_flat_shape_are_passed_through_too() -> None:
    message = {"role": "assistant", "tool_calls": [{"name": "f", "arguments": {"x": 1}, "index": 0}]}
    assert copy_messages([message])[0]["tool_calls"] == message["tool_calls"]
