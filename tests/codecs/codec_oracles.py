"""Other implementations of the codecs: ggml by ctypes, the `gguf` and `libgguf` packages, formulas written as loops.

The loops take one block as bytes and follow the published formula digit by digit, in Python's integers.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from prism_inference.gguf import TENSOR_TYPES, TensorType

# Types that only Prism's programs know, and the older layout of number 42: no package decodes them.
PRISM_ONLY = ("Q2_0_G128", "PQ2_0", "PTQ1_0")
NUMBERS = ("F32", "F16", "BF16", "F64", "I8", "I16", "I32", "I64")
# ggml reads these only where they are activations or plain numbers: it has no decoder for them.
GGML_DECODES = [
    n for n in TENSOR_TYPES if n not in (*PRISM_ONLY, "F32", "F64", "I8", "I16", "I32", "I64", "Q8_1", "Q8_K")
]
GGML_ENCODES = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q8_1", "Q8_K", "Q1_0", "Q2_0", "TQ1_0", "TQ2_0", "F16", "BF16"]
TERNARY = ["Q2_0", "Q2_0_G128", "PQ2_0", "PTQ1_0", "TQ1_0", "TQ2_0"]
assert len(GGML_DECODES) == 27


class _Traits(ctypes.Structure):
    _fields_ = (
        ("type_name", ctypes.c_char_p),
        ("block", ctypes.c_int64),
        ("interleave", ctypes.c_int64),
        ("size", ctypes.c_size_t),
        ("quantized", ctypes.c_bool),
        ("to_float", ctypes.c_void_p),
        ("from_float", ctypes.c_void_p),
    )


class _CpuTraits(ctypes.Structure):
    _fields_ = (
        ("from_float", ctypes.c_void_p),
        ("vec_dot", ctypes.c_void_p),
        ("vec_dot_type", ctypes.c_int),
        ("rows", ctypes.c_int64),
    )


class _InitParameters(ctypes.Structure):
    _fields_ = (("size", ctypes.c_size_t), ("buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool))


_CONVERT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


class Ggml:
    """ggml's own tables of types, called through their function pointers."""

    def __init__(self, folder: Path) -> None:
        self._base = ctypes.CDLL(str(folder / "libggml-base.so"), mode=ctypes.RTLD_GLOBAL)
        self._base.ggml_get_type_traits.restype = ctypes.POINTER(_Traits)
        self._base.ggml_init.restype = ctypes.c_void_p
        self._base.ggml_init.argtypes = [_InitParameters]
        self._base.ggml_init(_InitParameters(1 << 16, None, True))  # fills the float16 table
        self._cpu = ctypes.CDLL(str(folder / "libggml-cpu.so"))
        self._cpu.ggml_get_type_traits_cpu.restype = ctypes.POINTER(_CpuTraits)
        self._cpu.ggml_cpu_init()

    def traits(self, row: TensorType) -> _Traits:
        return self._base.ggml_get_type_traits(row.id).contents

    def decode(self, row: TensorType, blocks: np.ndarray) -> np.ndarray:
        """uint8 [n, bytes] to float32 [n, block]."""
        out = np.empty((len(blocks), row.block), np.float32)
        _CONVERT(self.traits(row).to_float)(blocks.ctypes.data, out.ctypes.data, out.size)
        return out

    def encode(self, row: TensorType, values: np.ndarray, *, fast: bool = False) -> np.ndarray:
        """float32 [n, block] to uint8 [n, bytes]; `fast`: as its CPU kernels round activations."""
        out = np.zeros((len(values), row.nbytes), np.uint8)
        traits = self._cpu.ggml_get_type_traits_cpu(row.id).contents if fast else self.traits(row)
        # The table of tensor types has no encoder of Q8_K, but the library exports it.
        function = _CONVERT(traits.from_float) if traits.from_float else self._base.quantize_row_q8_K_ref
        function(ctypes.c_void_p(values.ctypes.data), ctypes.c_void_p(out.ctypes.data), ctypes.c_int64(values.size))
        return out


@cache
def ggml() -> Ggml:
    """ggml, or a skipped test where its package or its shared libraries are not there."""
    package = pytest.importorskip("libggml", reason="libggml-python is not installed")
    folder = Path(package.__file__).parent / "lib64"
    if not (folder / "libggml-base.so").exists():
        pytest.skip(f"no shared libraries of ggml in {folder}")
    return Ggml(folder)


def package(name: str) -> ModuleType:
    """A package that knows codecs, or a skipped test."""
    module: ModuleType = pytest.importorskip(name, reason=f"{name} is not installed")
    return module


def random_blocks(row: TensorType, count: int, rng: np.random.Generator) -> np.ndarray:
    """Blocks of random bytes, uint8 [count, bytes]: every code occurs, and scales of every kind, NaN too."""
    return rng.integers(0, 256, (count, row.nbytes), dtype=np.uint8)


def assert_same_bits(actual: Any, expected: Any) -> None:
    """Fail unless two float32 arrays have the same bits; any NaN equals any other."""
    a, b = np.ascontiguousarray(actual), np.ascontiguousarray(expected)
    assert a.dtype == b.dtype == np.float32
    assert a.shape == b.shape
    same = (a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))
    first = tuple(np.argwhere(~same)[0]) if not same.all() else ()
    assert same.all(), f"{(~same).sum()} of {a.size} differ, first at {first}: {a[first]!r}, not {b[first]!r}"


def half(raw: bytes) -> np.float32:
    """A little-endian float16 as float32."""
    return np.float32(np.frombuffer(raw, "<f2")[0])


def loop_q1_0(block: bytes) -> list[np.float32]:
    """d, then 128 bits, least significant first: +d or -d."""
    d = half(block[:2])
    return [d if block[2 + (j >> 3)] >> (j & 7) & 1 else -d for j in range(128)]


def loop_two_bits(block: bytes) -> list[np.float32]:
    """d, then two bits per element, least significant first: (code - 1)·d."""
    d, codes = half(block[:2]), block[2:]
    return [np.float32((codes[j >> 2] >> (2 * (j & 3)) & 3) - 1) * d for j in range(4 * len(codes))]


def digit(byte: int, n: int) -> int:
    """Ternary digit n of a byte, the most significant first."""
    return ((byte * 3**n) % 256 * 3) >> 8


def _loop_trits(groups: list[tuple[bytes, int]], d: np.float32) -> list[np.float32]:
    return [np.float32(digit(byte, n) - 1) * d for group, digits in groups for n in range(digits) for byte in group]


def loop_ptq1_0(block: bytes) -> list[np.float32]:
    """16 and 8 bytes of five digits, 2 bytes of four, then d."""
    return _loop_trits([(block[:16], 5), (block[16:24], 5), (block[24:26], 4)], half(block[26:]))


def loop_tq1_0(block: bytes) -> list[np.float32]:
    """32 and 16 bytes of five digits, 4 bytes of four, then d."""
    return _loop_trits([(block[:32], 5), (block[32:48], 5), (block[48:52], 4)], half(block[52:]))


LOOPS = {
    "Q1_0": loop_q1_0,
    "Q2_0": loop_two_bits,
    "Q2_0_G128": loop_two_bits,
    "PQ2_0": loop_two_bits,
    "PTQ1_0": loop_ptq1_0,
    "TQ1_0": loop_tq1_0,
}
