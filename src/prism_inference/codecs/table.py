"""One row per tensor type: layout, partner type of the activations, decoder, encoder. Everything else looks here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..gguf import TENSOR_TYPES, TensorType, tensor_type
from . import floats, iquants, kquants, legacy, lowbit
from .blocks import LAYOUTS

Decoder = Callable[[npt.NDArray[Any]], npt.NDArray[np.float32]]
Encoder = Callable[[npt.NDArray[np.float32], npt.NDArray[Any]], None]


@dataclass(frozen=True)
class Codec:
    """How a type is read and written.

    `decode` takes blocks [n] of `layout` and gives float32 [n, block]; `encode` takes float32 [n, block] and fills blocks.
    `activation` is the type to which activations are rounded before a product with these weights, None for float weights.
    """

    type: TensorType
    layout: np.dtype[Any]
    activation: str | None
    decode: Decoder
    encode: Encoder | None


# name -> (activation type, decoder, encoder). The reference rounds activations for K-quants, IQ types and TQ types in blocks
# of 256 (Q8_K); here they are rounded in blocks of 32 (Q8_0), which costs nothing and halves the error (docs/decisions.md).
_ROWS: dict[str, tuple[str | None, Decoder, Encoder | None]] = {
    "F32": (None, floats.decode_number, floats.encode_number),
    "F16": (None, floats.decode_number, floats.encode_number),
    "BF16": (None, floats.decode_bf16, floats.encode_bf16),
    "F64": (None, floats.decode_number, floats.encode_number),
    "I8": (None, floats.decode_number, floats.encode_number),
    "I16": (None, floats.decode_number, floats.encode_number),
    "I32": (None, floats.decode_number, floats.encode_number),
    "I64": (None, floats.decode_number, floats.encode_number),
    "Q4_0": ("Q8_0", legacy.decode_q4_0, legacy.encode_q4_0),
    "Q4_1": ("Q8_1", legacy.decode_q4_1, legacy.encode_q4_1),
    "Q5_0": ("Q8_0", legacy.decode_q5_0, legacy.encode_q5_0),
    "Q5_1": ("Q8_1", legacy.decode_q5_1, legacy.encode_q5_1),
    "Q8_0": ("Q8_0", legacy.decode_q8, legacy.encode_q8_0),
    "Q8_1": ("Q8_1", legacy.decode_q8, legacy.encode_q8_1),
    "Q2_K": ("Q8_0", kquants.decode_q2_k, None),
    "Q3_K": ("Q8_0", kquants.decode_q3_k, None),
    "Q4_K": ("Q8_0", kquants.decode_q4_k, None),
    "Q5_K": ("Q8_0", kquants.decode_q5_k, None),
    "Q6_K": ("Q8_0", kquants.decode_q6_k, None),
    "Q8_K": ("Q8_0", legacy.decode_q8, legacy.encode_q8_k),
    "IQ2_XXS": ("Q8_0", iquants.decode_iq2_xxs, None),
    "IQ2_XS": ("Q8_0", iquants.decode_iq2_xs, None),
    "IQ2_S": ("Q8_0", iquants.decode_iq2_s, None),
    "IQ3_XXS": ("Q8_0", iquants.decode_iq3_xxs, None),
    "IQ3_S": ("Q8_0", iquants.decode_iq3_s, None),
    "IQ1_S": ("Q8_0", iquants.decode_iq1_s, None),
    "IQ1_M": ("Q8_0", iquants.decode_iq1_m, None),
    "IQ4_NL": ("Q8_0", legacy.decode_iq4_nl, None),
    "IQ4_XS": ("Q8_0", iquants.decode_iq4_xs, None),
    "TQ1_0": ("Q8_0", lowbit.decode_tq1_0, lowbit.encode_tq1_0),
    "TQ2_0": ("Q8_0", lowbit.decode_tq2_0, lowbit.encode_tq2_0),
    "MXFP4": ("Q8_0", floats.decode_mxfp4, None),
    "NVFP4": ("Q8_0", floats.decode_nvfp4, None),
    "Q1_0": ("Q8_0", lowbit.decode_q1_0, lowbit.encode_q1_0),
    "Q2_0": ("Q8_0", lowbit.decode_q2_0, lowbit.encode_q2_0),
    "Q2_0_G128": ("Q8_0", lowbit.decode_q2_0, lowbit.encode_q2_0),
    "PQ2_0": ("Q8_0", lowbit.decode_q2_0, lowbit.encode_q2_0),
    "PTQ1_0": ("Q8_0", lowbit.decode_ptq1_0, lowbit.encode_ptq1_0),
}
CODECS: dict[str, Codec] = {
    name: Codec(TENSOR_TYPES[name], LAYOUTS[name], activation, decode, encode)
    for name, (activation, decode, encode) in _ROWS.items()
}


def get(kind: str | int | TensorType) -> Codec:
    """Return a type's row by name (any case), number or tensor type.

    Raises:
        UnsupportedError: there is no such type.
    """
    return CODECS[tensor_type(kind).name]
