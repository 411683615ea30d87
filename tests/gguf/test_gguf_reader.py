"""The reader: values and tensors of well-formed files, read lazily, and alike to what other readers find."""

from __future__ import annotations

import gc
import os
import struct
import time
from pathlib import Path

import numpy as np
import pytest
from ggml_reader import read_all
from handmade import (
    ARRAY,
    BOOL,
    CODES,
    F32,
    STRING,
    TENSOR_F32,
    TENSOR_Q1_0,
    TENSOR_Q4_K,
    U8,
    U16,
    U32,
    array,
    file,
    laid_out,
    pair,
    scalar,
    string,
    tensor,
    u32,
    u64,
)
from resident import peak_memory

from prism_inference import gguf, limits
from prism_inference.errors import FormatError, UnsupportedError


def write(path: Path, raw: bytes) -> Path:
    path.write_bytes(raw)
    return path


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "model.gguf"


# --- Values ----------------------------------------------------------------------------------------------------------

EDGES = {
    kind: sorted({0, 1, *bounds})
    for kind, bounds in {
        code: (-(1 << 8 * struct.calcsize(letter) - 1), (1 << 8 * struct.calcsize(letter) - 1) - 1)
        if letter.islower()
        else (0, (1 << 8 * struct.calcsize(letter)) - 1)
        for code, letter in CODES.items()
        if letter not in "fd" and code != BOOL
    }.items()
}
assert len(EDGES) == 8


@pytest.mark.parametrize("kind", EDGES)
def test_integers_keep_their_value_and_width(kind: int, target: Path) -> None:
    pairs = [pair(f"k{number}", scalar(kind, value)) for number, value in enumerate(EDGES[kind])]
    with gguf.open(write(target, file([*pairs, pair("all", array(kind, EDGES[kind]))]))) as opened:
        assert [opened.metadata[f"k{number}"] for number in range(len(EDGES[kind]))] == EDGES[kind]
        stored = opened.metadata["all"]
        assert stored.tolist() == EDGES[kind]
        assert stored.dtype == np.dtype(f"<{CODES[kind]}")
        assert not stored.flags.writeable


def test_floats_bools_and_texts(target: Path) -> None:
    raw = file(
        [
            pair("f32", scalar(F32, 0.1)),
            pair("f64", scalar(12, 0.1)),
            pair("nan", array(F32, [float("inf"), float("-inf"), 0.5])),
            pair("yes", scalar(BOOL, 1)),
            pair("no", scalar(BOOL, 0)),
            pair("bools", array(BOOL, [1, 0, 1])),
            pair("text", scalar(STRING, "Größe 🦊\n")),
            pair("empty", scalar(STRING, "")),
            pair("broken", u32(STRING) + string(b"a\xff")),
            pair("texts", array(STRING, ["", "a", "🦊" * 100, "x" * 300])),
            pair("no texts", array(STRING, [])),
            pair("no numbers", array(F32, [])),
        ]
    )
    found = gguf.open(write(target, raw)).metadata
    assert found["f32"] == float(np.float32(0.1))
    assert found["f64"] == 0.1
    assert found["nan"].tolist() == [np.inf, -np.inf, 0.5]
    assert found["yes"] is True
    assert found["no"] is False
    assert found["bools"].tolist() == [True, False, True]
    assert found["bools"].dtype == np.bool_
    assert found["text"] == "Größe 🦊\n"
    assert found["empty"] == ""
    assert found["broken"].encode("utf-8", "surrogateescape") == b"a\xff"
    assert list(found["texts"]) == ["", "a", "🦊" * 100, "x" * 300]
    assert found["texts"][-1] == "x" * 300
    assert found["texts"][1:3] == ["a", "🦊" * 100]
    assert found["texts"].raw() == [b"", b"a", "🦊".encode() * 100, b"x" * 300]
    assert len(found["no texts"]) == 0
    assert found["no texts"].raw() == []
    assert found["no numbers"].shape == (0,)
    assert list(found) == [
        *("f32", "f64", "nan", "yes", "no", "bools", "text", "empty", "broken", "texts", "no texts", "no numbers")
    ]


def test_an_index_beyond_the_strings_is_an_index_error(target: Path) -> None:
    texts = gguf.open(write(target, file([pair("t", array(STRING, ["a"]))]))).metadata["t"]
    with pytest.raises(IndexError):
        texts[1]


# --- Versions and tensors --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 3])
def test_both_versions_are_read(version: int, target: Path) -> None:
    rows, size = laid_out([("a", (4,), TENSOR_F32)])
    opened = gguf.open(write(target, file([], rows, bytes(size), version=version)))
    assert opened.version == version
    assert opened.alignment == 32
    assert opened.size == target.stat().st_size
    assert opened.path == target
    assert opened.paths == (target,)
    assert list(opened.tensors) == ["a"]


def test_an_empty_file_of_the_format_is_fine(target: Path) -> None:
    opened = gguf.open(write(target, file()))
    assert (len(opened.metadata), len(opened.tensors)) == (0, 0)


@pytest.mark.parametrize("alignment", [1, 8, 32, 64, 4096, 65536])
def test_tensors_lie_where_the_format_says(alignment: int, target: Path, rng: np.random.Generator) -> None:
    described = [
        ("a", (3, 5), TENSOR_F32),
        ("b", (512, 2, 3), TENSOR_Q4_K),
        ("c", (1,), TENSOR_F32),
        ("d", (128,), TENSOR_Q1_0),
    ]
    rows, size = laid_out(described, alignment)
    data = rng.integers(0, 256, size, dtype=np.uint8).tobytes()
    pairs = [pair("general.alignment", scalar(U32, alignment))]
    opened = gguf.open(write(target, file(pairs, rows, data, alignment=alignment)))
    assert opened.alignment == alignment
    offset = 0
    for (name, ne, (number, block, nbytes)), info in zip(described, opened.tensors.values(), strict=True):
        size = int(np.prod(ne)) // block * nbytes
        assert (info.name, info.type.id, info.ne, info.nbytes, info.offset) == (name, number, ne, size, offset)
        assert info.elements == np.prod(ne)
        assert info.data.tobytes() == data[offset : offset + size]
        assert info.data.dtype == np.uint8
        assert not info.data.flags.writeable
        offset += -(-size // alignment) * alignment


def test_the_padding_of_the_last_tensor_may_be_missing(target: Path) -> None:
    opened = gguf.open(write(target, file([], [tensor("a", (3,), 0, 0)], b"\1" * 12)))
    assert opened.tensors["a"].data.tobytes() == b"\1" * 12


def test_bytes_after_the_last_tensor_are_ignored(target: Path) -> None:
    opened = gguf.open(write(target, file([], [tensor("a", (3,), 0, 0)], b"\1" * 12 + b"\2" * 1000)))
    assert opened.tensors["a"].data.tobytes() == b"\1" * 12


def test_tensors_without_elements_or_extents_are_read(target: Path) -> None:
    rows = [tensor("none", (32, 0, 2), 2, 0), tensor("scalar", (), 0, 0)]
    opened = gguf.open(write(target, file([], rows, bytes(32))))
    assert (opened.tensors["none"].ne, opened.tensors["none"].nbytes) == ((32, 0, 2), 0)
    assert (opened.tensors["scalar"].ne, opened.tensors["scalar"].nbytes) == ((1,), 4)


def test_the_largest_names_are_read(target: Path) -> None:
    opened = gguf.open(
        write(target, file([pair("k" * 65_535, scalar(U8, 7))], [tensor("t" * 64, (8,), 0, 0)], bytes(32)))
    )
    assert opened.metadata["k" * 65_535] == 7
    assert list(opened.tensors) == ["t" * 64]


# --- Type 42 ---------------------------------------------------------------------------------------------------------
# The format's page: mainline Q2_0 has 64 weights in 18 bytes; Prism's first ternary files have 128 in 34, same number.

MAINLINE, LEGACY = (42, 64, 18), (42, 128, 34)


@pytest.mark.parametrize(("layout", "name"), [(MAINLINE, "Q2_0"), (LEGACY, "Q2_0_G128")])
@pytest.mark.parametrize("last", ["Q2", "F32"])
def test_type_42_is_told_by_the_layout(layout: tuple[int, int, int], name: str, last: str, target: Path) -> None:
    described = [("n", (8,), TENSOR_F32), ("a", (512, 16), layout), ("b", (1024, 8), layout)]
    described += [] if last == "Q2" else [("z", (8,), TENSOR_F32)]
    rows, size = laid_out(described)
    opened = gguf.open(write(target, file([], rows, bytes(size))))
    assert [info.type.name for info in opened.tensors.values() if info.type.id == 42] == [name, name]
    assert opened.tensors["a"].nbytes == 512 * 16 // layout[1] * layout[2]


@pytest.mark.parametrize(("layout", "name"), [(MAINLINE, "Q2_0"), (LEGACY, "Q2_0_G128")])
def test_a_single_tensor_of_type_42_is_told_by_the_end_of_the_file(
    layout: tuple[int, int, int], name: str, target: Path
) -> None:
    rows, size = laid_out([("a", (512, 40), layout)])
    assert gguf.open(write(target, file([], rows, bytes(size)))).tensors["a"].type.name == name


def test_the_published_offsets_are_those_of_the_older_layout(target: Path) -> None:
    """The case of ggml-org/llama.cpp#25833: 5120 x 248320 weights, the next tensor at 337,715,200."""
    with target.open("wb") as out:
        out.write(file([], [tensor("output.weight", (5120, 248_320), 42, 0), tensor("b", (128,), 42, 337_715_200)]))
        out.truncate(-(-out.tell() // 32) * 32 + 337_715_200 + 64)  # a sparse file: it takes no room on the disk
    with gguf.open(target) as opened:
        assert opened.tensors["output.weight"].type is gguf.TENSOR_TYPES["Q2_0_G128"]
        assert opened.tensors["output.weight"].nbytes == 337_715_200


def test_a_tie_is_mainline(target: Path) -> None:
    """36 and 34 bytes are both 64 when padded to 32: nothing tells the layouts apart."""
    rows = [tensor("a", (128,), 42, 0), tensor("b", (128,), 42, 64)]
    opened = gguf.open(write(target, file([], rows, bytes(128))))
    assert [info.type.name for info in opened.tensors.values()] == ["Q2_0", "Q2_0"]


def test_rows_of_64_can_only_be_mainline(target: Path) -> None:
    rows, size = laid_out([("a", (64, 3), MAINLINE), ("b", (512, 4), MAINLINE)])
    assert gguf.open(write(target, file([], rows, bytes(size)))).tensors["b"].type.name == "Q2_0"


def test_bytes_after_q2_0_are_ignored_where_the_offsets_tell(target: Path) -> None:
    rows, size = laid_out([("a", (512, 40), MAINLINE), ("b", (512, 40), MAINLINE)])
    opened = gguf.open(write(target, file([], rows, bytes(size + 1000))))
    assert [info.type.name for info in opened.tensors.values()] == ["Q2_0", "Q2_0"]


def test_bytes_after_a_tie_are_ignored(target: Path) -> None:
    """Neither the offsets nor the end of the last tensor differ: the end of the file has nothing to decide."""
    rows = [tensor("a", (128,), 42, 0), tensor("b", (8,), 0, 64)]
    opened = gguf.open(write(target, file([], rows, bytes(96 + 1000))))
    assert [info.type.name for info in opened.tensors.values()] == ["Q2_0", "F32"]


def test_a_file_proven_to_be_of_a_layout_is_not_tried_as_the_other(target: Path) -> None:
    """Q2_0 by its second offset, cut where the older layout would have room to spare."""
    rows, size = laid_out([("a", (512, 40), MAINLINE), ("b", (512, 40), MAINLINE)])
    with pytest.raises(FormatError, match=r"expected 5760 bytes of Q2_0 at offset 5760, found 5600 bytes"):
        gguf.open(write(target, file([], rows, bytes(size - 160))))


@pytest.mark.parametrize("names", ["a", "ab"])
def test_bytes_after_the_older_layout_are_refused(names: str, target: Path) -> None:
    """They would do for the last tensor as Q2_0: the weights must not be read as what they are not."""
    rows, size = laid_out([(name, (512, 40), LEGACY) for name in names])
    with pytest.raises(FormatError, match="fit neither Q2_0"):
        gguf.open(write(target, file([], rows, bytes(size + 1000))))


# --- What is not a file of the format --------------------------------------------------------------------------------


def test_a_path_to_nothing_is_named(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"missing\.gguf: cannot be opened: found No such file"):
        gguf.open(tmp_path / "missing.gguf")


def test_a_folder_is_told_from_a_file(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"found a folder\nName the GGUF file"):
        gguf.open(tmp_path)


def test_a_path_with_a_zero_byte_is_refused() -> None:
    with pytest.raises(FormatError, match="cannot be opened"):
        gguf.open("a\0b")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FormatError, match="a device or a pipe"):
        gguf.open(tmp_path / "pipe")


def test_an_incomplete_download_is_called_so(target: Path) -> None:
    rows, size = laid_out([("a", (512, 40), TENSOR_Q4_K)])
    raw = file([], rows, bytes(size))
    with pytest.raises(FormatError, match="incomplete download") as caught:
        gguf.open(write(target, raw[: len(raw) // 2]))
    error = caught.value
    assert error.where == f"{target}, byte 33, tensor a"
    assert error.expected == f"{size} bytes of Q4_K at offset 0"
    assert error.hint


def test_an_unknown_type_names_tensor_number_and_origin(target: Path) -> None:
    pairs = [
        pair("general.architecture", scalar(STRING, "qwen3")),
        pair("general.quantized_by", scalar(STRING, "someone")),
    ]
    with pytest.raises(UnsupportedError) as caught:
        gguf.open(write(target, file(pairs, [tensor("blk.0.attn_q.weight", (256,), 203, 0)], bytes(256))))
    for part in ("blk.0.attn_q.weight", "203", "general.quantized_by = 'someone'", "general.architecture = 'qwen3'"):
        assert part in str(caught.value)


# --- Laziness --------------------------------------------------------------------------------------------------------


def test_arrays_outlive_the_file(target: Path) -> None:
    rows, size = laid_out([("a", (256,), TENSOR_F32)])
    data = bytes(range(256)) * 4
    with gguf.open(
        write(target, file([pair("n", array(U16, [1, 2])), pair("t", array(STRING, ["x"]))], rows, data))
    ) as opened:
        kept, numbers, texts = opened.tensors["a"].data, opened.metadata["n"], opened.metadata["t"]
    assert len(opened.tensors) == 0
    del opened
    gc.collect()
    target.unlink()
    assert size == 1024
    assert kept.tobytes() == data
    assert numbers.tolist() == [1, 2]
    assert list(texts) == ["x"]


def test_opening_does_not_touch_tensor_data(target: Path) -> None:
    size = 64 * limits.MIB
    head = file([pair("a.b", scalar(U32, 1))], [tensor("a", (size // 4,), 0, 0)], b"")
    with target.open("wb") as out:
        out.write(head)
        out.write(b"\1" * size)  # the pages are in the system's cache: touching them would map them
    with peak_memory() as memory, gguf.open(target) as opened:
        assert opened.metadata["a.b"] == 1
        assert opened.tensors["a"].data.nbytes == size
    assert memory.growth < limits.MIB


def test_a_large_vocabulary_opens_in_time(target: Path) -> None:
    """262,144 tokens, their scores and 514,906 merges, as in the largest published vocabularies.

    Measured: 15 ms on an idle core. The bound of 100 ms is the most that starting a program may spend here.
    """
    texts = b"".join(string(b"x" * (1 + number % 13)) for number in range(262_144))
    merges = b"".join(string(b"ab c" * (1 + number % 3)) for number in range(514_906))
    pairs = [
        pair("tokens", u32(ARRAY) + u32(STRING) + u64(262_144) + texts),
        pair("scores", u32(ARRAY) + u32(F32) + u64(262_144) + bytes(4 * 262_144)),
        pair("merges", u32(ARRAY) + u32(STRING) + u64(514_906) + merges),
    ]
    write(target, file(pairs))
    seconds = []
    for _ in range(5):
        started = time.perf_counter()
        opened = gguf.open(target)
        seconds.append(time.perf_counter() - started)
    assert opened.metadata["tokens"][262_143] == "x" * (1 + 262_143 % 13)
    assert opened.metadata["merges"][514_905] == "ab c" * (1 + 514_905 % 3)
    assert min(seconds) < 0.100


# --- Other readers ---------------------------------------------------------------------------------------------------


def listed(value: object) -> object:
    return list(value) if isinstance(value, gguf.StringArray) else getattr(value, "tolist", lambda: value)()


def assert_read_as_by_ggml(paths: list[Path]) -> None:
    """Every key, value and tensor as ggml's own reader finds them."""
    for path, expected in zip(paths, read_all(paths), strict=True):
        assert expected is not None, f"ggml refuses {path}"
        opened = gguf.open(path)
        assert (opened.version, opened.alignment) == (expected["version"], expected["alignment"])
        assert {key: listed(value) for key, value in opened.metadata.items()} == expected["values"]
        assert [[info.name, info.type.id, info.offset, info.nbytes] for info in opened.tensors.values()] == expected[
            "tensors"
        ]


def test_published_vocabularies_are_read_as_by_ggml(shared: Path) -> None:
    paths = sorted((shared / "golden" / "vocabs").glob("*.gguf"))
    assert len(paths) > 10
    assert_read_as_by_ggml(paths)


def test_tiny_models_are_read_as_by_ggml(shared: Path) -> None:
    paths = sorted((shared / "golden").glob("tiny_*.gguf"))
    assert len(paths) == 4
    assert_read_as_by_ggml(paths)


def test_real_models_are_read_as_by_ggml(models: Path) -> None:
    paths = sorted(models.glob("*.gguf"))
    if not paths:
        pytest.skip(f"no models in {models}")
    assert_read_as_by_ggml(paths)


def assert_read_as_by_the_gguf_package(path: Path) -> None:
    package = pytest.importorskip("gguf", reason="the gguf package is not installed")
    opened = gguf.open(path)
    unknown = {info.type.id for info in opened.tensors.values()} - {int(kind) for kind in package.GGMLQuantizationType}
    if unknown:
        pytest.skip(f"this version of the gguf package does not know the tensor types {unknown}")
    expected = package.GGUFReader(path)
    assert [found.name for found in expected.tensors] == list(opened.tensors)
    for found in expected.tensors:
        info = opened.tensors[found.name]
        assert info.ne == tuple(int(extent) for extent in found.shape)
        assert info.type.id == int(found.tensor_type)
        np.testing.assert_array_equal(info.data, np.ascontiguousarray(found.data).view(np.uint8).reshape(-1))
    fields = {name: field for name, field in expected.fields.items() if not name.startswith("GGUF.")}
    assert len(fields) > 10
    assert {key: listed(value) for key, value in opened.metadata.items()} == {
        name: field.contents() for name, field in fields.items()
    }


@pytest.mark.parametrize("name", ["tiny_q1", "tiny_q2", "tiny_qwen3", "tiny_qwen35", "vocabs/ggml-vocab-llama-spm"])
def test_golden_files_are_read_as_by_the_gguf_package(name: str, shared: Path) -> None:
    assert_read_as_by_the_gguf_package(shared / "golden" / f"{name}.gguf")


@pytest.mark.slow
def test_all_vocabularies_are_read_as_by_the_gguf_package(shared: Path) -> None:
    """The package takes more than a minute for them; ggml's reader, above, does not."""
    paths = sorted((shared / "golden" / "vocabs").glob("*.gguf"))
    assert len(paths) > 10
    for path in paths:
        assert_read_as_by_the_gguf_package(path)


def test_the_table_of_types_has_the_sizes_of_the_gguf_package() -> None:
    package = pytest.importorskip("gguf", reason="the gguf package is not installed")
    ids = {int(kind): sizes for kind, sizes in package.GGML_QUANT_SIZES.items()}
    ids[9] = (32, 36)  # the package still has the size of an older Q8_1; ggml's is 2 + 2 + 32 bytes
    known = {row.id: (row.block, row.nbytes) for row in gguf.TENSOR_TYPES.values() if row.name != "Q2_0_G128"}
    shared_ids = ids.keys() & known.keys()
    assert len(shared_ids) >= 33
    assert {number: known[number] for number in shared_ids} == {number: ids[number] for number in shared_ids}
    assert ids.keys() <= known.keys()


def test_types_are_looked_up_by_name_and_number() -> None:
    assert gguf.tensor_type("q4_k") is gguf.tensor_type(12) is gguf.TENSOR_TYPES["Q4_K"]
    assert gguf.tensor_type(42).name == "Q2_0"
    assert (gguf.tensor_type("pq2_0").id, gguf.tensor_type("ptq1_0").id) == (142, 143)
    for wrong in ("Q9_X", 4, 999):
        with pytest.raises(UnsupportedError, match="tensor type"):
            gguf.tensor_type(wrong)
