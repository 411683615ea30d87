"""Encoders: the reference's bytes, round trips within derived ceilings, exact values on the grid, refusals."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from codec_oracles import GGML_ENCODES, PRISM_ONLY, TERNARY, digit, ggml, package
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from prism_inference import codecs
from prism_inference.errors import ParameterError, UnsupportedError
from prism_inference.gguf import TENSOR_TYPES, tensor_type

ENCODERS = [name for name, codec in codecs.CODECS.items() if codec.encode is not None]
INTEGERS = ["I8", "I16", "I32", "I64"]
BLOCKS = [name for name in ENCODERS if tensor_type(name).block > 1]
assert set(ENCODERS) == {*GGML_ENCODES, *PRISM_ONLY, *INTEGERS, "F32", "F64"}
assert len(BLOCKS) == 14


def round_trip(name, values):
    return codecs.decode(name, codecs.encode(name, values), values.size).reshape(values.shape)


# --- The reference's bytes --------------------------------------------------------------------------------------------
# What weights look like, what falls on ties, what lies on the grid, what has one sign, what is faint or large.
FAMILIES: dict[str, Callable[[np.random.Generator, tuple[int, int]], np.ndarray]] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "ties": lambda rng, shape: rng.integers(-254, 255, shape) / 2,
    "odd ties": lambda rng, shape: rng.integers(-101, 102, shape) / 202,
    "ternary": lambda rng, shape: rng.integers(-1, 2, shape) * 0.37,
    "negative": lambda rng, shape: -np.abs(rng.standard_normal(shape)),
    "positive": lambda rng, shape: 3 + rng.random(shape),
    "equal": lambda rng, shape: np.full(shape, -0.7),
    "two extremes": lambda rng, shape: np.where(rng.random(shape) < 0.5, 2.5, -2.5),
    "faint": lambda rng, shape: rng.standard_normal(shape) * 1e-6,
    "large": lambda rng, shape: rng.standard_normal(shape) * 300,
    "zero": lambda rng, shape: np.zeros(shape),
    "minus zero": lambda rng, shape: np.full(shape, -0.0),
    "one value": lambda rng, shape: np.eye(*shape),
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", GGML_ENCODES)
def test_bytes_of_ggml(name, family, rng):
    row = tensor_type(name)
    values = np.ascontiguousarray(FAMILIES[family](rng, (300, row.block)), np.float32)
    assert codecs.encode(name, values) == ggml().encode(row, values).tobytes()


@pytest.mark.parametrize("name", [name for name in GGML_ENCODES if name not in ("F16", "BF16", "Q8_1", "Q8_K")])
def test_bytes_of_libgguf(name, rng):
    library = package("libgguf")
    row = tensor_type(name)
    if library.row_size(row.id, row.block) == 0:
        pytest.skip(f"this libgguf does not know {name}")
    values = rng.standard_normal((200, row.block)).astype(np.float32)
    assert codecs.encode(name, values) == library.quantize_rows(values, row.id).tobytes()


# Prism's types by their published rule, number by number.
@pytest.mark.parametrize("name", ["Q2_0_G128", "PQ2_0"])
def test_two_bit_codes_by_the_rule(name, rng):
    values = rng.standard_normal(128).astype(np.float32)
    raw = codecs.encode(name, values)
    d = np.abs(values).max()
    expected = bytearray(32)
    for j, value in enumerate(values):
        expected[j >> 2] |= (round(float(value / d)) + 1) << (2 * (j & 3))
    assert raw == struct.pack("<e", d) + expected


def test_digits_by_the_rule(rng):
    values = rng.standard_normal(128).astype(np.float32)
    d = np.abs(values).max()
    trits = [round(float(value / d)) + 1 for value in values]
    expected = bytearray()
    for first, width, digits in ((0, 16, 5), (80, 8, 5), (120, 2, 4)):
        for m in range(width):
            number = sum(trits[first + n * width + m] * 3 ** (4 - n) for n in range(digits))
            expected.append((number * 256 + 242) // 243)
            assert [digit(expected[-1], n) for n in range(digits)] == trits[first + m : first + width * digits : width]
    assert codecs.encode("PTQ1_0", values) == bytes(expected) + struct.pack("<e", d)


def test_group_of_128_is_two_groups_of_64(rng):
    values = rng.integers(-1, 2, (50, 128)).astype(np.float32)
    values[:, [0, 64]] = 1  # both halves have the same scale
    wide = np.frombuffer(codecs.encode("PQ2_0", values), np.uint8).reshape(50, 34)
    narrow = np.frombuffer(codecs.encode("Q2_0", values), np.uint8).reshape(50, 2, 18)
    assert np.array_equal(wide[:, 2:], narrow[:, :, 2:].reshape(50, 32))
    assert np.array_equal(wide[:, :2], narrow[:, 0, :2])
    assert np.array_equal(wide[:, :2], narrow[:, 1, :2])


def test_one_bit_rule():
    values = np.tile(np.array([0.0, -0.0, 3.0, -1.0], np.float32), 32)
    assert codecs.encode("Q1_0", values) == struct.pack("<e", 1.0) + b"\x77" * 16  # mean|x|; bit where x >= 0


# --- Ceilings of the round trip ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Ceiling:
    """Largest error of one value, in parts of the block's largest magnitude (or of max - min), and why."""

    largest: float
    spread: float
    why: str


HALF = 2.0**-11  # relative error of a float16, normal numbers
CEILINGS = {
    "F32": Ceiling(0, 0, "the same numbers"),
    "F64": Ceiling(0, 0, "holds every float32"),
    "F16": Ceiling(HALF, 0, "11 significant bits"),
    "BF16": Ceiling(2.0**-8, 0, "8 significant bits"),
    "Q8_0": Ceiling(0.5 / 127 + HALF, 0, "half a step of max/127, and a float16 scale"),
    "Q8_1": Ceiling(0.5 / 127 + HALF, 0, "half a step of max/127, and a float16 scale"),
    "Q8_K": Ceiling(0.5 / 127, 0, "half a step of max/127; the scale is a float32"),
    "Q4_0": Ceiling(1 / 8 + HALF, 0, "codes -8…7: the extreme's opposite is cut by one step of max/8"),
    "Q5_0": Ceiling(1 / 16 + HALF, 0, "codes -16…15: the extreme's opposite is cut by one step of max/16"),
    "Q4_1": Ceiling(HALF, 0.5 / 15 + HALF, "half a step of (max-min)/15, float16 scale and minimum"),
    "Q5_1": Ceiling(HALF, 0.5 / 31 + HALF, "half a step of (max-min)/31, float16 scale and minimum"),
    "Q1_0": Ceiling(1, 0, "0 and the largest become the mean magnitude, which lies between them"),
    **{name: Ceiling(0.5 + HALF, 0, "half of the one step, and a float16 scale") for name in TERNARY},
}
FLOAT32 = 2.0**-21  # some roundings of float32 arithmetic on the way


def test_every_encoder_has_a_ceiling():
    assert set(CEILINGS) == set(ENCODERS) - set(INTEGERS)


@pytest.mark.parametrize("name", CEILINGS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_round_trip(name, data):
    block = max(tensor_type(name).block, 8)
    # Multiples of a 64th up to 64, times a power of two: scales stay normal float16 numbers, ties are frequent.
    whole = data.draw(arrays(np.int16, (2, block), elements=st.integers(-4_096, 4_096)))
    factor = 2.0 ** data.draw(st.integers(-4, 3))
    whole[:, 0] = np.where(np.abs(whole).max(-1) < 256, 256, whole[:, 0])  # not all faint
    values = (whole / 64 * factor).astype(np.float32)
    if name in ("F16", "BF16"):
        largest, spread = np.abs(values), np.zeros_like(values)  # their error is relative to each value
    else:
        largest = np.abs(values).max(-1, keepdims=True)
        spread = values.max(-1, keepdims=True) - values.min(-1, keepdims=True)
    ceiling = CEILINGS[name]
    bound = (ceiling.largest + FLOAT32) * largest + ceiling.spread * spread
    error = np.abs(round_trip(name, values) - values)
    assert (error <= (bound if ceiling.largest else 0)).all(), f"{(error / bound).max():.3f} of {ceiling.why}"


@pytest.mark.parametrize("name", TERNARY)
@pytest.mark.parametrize("exponent", [-14, -3, 0, 9, 15])
def test_ternary_values_are_exact(name, exponent, rng):
    values = rng.integers(-1, 2, (100, tensor_type(name).block)).astype(np.float32)
    values[:, -1] = -1
    assert np.array_equal(round_trip(name, values * np.float32(2.0**exponent)), values * np.float32(2.0**exponent))


@settings(max_examples=50, deadline=None)
@given(trits=arrays(np.int8, 128, elements=st.integers(-1, 1)), scale=st.floats(2.0**-14, 60_000, width=16))
def test_both_prism_types_hold_the_same_ternary_values(trits, scale):
    values = trits * np.float32(scale)
    assert np.array_equal(round_trip("PTQ1_0", values), round_trip("PQ2_0", values))
    assert np.array_equal(round_trip("PTQ1_0", values), values)


@settings(max_examples=50, deadline=None)
@given(bits=arrays(np.bool_, 128), scale=st.floats(2.0**-14, 60_000, width=16))
def test_one_bit_values_are_exact(bits, scale):
    values = np.where(bits, np.float32(scale), -np.float32(scale))
    assert np.array_equal(round_trip("Q1_0", values), values)


# --- ggml's own budgets -----------------------------------------------------------------------------------------------
# From its test of quantizers: errors of 4096 values 0.1 + 2·cos(i + offset), √Σ(a - b)² / n and |Σ| / n: the root is
# divided by n, not by √n.
SAMPLES = 4_096
TOTAL_ERROR = {name: 0.01 if name in TERNARY else 0.025 if name == "Q1_0" else 0.002 for name in BLOCKS}
DOT_ERROR = {name: 0.15 if name in TERNARY else 0.40 if name == "Q1_0" else 0.02 for name in BLOCKS}


def wave(offset):
    return (0.1 + 2 * np.cos(np.arange(SAMPLES) + offset)).astype(np.float32)


@pytest.mark.parametrize("name", BLOCKS)
def test_total_error_of_ggml_s_wave(name):
    difference = (round_trip(name, wave(0)) - wave(0)).astype(np.float64)
    assert 0 < np.sqrt((difference**2).sum()) / SAMPLES < TOTAL_ERROR[name]


@pytest.mark.parametrize("name", BLOCKS)
def test_product_error_of_ggml_s_wave(name):
    activations = round_trip("Q8_0", wave(1))
    product = float(round_trip(name, wave(0)).astype(np.float64) @ activations)
    assert abs(product - float(wave(0).astype(np.float64) @ wave(1))) / SAMPLES < DOT_ERROR[name]


# --- Edges ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", BLOCKS)
def test_zeros_and_what_is_too_faint(name):
    block = tensor_type(name).block
    for values in (np.zeros(block), np.full(block, -0.0), np.full(block, 1e-45), np.linspace(-1e-38, 1e-38, block)):
        assert np.abs(round_trip(name, values.astype(np.float32))).max() <= 1e-38


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("sign", [1, -1])
def test_one_value_among_zeros(name, sign):
    row = tensor_type(name)
    values = np.zeros((row.block, row.block), np.float32)
    np.fill_diagonal(values, sign * 0.5)
    mean = 0.5 / row.block
    expected = np.where(values >= 0, mean, -mean) if name == "Q1_0" else values
    tolerance = (
        0 if name in (*TERNARY, "Q1_0", "Q4_0", "Q5_0") else 0.5 * (HALF + FLOAT32)
    )  # d is ±0.5 or a power of two
    assert np.abs(round_trip(name, values) - expected).max() <= tolerance


# The largest magnitude whose scale is a float16; the next float32 above 65520 times it rounds to infinity.
LARGEST = {"Q8_0": 127, "Q4_0": 8, "Q5_0": 16, "Q1_0": 1, **dict.fromkeys(TERNARY, 1)}


@pytest.mark.parametrize("name", LARGEST)
def test_the_largest_scale(name):
    block = tensor_type(name).block
    values = np.full((2, 3, block), -65504.0 * LARGEST[name], np.float32)
    assert np.array_equal(round_trip(name, values), values)
    values[1, 2, 0] = 65536.0 * LARGEST[name] * (block if name == "Q1_0" else 1)
    with pytest.raises(ParameterError) as caught:
        codecs.encode(name, values)
    assert caught.value.where == f"{name}, block at index (1, 2, 0)"


@pytest.mark.parametrize(("name", "value"), [("F16", 65_520.0), ("BF16", 3.4e38), ("Q4_1", 3e38), ("Q8_1", 3_000.0)])
def test_values_that_do_not_fit_are_refused(name, value):
    with pytest.raises(ParameterError, match="too large"):
        codecs.encode(name, np.full((2, 32), value, np.float32))


def test_halves_keep_the_sign_of_zero_and_subnormals():
    values = np.array([-0.0, 2.0**-24, -(2.0**-14), 65_504], np.float32)
    assert codecs.encode("F16", values) == struct.pack("<4e", *values.tolist())
    assert codecs.encode("BF16", np.array([-0.0, 1.00390625, 1.01171875], np.float32)) == bytes.fromhex("0080803f823f")


@pytest.mark.parametrize(("name", "code"), [("I8", "b"), ("I16", "h"), ("I32", "i"), ("I64", "q")])
def test_integers(name, code):
    low, high = -(1 << (8 * struct.calcsize(code) - 1)), (1 << (8 * struct.calcsize(code) - 1)) - 1
    assert codecs.encode(name, np.array([low, -1, 0, high])) == struct.pack(f"<4{code}", low, -1, 0, high)
    assert codecs.encode(name, [0.5, 1.5, -2.4]) == struct.pack(f"<3{code}", 0, 2, -2)
    with pytest.raises(ParameterError, match=r"index \(1,\): a value is out of range"):
        codecs.encode(name, [0.0, 2.0 ** (8 * struct.calcsize(code) - 1)])
    with pytest.raises(ParameterError, match="out of range"):
        codecs.encode(name, [float(low) * 1.01])


def test_float64_keeps_its_digits():
    assert codecs.encode("F64", [0.1, 1e300]) == struct.pack("<2d", 0.1, 1e300)


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_not_finite_is_refused_with_its_place(name, bad):
    values = np.zeros((2, 3, 256))
    values[1, 0, 200] = bad
    with pytest.raises(ParameterError) as caught:
        codecs.encode(name, values)
    assert caught.value.where == f"{name}, index (1, 0, 200)"


def test_too_large_for_float32():
    with pytest.raises(ParameterError, match=r"index \(1,\): a value is too large for float32"):
        codecs.encode("F32", [0.0, 1e39])


@pytest.mark.skipif(np.finfo(np.longdouble).max == np.finfo(np.float64).max, reason="no float beyond float64 here")
def test_too_large_for_float64():
    with pytest.raises(ParameterError, match=r"index \(1,\): a value is too large for float64"):
        codecs.encode("F64", np.array([1, np.finfo(np.longdouble).max]))


@pytest.mark.parametrize("name", BLOCKS)
def test_partial_blocks_are_refused(name):
    block = tensor_type(name).block
    for shape in ((), (1,), (block + 1,), (block, block - 1)):
        with pytest.raises(ParameterError, match=f"{name}: rows do not fill whole blocks"):
            codecs.encode(name, np.zeros(shape))


@pytest.mark.parametrize("array", [["a"], [1j], [None], [True], np.array([], object), [[1.0, 2.0], [3.0]]])
def test_not_numbers(array):
    with pytest.raises(ParameterError, match="not real numbers"):
        codecs.encode("F32", array)


@pytest.mark.parametrize("name", sorted(set(TENSOR_TYPES) - set(ENCODERS)))
def test_types_without_an_encoder(name):
    with pytest.raises(UnsupportedError) as caught:
        codecs.encode(name, np.zeros(256))
    assert caught.value.where == name
    assert caught.value.expected == ", ".join(ENCODERS)


@pytest.mark.parametrize("name", ENCODERS)
def test_shapes(name, rng):
    row = tensor_type(name)
    values = rng.integers(-3, 4, (5, 3, 2 * row.block)).astype(np.float32)
    raw = codecs.encode(name, values)
    assert len(raw) == row.size(values.size)
    assert codecs.encode(name, values[:, ::2]) == b"".join(codecs.encode(name, part[::2]) for part in values)
    assert codecs.encode(name, np.zeros((4, 0))) == b""


@pytest.mark.parametrize("name", ["Q8_0", "PTQ1_0"])
def test_many_blocks(name, rng):
    row = tensor_type(name)
    values = rng.standard_normal((3 * (1 << 16) // row.block + 5, row.block)).astype(np.float32)
    raw = codecs.encode(name, values)
    for index in (0, len(values) // 3, len(values) - 1):
        assert raw[index * row.nbytes : (index + 1) * row.nbytes] == codecs.encode(name, values[index])
    place = len(values) - 2
    values[place, 1] = 1e9
    with pytest.raises(ParameterError) as caught:
        codecs.encode(name, values)
    assert caught.value.where == f"{name}, block at index ({place}, 0)"
