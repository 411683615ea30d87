"""Special tokens: which spellings are found, in what order, and what is inserted."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vocabularies import CONTROL, NORMAL, UNKNOWN, USER_DEFINED, byte_level, scored

from prism_inference.errors import LimitError, ParameterError, TokenizerError
from prism_inference.limits import TOKENIZER_MAX_TEXT_BYTES
from prism_inference.tokenizer.special import SpecialSplitter

SPELLINGS = ("a", "ab", "aab", "ba", "<x>", "<xy>", "\u00e9a", "bbbb")


def naive_split(text: str, ids: dict[str, int]) -> list[str | int]:
    """Split all text at one spelling after the other, those of most bytes first."""
    parts: list[str | int] = [text]
    for spelling in sorted(ids, key=lambda spelling: (-len(spelling.encode()), ids[spelling])):
        split: list[str | int] = []
        for part in parts:
            if isinstance(part, int):
                split.append(part)
                continue
            for index, piece in enumerate(part.split(spelling)):
                split += [ids[spelling], piece] if index else [piece]
        parts = split
    return [part for part in parts if part != ""]


@settings(deadline=None)
@given(st.sets(st.sampled_from(SPELLINGS)), st.text(alphabet="aab<xy>\u00e9", max_size=30))
def test_splitting_equals_the_twin(chosen, text):
    ids = {spelling: number for number, spelling in enumerate(sorted(chosen))}
    found = SpecialSplitter(ids).split(text)
    joined = []  # the twin may leave neighbouring texts apart
    for is_text, group in itertools.groupby(naive_split(text, ids), key=lambda part: isinstance(part, str)):
        parts = list(group)
        joined += ["".join(parts)] if is_text else parts
    assert found == joined


def test_thousands_of_spellings_cost_one_pass():
    spellings = {f"<unused{number}>": number for number in range(6_000)}
    splitter = SpecialSplitter(spellings)
    text = "<u" * 100_000 + "<unused77>" + "<unused5999" * 20_000 + "".join(spellings)
    parts = splitter.split(text)
    assert parts[0] == "<u" * 100_000
    assert parts[1] == 77
    assert parts[2] == "<unused5999" * 20_000
    assert parts[3:] == list(range(6_000))


def test_stripping():
    splitter = SpecialSplitter({"<l>": 1, "<r>": 2, "<n>": 3}, left=[1], right=[2])
    assert splitter.split("a <l> b") == ["a", 1, " b"]
    assert splitter.split("a <r>\n b") == ["a ", 2, "b"]
    assert splitter.split("a <n> b") == ["a ", 3, " b"]
    assert splitter.split("<r> \t\v\f\r\n<l>") == [2, 1]
    assert splitter.split("<r>\u00a0<l>") == [2, "\u00a0", 1]  # ASCII white space only


@pytest.mark.parametrize(
    ("name", "swallows"), [("Phi-3 mini", True), ("tiny phi3", True), ("Phi 3", False), ("", False)]
)
def test_models_whose_special_tokens_swallow_white_space(name, swallows):
    """llama.cpp#8023: files do not say so, hence the model's name must."""
    special = {"<|user|>": CONTROL, "<|endoftext|>": CONTROL}
    tokenizer = scored({"a": -1.0, "\u2581": -2.0}, special, add_space_prefix=False, **{"general.name": name})
    space, letter = tokenizer.encode(" a")
    user, end = tokenizer.id_of("<|user|>"), tokenizer.id_of("<|endoftext|>")
    between = [] if swallows else [space]
    assert tokenizer.encode("<|user|> a", special="parse") == [user, *between, letter]
    assert tokenizer.encode("<|endoftext|> a", special="parse") == [end, space, letter]


def test_policies():
    tokenizer = byte_level([], {"<c>": CONTROL, "<u>": USER_DEFINED, "<?>": UNKNOWN, "<n>": NORMAL})
    control, user, unknown = (tokenizer.id_of(spelling) for spelling in ("<c>", "<u>", "<?>"))
    plain = [ord(character) for character in "<c><?><n>"]
    assert tokenizer.encode("<c><?><n>") == plain
    assert tokenizer.encode("<u>") == [user]
    assert tokenizer.encode("<c><u><?><n>", special="parse") == [control, user, unknown, *plain[-3:]]


def test_insertion_never_doubles():
    """llama-cpp-python#1501 and #1537: one BOS whether or not the template writes it."""
    special = {"<s>": CONTROL, "</s>": CONTROL}
    keys = {"bos_token_id": 256, "eos_token_id": 257}
    tokenizer = byte_level([], special, add_bos_token=True, add_eos_token=True, **keys)
    assert (tokenizer.add_bos, tokenizer.add_eos) == (True, True)
    assert tokenizer.encode("a", insert="model") == [256, 97, 257]
    assert tokenizer.encode("a") == [97]
    assert tokenizer.encode("<s>a</s>", special="parse", insert="model") == [256, 97, 257]
    assert tokenizer.encode("<s>a", special="parse", insert="model") == [256, 97, 257]
    assert tokenizer.encode("", insert="model") == [256, 257]
    assert tokenizer.encode("<s>", insert="model") == [256, 60, 115, 62, 257]  # literal: the text is no BOS
    neither = byte_level([], special, add_bos_token=False, **keys)
    assert neither.encode("a", insert="model") == [97]


@pytest.mark.parametrize(
    ("pre", "expected"), [("gpt-2", False), ("llama-bpe", True), ("qwen2", False), ("tekken", True)]
)
def test_bos_where_the_file_does_not_say(pre, expected):
    """As llama.cpp has it for these names."""
    tokenizer = byte_level([], {"<s>": CONTROL}, pre=pre, bos_token_id=256)
    assert tokenizer.add_bos is expected


def test_scored_kind_defaults():
    """As llama.cpp has them: BOS first, a space before text, ids 0, 1 and 2 for <unk>, <s> and </s>."""
    tokenizer = scored({"a": -1.0, "\u2581a": -2.0})
    assert (tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id) == (0, 1, 2)
    ids = tokenizer.encode("a", insert="model")
    assert ids == [1, tokenizer.vocabulary.ids["\u2581a".encode()]]
    assert tokenizer.encode("", insert="model") == [1]
    assert tokenizer.encode("") == []


def test_a_space_is_put_before_text_after_special_tokens_too():
    """As in llama.cpp; decoding takes it away again."""
    tokenizer = scored({"a": -1.0, "\u2581a": -2.0, "\u2581": -3.0})
    marked = tokenizer.vocabulary.ids["\u2581a".encode()]
    assert tokenizer.encode("a<s>a", special="parse") == [marked, 1, marked]
    assert tokenizer.decode([marked, 1, marked], special=True) == "a<s>a"
    assert tokenizer.decode([1, marked, marked]) == "a a"


@pytest.mark.parametrize(
    ("argument", "value"), [("special", "none"), ("insert", "always"), ("special", ""), ("insert", "parse")]
)
def test_wrong_policies(argument, value):
    with pytest.raises(ParameterError, match=argument):
        byte_level([]).encode("a", **{argument: value})


@pytest.mark.parametrize("text", ["\ud800", "ok \udce6\udcad", "a\udfff"])
def test_text_that_is_no_unicode(text):
    """llama.cpp#8691: half a character, or bytes that were not UTF-8, are refused and nothing else happens."""
    tokenizer = byte_level([])
    with pytest.raises(TokenizerError, match="character"):
        tokenizer.encode(text)
    assert tokenizer.encode("ok") == [111, 107]


def test_text_limit():
    tokenizer = byte_level([])
    with pytest.raises(LimitError, match="too long"):
        tokenizer.encode("\u00e9" * (TOKENIZER_MAX_TEXT_BYTES // 2 + 1))
