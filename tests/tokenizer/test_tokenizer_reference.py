"""Every pretokenizer and kind against ids that the reference engine gave, and against it where it is installed."""

from __future__ import annotations

import importlib.util
import json

import pytest
from reference import RECORDED, TEXTS, ReferenceServer, marked_texts, marked_vocabularies, vocabulary, write_model
from vocabularies import metadata, random_texts

from prism_inference.errors import TokenizerError
from prism_inference.tokenizer import from_metadata
from prism_inference.tokenizer.pretokenize import PRETOKENIZERS, find_pretokenizer, splitter

DOCUMENT = json.loads(RECORDED.read_text())
NAMES = sorted(set(PRETOKENIZERS) - {"gemma4", "none"})
MARKED = marked_vocabularies()
assert len(NAMES) > 60
assert len(MARKED) == 8


def test_the_record_covers_the_table():
    assert set(DOCUMENT["ids"]) | set(DOCUMENT["same"]) == set(NAMES)
    assert set(DOCUMENT["marked"]) == set(MARKED)


@pytest.mark.parametrize("name", NAMES)
def test_recorded_ids(name):
    tokenizer = from_metadata(metadata(vocabulary(name)))
    expected = DOCUMENT["ids"][DOCUMENT["same"].get(name, name)]
    found = {text: tokenizer.encode(text) for text in TEXTS}
    assert found == dict(zip(TEXTS, expected, strict=True))


@pytest.mark.parametrize("name", MARKED)
def test_recorded_ids_of_marked_kinds(name):
    tokenizer = from_metadata(metadata(MARKED[name]))
    expected = iter(DOCUMENT["marked"][name])
    for text in marked_texts():
        for special in ("literal", "parse"):
            assert tokenizer.encode(text, special=special) == next(expected), (text, special)


@pytest.mark.slow  # the engine ends the process where other ggml libraries are loaded already: run this file alone
@pytest.mark.parametrize("name", sorted({*DOCUMENT["ids"], *[name for name in MARKED if name.endswith("0")]}))
def test_live_engine(name, tmp_path):
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("the reference engine is not installed: pip install xllamacpp")
    values = MARKED[name] if name in MARKED else vocabulary(name)
    write_model(tmp_path / "model.gguf", values)
    server = ReferenceServer(tmp_path / "model.gguf")
    tokenizer = from_metadata(metadata(values))
    letters = sorted(set("".join(TEXTS))) + list("  '\n\n") * 6
    for text in random_texts(7, letters, 100, 30):
        for special in ("literal", "parse"):
            assert tokenizer.encode(text, special=special) == server.encode(text, special == "parse"), (text, special)


@pytest.mark.parametrize("name", sorted(DOCUMENT["ids"]))
def test_pieces_are_the_text(name):
    """Also of text that is long enough to be handed over in parts: its pieces are the same as those of its parts."""
    pieces = splitter(find_pretokenizer(name).patterns)
    text = "".join(TEXTS)
    once = list(pieces(text))
    assert "".join(once) == text
    line = "word and more\n  words 123\n\n!!\n x"
    long = line * 4_000
    assert len(long) > 100_000
    found = list(pieces(long))
    assert "".join(found) == long
    # Away from the ends the pieces repeat with the line.
    assert set(found) == set(pieces(line * 5))


@pytest.mark.parametrize("name", sorted(DOCUMENT["ids"]))
def test_long_runs_are_cut_in_linear_time(name):
    """llama.cpp#27783 and its kind, for every row of the table. What is quadratic takes minutes here."""
    pieces = splitter(find_pretokenizer(name).patterns)
    for run in ("A", "Z", "\u6f22", " ", "\n", " \n", "7", "!", "\u00e9A", "'s"):
        for end in ("", "x", "\u6f22", "!"):
            text = run * (100_000 // len(run)) + end
            assert sum(map(len, pieces(text))) == len(text)


def test_a_pattern_that_gives_up_is_a_typed_error(capfd):
    """A pattern that backtracks without end; the engine behind it reports that on standard error too."""
    pieces = splitter((r"(?:a|aa)+\z",))
    assert list(pieces("aaa")) == ["aaa"]
    with pytest.raises(TokenizerError, match="retry-limit"):
        list(pieces("a" * 60 + "b"))
    capfd.readouterr()
