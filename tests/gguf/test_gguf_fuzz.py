"""Damaged files either open, and then describe bytes that are there, or are refused with an error of the package."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from handmade import (
    ARRAY,
    BOOL,
    F32,
    F64,
    I32,
    STRING,
    TENSOR_F32,
    TENSOR_Q2_0_G128,
    TENSOR_Q4_K,
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
