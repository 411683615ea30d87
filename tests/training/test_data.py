"""Rows of tokens: windows, packed samples, their order, files, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import prism_inference as prism
from prism_inference.chat.template import ChatTemplate
from prism_inference.errors import DatasetError, ParameterError
from prism_inference.tokenizer import from_metadata
from prism_inference.training.create import Sizes, create
from prism_inference.training.data import (
    IGNORED,
    Sample,
    Samples,
    Windows,
    open_tokens,
    read_samples,
    take,
    tokenize_text,
    write_tokens,
)
from prism_inference.training.files import Shape, open_datasets
from prism_inference.training.vocabulary import train_vocabulary

TEXT = "the quick brown fox jumps over the lazy dog. pack my box with five dozen liquor jugs.\n" * 40
SIZES = Sizes(width=32, blocks=1, heads=2, key_heads=1, head_size=16, feed_forward=32)
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.fixture(scope="module")
def metadata(tmp_path_factory: pytest.TempPathFactory) -> Iterator[prism.gguf.Metadata]:
    path = create(tmp_path_factory.mktemp("model") / "m.gguf", SIZES, train_vocabulary([TEXT], 300))
    with prism.gguf.open(path) as file:
        yield file.metadata


def test_windows_cover_the_sequence_once_an_epoch() -> None:
    windows = Windows(np.arange(101), 10, 200)
    assert windows.rows(0) == 10
    seen = np.concatenate([windows.row(0, n).tokens for n in range(10)])
    assert sorted(seen.tolist()) == list(range(100))
    assert seen.tolist() != list(range(100)), "not shuffled"
    row = windows.row(0, 3)
    np.testing.assert_array_equal(row.labels, row.tokens + 1)
    np.testing.assert_array_equal(row.starts, 0)
    other = np.concatenate([windows.row(1, n).tokens for n in range(10)])
    assert other.tolist() != seen.tolist(), "each epoch has an order of its own"


def test_the_order_follows_from_seed_and_position_alone() -> None:
    def tokens(seed: int | None, position: int) -> list[int]:
        return [int(row.tokens[0]) for row in take(Windows(np.arange(101), 10, 200, seed), position, 4)]

    assert tokens(1, 8) == tokens(1, 8)
    assert tokens(1, 8) != tokens(2, 8)
    assert tokens(None, 8) == [80, 90, 0, 10]  # over the end of an epoch
    assert tokens(1, 8)[1:3] == tokens(1, 9)[:2]


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (np.zeros(5, np.float32), "integers"),
        (np.zeros((5, 2), np.int32), "one dimension"),
        (np.zeros(10, np.int32), "at least 11 tokens"),
        (np.full(11, 300), "0 to 199, found 300"),
        (np.full(11, -1), "found -1"),
    ],
)
def test_windows_refuse(tokens: np.ndarray, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        Windows(tokens, 10, 200).row(0, 0)


def sample(start: int, count: int, learned: int) -> Sample:
    return Sample(list(range(start, start + count)), [n >= count - learned for n in range(count)])


def test_samples_share_rows_and_keep_apart() -> None:
    row = Samples([sample(0, 4, 2), sample(10, 5, 5), sample(20, 3, 1)], 8, seed=None).row(0, 0)
    np.testing.assert_array_equal(row.tokens[:7], [0, 1, 2, 10, 11, 12, 13])
    np.testing.assert_array_equal(row.labels[:7], [IGNORED, 2, 3, 11, 12, 13, 14])
    np.testing.assert_array_equal(row.starts, [0, 0, 0, 3, 3, 3, 3, 7])
    assert row.labels[7] == IGNORED


def test_every_sample_comes_once_an_epoch() -> None:
    samples = Samples([sample(10 * n, 3 + n % 4, 1) for n in range(20)], 12, seed=3)
    found = []
    for number in range(samples.rows(2)):
        row = samples.row(2, number)
        found += row.tokens[np.unique(row.starts[row.labels != IGNORED])].tolist()
    assert sorted(found) == [10 * n for n in range(20)]
    assert samples.rows(0) < 20
    assert Samples([sample(0, 3, 1)] * 5, 12, pack=False).rows(0) == 5


def test_samples_refuse() -> None:
    with pytest.raises(DatasetError, match=r"sample 1.*at most 9 tokens, found 10"):
        Samples([sample(0, 9, 1), sample(0, 10, 1)], 8)
    with pytest.raises(DatasetError, match="nothing to learn"):
        Samples([Sample([1, 2], [True, False])], 8)
    with pytest.raises(DatasetError, match="no samples"):
        Samples([], 8)


def test_token_files_are_mapped(tmp_path: Path) -> None:
    path = tmp_path / "tokens.npy"
    write_tokens(path, [1, 2, 65_535])
    assert open_tokens(path).dtype == np.uint16
    assert isinstance(open_tokens(path), np.memmap)
    write_tokens(path, [1, 2, 65_536])
    assert open_tokens(path).dtype == np.uint32
    path.write_bytes(b"no array")
    with pytest.raises(DatasetError, match=r"tokens.npy"):
        open_tokens(path)
    with pytest.raises(DatasetError, match=r"absent"):
        open_tokens(tmp_path / "absent.npy")


def test_long_texts_are_tokenized_alike_in_pieces(metadata, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = from_metadata(metadata)
    whole = tokenizer.encode(TEXT, special="literal", insert="model")
    monkeypatch.setattr("prism_inference.training.data.TRAINING_TEXT_PIECE", 200)
    assert tokenize_text(TEXT, tokenizer).tolist() == whole


def learned_text(sample: Sample, tokenizer) -> str:
    ids = [token for token, flag in zip(sample.ids, sample.learned, strict=True) if flag]
    return b"".join(tokenizer.token_bytes(token) for token in ids).decode()


def test_conversations_learn_what_the_assistant_says(metadata) -> None:
    tokenizer = from_metadata(metadata)
    messages = [
        {"role": "user", "content": "the fox"},
        {"role": "assistant", "content": "jumps"},
        {"role": "user", "content": "over"},
        {"role": "assistant", "content": "the dog"},
    ]
    (sample,) = read_samples([json.dumps({"messages": messages}), ""], tokenizer, ChatTemplate(TEMPLATE))
    assert learned_text(sample, tokenizer) == "jumps<end>\nthe dog<end>\n"
    assert tokenizer.decode(sample.ids) == ChatTemplate(TEMPLATE).render(messages, add_generation_prompt=False)


def test_prompts_and_texts(metadata) -> None:
    tokenizer = from_metadata(metadata)
    lines = ['{"prompt": "the quick", "completion": " fox"}', '{"text": "lazy dog"}']
    pair, text = read_samples(lines, tokenizer, None)
    assert learned_text(pair, tokenizer) == " fox<|endoftext|>"
    assert pair.ids[-1] == tokenizer.eos_id
    assert learned_text(text, tokenizer) == "lazy dog<|endoftext|>"
    assert text.ids[0] == tokenizer.bos_id
    assert not text.learned[0]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 1: not JSON"),
        ('{"prompt": "a"}', "line 1: not a sample"),
        ('{"messages": [{"role": "user", "content": "a"}]}', "no message of the assistant"),
        ("[1]", "not a sample"),
    ],
)
def test_wrong_samples_name_the_line(metadata, line: str, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        read_samples([line], from_metadata(metadata), ChatTemplate(TEMPLATE))


def test_files_are_told_apart_and_split(metadata, tmp_path: Path) -> None:
    tokenizer = from_metadata(metadata)
    shape = Shape(16, 300)
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    count = len(tokenizer.encode(TEXT, insert="model"))
    data, held = open_datasets(text, metadata, shape, "0.25")
    assert held is not None
    assert abs(held.rows(0) * 16 / count - 0.25) < 0.05
    assert data.rows(0) + held.rows(0) <= count // 16
    tokens = tmp_path / "tokens.npy"
    write_tokens(tokens, tokenizer.encode(TEXT))
    samples = tmp_path / "samples.jsonl"
    samples.write_text('{"text": "the dog"}\n' * 4)
    assert open_datasets(tokens, metadata, shape)[1] is None
    data, held = open_datasets(samples, metadata, shape, str(tokens))
    assert isinstance(data, Samples)
    assert isinstance(held, Windows)
    with pytest.raises(ParameterError, match="fraction"):
        open_datasets(text, metadata, shape, 1.5)
    with pytest.raises(DatasetError, match="absent"):
        open_datasets(tmp_path / "absent.txt", metadata, shape)
