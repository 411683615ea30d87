"""Datasets from files, told apart by their names: token files, samples, plain texts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from ..chat.template import ChatTemplate
from ..errors import DatasetError, ParameterError
from ..gguf import Metadata
from ..tokenizer import from_metadata
from .data import Dataset, Sample, Samples, Windows, open_tokens, read_samples, tokenize_text


@dataclass(frozen=True)
class Shape:
    """What rows must look like: their length, the model's vocabulary, whether samples may share one, the seed of the
    order."""

    length: int
    vocabulary: int
    pack: bool = True
    seed: int = 0


def open_datasets(
    path: str | Path, metadata: Metadata, shape: Shape, validation: str | float | None = None
) -> tuple[Dataset, Dataset | None]:
    """Return the training set of a file, and the validation set: of another file, or a fraction of the same.

    A `.npy` file holds tokens, a `.jsonl` file samples (`data.read_samples`), any other a UTF-8 text. The fraction is
    taken from the end.

    Raises:
        DatasetError: a file that cannot be used.
        ParameterError: a fraction outside 0 … 1.
    """
    fraction = _fraction(validation)
    whole = _read(Path(path), metadata)
    held = None
    if isinstance(validation, str) and fraction is None:
        held = _read(Path(validation), metadata)
    elif fraction:
        cut = len(whole) - max(1, round(fraction * len(whole)))
        whole, held = whole[:cut], whole[cut:]
    where = str(path)
    data = _dataset(whole, shape, shape.seed, where)
    return data, None if held is None else _dataset(held, shape, None, f"validation of {where}")


def _fraction(validation: str | float | None) -> float | None:
    """Return the fraction that a value says, None where it is a file or nothing."""
    try:
        value = None if validation is None else float(validation)
    except ValueError:
        return None
    if value is not None and not 0 <= value < 1:
        raise ParameterError("wrong fraction", where="validation", expected="a number from 0 to 1", found=value)
    return value


def _read(path: Path, metadata: Metadata) -> npt.NDArray[Any] | list[Sample]:
    if path.suffix == ".npy":
        return open_tokens(path)
    tokenizer = from_metadata(metadata)
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError("cannot read the text", where=str(path), found=str(error)) from error
    if path.suffix != ".jsonl":
        return tokenize_text(text, tokenizer)
    template = ChatTemplate.from_metadata(metadata) if "tokenizer.chat_template" in metadata else None
    return read_samples(text.splitlines(), tokenizer, template, str(path))


def _dataset(source: npt.NDArray[Any] | list[Sample], shape: Shape, seed: int | None, where: str) -> Dataset:
    if isinstance(source, list):
        return Samples(source, shape.length, seed, shape.pack)
    return Windows(source, shape.length, shape.vocabulary, seed, where)
