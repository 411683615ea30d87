"""Published vectors of the reference engine, public bug reports on its vocabularies, and prompts of real models."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from prism_inference import gguf
from prism_inference.tokenizer import Tokenizer, from_metadata

SEPARATOR = "\n__ggml_vocab_test__\n"
NAMES = [
    "command-r",
    "deepseek-coder",
    "deepseek-llm",
    "falcon",
    "gemma-4",
    "gpt-2",
    "llama-bpe",
    "llama-spm",
    "mpt",
    "phi-3",
    "qwen2",
    "qwen35",
    "refact",
    "starcoder",
]
VECTORS = {name: 51 if name == "qwen35" else 46 if name == "gemma-4" else 47 for name in NAMES}
MODELS = {"smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf", "gemma3": "gemma-3-270m-q4_k_m.gguf"}


@cache
def load(path: Path) -> Tokenizer:
    return from_metadata(gguf.open(path).metadata)


@pytest.fixture
def vocab(shared):
    return lambda name: load(shared / "golden" / "vocabs" / f"ggml-vocab-{name}.gguf")


def vectors(shared: Path, name: str) -> list[tuple[str, list[int]]]:
    stem = shared / "golden" / "vocabs" / f"ggml-vocab-{name}.gguf"
    texts = Path(f"{stem}.inp").read_bytes().decode().split(SEPARATOR)
    rows = Path(f"{stem}.out").read_text().split("\n")
    assert len(rows) in (len(texts), len(texts) + 1)
    return [(text, [int(word) for word in row.split()]) for text, row in zip(texts, rows, strict=False)]


@pytest.mark.parametrize("name", NAMES)
def test_published_vectors(shared, vocab, name):
    cases = vectors(shared, name)
    assert len(cases) == VECTORS[name]
    wrong = [text for text, ids in cases if vocab(name).encode(text, special="parse") != ids]
    assert wrong == []


@pytest.mark.parametrize("name", NAMES)
def test_published_texts_come_back(shared, vocab, name):
    tokenizer = vocab(name)
    for text, ids in vectors(shared, name):
        assert tokenizer.decode(ids, special=True) == text
        stream = tokenizer.stream(special=True)
        assert "".join([stream.push(token) for token in ids] + [stream.flush()]) == text


def test_every_vector_file_is_used_or_named(shared):
    found = {path.name.removeprefix("ggml-vocab-")[:-9] for path in (shared / "golden" / "vocabs").glob("*.inp")}
    assert found - set(NAMES) <= {"bert-bge"}, "WordPiece is not tokenized yet"
    assert set(NAMES) <= found


def test_a_space_after_a_special_token(vocab):
    """llama.cpp#23840: the space that is put before text joins one that is there; the text comes back all the same."""
    tokenizer = vocab("llama-spm")
    ids = tokenizer.encode("a<s> b c", special="parse")
    assert ids == [263, 1, 29871, 289, 274]  # what llama.cpp gives
    assert tokenizer.decode(ids, special=True) == "a<s> b c"


def test_special_tokens_that_swallow_white_space(vocab):
    """llama.cpp#8023: white space after phi-3's special tokens belongs to them; ids as llama.cpp gives them."""
    tokenizer = vocab("phi-3")
    assert tokenizer.encode("<|assistant|> ", special="parse") == [32001]
    assert tokenizer.encode("<|assistant|>\n", special="parse") == [32001]
    assert tokenizer.encode("<|end|> hi", special="parse") == [32007, 7251]
    assert tokenizer.encode("<s> hi", special="parse") == [1, 29871, 7251]
    assert tokenizer.encode("<|assistant|> ") == [529, 29989, 465, 22137, 29989, 29958, 29871]


def test_user_defined_tokens_are_found_in_literal_text(vocab):
    """llama.cpp#26309: gemma-4 declares its channel marks user-defined, so both policies find them."""
    for special in ("literal", "parse"):
        assert vocab("gemma-4").encode("<|channel><channel|>", special=special) == [100, 101]


def test_literal_text_never_becomes_a_control_token(vocab):
    """llama.cpp#17607 and its kind: one id when parsed, bytes when literal."""
    for name, spelling in (
        ("qwen2", "<|im_start|>"),
        ("llama-bpe", "<|eot_id|>"),
        ("gemma-4", "<bos>"),
        ("llama-spm", "<s>"),
    ):
        tokenizer = vocab(name)
        assert tokenizer.encode(spelling, special="parse") == [tokenizer.id_of(spelling)]
        literal = tokenizer.encode(spelling)
        assert len(literal) > 1
        assert not any(tokenizer.is_control(token) for token in literal)
        assert tokenizer.decode(literal) == spelling


def test_text_is_not_normalized(vocab):
    """llama.cpp#23252: composed and decomposed letters are different texts; ids as llama.cpp gives them."""
    tokenizer = vocab("gemma-4")
    composed, decomposed = "Caf\u00e9 d\u00e9j\u00e0 vu", "Cafe\u0301 de\u0301ja\u0300 vu"
    assert tokenizer.encode(composed) != tokenizer.encode(decomposed)
    assert tokenizer.decode(tokenizer.encode(composed)) == composed
    assert tokenizer.decode(tokenizer.encode(decomposed)) == decomposed


def test_falcon_splits_punctuation_then_words_then_threes_of_digits(shared, vocab):
    """llama.cpp#3502."""
    expected = dict(vectors(shared, "falcon"))
    texts = [text for text in expected if "3333333" in text or "w048" in text]
    assert texts
    for text in texts:
        assert vocab("falcon").encode(text, special="parse") == expected[text]


@pytest.mark.parametrize("name", ["llama-bpe", "qwen2", "gemma-4", "llama-spm"])
def test_long_runs_take_linear_time(vocab, name):
    """llama.cpp#27783 and its kind: no deep recursion, no quadratic search. A quadratic one would take hours here."""
    for text in ("A" * 200_000, "Z" * 131_072, "\u6f22" * 50_000, " " * 100_000 + "x", "\n" * 50_000, "<" * 50_000):
        for special in ("literal", "parse"):
            assert vocab(name).decode(vocab(name).encode(text, special=special)) == text


ROLES = {  # bos, eos, eot as llama.cpp reports them
    "llama-bpe": (128000, 128001, 128009),
    "llama-spm": (1, 2, None),
    "qwen2": (151643, 151643, 151645),
    "phi-3": (1, 32000, 32007),
    "deepseek-coder": (32013, 32014, 32014),
    "starcoder": (0, 0, 0),
}


@pytest.mark.parametrize("name", ROLES)
def test_roles(vocab, name):
    tokenizer = vocab(name)
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.eot_id) == ROLES[name]


ENDS = {  # llama.cpp's, but for `</s>`, which is an ordinary or user-defined token in the last two
    "llama-bpe": {128001, 128009},
    "gemma-4": {1, 50, 106},
    "starcoder": {0, 4},
    "refact": {0, 4, 18},
    "command-r": {0, 255001},
    "qwen2": {151643, 151645},
    "phi-3": {32000, 32007},
}


@pytest.mark.parametrize("name", ENDS)
def test_ends_of_generation(vocab, name):
    assert vocab(name).end_ids == ENDS[name]


# --- Real models -----------------------------------------------------------------------------------------------------


@pytest.fixture
def model(models):
    def get(name: str) -> Tokenizer:
        path = models / MODELS[name]
        if not path.is_file():
            pytest.skip(f"{path} is not there: run tests/fetch_models.py")
        return load(path)

    return get


@pytest.mark.parametrize("name", MODELS)
def test_prompts_of_real_models(shared, model, name):
    tokenizer = model(name)
    reference = json.loads((shared / "golden" / "refs" / f"{name}.json").read_text())
    assert len(reference["prompts"]) == 14
    for prompt in reference["prompts"]:
        assert tokenizer.encode(prompt["text"], special="parse", insert="model") == prompt["ids"], prompt["name"]
        assert tokenizer.encode(prompt["text"]) == prompt["ids_no_special_no_parse"], prompt["name"]
        assert tokenizer.decode(prompt["ids_no_special_no_parse"]) == prompt["text"], prompt["name"]
    assert (tokenizer.bos_id, tokenizer.eos_id) == (reference["bos"], reference["eos"])
    assert reference["eot"] in tokenizer.end_ids
    assert len(tokenizer) == reference["n_vocab"]


def test_no_space_before_the_text_of_gemma(model):
    """llama.cpp#8584: the vocabulary wants no space put before text."""
    tokenizer = model("gemma3")
    ids = tokenizer.encode("<pad>text<eos>", special="parse")
    assert ids == [0, 1005, 1]
    assert tokenizer.token_bytes(1005) == b"text"
    assert tokenizer.decode(ids, special=True) == "<pad>text<eos>"


def test_runs_longer_than_the_longest_token(model):
    """Of 32 spaces 31 are a user-defined token; the last one goes to the word, as in llama.cpp."""
    tokenizer = model("gemma3")
    assert tokenizer.encode(" " * 32 + "x") == [167, 1123]


def test_markup_of_gemma_does_not_end_a_generation(model):
    """`</s>` is user-defined markup there; an engine that takes it for an end stops at struck-out text."""
    tokenizer = model("gemma3")
    assert tokenizer.end_ids == {1, 106}
    assert tokenizer.encode("<s>x</s>")[-1] == 212
