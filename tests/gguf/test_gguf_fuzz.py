"""Damaged files either open, and then describe bytes that are there, or are refused with an error of the package.

Random whole files come out of the writer byte for byte as packed by hand, and out of the reader as they went in.
"""

from __future__ import annotations

import math
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from handmade import (
    ARRAY,
    BOOL,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    STRING,
    TENSOR_F32,
    TENSOR_Q1_0,
    TENSOR_Q2_0_G128,
    TENSOR_Q4_0,
    TENSOR_Q4_K,
    U8,
    U16,
    U32,
    U64,
    array,
    file,
    laid_out,
    pair,
    scalar,
    u32,
    u64,
)
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from prism_inference import gguf
from prism_inference.errors import PrismError

ROWS, SIZE = laid_out(
    [
        ("a", (8, 2), TENSOR_F32),
        ("q", (128, 9), TENSOR_Q2_0_G128),
        ("k", (256, 2), TENSOR_Q4_K),
        ("z", (1,), TENSOR_F32),
    ]
)
PAIRS = [
    pair("general.architecture", scalar(STRING, "qwen3")),
    pair("general.alignment", scalar(U32, 32)),
    pair("qwen3.block_count", scalar(U32, 2)),
    pair("qwen3.context_length", scalar(U64, 2**40)),
    pair("qwen3.eps", scalar(F32, 1e-6)),
    pair("qwen3.base", scalar(F64, 1e6)),
    pair("tokenizer.ggml.tokens", array(STRING, ["<s>", "a", "", "🦊", "b" * 300])),
    pair("tokenizer.ggml.scores", array(F32, [0.0, -1.0, -2.0, -3.0, -4.0])),
    pair("tokenizer.ggml.token_type", array(I32, [3, 1, 1, 1, 1])),
    pair("tokenizer.ggml.add_bos_token", scalar(BOOL, 1)),
    pair("flags", array(BOOL, [1, 0, 1])),
    pair("split.count", scalar(U16, 1)),
]
WHOLE = file(PAIRS, ROWS, bytes(range(256)) * (SIZE // 256 + 1))[: len(file(PAIRS, ROWS, bytes(SIZE)))]
HEADER = len(WHOLE) - SIZE
# Numbers at which readers are known to break.
EDGES = (0, 1, 31, 255, 2**16, 2**31, 2**31 - 1, 2**32 - 1, 2**61, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


def look_at(raw: bytes, path: Path) -> bool:
    """Open the file and touch all that it describes; False if it was refused."""
    path.write_bytes(raw)
    try:
        opened = gguf.open(path)
    except PrismError as error:
        refusal = error
    else:
        refusal = None
    if refusal is not None:
        assert str(path) in str(refusal.where)
        return False
    for key, value in opened.metadata.items():
        assert isinstance(key, str)
        assert isinstance(value, bool | int | float | str | np.ndarray | gguf.StringArray)
        if isinstance(value, gguf.StringArray):
            assert [item.encode("utf-8", "surrogateescape") for item in value] == value.raw()
    total = sum(int(info.data.astype(np.int64).sum()) for info in opened.tensors.values())
    assert 0 <= total <= 255 * len(raw)
    assert sum(info.nbytes for info in opened.tensors.values()) <= len(raw)
    assert all(info.data.nbytes == info.nbytes for info in opened.tensors.values())
    return True


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "damaged.gguf"


def test_the_whole_file_opens(path: Path) -> None:
    assert look_at(WHOLE, path)
    assert gguf.open(path).tensors["q"].type.name == "Q2_0_G128"


FUZZ = settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FUZZ
@given(st.lists(st.tuples(st.integers(0, HEADER - 1), st.integers(1, 255)), min_size=1, max_size=8))
def test_changed_bytes(path: Path, changes: list[tuple[int, int]]) -> None:
    raw = bytearray(WHOLE)
    for position, mask in changes:
        raw[position] ^= mask
    look_at(bytes(raw), path)


@FUZZ
@given(st.integers(0, HEADER - 8), st.sampled_from(EDGES), st.sampled_from([4, 8]))
def test_changed_numbers(path: Path, position: int, number: int, width: int) -> None:
    changed = (number % 2 ** (8 * width)).to_bytes(width, "little")
    look_at(WHOLE[:position] + changed + WHOLE[position + width :], path)


@FUZZ
@given(st.integers(0, HEADER), st.integers(0, 40), st.binary(max_size=40))
def test_taken_and_inserted_bytes(path: Path, position: int, taken: int, inserted: bytes) -> None:
    look_at(WHOLE[:position] + inserted + WHOLE[position + taken :], path)


def test_every_truncation_is_refused(path: Path) -> None:
    """Up to the last byte of the last tensor: its padding may be missing."""
    last = len(WHOLE) - 32 + 4
    assert [length for length in range(last) if look_at(WHOLE[:length], path)] == []
    assert look_at(WHOLE[:last], path)


@FUZZ
@given(st.binary(max_size=300))
@example(u32(ARRAY) + u32(ARRAY) + u64(1))
def test_any_value(path: Path, value: bytes) -> None:
    look_at(file([pair("a", value)]), path)


@FUZZ
@given(st.binary(max_size=300))
def test_any_bytes(path: Path, raw: bytes) -> None:
    assert not look_at(raw, path) or raw.startswith(b"GGUF")


# --- There and back --------------------------------------------------------------------------------------------------

RANGES = {U8: (0, 2**8 - 1), I8: (-(2**7), 2**7 - 1), U16: (0, 2**16 - 1), I16: (-(2**15), 2**15 - 1)}
RANGES |= {U32: (0, 2**32 - 1), I32: (-(2**31), 2**31 - 1), U64: (0, 2**64 - 1), I64: (-(2**63), 2**63 - 1)}
ITEMS: dict[int, st.SearchStrategy[Any]] = {kind: st.integers(*bounds) for kind, bounds in RANGES.items()}
ITEMS |= {F32: st.floats(width=32), F64: st.floats(), BOOL: st.booleans(), STRING: st.binary(max_size=300)}
assert set(ITEMS) == set(range(13)) - {ARRAY}
VALUES = st.sampled_from(sorted(ITEMS)).flatmap(
    lambda kind: st.tuples(st.just(kind), ITEMS[kind] | st.lists(ITEMS[kind], max_size=20))
)
OWN_KEYS = ("general.alignment", "split.")  # these say how the container is to be read
KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30).filter(
    lambda key: not key.startswith(OWN_KEYS)
)


def as_bytes(value: Any) -> Any:
    """Texts as the bytes that they stand for, arrays as lists; floats by their repr, so that NaN equals itself."""
    if isinstance(value, list | np.ndarray | gguf.StringArray):
        return [as_bytes(item) for item in (value.tolist() if isinstance(value, np.ndarray) else value)]
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    return repr(value) if isinstance(value, float) else value


@FUZZ
@given(st.dictionaries(KEYS, VALUES, max_size=12))
def test_any_metadata_there_and_back(path: Path, values: dict[str, tuple[int, Any]]) -> None:
    writer = gguf.GGUFWriter(path)
    for key, (kind, value) in values.items():
        writer.add(key, value, gguf.ValueType(kind))
    writer.write()
    pack = {True: array, False: scalar}
    pairs = [pair(key, pack[isinstance(value, list)](kind, value)) for key, (kind, value) in values.items()]
    assert path.read_bytes() == file(pairs, data=b"")
    found = gguf.open(path).metadata
    assert list(found) == list(values)
    for key, (_, value) in values.items():
        assert as_bytes(found[key]) == as_bytes(value)
        assert isinstance(found[key], np.ndarray | gguf.StringArray) == isinstance(value, list)


PLAIN_TYPES = {"F32": TENSOR_F32, "Q4_0": TENSOR_Q4_0, "Q4_K": TENSOR_Q4_K, "Q1_0": TENSOR_Q1_0}
TENSORS = st.lists(
    st.tuples(
        st.sampled_from(sorted(PLAIN_TYPES)), st.integers(1, 3), st.lists(st.integers(1, 4), max_size=3).map(tuple)
    ),
    max_size=8,
)


@FUZZ
@given(TENSORS, st.integers(0, 16).map(lambda power: 1 << power), st.sampled_from([2, 3]), st.randoms())
def test_any_tensors_there_and_back(
    path: Path, tensors: list[tuple[str, int, tuple[int, ...]]], alignment: int, version: int, random: Random
) -> None:
    writer = gguf.GGUFWriter(path, alignment=alignment, version=version)
    described, pieces = [], []
    for number, (kind, blocks, others) in enumerate(tensors):
        _, block, nbytes = PLAIN_TYPES[kind]
        ne = (blocks * block, *others)
        raw = random.randbytes(blocks * nbytes * math.prod(others))
        writer.add_tensor(f"t{number}", kind, ne, raw)
        described.append((f"t{number}", ne, PLAIN_TYPES[kind]))
        pieces.append(raw)
    writer.write()
    rows, _ = laid_out(described, alignment)
    data = b"".join(raw + bytes(-len(raw) % alignment) for raw in pieces)
    pairs = [pair("general.alignment", scalar(U32, alignment))] if alignment != 32 else []
    assert path.read_bytes() == file(pairs, rows, data, alignment=alignment, version=version)
    opened = gguf.open(path)
    assert (opened.version, opened.alignment) == (version, alignment)
    assert [(info.name, info.ne) for info in opened.tensors.values()] == [(name, ne) for name, ne, _ in described]
    assert [info.data.tobytes() for info in opened.tensors.values()] == pieces
