"""Sizes and layouts on which the plan and the kernels agree. Knows neither."""

from __future__ import annotations

from typing import Final

# Activations rounded to eight bits: chunks of 64 values, each with its scales and sums (see kernels/activations.py).
CHUNK_VALUES: Final = 64
CHUNK_BYTES: Final = 192
CHUNK_SCALES: Final = 64
CHUNK_SUMS: Final = 96
CHUNK_TOTALS: Final = 128

# Keys that attention takes at a time; its scratch holds their scores and the sums of the values.
ATTENTION_KEYS: Final = 16

# Attention in tiles: 32 queries at a time, one in each lane, over blocks of so many keys.
ATTENTION_LANES: Final = 32
ATTENTION_BLOCK: Final = 64
ATTENTION_CELLS: Final = 256  # cells whose gradients are added up in a thread's scratch
ATTENTION_CHUNKS: Final = (
    4  # parts of a key head that threads share at most: each costs a copy of the queries' gradient
)

# Rows of a recurrent state that one item of work takes; on the way back, one in each lane of a vector.
STATE_ROWS: Final = 8
DELTA_ROWS: Final = 16

# Weight types that have product and row kernels.
QUANTIZED: Final = (
    *("Q1_0", "Q2_0", "Q2_0_G128", "PQ2_0", "PTQ1_0", "TQ1_0", "TQ2_0"),
    *("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"),
)
FLOATS: Final = ("F32", "F16", "BF16")

NO_BOUND: Final = 1 << 40  # of a band of matrices: beyond every extent
TOTAL_PART: Final = 1 << 18  # values that one thread adds up before their sum is added to others


# Float32 products (see kernels/panels.py): weights are decoded for so many lanes and terms of the sums at a time, and
# multiplied with blocks of so many columns; tiles have so many vectors of 16 lanes.
PANEL_STRIP: Final = 64
PANEL_DEPTH: Final = 256
PANEL_COLUMNS: Final = 264
PANEL_VECTORS: Final = {"avx512vnni": 2, "avx2": 1, "generic": 1}
PANEL_LINE: Final = 4 * (PANEL_COLUMNS + 8)  # bytes of a copied line of columns: an odd number of cache lines


def panel_scratch(isa: str) -> int:
    """Return the bytes per thread of a float32 product: decoded terms, 16 decoded rows of 64, a copied block of the
    other operand, and the lanes of a panel for a block of columns."""
    results = 16 * PANEL_VECTORS[isa] * PANEL_COLUMNS
    return 4 * (PANEL_STRIP * PANEL_DEPTH + 16 * 64 + results) + PANEL_LINE * PANEL_DEPTH


# Products of bytes (see kernels/matmul.py): weights are unpacked for so many chunks of activations at a time, at most
# 32 rows of them, and multiplied with blocks of so many tokens.
BYTE_PANEL_DEPTH: Final = 8
BYTE_PANEL_TOKENS: Final = 256
BYTE_PANEL_BYTES: Final = 128 * (16 + 4) * BYTE_PANEL_DEPTH


def byte_panel_scratch() -> int:
    """Return the bytes per thread of a product of bytes: a panel, the codes of 16 rows, and two sums of 32 rows for
    each token."""
    return BYTE_PANEL_BYTES + 1024 + 256 * BYTE_PANEL_TOKENS
