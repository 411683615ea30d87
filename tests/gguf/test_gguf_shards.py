"""Sets of files: found from any of them, held against each other, and never led elsewhere by metadata."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import handmade
import numpy as np
import pytest
from handmade import I32, STRING, U8, U16, U64, scalar, shard_name

from prism_inference import gguf
from prism_inference.errors import FormatError, PrismError

NAMES = (("a", "b"), ("c",), ("d", "e", "f"))
TOTAL = 6


def shard(number: int, names: tuple[str, ...], keys: Mapping[str, bytes] | None = None, total: int = TOTAL) -> bytes:
    return handmade.shard(number, names, keys, count=len(NAMES), total=total)


def path_of(folder: Path, number: int, count: int = len(NAMES)) -> Path:
    return folder / shard_name(number, count)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, names in enumerate(NAMES):
        path_of(tmp_path, number).write_bytes(shard(number, names))
    return tmp_path


@pytest.mark.parametrize("given", range(len(NAMES)))
def test_any_shard_opens_the_whole_set(given: int, folder: Path) -> None:
    opened = gguf.open(path_of(folder, given))
    assert opened.paths == tuple(path_of(folder, number) for number in range(3))
    assert opened.path == path_of(folder, 0)
    assert opened.size == sum(path.stat().st_size for path in opened.paths)
    assert opened.metadata.string("general.architecture") == "qwen3"
    assert list(opened.tensors) == ["a", "b", "c", "d", "e", "f"]
    for number, names in enumerate(NAMES):
        for name in names:
            assert opened.tensors[name].shard == number
            assert opened.tensors[name].data.view(np.float32).tolist() == [number] * 8


def test_a_set_is_found_from_a_relative_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert len(gguf.open(path_of(Path(), 1).name).tensors) == TOTAL


def test_any_integer_type_will_do_for_the_keys(folder: Path) -> None:
    keys = {"split.no": scalar(U8, 1), "split.count": scalar(U64, 3), "split.tensors.count": scalar(U64, TOTAL)}
    path_of(folder, 1).write_bytes(shard(1, NAMES[1], keys))
    assert len(gguf.open(path_of(folder, 0)).tensors) == TOTAL


@pytest.mark.parametrize("count", [0, 1])
def test_a_set_of_one_may_have_any_name(count: int, tmp_path: Path) -> None:
    path = tmp_path / "any.gguf"
    path.write_bytes(handmade.shard(0, ("a",), count=count, total=1))
    assert list(gguf.open(path).tensors) == ["a"]


WRONG_TOTAL = "split.tensors.count: the shards hold another number of tensors than the set should"
BROKEN = {
    "another number": (1, shard(1, NAMES[1], {"split.no": scalar(U16, 2)}), "expected split.no 1 of 3, found 2 of 3"),
    "another count": (1, shard(1, NAMES[1], {"split.count": scalar(U16, 4)}), "expected split.no 1 of 3, found 1 of 4"),
    "no number": (2, shard(2, NAMES[2], {"split.no": b""}), "split.no: the file has no such key"),
    "no count": (1, shard(1, NAMES[1], {"split.count": b""}), "split.count: the file has no such key"),
    "number as text": (1, shard(1, NAMES[1], {"split.no": scalar(STRING, "1")}), "split.no: wrong kind of value"),
    "another total": (
        0,
        shard(0, NAMES[0], {"split.tensors.count": scalar(I32, 7)}),
        f"{WRONG_TOTAL}: expected 7, found 6",
    ),
    "a tensor too few": (1, shard(1, ()), f"{WRONG_TOTAL}: expected 6, found 5"),
    "the same tensor twice": (2, shard(2, ("d", "a", "f")), "tensor 'a': a tensor occurs in two shards"),
    "cut short": (2, shard(2, NAMES[2])[:-33], "the file ends before the tensor does"),
    "not a file of the format": (1, b"<html></html>", "not a GGUF file"),
}


# Each is looked for from every shard; but a file without a count, or with another, is by itself no part of this set.
LOOKED_FOR = [
    (name, given)
    for name, (number, _, _) in BROKEN.items()
    for given in range(len(NAMES))
    if not (given == number and name in ("no count", "another count"))
]
assert len(LOOKED_FOR) == 28


@pytest.mark.parametrize(("name", "given"), LOOKED_FOR)
def test_a_broken_shard_is_named(name: str, given: int, folder: Path) -> None:
    number, raw, says = BROKEN[name]
    path_of(folder, number).write_bytes(raw)
    with pytest.raises(FormatError) as caught:
        gguf.open(path_of(folder, given))
    assert says in str(caught.value)
    # Which shard lacks a tensor nobody can tell: the total stands in the first.
    assert str(path_of(folder, 0 if WRONG_TOTAL in says else number)) in str(caught.value)


def test_missing_shards_are_named(folder: Path) -> None:
    path_of(folder, 1).unlink()
    with pytest.raises(FormatError, match=r"expected 3 files, found no model-00002-of-00003\.gguf\nPut all"):
        gguf.open(path_of(folder, 0))


ODD_NAMES = (
    "renamed.gguf",
    "model-00001-of-00004.gguf",
    "model-00000-of-00003.gguf",
    "model-00004-of-00003.gguf",
    "model-1-of-3.gguf",
    "model-00001-of-00003.gguf.bak",
    "model-０0001-of-00003.gguf",
)


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_name_that_does_not_fit_is_refused(name: str, folder: Path) -> None:
    path_of(folder, 0).rename(folder / name)
    with pytest.raises(FormatError, match="the name of a shard does not tell its place"):
        gguf.open(folder / name)


def test_no_path_is_taken_from_metadata(tmp_path: Path) -> None:
    """A prefix with a slash or dots in a key changes nothing: the set lies beside the file that was given."""
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    inside.mkdir()
    keys = {"split.prefix": scalar(STRING, "../outside/model"), "split.name": scalar(STRING, str(outside / "model"))}
    path_of(inside, 0, 2).write_bytes(handmade.shard(0, ("a",), keys, count=2, total=2))
    path_of(outside, 1, 2).write_bytes(handmade.shard(1, ("b",), count=2, total=2))
    with pytest.raises(PrismError, match=r"found no model-00002-of-00002\.gguf"):
        gguf.open(path_of(inside, 0, 2))
