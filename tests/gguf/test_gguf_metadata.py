"""Typed look-ups: what is taken, what is refused, and what the errors say."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from handmade import (
    BOOL,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    STRING,
    U8,
    U16,
    U32,
    U64,
    array,
    file,
    pair,
    scalar,
)

from prism_inference import gguf
from prism_inference.errors import MetadataError
from prism_inference.gguf import Metadata

INTEGERS = (U8, I8, U16, I16, U32, I32, U64, I64)


@pytest.fixture(scope="module")
def metadata(tmp_path_factory: pytest.TempPathFactory) -> Metadata:
    path = tmp_path_factory.mktemp("metadata") / "m.gguf"
    path.write_bytes(
        file(
            [
                *(pair(f"integer.{kind}", scalar(kind, 7)) for kind in INTEGERS),
                *(pair(f"integers.{kind}", array(kind, [7, 8])) for kind in INTEGERS),
                pair("minus", scalar(I32, -3)),
                pair("huge", scalar(U64, 2**64 - 1)),
                pair("half", scalar(F32, 0.5)),
                pair("third", scalar(F64, 1 / 3)),
                pair("nan", scalar(F32, float("nan"))),
                pair("infinite", scalar(F64, float("inf"))),
                pair("yes", scalar(BOOL, 1)),
                pair("text", scalar(STRING, "qwen3")),
                pair("long", scalar(STRING, "x" * 5000)),
                pair("odd", scalar(STRING, "\x1b[2J\nred")),
                pair("floats", array(F32, [0.5, 1.5])),
                pair("with.nan", array(F32, [0.5, float("nan")])),
                pair("bools", array(BOOL, [1, 0])),
                pair("texts", array(STRING, ["a", b"\xff\xfe"])),
                pair("qwen3.attention.head_count", scalar(U32, 8)),
                pair("qwen3.attention.head_count_kv", scalar(U32, 2)),
            ]
        )
    )
    return gguf.open(path).metadata


def test_any_integer_type_is_an_integer(metadata: Metadata) -> None:
    for kind in INTEGERS:
        assert metadata.integer(f"integer.{kind}") == 7
        assert metadata.number(f"integer.{kind}") == 7.0
        assert metadata.integers(f"integer.{kind}").tolist() == [7]
        assert metadata.integers(f"integers.{kind}").tolist() == [7, 8]
        assert metadata.numbers(f"integers.{kind}").tolist() == [7, 8]
    assert metadata.integer("minus", low=-3, high=-3) == -3
    assert metadata.integer("huge") == 2**64 - 1


def test_other_kinds_are_returned_as_what_they_are(metadata: Metadata) -> None:
    assert metadata.number("half") == 0.5
    assert metadata.number("third") == 1 / 3
    assert metadata.boolean("yes") is True
    assert metadata.string("text") == "qwen3"
    assert metadata.numbers("floats").tolist() == [0.5, 1.5]
    assert metadata.numbers("half").tolist() == [0.5]
    assert np.isnan(metadata.numbers("with.nan")).tolist() == [False, True]
    assert metadata.booleans("bools").tolist() == [True, False]
    assert metadata.booleans("yes").tolist() == [True]
    assert list(metadata.strings("texts")) == ["a", "\udcff\udcfe"]
    assert metadata.byte_strings("texts") == [b"a", b"\xff\xfe"]


def test_defaults_stand_for_missing_keys_only(metadata: Metadata) -> None:
    assert metadata.integer("none", 5) == 5
    assert metadata.number("none", 0.25) == 0.25
    assert metadata.boolean("none", False) is False
    assert metadata.string("none", "x") == "x"
    assert metadata.strings("none", []) == []
    assert metadata.byte_strings("none", [b"a"]) == [b"a"]
    assert metadata.integers("none", [1, 2]).tolist() == [1, 2]
    assert metadata.numbers("none", 3.5).tolist() == [3.5]
    assert metadata.booleans("none", True).tolist() == [True]
    with pytest.raises(MetadataError, match="text: wrong kind of value"):
        metadata.integer("text", 5)


REFUSED: dict[str, tuple[Callable[[Metadata], Any], str]] = {
    "integer out of range": (lambda m: m.integer("integer.0", low=8), "expected an integer from 8 to"),
    "integer above the range": (lambda m: m.integer("integer.0", high=6), "to 6, found 7"),
    "huge where a signed one is wanted": (lambda m: m.integer("huge", high=2**31), "found 18446744073709551615"),
    "float for an integer": (lambda m: m.integer("half"), "found 0.5"),
    "bool for an integer": (lambda m: m.integer("yes"), "found True"),
    "text for an integer": (lambda m: m.integer("text"), "found 'qwen3'"),
    "array for an integer": (lambda m: m.integer("integers.5"), "found an array of 2 int32"),
    "not a number": (lambda m: m.number("nan"), "expected a finite number, found nan"),
    "infinite": (lambda m: m.number("infinite"), "expected a finite number, found inf"),
    "bool for a number": (lambda m: m.number("yes"), "found True"),
    "integer for a bool": (lambda m: m.boolean("integer.0"), "expected true or false, found 7"),
    "number for a text": (lambda m: m.string("half"), "expected a text, found 0.5"),
    "texts for a text": (lambda m: m.string("texts"), "expected a text, found <2 strings"),
    "text for texts": (lambda m: m.strings("text"), "expected an array of texts, found 'qwen3'"),
    "numbers for texts": (lambda m: m.byte_strings("floats"), "found an array of 2 float32"),
    "floats for integers": (lambda m: m.integers("floats"), "expected an array of integers"),
    "bools for integers": (lambda m: m.integers("bools"), "found an array of 2 bool"),
    "bool for integers": (lambda m: m.integers("yes"), "found True"),
    "texts for numbers": (lambda m: m.numbers("texts"), "expected an array of numbers"),
    "bools for numbers": (lambda m: m.numbers("bools"), "expected an array of numbers, found an array of 2 bool"),
    "bool for numbers": (lambda m: m.numbers("yes"), "found True"),
    "integers for bools": (lambda m: m.booleans("integers.0"), "expected an array of true and false"),
    "long text": (lambda m: m.integer("long"), "(5000 long)"),
    "control characters": (lambda m: m.integer("odd"), r"found '\x1b[2J\nred'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_kinds_are_refused(name: str, metadata: Metadata) -> None:
    look_up, says = REFUSED[name]
    with pytest.raises(MetadataError) as caught:
        look_up(metadata)
    assert says in str(caught.value)
    assert "m.gguf: " in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "method", ["integer", "number", "boolean", "string", "strings", "byte_strings", "integers", "numbers", "booleans"]
)
def test_missing_keys_are_named_with_the_nearest(method: str, metadata: Metadata) -> None:
    with pytest.raises(MetadataError) as caught:
        getattr(metadata, method)("qwen3.attention.headcount")
    assert "qwen3.attention.headcount: the file has no such key" in str(caught.value)
    assert "nearest keys that it has: qwen3.attention.head_count, " in str(caught.value)


def test_keys_that_would_disturb_a_terminal_are_not_named() -> None:
    odd = Metadata({"general.\x1b[2Jname": 1, "general.names": 2}, "test")
    with pytest.raises(MetadataError) as caught:
        odd.integer("general.name")
    assert caught.value.hint == "The nearest keys that it has: general.names"


def test_it_is_a_mapping(metadata: Metadata) -> None:
    assert len(metadata) == len(list(metadata)) == 2 * len(INTEGERS) + 16
    assert "text" in metadata
    assert "none" not in metadata
    assert metadata["text"] == "qwen3"
    assert metadata.get("none") is None
    assert metadata.get("none", 3) == 3
    assert dict(metadata)["minus"] == -3
    with pytest.raises(KeyError):
        metadata["none"]


def test_the_nearest_of_many_keys_are_found_in_time() -> None:
    many = Metadata({f"general.key_number_{number:06d}": number for number in range(100_000)}, "test")
    started = time.perf_counter()
    with pytest.raises(MetadataError, match="no such key"):
        many.integer("general.key_number_x")
    assert time.perf_counter() - started < 1.0  # measured: 0.012 s; over all keys it would be a second and more


def test_published_vocabularies_pass_the_typed_look_ups(shared: Path) -> None:
    paths = sorted((shared / "golden" / "vocabs").glob("*.gguf"))
    assert len(paths) > 10
    for path in paths:
        metadata = gguf.open(path).metadata
        count = len(metadata.byte_strings("tokenizer.ggml.tokens"))
        assert len(metadata.integers("tokenizer.ggml.token_type")) == count
        if "tokenizer.ggml.scores" in metadata:
            assert metadata.numbers("tokenizer.ggml.scores").dtype == np.float32
