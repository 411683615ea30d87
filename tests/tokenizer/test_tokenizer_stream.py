"""Incremental decoding: whole characters only, and together the text of the whole."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vocabularies import CONTROL, USER_DEFINED, byte_level, random_merges, random_scored, scored

from prism_inference.errors import TokenizerError

BYTES = byte_level(random_merges(1, "ab \u00e9\U0001f600", 40), {"<c>": CONTROL, "<u>": USER_DEFINED})
SCORED = scored(random_scored(2, "ab\u2581", 40, levels=1000), {"<u>": USER_DEFINED})


@settings(deadline=None)
@given(st.sampled_from([BYTES, SCORED]), st.data(), st.booleans())
def test_stream_equals_whole(tokenizer, data, special):
    """Of any ids, also those that are no UTF-8 together."""
    ids = data.draw(st.lists(st.integers(0, len(tokenizer) - 1), max_size=30))
    stream = tokenizer.stream(special=special)
    pieces = [stream.push(token) for token in ids]
    assert "".join([*pieces, stream.flush()]) == tokenizer.decode(ids, special=special)
    assert tokenizer.decode_bytes(ids, special=special).decode(errors="replace") == tokenizer.decode(
        ids, special=special
    )


@settings(deadline=None)
@given(st.sampled_from([BYTES, SCORED]), st.text(alphabet="ab \u00e9\u6f22\U0001f600", max_size=30))
def test_no_character_is_split(tokenizer, text):
    ids = tokenizer.encode(text)
    stream = tokenizer.stream()
    shown = ""
    for token in ids:
        piece = stream.push(token)
        assert "\ufffd" not in piece
        shown += piece
        assert text.startswith(shown)
    assert stream.flush() == ""
    assert shown == text


def test_an_unfinished_character_shows_at_the_end_only():
    stream = BYTES.stream()
    assert [stream.push(token) for token in (0x61, 0xF0, 0x9F, 0x98)] == ["a", "", "", ""]
    assert stream.flush() == "\ufffd"


def test_bytes_that_can_be_no_character_show_at_once():
    stream = BYTES.stream()
    assert stream.push(0xFF) == "\ufffd"
    assert stream.push(0xC3) == ""
    assert stream.push(0x61) == "\ufffda"
    assert stream.flush() == ""


def test_control_tokens_are_hidden_unless_asked_for():
    """llama.cpp#6770: a stop string can match a control token's spelling, while plain output hides it."""
    control = BYTES.id_of("<c>")
    assert BYTES.stream().push(control) == ""
    assert BYTES.stream(special=True).push(control) == "<c>"
    assert BYTES.piece(control) == "<c>"


def test_what_continues_a_text_keeps_its_space():
    tokenizer = scored({"a": -1.0, "\u2581a": -2.0})
    marked = tokenizer.vocabulary.ids["\u2581a".encode()]
    assert tokenizer.stream().push(marked) == "a"
    assert tokenizer.stream(previous=tokenizer.bos_id).push(marked) == "a"
    assert tokenizer.stream(previous=marked).push(marked) == " a"


@pytest.mark.parametrize("token", [-1, len(BYTES), 10**9])
def test_ids_outside_the_vocabulary(token):
    stream = BYTES.stream()
    assert stream.push(0xC3) == ""
    for call in (
        BYTES.token_bytes,
        BYTES.piece,
        BYTES.is_control,
        stream.push,
        lambda token: BYTES.decode([97, token]),
    ):
        with pytest.raises(TokenizerError, match="outside the vocabulary"):
            call(token)
    with pytest.raises(TokenizerError, match="outside the vocabulary"):
        BYTES.stream(previous=token)
    assert stream.push(0xA9) == "\u00e9"  # the failed push left the stream as it was
