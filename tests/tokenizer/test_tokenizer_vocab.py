"""Vocabularies from metadata: malformed and hostile lists, limits, roles, and ends of generation."""

from __future__ import annotations

import subprocess
import sys

import pytest
from vocabularies import CONTROL, NORMAL, USER_DEFINED, byte_level, byte_level_values, metadata, scored_values, strings

from prism_inference import limits
from prism_inference.errors import LimitError, MetadataError, TokenizerError, UnsupportedError
from prism_inference.tokenizer import from_metadata, vocab

BPE = byte_level_values([("a", "b")], {"<c>": CONTROL})
SPM = scored_values({"a": -1.0, "ab": -2.0})
COUNT = len(BPE["tokens"])


def build(values: dict, without: str = "", **changes: object):
    return from_metadata(metadata({key: value for key, value in {**values, **changes}.items() if key != without}))


def test_the_bases_are_sound():
    assert len(build(BPE)) == COUNT
    assert len(build(SPM)) == len(SPM["tokens"])


@pytest.mark.parametrize("base", [BPE, SPM], ids=["bpe", "spm"])
@pytest.mark.parametrize("key", ["model", "tokens"])
def test_missing_keys(base, key):
    with pytest.raises(MetadataError, match=key):
        build(base, without=key)


@pytest.mark.parametrize(("base", "key"), [(BPE, "merges"), (SPM, "scores")], ids=["merges", "scores"])
def test_missing_tables(base, key):
    with pytest.raises(MetadataError, match=key):
        build(base, without=key)


@pytest.mark.parametrize(
    ("base", "changes"),
    [
        (BPE, {"tokens": [1, 2, 3]}),
        (BPE, {"tokens": "abc"}),
        (BPE, {"merges": [1, 2]}),
        (BPE, {"token_type": [1.0] * COUNT}),
        (BPE, {"model": 3}),
        (BPE, {"pre": 3}),
        (BPE, {"bos_token_id": "x"}),
        (BPE, {"add_bos_token": "yes"}),
        (SPM, {"scores": ["a", "b"]}),
        (SPM, {"add_space_prefix": 3.5}),
    ],
)
def test_wrong_kinds_of_values(base, changes):
    with pytest.raises(MetadataError, match=next(iter(changes))):
        build(base, **changes)


@pytest.mark.parametrize(
    ("base", "changes", "message"),
    [
        (BPE, {"token_type": [NORMAL] * (COUNT - 1)}, "does not fit the tokens"),
        (BPE, {"token_type": [NORMAL] * (COUNT + 1)}, "does not fit the tokens"),
        (BPE, {"token_type": [NORMAL] * (COUNT - 1) + [0]}, rf"token_type\[{COUNT - 1}\]"),
        (BPE, {"token_type": [7] + [NORMAL] * (COUNT - 1)}, r"token_type\[0\]"),
        (BPE, {"token_type": [-1] + [NORMAL] * (COUNT - 1)}, r"token_type\[0\]"),
        (BPE, {"token_type": [2**31 - 1] + [NORMAL] * (COUNT - 1)}, r"token_type\[0\]"),
        (BPE, {"token_type": [6] + [NORMAL] * (COUNT - 1)}, "not a byte token"),
        (BPE, {"tokens": ["x", *BPE["tokens"][1:]]}, "same spelling"),
        (BPE, {"tokens": strings([])}, "empty"),
        (BPE, {"bos_token_id": COUNT}, "outside the vocabulary"),
        (BPE, {"eos_token_id": 2**32 - 1}, "outside the vocabulary"),
        (BPE, {"padding_token_id": -1}, "outside the vocabulary"),
        (BPE, {"add_bos_token": True}, "bos_token_id"),
        (BPE, {"add_eos_token": True}, "eos_token_id"),
        (SPM, {"scores": SPM["scores"][:-1]}, "does not fit the tokens"),
        (SPM, {"scores": [float("nan"), *SPM["scores"][1:]]}, r"scores\[0\]"),
        (SPM, {"scores": [*SPM["scores"][:-1], float("inf")]}, "not finite"),
    ],
)
def test_lists_that_contradict_each_other(base, changes, message):
    with pytest.raises(TokenizerError, match=message):
        build(base, **changes)


@pytest.mark.parametrize("name", ["bert", "t5", "rwkv", "plamo2", "no_vocab", "none", ""])
def test_unknown_kinds(name):
    with pytest.raises(UnsupportedError, match=r"gpt2, llama, gemma4, found '") as raised:
        build(BPE, model=name)
    assert raised.value.where == "tokenizer.ggml.model"


def test_unknown_pretokenizers_name_the_nearest():
    with pytest.raises(UnsupportedError, match="qwen2") as raised:
        build(BPE, pre="qwen22")
    assert raised.value.found == "'qwen22'"
    with pytest.raises(UnsupportedError, match="default"):
        build(BPE, pre="\u2603")


@pytest.mark.parametrize(
    ("limit", "value", "base"),
    [
        ("TOKENIZER_MAX_TOKENS", COUNT - 1, BPE),
        ("TOKENIZER_MAX_MERGES", 0, BPE),
        ("TOKENIZER_MAX_TOKEN_BYTES", 2, BPE),
        ("TOKENIZER_MAX_SPECIAL", 0, BPE),
        ("TOKENIZER_MAX_TOKENS", 10, SPM),
    ],
)
def test_limits(monkeypatch, limit, value, base):
    assert getattr(vocab, limit) == getattr(limits, limit)
    monkeypatch.setattr(vocab, limit, value)
    with pytest.raises(LimitError, match=f"at most {value}"):
        build(base)


def test_lists_that_may_be_missing():
    """As in llama.cpp: without types all tokens are normal, without a pretokenizer's name it is the default one."""
    tokenizer = build(BPE, without="token_type")
    assert tokenizer.id_of("<c>") is None
    assert build(BPE, without="pre").encode("ab!!12345") == build(BPE, pre="default").encode("ab!!12345")


def test_empty_tokens_are_fillers():
    values = {**BPE, "tokens": [*BPE["tokens"], "", ""], "token_type": [*BPE["token_type"], NORMAL, CONTROL]}
    tokenizer = build(values)
    assert tokenizer.decode([97, COUNT, COUNT + 1, 98], special=True) == "ab"
    assert tokenizer.encode("ab<c>", special="parse") == [*tokenizer.encode("ab"), COUNT - 1]


def test_tokens_that_are_no_utf8():
    values = {
        **BPE,
        "tokens": [*BPE["tokens"], b"\xff\xfe", b"<\xff>"],
        "token_type": [*BPE["token_type"], NORMAL, CONTROL],
    }
    tokenizer = build(values)
    assert tokenizer.token_bytes(COUNT) == b"\xff\xfe"
    assert tokenizer.decode([COUNT + 1], special=True) == "<\ufffd>"
    assert tokenizer.encode("<c>", special="parse") == [COUNT - 1]


def ends(special: dict[str, int], **keys: object) -> set[str]:
    tokenizer = byte_level([], special, **keys)
    return {tokenizer.piece(token) for token in tokenizer.end_ids}


def test_ends_of_generation():
    """Ids that the file names, and spellings that the reference knows."""
    assert ends({}) == set()
    assert ends({"<e>": CONTROL}, eos_token_id=256) == {"<e>"}
    assert ends({"<e>": CONTROL, "<t>": CONTROL, "<m>": CONTROL}, eot_token_id=257, eom_token_id=258) == {"<t>", "<m>"}
    assert ends({"<|im_end|>": CONTROL, "<|endoftext|>": CONTROL, "<|im_start|>": CONTROL}) == {
        "<|im_end|>",
        "<|endoftext|>",
    }
    assert ends({"<|fim_pad|>": CONTROL, "<|fim_prefix|>": CONTROL}) == {"<|fim_pad|>"}
    assert ends({"<end_of_turn>": NORMAL}) == {"<end_of_turn>"}  # cannot be text, whatever its type
    assert ends({"</s>": NORMAL}) == set()
    assert ends({"</s>": USER_DEFINED}) == set()
    assert ends({"</s>": CONTROL}) == {"</s>"}


def test_end_marks_of_replies_in_several_parts():
    """As in llama.cpp: `<|end|>` ends a reply, but not where it only separates the parts of one."""
    assert ends({"<|end|>": CONTROL}) == {"<|end|>"}
    assert ends({"<|end|>": CONTROL, "<|return|>": CONTROL, "<|call|>": CONTROL}) == {"<|return|>", "<|call|>"}


def test_end_marks_are_control_tokens_whatever_the_file_says():
    tokenizer = byte_level([], {"<|im_end|>": NORMAL, "<|fim_prefix|>": USER_DEFINED})
    for spelling in ("<|im_end|>", "<|fim_prefix|>"):
        token = tokenizer.id_of(spelling)
        assert token is not None
        assert tokenizer.encode(spelling, special="parse") == [token]
        assert tokenizer.decode([token]) == ""
        assert token not in tokenizer.encode(spelling)


def test_the_turn_ends_at_the_likeliest_spelling():
    tokenizer = byte_level([], {"<|endoftext|>": CONTROL, "<|im_end|>": CONTROL})
    assert tokenizer.eot_id == tokenizer.id_of("<|im_end|>")
    named = byte_level([], {"<|endoftext|>": CONTROL, "<|im_end|>": CONTROL}, eot_token_id=256)
    assert named.eot_id == 256


CODE = """
import sys
sys.path.insert(0, sys.argv[1])
from vocabularies import byte_level, scored
tokenizer = {call}
print("tokenizers" in sys.modules)
"""


@pytest.mark.parametrize(
    ("call", "imported"),
    [
        ("byte_level([])\ntokenizer.decode([97]); tokenizer.stream().push(98)", "False"),
        ("scored({'a': 0.0})\ntokenizer.encode('a a')", "False"),
        ("byte_level([])\ntokenizer.encode('a')", "True"),
    ],
    ids=["decode", "scored", "encode"],
)
def test_nothing_heavy_is_imported_before_it_is_needed(request, call, imported):
    command = [sys.executable, "-c", CODE.format(call=call), str(request.path.parent)]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.strip() == imported
