"""Sizes and layouts on which the plan and the kernels agree. Knows neither."""

from __future__ import annotations

from typing import Final

# Activations rounded to eight bits: chunks of 64 values, each with its scales and sums (see kernels/activations.py).
CHUNK_VALUES: Final = 64
CHUNK_BYTES: Final = 192

# Keys that attention takes at a time; its scratch holds their scores and the sums of the values.
ATTENTION_KEYS: Final = 16

# Weight types that have product and row kernels.
QUANTIZED: Final = (
    *("Q1_0", "Q2_0", "Q2_0_G128", "PQ2_0", "PTQ1_0", "TQ1_0", "TQ2_0"),
    *("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"),
)
FLOATS: Final = ("F32", "F16", "BF16")
