"""The merge engine and the kinds of vocabularies against slow, obvious twins, on vocabularies built in code."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vocabularies import (
    CONTROL,
    GPT2_ASCII,
    LETTERS,
    NORMAL,
    UNKNOWN,
    UNUSED,
    USER_DEFINED,
    byte_level,
    byte_level_values,
    metadata,
    naive_byte_level,
    naive_merge,
    naive_scored,
    random_merges,
    random_scored,
    scored,
    scored_values,
    spell,
)

from prism_inference.errors import TokenizerError
from prism_inference.tokenizer import from_metadata
from prism_inference.tokenizer.merge import boundary_pattern, merge
from prism_inference.tokenizer.pretokenize import find_pretokenizer, splitter

BYTE_LEVEL = [byte_level_values(random_merges(seed, "abc '1.s\n", 60)) for seed in range(4)]
SCORED = [
    scored_values(random_scored(seed, "ab\u2581", 50, levels=4 if seed % 2 else 1000), add_space_prefix=False)
    for seed in range(6)
]
TOKENIZERS = {id(values): from_metadata(metadata(values)) for values in BYTE_LEVEL + SCORED}
texts = st.text(alphabet="abc '1.s\n", max_size=40)
marked = st.text(alphabet="aabb  \u00e9\U0001f600", max_size=40)
any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@settings(deadline=None)
@given(st.sampled_from(BYTE_LEVEL), texts)
def test_byte_level_equals_the_twin(values, text):
    assert TOKENIZERS[id(values)].encode(text) == naive_byte_level(text, values)


@settings(deadline=None)
@given(texts)
def test_pieces_equal_the_published_pattern(text):
    assert list(splitter(find_pretokenizer("gpt-2").patterns)(text)) == GPT2_ASCII.findall(text)


@settings(deadline=None)
@given(st.sampled_from(SCORED), marked)
def test_scored_equals_the_twin(values, text):
    assert TOKENIZERS[id(values)].encode(text) == naive_scored(text, values)


@settings(deadline=None)
@given(st.integers(0, 5), st.lists(st.sampled_from("abc"), max_size=60))
def test_merge_equals_the_twin(seed, symbols):
    ranks = {pair: rank for rank, pair in enumerate(random_merges(seed, "abc", 40))}
    keys = {f"{left} {right}".encode(): float(rank) for (left, right), rank in ranks.items()}
    found = merge([symbol.encode() for symbol in symbols], keys, b" ")
    assert [symbol.decode() for symbol in found] == naive_merge(symbols, ranks)


@settings(deadline=None)
@given(st.integers(0, 20), st.text(alphabet="ab\u2581", max_size=30))
def test_boundaries_change_nothing(seed, text):
    """Text cut where no joined pair can reach across merges as it does in one piece."""
    priorities = {piece.encode(): -score for piece, score in random_scored(seed, "ab\u2581", 25, levels=4).items()}
    pieces = boundary_pattern(priorities, b"").split(text)
    assert "".join(pieces) == text
    whole = merge([character.encode() for character in text], priorities, b"")
    parts = [merge([character.encode() for character in piece], priorities, b"") for piece in pieces]
    assert list(itertools.chain(*parts)) == whole


def test_boundaries_are_found():
    plain = {"\u2581a".encode(): 0.0, b"ab": 0.0}
    assert boundary_pattern(plain, b"").split("ab\u2581a\u2581\u2581b") == ["ab", "\u2581a", "\u2581\u2581b"]
    inner = {**plain, "b\u2581a".encode(): 0.0, "\U0001f600\u2581".encode(): 0.0}
    assert boundary_pattern(inner, b"").split("ab\u2581a\u2581b") == ["ab\u2581a", "\u2581b"]
    assert boundary_pattern(inner, b"").split("\U0001f600\u2581a") == ["\U0001f600\u2581a"]
    assert boundary_pattern({"b \u2581a".encode(): 0.0}, b" ").split("ab\u2581a") == ["ab\u2581a"]


# --- Round trips -----------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.sampled_from(BYTE_LEVEL), any_text)
def test_byte_level_text_comes_back(values, text):
    tokenizer = TOKENIZERS[id(values)]
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.decode_bytes(tokenizer.encode(text)) == text.encode()


@settings(deadline=None)
@given(st.booleans(), any_text.filter(lambda text: "\u2581" not in text))
def test_scored_text_comes_back(prefix, text):
    pieces = random_scored(3, "ab\u2581", 50, levels=1000)
    tokenizer = scored(pieces, {"<m>": USER_DEFINED}, add_space_prefix=prefix)
    for whole in (text, f"{text}<m>{text}", f"<m> {text}<s>"):
        assert tokenizer.decode(tokenizer.encode(whole)) == whole
        ids = tokenizer.encode(whole, special="parse", insert="model")
        assert tokenizer.decode(ids[1:], special=True) == whole


# --- Single facts ----------------------------------------------------------------------------------------------------


def test_of_equal_rules_the_first_counts():
    tokenizer = byte_level([("a", "b"), ("b", "c"), ("a", "b")])
    assert [tokenizer.piece(token) for token in tokenizer.encode("abc")] == ["ab", "c"]


def test_rules_whose_product_is_no_token_fall_back_to_bytes():
    values = byte_level_values([("a", "b")])
    values["tokens"].remove("ab")
    values["token_type"].pop()
    tokenizer = from_metadata(metadata(values))
    assert tokenizer.encode("ab") == [97, 98]


def test_a_byte_without_token_is_an_error_or_unknown():
    values = byte_level_values([], {"<unk>": UNKNOWN})
    place = values["tokens"].index(LETTERS[0x0B])
    values["tokens"][place] = "filler"
    with pytest.raises(TokenizerError, match="0x0B"):
        from_metadata(metadata(values)).encode("a\x0bb")
    unknown = values["tokens"].index("<unk>")
    tokenizer = from_metadata(metadata({**values, "unknown_token_id": unknown}))
    assert tokenizer.encode("a\x0bb") == [97, unknown, 98]


def test_a_character_without_byte_tokens_is_unknown():
    tokenizer = scored({"a": 0.0}, byte_tokens=False, add_space_prefix=False)
    assert tokenizer.encode("a\U0001f600a") == [3, 0, 3]


def test_types_decide_what_ids_stand_for():
    special = {"<c>": CONTROL, "<u>": USER_DEFINED, "<x>": UNUSED, "<?>": UNKNOWN}
    tokenizer = byte_level([("a", "b")], special)
    ids = [tokenizer.vocabulary.ids[spelling.encode()] for spelling in special]
    assert [tokenizer.token_bytes(token) for token in ids] == [b"<c>", b"<u>", b"", b"<?>"]
    assert [tokenizer.is_control(token) for token in ids] == [True, False, False, True]
    assert [tokenizer.id_of(spelling) for spelling in special] == [ids[0], ids[1], None, ids[3]]
    assert tokenizer.id_of("ab") is None
    assert tokenizer.decode([97, *ids, 98]) == "a<u>b"
    assert tokenizer.decode([97, *ids, 98], special=True) == "a<c><u><?>b"


def test_tokens_outside_the_alphabet_stand_for_themselves():
    tokenizer = byte_level([], {"\uff5c\u2581 x\u00e9": NORMAL})
    assert tokenizer.token_bytes(len(tokenizer) - 1) == "\uff5c\u2581 x".encode() + b"\xe9"


def test_lone_bytes_show_as_replacement():
    tokenizer = byte_level([])
    assert tokenizer.piece(0xE6) == "\ufffd"
    assert tokenizer.token_bytes(0xE6) == b"\xe6"
    assert tokenizer.decode([0xE6, 0xAD, 0xAA]) == "\u6b6a"
    assert tokenizer.vocabulary.tokens[0x20].decode() == spell(" ") == "\u0120"
