"""What is trained on: rows of tokens with their labels, from token files, texts and conversations.

A row has a fixed length. Several samples may share one: each token sees its own sample only. The order of an epoch
follows from the seed and the epoch alone, so that a training can be taken up again anywhere. Knows no model's weights.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from ..errors import DatasetError
from ..limits import TRAINING_TEXT_PIECE

if TYPE_CHECKING:
    from ..chat.template import ChatTemplate
    from ..tokenizer import Tokenizer

Numbers = npt.NDArray[np.int32]
IGNORED = -1  # the label of a token after which nothing is learned


@dataclass(frozen=True)
class Row:
    """int32 [length] each: `tokens`, `labels` (the next token, or `IGNORED`), `starts` (where each token's sample
    begins)."""

    tokens: Numbers
    labels: Numbers
    starts: Numbers


class Dataset(Protocol):
    """Rows of one length, in an order that the epoch decides."""

    length: int

    def rows(self, epoch: int) -> int:
        """Return the number of rows of an epoch, at least 1."""

    def row(self, epoch: int, number: int) -> Row:
        """Return a row of an epoch."""


def take(dataset: Dataset, position: int, count: int) -> list[Row]:
    """Return rows `position` … `position + count - 1` of the endless sequence of epochs."""
    epoch = 0
    while position >= (rows := dataset.rows(epoch)):
        position -= rows
        epoch += 1
    found = []
    for _ in range(count):
        found.append(dataset.row(epoch, position))
        position += 1
        if position == dataset.rows(epoch):
            epoch, position = epoch + 1, 0
    return found


class Windows:
    """Windows of a long sequence of tokens, one after the other, shuffled anew in each epoch.

    Args:
        tokens: a one-dimensional array of integers, which may be a memory map.
        length: tokens of a window.
        vocabulary: tokens must be below it.
        seed: of the order; None keeps that of the sequence.

    Raises:
        DatasetError: not such an array, too short for one window, or a token outside the vocabulary.
    """

    def __init__(
        self, tokens: npt.NDArray[Any], length: int, vocabulary: int, seed: int | None = 0, where: str = "tokens"
    ) -> None:
        if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
            found = f"{tokens.dtype} {tokens.shape}"
            raise DatasetError("not a sequence of tokens", where=where, expected="integers, one dimension", found=found)
        self._count = (len(tokens) - 1) // length if length > 0 else 0
        if self._count < 1:
            raise DatasetError(
                "too short",
                where=where,
                expected=f"at least {length + 1} tokens",
                found=len(tokens),
                hint="Shorten the rows.",
            )
        self.length = length
        self._tokens = tokens
        self._vocabulary = vocabulary
        self._seed = seed
        self._where = where

    @classmethod
    def open(cls, path: str | Path, length: int, vocabulary: int, seed: int | None = 0) -> Windows:
        """Map a token file: a .npy file of one-dimensional integers."""
        return cls(open_tokens(path), length, vocabulary, seed, str(path))

    def rows(self, epoch: int) -> int:
        """Return the number of windows."""
        return self._count

    def row(self, epoch: int, number: int) -> Row:
        """Return a window; each token's label is the next one."""
        index = number if self._seed is None else int(_order(self._count, self._seed, epoch)[number])
        start = index * self.length
        piece = np.asarray(self._tokens[start : start + self.length + 1])
        if piece.min() < 0 or piece.max() >= self._vocabulary:
            bad = int(piece[(piece < 0) | (piece >= self._vocabulary)][0])
            raise DatasetError("no such token", where=self._where, expected=f"0 to {self._vocabulary - 1}", found=bad)
        ids = piece.astype(np.int32)
        return Row(ids[:-1], ids[1:], np.zeros(self.length, np.int32))


@lru_cache(maxsize=4)
def _order(count: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    return np.random.default_rng((seed, epoch)).permutation(count)


@dataclass(frozen=True)
class Sample:
    """Token ids, and for each whether it is to be learned (predicted from those before it)."""

    ids: Sequence[int]
    learned: Sequence[bool]


class Samples:
    """Samples packed into rows in a shuffled order; rows end with padding that is not learned.

    Args:
        samples: none longer than a row.
        length: tokens of a row.
        seed: of the order; None keeps it.
        pack: put several samples into one row (not for recurrent models, whose state would run on).
        pad: the token that fills rows.

    Raises:
        DatasetError: no samples, one that learns nothing, or one that does not fit a row.
    """

    def __init__(
        self, samples: Sequence[Sample], length: int, seed: int | None = 0, pack: bool = True, pad: int = 0
    ) -> None:
        if not samples:
            raise DatasetError("no samples")
        for number, sample in enumerate(samples):
            if len(sample.ids) > length + 1:
                raise DatasetError(
                    "a sample is longer than a row",
                    where=f"sample {number}",
                    expected=f"at most {length + 1} tokens",
                    found=len(sample.ids),
                    hint="Lengthen the rows, or shorten the sample.",
                )
            if not any(sample.learned[1:]):
                raise DatasetError("nothing to learn from a sample", where=f"sample {number}")
        self.length = length
        self._samples = samples
        self._seed = seed
        self._pack = pack
        self._pad = pad
        self._known: tuple[int, list[list[int]]] | None = None

    def rows(self, epoch: int) -> int:
        """Return the number of rows into which this epoch's order packs the samples."""
        return len(self._packed(epoch))

    def row(self, epoch: int, number: int) -> Row:
        """Return a row."""
        tokens = np.full(self.length, self._pad, np.int32)
        labels = np.full(self.length, IGNORED, np.int32)
        starts = np.arange(self.length, dtype=np.int32)  # padding sees itself only
        place = 0
        for index in self._packed(epoch)[number]:
            sample = self._samples[index]
            ids = np.asarray(sample.ids, np.int32)
            n = len(ids) - 1
            tokens[place : place + n] = ids[:-1]
            labels[place : place + n] = np.where(np.asarray(sample.learned[1:], bool), ids[1:], IGNORED)
            starts[place : place + n] = place
            place += n
        return Row(tokens, labels, starts)

    def _packed(self, epoch: int) -> list[list[int]]:
        """Return the samples of each row: in order, a new row where the next sample does not fit."""
        if self._known is None or self._known[0] != epoch:
            count = len(self._samples)
            order = range(count) if self._seed is None else _order(count, self._seed, epoch)
            rows: list[list[int]] = []
            room = 0
            for index in map(int, order):
                need = len(self._samples[index].ids) - 1
                if not rows or need > room or not self._pack:
                    rows.append([])
                    room = self.length
                rows[-1].append(index)
                room -= need
            self._known = epoch, rows
        return self._known[1]


# --- Files ----------------------------------------------------------------------------------------------


def open_tokens(path: str | Path) -> npt.NDArray[Any]:
    """Map a token file, a .npy file of integers, without reading it.

    Raises:
        DatasetError: it is not there, or not such a file.
    """
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DatasetError(
            "cannot read the tokens", where=str(path), expected="a .npy file", found=str(error)
        ) from error
    if not isinstance(array, np.ndarray):
        raise DatasetError("not a token file", where=str(path), expected="a .npy file", found="an archive")
    return array


def write_tokens(path: str | Path, tokens: Sequence[int] | npt.NDArray[Any]) -> None:
    """Write a token file in the smallest unsigned type that holds every vocabulary of its size."""
    array = np.asarray(tokens)
    kind = np.uint16 if array.size == 0 or int(array.max()) < 1 << 16 else np.uint32
    np.save(path, array.astype(kind), allow_pickle=False)


def tokenize_text(text: str, tokenizer: Tokenizer) -> Numbers:
    """Return a text's tokens, the model's start token before them.

    Long texts are tokenized in pieces that end with a line, as no tokenizer needs to look across one.
    """
    ids: list[int] = []
    start, insert = 0, "model"
    while start < len(text):
        end = min(len(text), start + TRAINING_TEXT_PIECE)
        if end < len(text):
            end = max(text.rfind("\n", start, end) + 1, 0) or end
            end = end if end > start else min(len(text), start + TRAINING_TEXT_PIECE)
        ids += tokenizer.encode(text[start:end], special="literal", insert=insert)  # type: ignore[arg-type]
        start, insert = end, "none"
    return np.asarray(ids, np.int32)


def read_samples(
    lines: Iterable[str], tokenizer: Tokenizer, template: ChatTemplate | None, where: str = "samples"
) -> list[Sample]:
    """Read samples, one JSON object a line: `{"messages": […]}` learns what the assistant says, `{"prompt": …,
    "completion": …}` the completion, `{"text": …}` everything.

    Raises:
        DatasetError: a line that is none of these, with its number.
    """
    samples = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        address = f"{where}, line {number}"
        try:
            value = json.loads(line)
        except ValueError as error:
            raise DatasetError("not JSON", where=address, found=str(error)) from error
        parts = _parts(value, template, tokenizer, address)
        ids: list[int] = []
        learned: list[bool] = []
        for text, learn in parts:
            piece = tokenizer.encode(text, special="parse", insert="none")
            ids += piece
            learned += [learn] * len(piece)
        samples.append(Sample(ids, learned))
    return samples


def _parts(value: Any, template: ChatTemplate | None, tokenizer: Tokenizer, where: str) -> list[tuple[str, bool]]:
    """Return a sample's text in pieces, each with whether it is learned."""
    begin, end = (_spelling(tokenizer, token) for token in (tokenizer.bos_id, tokenizer.eos_id))
    match value:
        case {"messages": list() as messages} if len(value) == 1:
            if template is None:
                raise DatasetError("the model has no chat template", where=where, hint="Use prompt and completion.")
            return _conversation(messages, template, begin, end, where)
        case {"prompt": str() as prompt, "completion": str() as completion} if len(value) == 2:
            return [(begin + prompt, False), (completion + end, True)]
        case {"text": str() as text} if len(value) == 1:
            return [(begin, False), (text + end, True)]
    expected = '{"messages": […]}, {"prompt": …, "completion": …} or {"text": …}'
    raise DatasetError("not a sample", where=where, expected=expected, found=str(value)[:80])


def _conversation(
    messages: list[Mapping[str, Any]], template: ChatTemplate, begin: str, end: str, where: str
) -> list[tuple[str, bool]]:
    """Split a rendered conversation before and after each of the assistant's messages."""

    def render(count: int, prompt: bool) -> str:
        return template.render(messages[:count], add_generation_prompt=prompt, bos_token=begin, eos_token=end)

    whole = render(len(messages), False)
    parts, place = [], 0
    for number, message in enumerate(messages):
        if not isinstance(message, Mapping) or message.get("role") != "assistant":
            continue
        before, after = render(number, True), render(number + 1, False)
        if not (whole.startswith(before) and whole.startswith(after) and len(before) < len(after)):
            raise DatasetError(
                "the template renders an answer differently in the whole conversation",
                where=where,
                hint="End the conversation with this answer, or give prompt and completion.",
            )
        parts += [(whole[place : len(before)], False), (whole[len(before) : len(after)], True)]
        place = len(after)
    if not parts:
        raise DatasetError("nothing to learn: no message of the assistant", where=where)
    return [*parts, (whole[place:], False)]


def _spelling(tokenizer: Tokenizer, token: int | None) -> str:
    return "" if token is None else tokenizer.token_bytes(token).decode("utf-8", "replace")
