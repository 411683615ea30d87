"""One row per tensor type: layout, decoder, encoder. Everything else looks here."""

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
Encoder = Callable[[npt.NDArray[Any], npt.NDArray[Any]], None]


@dataclass(frozen=True)
class Codec:
    """How a type is read and written.

    `decode` takes blocks [n] of `layout` and gives float32 [n, block]; `encode` takes float32 (or what `floats.SOURCES`
    says) [n, block] and fills blocks.
    """

    type: TensorType
    layout: np.dtype[Any]
    decode: Decoder
    encode: Encoder | None


# name -> (decoder, encoder)
_ROWS: dict[str, tuple[Decoder, Encoder | None]] = {
    "F32": (floats.decode_number, floats.encode_number),
    "F16": (floats.decode_number, floats.encode_number),
    "BF16": (floats.decode_bf16, floats.encode_bf16),
    "F64": (floats.decode_number, floats.encode_number),
    "I8": (floats.decode_number, floats.encode_number),
    "I16": (floats.decode_number, floats.encode_number),
    "I32": (floats.decode_number, floats.encode_number),
    "I64": (floats.decode_number, floats.encode_number),
    "Q4_0": (legacy.decode_q4_0, legacy.encode_q4_0),
    "Q4_1": (legacy.decode_q4_1, legacy.encode_q4_1),
    "Q5_0": (legacy.decode_q5_0, legacy.encode_q5_0),
    "Q5_1": (legacy.decode_q5_1, legacy.encode_q5_1),
    "Q8_0": (legacy.decode_q8, legacy.encode_q8_0),
    "Q8_1": (legacy.decode_q8, legacy.encode_q8_1),
    "Q2_K": (kquants.decode_q2_k, None),
    "Q3_K": (kquants.decode_q3_k, None),
    "Q4_K": (kquants.decode_q4_k, None),
    "Q5_K": (kquants.decode_q5_k, None),
    "Q6_K": (kquants.decode_q6_k, None),
    "Q8_K": (legacy.decode_q8, legacy.encode_q8_k),
    "IQ2_XXS": (iquants.decode_iq2_xxs, None),
    "IQ2_XS": (iquants.decode_iq2_xs, None),
    "IQ2_S": (iquants.decode_iq2_s, None),
    "IQ3_XXS": (iquants.decode_iq3_xxs, None),
    "IQ3_S": (iquants.decode_iq3_s, None),
    "IQ1_S": (iquants.decode_iq1_s, None),
    "IQ1_M": (iquants.decode_iq1_m, None),
    "IQ4_NL": (legacy.decode_iq4_nl, None),
    "IQ4_XS": (iquants.decode_iq4_xs, None),
    "TQ1_0": (lowbit.decode_tq1_0, lowbit.encode_tq1_0),
    "TQ2_0": (lowbit.decode_tq2_0, lowbit.encode_tq2_0),
    "MXFP4": (floats.decode_mxfp4, None),
    "NVFP4": (floats.decode_nvfp4, None),
    "Q1_0": (lowbit.decode_q1_0, lowbit.encode_q1_0),
    "Q2_0": (lowbit.decode_q2_0, lowbit.encode_q2_0),
    "Q2_0_G128": (lowbit.decode_q2_0, lowbit.encode_q2_0),
    "PQ2_0": (lowbit.decode_q2_0, lowbit.encode_q2_0),
    "PTQ1_0": (lowbit.decode_ptq1_0, lowbit.encode_ptq1_0),
}
CODECS: dict[str, Codec] = {
    name: Codec(TENSOR_TYPES[name], LAYOUTS[name], decode, encode) for name, (decode, encode) in _ROWS.items()
}


def get(kind: str | int | TensorType) -> Codec:
    """Return a type's row by name (any case), number or tensor type.

    Raises:
        UnsupportedError: there is no such type.
    """
    return CODECS[tensor_type(kind).name]
