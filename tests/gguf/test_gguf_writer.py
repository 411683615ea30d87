"""The writer: what it writes is what was given, by the judgement of other readers, and never half a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ggml_reader import read_all
from handmade import (
    BOOL,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    STRING,
    TENSOR_F32,
    U8,
    U16,
    U32,
    U64,
    array,
    file,
    laid_out,
    pair,
)
from handmade import scalar as packed
from resident import peak_memory

from prism_inference import gguf, limits
from prism_inference.errors import FormatError, LimitError, PrismError, UnsupportedError
from prism_inference.gguf import GGUFWriter, ValueType


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "model.gguf"


# --- The bytes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 3])
def test_the_bytes_are_those_of_the_format(version: int, target: Path) -> None:
    writer = GGUFWriter(target, version=version)
    writer.add("a.text", "Größe")
    writer.add("a.number", 7)
    writer.add_tensor("t", "F32", (3, 2), np.arange(6, dtype=np.float32))
    writer.add_tensor("u", "F32", (1,), np.float32([9]))
    writer.write()
    rows, _ = laid_out([("t", (3, 2), TENSOR_F32), ("u", (1,), TENSOR_F32)])
    data = np.arange(6, dtype="<f4").tobytes() + bytes(8) + np.float32([9]).tobytes() + bytes(28)
    expected = file(
        [pair("a.text", packed(STRING, "Größe")), pair("a.number", packed(U32, 7))], rows, data, version=version
    )
    assert target.read_bytes() == expected


# Value given, type given or None, type and value as packed by hand.
VALUES: dict[str, tuple[Any, ValueType | None, bytes]] = {
    "true": (True, None, packed(BOOL, 1)),
    "numpy's false": (np.bool_(False), None, packed(BOOL, 0)),
    "text": ("a 🦊", None, packed(STRING, "a 🦊")),
    "bytes": (b"\xff\xfe", None, packed(STRING, b"\xff\xfe")),
    "escaped bytes": ("\udcff", None, packed(STRING, b"\xff")),
    "float": (0.1, None, packed(F32, 0.1)),
    "numpy's float": (np.float64(0.5), None, packed(F32, 0.5)),
    "small integer": (2**32 - 1, None, packed(U32, 2**32 - 1)),
    "negative integer": (-(2**31), None, packed(I32, -(2**31))),
    "large integer": (2**32, None, packed(U64, 2**32)),
    "large negative integer": (-(2**31) - 1, None, packed(I64, -(2**31) - 1)),
    "numpy's integer": (np.int64(5), None, packed(U32, 5)),
    "u8": (255, ValueType.UINT8, packed(U8, 255)),
    "i8": (-128, ValueType.INT8, packed(I8, -128)),
    "u16": (65_535, ValueType.UINT16, packed(U16, 65_535)),
    "i16": (-5, ValueType.INT16, packed(I16, -5)),
    "u64": (5, ValueType.UINT64, packed(U64, 5)),
    "i64": (5, ValueType.INT64, packed(I64, 5)),
    "f64": (0.1, ValueType.FLOAT64, packed(F64, 0.1)),
    "integer as a float": (3, ValueType.FLOAT32, packed(F32, 3.0)),
    "integers": ([1, -2], None, array(I32, [1, -2])),
    "large integers": ([1, 2**31], None, array(I64, [1, 2**31])),
    "huge integers": ([1, 2**63], None, array(U64, [1, 2**63])),
    "floats": ((0.5, 1), None, array(F32, [0.5, 1.0])),
    "bools": ([True, False], None, array(BOOL, [1, 0])),
    "texts": (["a", b"\xff", ""], None, array(STRING, ["a", b"\xff", ""])),
    "nothing": ([], None, array(I32, [])),
    "no texts": ([], ValueType.STRING, array(STRING, [])),
    "numbers of a type": ([1, 2], ValueType.UINT16, array(U16, [1, 2])),
    "array of u8": (np.arange(3, dtype=np.uint8), None, array(U8, [0, 1, 2])),
    "array of f64": (np.float64([0.1]), None, array(F64, [0.1])),
    "array of bools": (np.array([True, False]), None, array(BOOL, [1, 0])),
    "array with swapped bytes": (np.array([1, 2], ">i2"), None, array(I16, [1, 2])),
    "array with steps": (np.arange(6, dtype=np.int32)[::2], None, array(I32, [0, 2, 4])),
    "array of another type": (np.arange(3), ValueType.UINT8, array(U8, [0, 1, 2])),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_are_packed_with_the_right_type(name: str, target: Path) -> None:
    value, kind, expected = VALUES[name]
    writer = GGUFWriter(target)
    writer.add("a.key", value, kind)
    writer.write()
    assert target.read_bytes() == file([pair("a.key", expected)], data=b"")


NOT_UTF_8 = ("bytes", "escaped bytes", "texts")  # other readers want UTF-8
SINGLE = packed(F32, 0.0)[:4]


def plain(value: Any, expected: bytes) -> Any:
    """A value as Python objects; what is stored as FLOAT32, rounded to it."""
    rounded = np.float32(value) if expected.startswith(SINGLE) else value
    return np.asarray(rounded).tolist()


def write_varied(path: Path, alignment: int, rng: np.random.Generator) -> dict[str, tuple[int, tuple[int, ...], bytes]]:
    """Write a file of every kind of value and tensor type that other readers know; return its tensors."""
    writer = GGUFWriter(path, alignment=alignment)
    writer.add("general.architecture", "llama")
    for name, (value, kind, _) in VALUES.items():
        if name not in NOT_UTF_8:
            writer.add(f"key.{name}", value, kind)
    tensors = {}
    for row in gguf.TENSOR_TYPES.values():
        # Neither the gguf package nor ggml knows Prism's own numbers, and the first has an outdated size of Q8_1.
        if row.id <= 41 and row.name != "Q8_1":
            ne = (2 * row.block, 3, 2)
            data = rng.integers(0, 256, row.nbytes * 12, dtype=np.uint8)
            writer.add_tensor(f"tensor.{row.name}", row, ne, data)
            tensors[f"tensor.{row.name}"] = (row.id, ne, data.tobytes())
    writer.write()
    return tensors


@pytest.mark.parametrize("alignment", [32, 64, 4096])
def test_the_gguf_package_reads_what_was_written(alignment: int, target: Path, rng: np.random.Generator) -> None:
    package = pytest.importorskip("gguf", reason="the gguf package is not installed")
    tensors = write_varied(target, alignment, rng)
    assert len(tensors) > 30
    reader = package.GGUFReader(target)
    assert reader.alignment == alignment
    assert [found.name for found in reader.tensors] == list(tensors)
    for found in reader.tensors:
        number, ne, raw = tensors[found.name]
        assert int(found.tensor_type) == number
        assert tuple(int(extent) for extent in found.shape) == ne
        assert np.ascontiguousarray(found.data).tobytes() == raw
    found = {name: field.contents() for name, field in reader.fields.items() if name.startswith("key.")}
    assert found == {f"key.{name}": plain(VALUES[name][0], VALUES[name][2]) for name in VALUES if name not in NOT_UTF_8}


def test_ggml_reads_what_was_written(target: Path, rng: np.random.Generator) -> None:
    tensors = write_varied(target, 64, rng)
    (found,) = read_all([target])
    assert found is not None
    assert found["alignment"] == 64
    assert [(name, number, size) for name, number, _, size in found["tensors"]] == [
        (name, number, len(raw)) for name, (number, _, raw) in tensors.items()
    ]
    assert found["values"]["key.huge integers"] == [1, 2**63]
    assert found["values"]["key.bools"] == [True, False]
    assert found["types"]["key.f64"] == F64


def test_what_the_gguf_package_writes_is_read(target: Path, rng: np.random.Generator) -> None:
    package = pytest.importorskip("gguf", reason="the gguf package is not installed")
    writer = package.GGUFWriter(target, "llama")
    writer.add_custom_alignment(64)
    writer.add_uint32("llama.block_count", 3)
    writer.add_float32("llama.eps", 0.5)
    writer.add_bool("llama.flag", True)
    writer.add_int64("llama.big", -(2**40))
    writer.add_array("llama.list", [1, 2, 3])
    writer.add_token_list([b"a", b"\xff", "🦊".encode()])
    floats = rng.standard_normal((4, 6)).astype(np.float32)
    halves = rng.standard_normal((2, 3, 5)).astype(np.float16)
    blocks = rng.integers(0, 256, (8, 2 * 34), dtype=np.uint8)
    writer.add_tensor("floats", floats)
    writer.add_tensor("halves", halves)
    writer.add_tensor("blocks", blocks, raw_dtype=package.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    opened = gguf.open(target)
    assert opened.alignment == 64
    assert opened.metadata.integer("llama.block_count") == 3
    assert opened.metadata.number("llama.eps") == 0.5
    assert opened.metadata.boolean("llama.flag") is True
    assert opened.metadata.integer("llama.big") == -(2**40)
    assert opened.metadata.integers("llama.list").tolist() == [1, 2, 3]
    assert opened.metadata.byte_strings("tokenizer.ggml.tokens") == [b"a", b"\xff", "🦊".encode()]
    for name, values, kind, ne in (
        ("floats", floats, "F32", (6, 4)),
        ("halves", halves, "F16", (5, 3, 2)),
        ("blocks", blocks, "Q8_0", (64, 8)),
    ):
        info = opened.tensors[name]
        assert (info.type.name, info.ne) == (kind, ne)
        assert info.data.tobytes() == values.tobytes()


def test_metadata_of_a_file_can_be_written_again(shared: Path, target: Path) -> None:
    original = gguf.open(shared / "golden" / "vocabs" / "ggml-vocab-bert-bge.gguf").metadata
    writer = GGUFWriter(target)
    for key, value in original.items():
        writer.add(key, value)
    writer.write()
    copy = gguf.open(target).metadata
    assert list(copy) == list(original)
    for key, value in original.items():
        if isinstance(value, np.ndarray):
            assert copy[key].dtype == value.dtype
            np.testing.assert_array_equal(copy[key], value)
        else:
            assert copy[key] == value
    tokens = original.byte_strings("tokenizer.ggml.tokens")
    assert len(tokens) > 30_000
    assert copy.byte_strings("tokenizer.ggml.tokens") == tokens


# --- Tensors in pieces -----------------------------------------------------------------------------------------------


def test_chunks_of_any_kind_and_size(target: Path, rng: np.random.Generator) -> None:
    values = rng.standard_normal(1000).astype(np.float32)
    raw = values.tobytes()
    pieces: dict[str, Any] = {
        "bytes": raw,
        "bytearray": bytearray(raw),
        "memoryview": memoryview(raw),
        "array": values,
        "swapped": values.astype(">f4"),
        "rows": list(values.reshape(10, 100)),
        "columns": np.asfortranarray(values.reshape(10, 100)),
        "mixed": iter([raw[:7], memoryview(raw)[7:400], values[100:], b""]),
    }
    writer = GGUFWriter(target)
    for name, data in pieces.items():
        writer.add_tensor(name, "F32", (1000,), data)
    writer.write()
    opened = gguf.open(target)
    assert [name for name in pieces if opened.tensors[name].data.tobytes() != raw] == []


def test_a_large_tensor_is_not_held_in_memory(target: Path, tmp_path: Path) -> None:
    count, piece = 64, limits.MIB
    mapped = np.memmap(tmp_path / "raw", np.uint8, "w+", shape=(8 * piece,))
    mapped[:] = 7

    def chunks() -> Iterator[np.ndarray]:
        for number in range(count):
            yield np.full(piece, number, np.uint8)

    writer = GGUFWriter(target)
    writer.add_tensor("chunks", "I8", (piece, count), chunks())
    with peak_memory() as memory:
        writer.write()
    assert memory.growth < 8 * piece
    data = gguf.open(target).tensors["chunks"].data.reshape(count, piece)
    assert (data.min(axis=1) == np.arange(count)).all()
    assert (data.max(axis=1) == np.arange(count)).all()
    writer = GGUFWriter(target)
    writer.add_tensor("mapped", "I8", (8 * piece,), mapped)
    writer.write()
    assert (gguf.open(target).tensors["mapped"].data == 7).all()


# --- Whole or not at all ---------------------------------------------------------------------------------------------


def failing() -> Iterator[bytes]:
    yield bytes(64)
    raise RuntimeError("the source broke")


def endless() -> Iterator[bytes]:
    while True:
        yield bytes(limits.MIB)


INTERRUPTED: dict[str, tuple[Any, type[Exception], str]] = {
    "too few bytes": (iter([bytes(100)]), FormatError, "expected 128, found 100"),
    "too many bytes": (iter([bytes(100), bytes(100)]), FormatError, "expected 128, found 200"),
    "endless bytes": (endless(), FormatError, "wrong number of bytes"),
    "a source that fails": (failing(), RuntimeError, "the source broke"),
    "not bytes": (iter(["text"]), TypeError, "bytes-like object"),
}


@pytest.mark.parametrize("name", INTERRUPTED)
def test_nothing_is_left_of_an_interrupted_file(name: str, target: Path) -> None:
    data, error, says = INTERRUPTED[name]
    target.write_bytes(b"what was there before")
    writer = GGUFWriter(target)
    writer.add_tensor("a", "F32", (32,), data)
    with pytest.raises(error, match=says):
        writer.write()
    assert list(target.parent.iterdir()) == [target]
    assert target.read_bytes() == b"what was there before"


def test_an_existing_file_is_replaced_while_it_is_open(target: Path) -> None:
    for number in (1, 2):
        writer = GGUFWriter(target)
        writer.add_tensor("a", "F32", (32,), np.full(32, number, np.float32))
        writer.write()
        if number == 1:
            first = gguf.open(target)
    assert first.tensors["a"].data.view(np.float32).tolist() == [1] * 32
    assert gguf.open(target).tensors["a"].data.view(np.float32).tolist() == [2] * 32


@pytest.mark.skipif(os.name != "posix", reason="file modes of POSIX")
def test_the_file_has_the_mode_that_the_user_s_mask_leaves(target: Path) -> None:
    before = os.umask(0o027)
    try:
        GGUFWriter(target).write()
    finally:
        os.umask(before)
    assert target.stat().st_mode & 0o777 == 0o640


# --- Refusals --------------------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[Callable[[GGUFWriter], object], type[PrismError], str]] = {
    "empty key": (lambda w: w.add("", 1), FormatError, "a name is empty"),
    "long key": (lambda w: w.add("k" * 65_536, 1), LimitError, "at most 65535 bytes"),
    "key with half a pair": (lambda w: w.add("\ud800", 1), FormatError, "not a text"),
    "key of broken bytes": (lambda w: w.add("\udcff", 1), FormatError, "not UTF-8"),
    "key twice": (lambda w: (w.add("a", 1), w.add("a", 2)), FormatError, "'a': a name occurs twice"),
    "alignment by key": (lambda w: w.add("general.alignment", 64), FormatError, "Give it to GGUFWriter"),
    "value too large": (lambda w: w.add("a", 256, ValueType.UINT8), FormatError, "expected UINT8, found 256"),
    "negative for unsigned": (lambda w: w.add("a", -1, ValueType.UINT32), FormatError, "expected UINT32, found -1"),
    "integer of 65 bits": (lambda w: w.add("a", 2**64), FormatError, "a value that GGUF cannot hold"),
    "integers that no type holds": (lambda w: w.add("a", [-1, 2**63]), FormatError, "a value that GGUF cannot hold"),
    "float too large": (lambda w: w.add("a", 1e300), FormatError, "expected FLOAT32, found 1e+300"),
    "float for an integer": (lambda w: w.add("a", 1.5, ValueType.INT32), FormatError, "expected INT32, found 1.5"),
    "bool for an integer": (lambda w: w.add("a", True, ValueType.UINT8), FormatError, "expected UINT8, found True"),
    "integer for a bool": (lambda w: w.add("a", 2, ValueType.BOOL), FormatError, "expected BOOL, found 2"),
    "bools among integers": (lambda w: w.add("a", [1, True]), FormatError, "expected INT32, found [1, True]"),
    "text among integers": (lambda w: w.add("a", [1, "x"]), FormatError, "a value that GGUF cannot hold"),
    "number for a text": (lambda w: w.add("a", 5, ValueType.STRING), FormatError, "expected text or bytes, found 5"),
    "nothing": (lambda w: w.add("a", None), FormatError, "a value that GGUF cannot hold: found None"),
    "mapping": (lambda w: w.add("a", {"x": 1}), FormatError, "a value that GGUF cannot hold"),
    "array of arrays": (lambda w: w.add("a", [[1], [2]]), FormatError, "a value that GGUF cannot hold"),
    "array type": (lambda w: w.add("a", [1], ValueType.ARRAY), FormatError, "an array of arrays"),
    "scalar array": (lambda w: w.add("a", np.array(5)), FormatError, "found 0 dimensions of int64"),
    "matrix": (lambda w: w.add("a", np.zeros((2, 2))), FormatError, "found 2 dimensions of float64"),
    "array of halves": (lambda w: w.add("a", np.float16([1])), FormatError, "found 1 dimensions of float16"),
    "long text": (lambda w: w.add("a", "x" * (2**24 + 1)), LimitError, "a string is too long"),
    "long array": (lambda w: w.add("a", np.zeros(4_000_001, np.uint8)), LimitError, "an array is too long"),
    "empty name": (lambda w: w.add_tensor("", "F32", (1,), bytes(4)), FormatError, "a name is empty"),
    "long name": (lambda w: w.add_tensor("t" * 65, "F32", (1,), bytes(4)), LimitError, "at most 64 bytes"),
    "tensor twice": (
        lambda w: [w.add_tensor("t", "F32", (1,), bytes(4)) for _ in range(2)],
        FormatError,
        "tensor 't': a name occurs twice",
    ),
    "unknown type": (lambda w: w.add_tensor("t", "Q9", (1,), b""), UnsupportedError, "unknown tensor type"),
    "no extents": (lambda w: w.add_tensor("t", "F32", (), bytes(4)), FormatError, "wrong extents"),
    "extent 0": (lambda w: w.add_tensor("t", "F32", (4, 0), b""), FormatError, "wrong extents"),
    "half an extent": (lambda w: w.add_tensor("t", "F32", (1.5,), bytes(4)), FormatError, "found (1.5,)"),
    "five extents": (lambda w: w.add_tensor("t", "F32", (1,) * 5, bytes(4)), LimitError, "too many extents"),
    "large extent": (lambda w: w.add_tensor("t", "I8", (2**31 + 1,), iter(())), LimitError, "an extent is too large"),
    "many elements": (lambda w: w.add_tensor("t", "I8", (2**31, 2**10), iter(())), LimitError, "too many elements"),
    "half a block": (lambda w: w.add_tensor("t", "Q4_0", (48,), bytes(27)), FormatError, "whole blocks of Q4_0"),
    "wrong bytes": (lambda w: w.add_tensor("t", "F32", (4,), bytes(15)), FormatError, "expected 16, found 15"),
    "wrong array": (lambda w: w.add_tensor("t", "F32", (4,), np.zeros(4)), FormatError, "expected 16, found 32"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_reader_would_refuse_is_refused(name: str, target: Path) -> None:
    act, error, says = REFUSED[name]
    writer = GGUFWriter(target)
    with pytest.raises(error) as caught:
        act(writer)
    assert says in str(caught.value)
    assert str(target) in str(caught.value)
    # What was refused is not there, what was taken before is: the file can be written and read.
    writer.write()
    opened = gguf.open(target)
    assert list(opened.metadata) == (["a"] if name == "key twice" else [])
    assert list(opened.tensors) == (["t"] if name == "tensor twice" else [])


@pytest.mark.parametrize("alignment", [0, -32, 3, 48, 131_072])
def test_wrong_alignments_are_refused(alignment: int, target: Path) -> None:
    with pytest.raises(FormatError, match="wrong alignment: expected a power of two up to 65536"):
        GGUFWriter(target, alignment=alignment)


@pytest.mark.parametrize("version", [1, 4])
def test_other_versions_are_refused(version: int, target: Path) -> None:
    with pytest.raises(UnsupportedError, match=f"expected 2 or 3, found {version}"):
        GGUFWriter(target, version=version)


@pytest.mark.parametrize("what", ["GGUF_MAX_KEYS", "GGUF_MAX_TENSORS", "GGUF_MAX_STRINGS", "GGUF_MAX_HEADER_BYTES"])
def test_limits_of_the_whole_file(what: str, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"prism_inference.gguf.writer.{what}", 90 if what == "GGUF_MAX_HEADER_BYTES" else 2)
    writer = GGUFWriter(target)

    def fill() -> None:
        for number in range(3):
            writer.add(f"key{number}", ["text"] if what == "GGUF_MAX_STRINGS" else 1)
            writer.add_tensor(f"tensor{number}", "I8", (1,), b"1")
        writer.write()

    with pytest.raises(LimitError, match="expected at most"):
        fill()
    assert not target.exists()


# --- Type 42 ---------------------------------------------------------------------------------------------------------
# Two layouts share the number, and only sizes tell them apart: what the reader would take for the other is not written.

Q2_TENSORS: dict[str, list[tuple[str, tuple[int, ...]]]] = {
    "the older one, of a size of both": [("Q2_0_G128", (128,)), ("Q2_0_G128", (128,))],
    "the older one, then Q2_0": [("Q2_0_G128", (512, 16)), ("Q2_0", (512, 16))],
    "Q2_0, then the older one": [("Q2_0", (512, 16)), ("Q2_0_G128", (512, 16))],
}


def add_tensors(writer: GGUFWriter, described: list[tuple[str, tuple[int, ...]]]) -> None:
    for number, (kind, ne) in enumerate(described):
        nbytes = gguf.tensor_type(kind).size(int(np.prod(ne)))
        writer.add_tensor(f"t{number}", kind, ne, bytes([number + 1]) * nbytes)


@pytest.mark.parametrize("name", Q2_TENSORS)
def test_layouts_that_the_file_would_not_tell_apart_are_refused(name: str, target: Path) -> None:
    writer = GGUFWriter(target)
    add_tensors(writer, Q2_TENSORS[name])
    with pytest.raises(FormatError, match="nothing in the file would tell") as caught:
        writer.write()
    assert "PQ2_0" in str(caught.value.hint)
    assert list(target.parent.iterdir()) == []


@pytest.mark.parametrize("kind", ["Q2_0", "Q2_0_G128", "PQ2_0"])
def test_each_layout_of_two_bits_is_read_as_what_was_written(kind: str, target: Path) -> None:
    described = [("F32", (8,)), (kind, (512, 16)), (kind, (256, 8))]
    writer = GGUFWriter(target)
    add_tensors(writer, described)
    writer.write()
    found = gguf.open(target).tensors
    assert [(info.type.name, info.ne) for info in found.values()] == described
    assert [set(info.data.tolist()) for info in found.values()] == [{1}, {2}, {3}]
