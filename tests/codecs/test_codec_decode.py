"""Decoders against reference data, three other implementations and the published formulas: bits, not tolerances."""

from __future__ import annotations

import itertools
import struct
import subprocess
import sys

import numpy as np
import pytest
from codec_oracles import GGML_DECODES, LOOPS, NUMBERS, assert_same_bits, digit, ggml, package, random_blocks
from hypothesis import given, settings
from hypothesis import strategies as st

from prism_inference import codecs
from prism_inference.errors import FormatError, PrismError, UnsupportedError
from prism_inference.gguf import TENSOR_TYPES, tensor_type

GOLDEN = [name for name in TENSOR_TYPES if name not in (*NUMBERS, "Q8_1", "Q2_0_G128", "PQ2_0", "PTQ1_0")]
assert len(GOLDEN) == 26


def decoded(name, blocks):
    """float32 [n, block] of blocks uint8 [n, bytes], through the public function."""
    return codecs.decode(name, blocks.reshape(-1), len(blocks) * tensor_type(name).block).reshape(len(blocks), -1)


# --- The table --------------------------------------------------------------------------------------------------------
def test_every_tensor_type_has_a_codec():
    assert set(codecs.CODECS) == set(TENSOR_TYPES)


@pytest.mark.parametrize("name", TENSOR_TYPES)
def test_rows_agree_with_the_format(name):
    codec = codecs.get(name)
    assert codec.type is TENSOR_TYPES[name]
    assert codec.layout.itemsize == codec.type.nbytes
    assert codecs.get(name.lower()) is codec
    values = codec.decode(np.zeros(3, codec.layout))
    assert values.dtype == np.float32
    assert values.shape == (3, codec.type.block)


def test_number_42_is_the_mainline_type():
    assert codecs.get(42).type.name == "Q2_0"
    assert codecs.get(142).type.name == "PQ2_0"
    assert codecs.get(TENSOR_TYPES["Q2_0_G128"]).type.block == 128


# --- Oracles ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", GOLDEN)
def test_reference_data(shared, name):
    with np.load(shared / "golden" / "dequant.npz") as data:
        assert len(data.files) == 2 * len(GOLDEN)
        (key,) = [file[:-4] for file in data.files if file.lower() == f"{name.lower()}.f32"]
        blocks, expected = data[f"{key}.blocks"], data[f"{key}.f32"]
    assert expected.size > 0
    assert_same_bits(decoded(name, blocks), expected)


@pytest.mark.parametrize("name", GGML_DECODES)
def test_ggml_decodes_the_same(name, rng):
    row = tensor_type(name)
    traits = ggml().traits(row)
    assert (traits.block, traits.size) == (row.block, row.nbytes)
    blocks = random_blocks(row, 2_000, rng)
    assert_same_bits(decoded(name, blocks), ggml().decode(row, blocks))


@pytest.mark.parametrize("name", [name for name in GGML_DECODES if name not in ("F16", "Q1_0", "Q2_0")])
def test_gguf_package_decodes_the_same(name, rng):
    quants, constants = package("gguf.quants"), package("gguf.constants")
    row = tensor_type(name)
    blocks = random_blocks(row, 500, rng)
    if name == "NVFP4":
        blocks[:, :4] &= 0x7F  # scale codes have no sign; that package reads the top bit otherwise
    with np.errstate(all="ignore"):
        expected = quants.dequantize(blocks, constants.GGMLQuantizationType(row.id))
    assert_same_bits(decoded(name, blocks), expected.reshape(len(blocks), -1))


@pytest.mark.parametrize("name", [name for name in GGML_DECODES if name not in ("F16", "BF16", "Q1_0", "Q2_0")])
def test_libgguf_decodes_the_same(name, rng):
    library = package("libgguf")
    row = tensor_type(name)
    if library.row_size(row.id, row.block) == 0:
        pytest.skip(f"this libgguf does not know {name}")
    blocks = random_blocks(row, 500, rng)
    raw = library.dequantize_rows_raw(row.id, blocks.tobytes(), len(blocks), row.block)
    assert_same_bits(decoded(name, blocks), np.frombuffer(raw, np.float32).reshape(len(blocks), -1))


@pytest.mark.parametrize("name", LOOPS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_formulas_as_loops(name, data):
    row = tensor_type(name)
    raw = data.draw(st.binary(min_size=2 * row.nbytes, max_size=2 * row.nbytes))
    with np.errstate(all="ignore"):
        expected = [value for part in (raw[: row.nbytes], raw[row.nbytes :]) for value in LOOPS[name](part)]
    assert_same_bits(codecs.decode(name, raw, 2 * row.block), np.array(expected, np.float32))


# Types that no package decodes in full: value = code·d, and integers as they are.
@pytest.mark.parametrize(("name", "scale", "first"), [("Q8_1", "<f2", 4), ("Q8_K", "<f4", 4)])
def test_activation_types(name, scale, first, rng):
    row = tensor_type(name)
    blocks = random_blocks(row, 300, rng)
    size = np.dtype(scale).itemsize
    d = np.ascontiguousarray(blocks[:, :size]).view(scale).astype(np.float32)
    codes = np.ascontiguousarray(blocks[:, first : first + row.block]).view(np.int8).astype(np.float32)
    with np.errstate(all="ignore"):
        expected = codes * d
    assert_same_bits(decoded(name, blocks), expected)


@pytest.mark.parametrize(("name", "code"), [("I8", "b"), ("I16", "<h"), ("I32", "<i"), ("I64", "<q"), ("F64", "<d")])
def test_numbers(name, code):
    values = [0, 1, -1, 100, -128] + ([3.5, -0.0, 1e-3] if name == "F64" else [])
    raw = b"".join(struct.pack(code, value) for value in values)
    assert_same_bits(codecs.decode(name, raw, len(values)), np.array(values, np.float32))


def test_float32_keeps_its_bits(rng):
    special = np.array([0x80000000, 1, 0x807FFFFF, 0x7F800000, 0xFF800000, 0x7F7FFFFF], np.uint32)
    bits = np.concatenate([special, rng.integers(0, 0x7F800000, 1_000, dtype=np.uint32)])
    assert np.array_equal(codecs.decode("F32", bits.tobytes(), bits.size).view(np.uint32), bits)


@pytest.mark.parametrize(("name", "widen"), [("F16", "<e"), ("BF16", "<f")])
def test_all_half_floats(name, widen):
    padding = b"\0\0" if name == "BF16" else b""  # the lower half of a float32
    codes = [code.to_bytes(2, "little") for code in range(1 << 16)]
    expected = [struct.unpack(widen, padding + code)[0] for code in codes]
    assert_same_bits(codecs.decode(name, b"".join(codes), 1 << 16), np.array(expected, np.float32))


# --- Facts of the formats ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["Q2_0", "Q2_0_G128", "PQ2_0"])
def test_the_fourth_code_is_twice_the_scale(name):
    row = tensor_type(name)
    raw = struct.pack("<e", 0.375) + b"\xe4" * (row.nbytes - 2)  # codes 0, 1, 2, 3 from the low end
    assert codecs.decode(name, raw, row.block).tolist() == [-0.375, 0.0, 0.375, 0.75] * (row.block // 4)


def test_older_q2_0_is_pq2_0_byte_for_byte(rng):
    blocks = random_blocks(tensor_type("PQ2_0"), 100, rng)
    assert_same_bits(decoded("Q2_0_G128", blocks), decoded("PQ2_0", blocks))


@pytest.mark.parametrize("name", ["PTQ1_0", "TQ1_0"])
def test_every_byte_has_ternary_digits(name):
    row = tensor_type(name)
    blocks = np.repeat(np.arange(256, dtype=np.uint8)[:, None], row.nbytes, 1)
    blocks[:, -2:] = np.frombuffer(struct.pack("<e", 1.0), np.uint8)
    values = decoded(name, blocks)
    assert set(np.unique(values)) == {-1.0, 0.0, 1.0}
    wide = row.block // (row.nbytes - 2)  # digits of the first group: an element of each digit of byte 0
    first = {"PTQ1_0": 16, "TQ1_0": 32}[name]
    assert wide == 4  # a mean of 4.9 digits a byte
    assert values[:, : 5 * first : first].tolist() == [[digit(b, n) - 1 for n in range(5)] for b in range(256)]


def test_digits_of_canonical_bytes():
    # A byte for each of the 243 numbers of five digits, made by the published rule of packing.
    numbers = list(itertools.product(range(3), repeat=5))
    assert len(numbers) == 243
    packed = [(sum(d * 3 ** (4 - n) for n, d in enumerate(number)) * 256 + 242) // 243 for number in numbers]
    blocks = np.zeros((243, 28), np.uint8)
    blocks[:, 0] = packed
    blocks[:, 26:] = np.frombuffer(struct.pack("<e", 1.0), np.uint8)
    assert (decoded("PTQ1_0", blocks)[:, :80:16] + 1).tolist() == [list(number) for number in numbers]


def test_one_bit_sign_of_zero_scale():
    assert np.signbit(codecs.decode("Q1_0", bytes(2) + b"\x01" + bytes(15), 128)).tolist() == [False] + [True] * 127


def test_bad_scales_come_out_without_a_warning():
    for scale, expected in ((float("inf"), [np.inf, np.nan, -np.inf]), (float("nan"), [np.nan] * 3)):
        raw = struct.pack("<e", scale) + bytes([1, 0, 255]) + bytes(29)
        assert np.array_equal(codecs.decode("Q8_0", raw, 32)[:3], np.array(expected, np.float32), equal_nan=True)
    largest = codecs.decode("MXFP4", b"\xff" + b"\x07" * 16, 32)
    assert np.isposinf(largest[:16]).all()
    assert not largest[16:].any()


# --- Bytes in ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("blocks", [2_047, 2_048, 2_049, 5_000])
def test_many_blocks(blocks, rng):
    codes = rng.integers(-128, 128, (blocks, 32), dtype=np.int8)
    d = rng.uniform(0.5, 2, (blocks, 1)).astype("<f2")
    raw = np.concatenate([d.view(np.uint8), codes.view(np.uint8)], 1).reshape(-1)
    assert_same_bits(
        codecs.decode("Q8_0", raw, codes.size), (codes.astype(np.float32) * d.astype(np.float32)).reshape(-1)
    )


def test_kinds_of_buffers(rng):
    blocks = random_blocks(tensor_type("Q4_K"), 6, rng)
    expected = codecs.decode("Q4_K", blocks.tobytes(), 6 * 256)
    frozen = blocks.copy()
    frozen.setflags(write=False)
    spaced = np.zeros((6, 2, 144), np.uint8)
    spaced[:, 0] = blocks
    doubled = memoryview(np.repeat(blocks.reshape(-1), 2))[::2]
    views = (memoryview(blocks.tobytes()), doubled, blocks.view(np.int8), blocks.view("<u2"))
    for raw in (bytearray(blocks.tobytes()), *views, blocks, frozen, spaced[:, 0]):
        assert_same_bits(codecs.decode("Q4_K", raw, 6 * 256), expected)
    assert_same_bits(expected.reshape(6, 256)[1:], codecs.decode("Q4_K", blocks[1:], 5 * 256).reshape(5, 256))


def test_no_elements():
    assert codecs.decode("Q6_K", b"", 0).shape == (0,)


@pytest.mark.parametrize(
    ("count", "size"), [(32, 33), (32, 35), (31, 34), (33, 34), (64, 34), (-32, 34), (0, 1), (16, 17)]
)
def test_wrong_sizes_are_refused(count, size):
    with pytest.raises(FormatError) as caught:
        codecs.decode("Q8_0", bytes(size), count)
    assert caught.value.where == "Q8_0"
    assert str(size) in str(caught.value)


@settings(max_examples=200, deadline=None)
@given(name=st.sampled_from(sorted(TENSOR_TYPES)), raw=st.binary(max_size=600), count=st.integers(-2, 1 << 70))
def test_any_bytes_decode_or_are_refused(name, raw, count):
    row = tensor_type(name)
    try:
        values = codecs.decode(name, raw, count)
    except PrismError:
        assert count < 0 or count % row.block or count // row.block * row.nbytes != len(raw)
    else:
        assert values.shape == (count,)
        assert values.dtype == np.float32


@pytest.mark.parametrize("kind", ["Q9_9", 4, 40_000, -1])
def test_unknown_types(kind):
    with pytest.raises(UnsupportedError):
        codecs.decode(kind, b"", 0)


# --- The grids --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["IQ1_S", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"])
def test_grids_are_the_public_tables(name):
    from prism_inference.codecs.grids import grid

    kind = getattr(package("gguf.quants"), name)
    kind.init_grid()
    assert np.array_equal(grid(name), kind.grid.reshape(kind.grid.shape[-2:]))


def test_decoding_needs_no_other_package():
    code = (
        "import sys\nfrom prism_inference import codecs\ncodecs.decode('IQ2_S', bytes(82), 256)\n"
        "print([name for name in ('gguf', 'libgguf', 'libggml') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout.strip() == "[]"
