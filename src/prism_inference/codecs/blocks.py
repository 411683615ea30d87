"""The block of each tensor type as a structured dtype, its size held against the format's table. Computes nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..gguf import TENSOR_TYPES


def _bytes(name: str, count: int) -> tuple[str, str, int]:
    return (name, "u1", count)


# In order of the bytes; names as ggml's sources give them. float16 fields are "<f2".
_FIELDS: dict[str, list[Any]] = {
    "F32": [("x", "<f4")],
    "F16": [("x", "<f2")],
    "BF16": [("x", "<u2")],
    "F64": [("x", "<f8")],
    "I8": [("x", "<i1")],
    "I16": [("x", "<i2")],
    "I32": [("x", "<i4")],
    "I64": [("x", "<i8")],
    "Q4_0": [("d", "<f2"), _bytes("qs", 16)],
    "Q4_1": [("d", "<f2"), ("m", "<f2"), _bytes("qs", 16)],
    "Q5_0": [("d", "<f2"), _bytes("qh", 4), _bytes("qs", 16)],
    "Q5_1": [("d", "<f2"), ("m", "<f2"), _bytes("qh", 4), _bytes("qs", 16)],
    "Q8_0": [("d", "<f2"), ("qs", "i1", 32)],
    "Q8_1": [("d", "<f2"), ("s", "<f2"), ("qs", "i1", 32)],
    "Q2_K": [_bytes("scales", 16), _bytes("qs", 64), ("d", "<f2"), ("dmin", "<f2")],
    "Q3_K": [_bytes("hmask", 32), _bytes("qs", 64), _bytes("scales", 12), ("d", "<f2")],
    "Q4_K": [("d", "<f2"), ("dmin", "<f2"), _bytes("scales", 12), _bytes("qs", 128)],
    "Q5_K": [("d", "<f2"), ("dmin", "<f2"), _bytes("scales", 12), _bytes("qh", 32), _bytes("qs", 128)],
    "Q6_K": [_bytes("ql", 128), _bytes("qh", 64), ("scales", "i1", 16), ("d", "<f2")],
    "Q8_K": [("d", "<f4"), ("qs", "i1", 256), ("bsums", "<i2", 16)],
    "IQ2_XXS": [("d", "<f2"), ("qs", "<u2", 32)],
    "IQ2_XS": [("d", "<f2"), ("qs", "<u2", 32), _bytes("scales", 8)],
    "IQ2_S": [("d", "<f2"), _bytes("qs", 64), _bytes("qh", 8), _bytes("scales", 8)],
    "IQ3_XXS": [("d", "<f2"), _bytes("qs", 96)],
    "IQ3_S": [("d", "<f2"), _bytes("qs", 64), _bytes("qh", 8), _bytes("signs", 32), _bytes("scales", 4)],
    "IQ1_S": [("d", "<f2"), _bytes("qs", 32), ("qh", "<u2", 8)],
    "IQ1_M": [_bytes("qs", 32), _bytes("qh", 16), ("scales", "<u2", 4)],
    "IQ4_NL": [("d", "<f2"), _bytes("qs", 16)],
    "IQ4_XS": [("d", "<f2"), ("scales_h", "<u2"), _bytes("scales_l", 4), _bytes("qs", 128)],
    "TQ1_0": [_bytes("qs", 48), _bytes("qh", 4), ("d", "<f2")],
    "TQ2_0": [_bytes("qs", 64), ("d", "<f2")],
    "MXFP4": [("e", "u1"), _bytes("qs", 16)],
    "NVFP4": [_bytes("d", 4), _bytes("qs", 32)],
    "Q1_0": [("d", "<f2"), _bytes("qs", 16)],
    "Q2_0": [("d", "<f2"), _bytes("qs", 16)],
    "Q2_0_G128": [("d", "<f2"), _bytes("qs", 32)],
    "PQ2_0": [("d", "<f2"), _bytes("qs", 32)],
    "PTQ1_0": [_bytes("qs", 24), _bytes("qh", 2), ("d", "<f2")],
}
LAYOUTS: dict[str, np.dtype[Any]] = {name: np.dtype(fields) for name, fields in _FIELDS.items()}

for _name, _row in TENSOR_TYPES.items():
    assert LAYOUTS[_name].itemsize == _row.nbytes, _name
