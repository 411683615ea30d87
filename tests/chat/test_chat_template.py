"""Rendering: the functions and shapes that published templates count on, and agreement with stock Jinja.

The templates here are written for the tests. Stock Jinja, set up as Hugging Face's library documents it, is the oracle.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from prism_inference import gguf
from prism_inference.chat import ChatTemplate, template
from prism_inference.errors import MetadataError, ParameterError, TemplateError, TemplateLimitError, UnsupportedError
from prism_inference.limits import TEMPLATE_MAX_BYTES

Message = dict[str, Any]

USER: Message = {"role": "user", "content": "Hello"}
CHATML = """\
{%- for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
# Tools as lines of JSON, calls and results in tags, thoughts cut from past answers: the manner of Qwen3's template.
TOOLS = """\
{%- if tools %}
{{- '<tools>' }}
{%- for tool in tools %}{{ '\\n' }}{{ tool | tojson }}{% endfor %}
{{- '\\n</tools>\\n' }}
{%- endif %}
{%- set ns = namespace(last=messages|length - 1) %}
{%- for message in messages[::-1] if message.role == 'user' %}{% set ns.last = loop.index0 %}{% endfor %}
{{- ns.last }}
{%- for message in messages %}
{%- set content = message.content if message.content is string else '' %}
{%- if '</think>' in content %}{% set content = (content.split('</think>')|last).lstrip('\\n') %}{% endif %}
{{- '[' ~ message.role ~ '] ' ~ content }}
{%- for call in message.tool_calls or [] %}
{%- set call = call.function if call.function is defined else call %}
{{- '<call>{"name": "' + call.name + '", "arguments": ' }}
{%- if call.arguments is string %}{{ call.arguments }}{% else %}{{ call.arguments | tojson }}{% endif %}
{{- '}</call>' }}
{%- endfor %}
{{- '\\n' }}
{%- endfor %}
"""
# Strict alternation, an optional system message: the manner of Mistral's and Gemma's templates.
STRICT = """\
{{ bos_token }}
{%- if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% else %}{% set rest = messages %}{% endif %}
{%- for message in rest %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('roles must alternate') }}
    {%- endif %}
    {%- if message['role'] == 'user' %}{{ '[INST] ' + message['content']|trim + ' [/INST]' }}
    {%- else %}{{ ' ' + message['content'] + eos_token }}{% endif %}
{%- endfor %}
"""
# Parts or text, macros, joins: the manner of Llama 3's and Gemma 3's templates.
PARTS = """\
{% macro write(content) %}
    {%- if content is string %}{{ content }}
    {%- else %}{% for part in content %}{{ part['text'] | trim }}{% if not loop.last %}|{% endif %}{% endfor %}
    {%- endif %}
{%- endmacro %}
{%- set names = messages | map(attribute='role') | unique | list %}
{{- names | join(', ') | upper }}
{% for message in messages %}
{{ "%-10s" | format(message.role) }}: {{ write(message.content) }}
{% if loop.index > 4 %}{% break %}{% endif %}
{% endfor %}
{{- {'b': 2, 'a': [1, none, true]} | dictsort }} {{ '{}-{}'.format(1, 'x') }} {{ [3, 1, 2] | sort | first }}
{{- messages | selectattr('role', 'equalto', 'user') | list | length }}
"""
FUNCTION = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "<b>&'ß\"",
        "parameters": {"type": "object", "properties": {"z": {"type": "string"}, "a": {"type": "integer"}}},
    },
}
CONVERSATIONS: dict[str, list[Message]] = {
    "one": [USER],
    "system": [
        {"role": "system", "content": "Be brief."},
        USER,
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHi"},
        {"role": "user", "content": "  Go on ÄÖ 😀 \n"},
    ],
    "tools": [
        USER,
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "weather", "arguments": {"z": "ß", "a": 1}}}],
        },
        {"role": "tool", "name": "weather", "content": "42"},
        {"role": "user", "content": "Thanks"},
    ],
}


def stock_jinja(source: str) -> Callable[..., str]:
    """Render as Hugging Face's library does, by Jinja alone."""

    def tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)

    def refuse(message: str) -> None:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda pattern: datetime.now().strftime(pattern)
    return environment.from_string(source).render


def agree(source: str, messages: list[Message], tools: list[Any] | None) -> None:
    values: dict[str, Any] = {"tools": tools, "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": True}
    try:
        expected: str | None = stock_jinja(source)(messages=messages, **values)
    except TemplateError as error:
        expected = None
        reason = error.problem
    if expected is None:
        with pytest.raises(TemplateError, match=re.escape(reason)):
            ChatTemplate(source).render(messages, **values)
    else:
        assert ChatTemplate(source).render(messages, **values) == expected


@pytest.mark.parametrize("tools", [None, [FUNCTION]], ids=["no tools", "tools"])
@pytest.mark.parametrize("conversation", CONVERSATIONS)
@pytest.mark.parametrize("source", [CHATML, TOOLS, STRICT, PARTS], ids=["chatml", "tools", "strict", "parts"])
def test_agrees_with_stock_jinja(source: str, conversation: str, tools: list[Any] | None) -> None:
    agree(source, CONVERSATIONS[conversation], tools)


@pytest.mark.parametrize("name", ["gemma-4", "phi-3", "qwen2", "qwen35", "command-r"])
@pytest.mark.parametrize("conversation", ["one", "system"])
def test_agrees_with_stock_jinja_on_published_templates(shared: Path, name: str, conversation: str) -> None:
    with gguf.open(shared / "golden" / "vocabs" / f"ggml-vocab-{name}.gguf") as file:
        source = file.metadata["tokenizer.chat_template"]
    agree(source, CONVERSATIONS[conversation], None)


def test_chatml_word_for_word() -> None:
    expected = "<|im_start|>system\nBe\n<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    messages = [{"role": "system", "content": "Be\n"}, USER]
    assert ChatTemplate(CHATML).render(messages) == expected
    assert (
        ChatTemplate(CHATML).render(messages, add_generation_prompt=False)
        == expected[: -len("<|im_start|>assistant\n")]
    )


# --- Cases from public bug reports; the numbers are those of the collection that the project keeps --------------------


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        # C02: null is "" to a template that does not ask ...
        ("{% for m in messages %}{{ '<' + m.content + '>' }}{% endfor %}", "<><Hello>"),
        ("{% for m in messages %}<{{ m['content'] }}>{% endfor %}", "<><Hello>"),
        ("{% for m in messages %}<{{ m.content | trim }}>{% endfor %}", "<><Hello>"),
        # ... and null to one that does ...
        (
            "{% for m in messages %}{% if m.content is none %}-{% else %}<{{ m.content }}>{% endif %}{% endfor %}",
            "-<Hello>",
        ),
        ("{% for m in messages %}{{ '-' if m['content'] == none else m['content'] }}{% endfor %}", "-Hello"),
        # ... unless it stumbles over it elsewhere.
        (
            "{% for m in messages %}{% if m.content is not none and 0 %}{% endif %}{{ m.content + '.' }}{% endfor %}",
            ".Hello.",
        ),
    ],
)
def test_c02_content_null(source: str, expected: str) -> None:
    assert ChatTemplate(source).render([{"role": "assistant", "content": None}, USER]) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ call.arguments | tojson }}", '{"q": "ß", "a": 1}'),
        ("{{ call.arguments }}", '{"q":"ß","a":1}'),
        ("{{ 'x' + call.arguments + 'y' }}", 'x{"q":"ß","a":1}y'),
        ("{{ call.arguments ~ '' }}", '{"q":"ß","a":1}'),
        ("{{ call.arguments | string }}", '{"q":"ß","a":1}'),
        ("{{ '%s' % call.arguments }}", '{"q":"ß","a":1}'),
        ("{% for key, value in call.arguments | items %}{{ key }}={{ value }};{% endfor %}", "q=ß;a=1;"),
        ("{% for key in call.arguments %}{{ key }}={{ call.arguments[key] }};{% endfor %}", "q=ß;a=1;"),
        ("{{ call.arguments if call.arguments is string else call.arguments | tojson }}", '{"q": "ß", "a": 1}'),
    ],
)
def test_c03_arguments_as_text_suit_every_template(source: str, expected: str) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"q":"ß","a":1}'}}
    source = f"{{% set call = messages[1].tool_calls[0].function %}}{source}"
    assert ChatTemplate(source).render([USER, {"role": "assistant", "tool_calls": [call]}]) == expected


def test_c01_a_tool_round_trip_with_nulls() -> None:
    call = {"type": "function", "id": "1", "function": {"name": "f", "arguments": '{"q": "x"}'}}
    messages = [
        {**USER, "tool_calls": None, "name": None},
        {"role": "assistant", "content": "", "reasoning_content": "r", "tool_calls": [call]},
        {"role": "tool", "content": "42", "tool_call_id": "1", "tool_calls": None},
        USER,
    ]
    expected = (
        '1[user] Hello\n[assistant] <call>{"name": "f", "arguments": {"q": "x"}}</call>\n[tool] 42\n[user] Hello\n'
    )
    assert ChatTemplate(TOOLS).render(messages) == expected
    source = "{% for m in messages %}{% if m.tool_calls is defined %}{{ m.tool_calls | length }}{% endif %}{% endfor %}"
    assert ChatTemplate(source).render(messages) == "1"


def test_c05_a_refused_conversation_gives_the_templates_message_and_no_prompt() -> None:
    with pytest.raises(TemplateError) as caught:
        ChatTemplate(STRICT).render([USER, USER])
    assert caught.value.problem == "roles must alternate"


def test_c07_json_without_escapes() -> None:
    text = ChatTemplate(TOOLS).render([USER], tools=[FUNCTION])
    assert '"description": "<b>&\'ß\\""' in text
    assert text.index('"z"') < text.index('"a"'), "keys in their order"
    source = "{{ messages[0] | tojson(ensure_ascii=true, indent=2) }}"
    assert ChatTemplate(source).render([{"role": "user", "content": "ß"}]) == (
        '{\n  "role": "user",\n  "content": "\\u00df"\n}'
    )
    source = "{{ messages[0] | tojson(separators=(',', ':'), sort_keys=true) }}"
    assert ChatTemplate(source).render([USER]) == '{"content":"Hello","role":"user"}'


def test_c08_generation_tags_are_ignored() -> None:
    source = "{% for m in messages %}{% generation %}{{ m.content }}{% set x = 1 %}{% endgeneration %}!{% endfor %}"
    assert ChatTemplate(source).render([USER, USER]) == "Hello!Hello!"


def test_c09_python_methods_of_text() -> None:
    source = "{{ (messages[0].content.split('</think>')|last).lstrip('\\n') }}"
    assert ChatTemplate(source).render([{"role": "user", "content": "a</think>\n\nb"}]) == "b"


# --- The rest of what templates count on ------------------------------------------------------------------------------


def test_lists_and_mappings_may_be_changed_and_the_callers_stay() -> None:
    source = """\
{%- set ns = namespace(ids=[]) %}
{%- for m in messages %}{% set _ = ns.ids.append(m.role) %}{% set _ = m.update({'content': 'x'}) %}{% endfor %}
{{- ns.ids.pop(0) }} {{ ns.ids }} {{ messages[0].content }} {{ options.pop('a') }}"""
    messages = [USER, {"role": "assistant", "content": "Hi"}]
    options = {"a": 1}
    assert ChatTemplate(source).render(messages, options=options) == "user ['assistant'] x 1"
    assert messages[0]["content"] == "Hello"
    assert options == {"a": 1}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ messages[0].content }}", "one\ntwo"),
        ("{% for part in messages[0].content %}[{{ part.text }}]{% endfor %}", "[one][two]"),
        (
            "{% set content = messages[0].content %}"
            "{% if content is string %}-{% else %}{% for p in content %}{{ p.text }}{% endfor %}{% endif %}",
            "onetwo",
        ),
    ],
)
def test_parts_come_in_the_shape_that_the_template_looks_for(source: str, expected: str) -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert ChatTemplate(source).render([{"role": "user", "content": parts}]) == expected


def test_text_becomes_a_part_for_a_template_that_knows_only_parts() -> None:
    source = "{% for part in messages[0].content %}{% if part.type == 'text' %}[{{ part.text }}]{% endif %}{% endfor %}"
    assert ChatTemplate(source).render([USER]) == "[Hello]"


def test_variables_reach_the_template() -> None:
    source = "{{ enable_thinking }} {{ effort | default('none') }} {{ bos_token }}{{ eos_token }} {{ tools is none }}"
    rendered = ChatTemplate(source).render([USER], bos_token="<s>", eos_token="</s>", enable_thinking=False, tools=[])
    assert rendered == "False none <s></s> True"
    with pytest.raises(ParameterError, match=r"variables\.f"):
        ChatTemplate(source).render([USER], f=print)


def test_strftime_now() -> None:
    before = datetime.now().strftime("%Y-%m-%d")
    rendered = ChatTemplate("{{ strftime_now('%Y-%m-%d') }}").render([USER])
    assert rendered in (before, datetime.now().strftime("%Y-%m-%d"))


def test_from_metadata() -> None:
    assert ChatTemplate.from_metadata({"tokenizer.chat_template": CHATML}).source == CHATML
    with pytest.raises(UnsupportedError) as caught:
        ChatTemplate.from_metadata({"general.name": "x"})
    assert "generate" in str(caught.value.hint)
    assert "--template" in str(caught.value.hint)
    with pytest.raises(MetadataError, match="chat_template"):
        ChatTemplate.from_metadata({"tokenizer.chat_template": 7})


def test_a_broken_template_fails_at_rendering_with_the_line() -> None:
    broken = ChatTemplate("{{ 1 }}\n{% if %}")
    with pytest.raises(TemplateError, match="line 2"):
        broken.render([USER])


@pytest.mark.parametrize("source", [None, 3, b"x"])
def test_the_source_must_be_text(source: Any) -> None:
    with pytest.raises(ParameterError):
        ChatTemplate(source)


def test_the_source_has_a_limit() -> None:
    assert ChatTemplate("ß" * (TEMPLATE_MAX_BYTES // 2)).source
    with pytest.raises(TemplateLimitError, match="TEMPLATE_MAX_BYTES"):
        ChatTemplate("ß" * (TEMPLATE_MAX_BYTES // 2) + "x")


def test_a_template_is_compiled_once() -> None:
    template._compile.cache_clear()
    for _ in range(3):
        ChatTemplate(CHATML).render([USER])
    assert template._compile.cache_info().misses == 1


def test_threads_render_side_by_side() -> None:
    source = "{% for i in range(300) %}{{ messages[0].content }}{% endfor %}"
    results: dict[int, str] = {}

    def render(number: int) -> None:
        results[number] = ChatTemplate(source).render([{"role": "user", "content": str(number)}])

    threads = [threading.Thread(target=render, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: str(number) * 300 for number in range(8)}


def test_the_package_does_not_import_jinja() -> None:
    import subprocess

    code = "import sys, prism_inference.chat; sys.exit('jinja2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
