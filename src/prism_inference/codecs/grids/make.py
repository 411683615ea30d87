"""Makes `grids.npz` from the tables that the `gguf` package ships: run once, needed at no other time.

python -m prism_inference.codecs.grids.make
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np

NAMES = ("IQ1_S", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S")  # IQ1_M shares the grid of IQ1_S


def main() -> None:
    """Write the file beside this script."""
    quants = import_module("gguf.quants")
    arrays = {}
    for name in NAMES:
        kind = getattr(quants, name)
        kind.init_grid()
        arrays[name] = kind.grid.reshape(kind.grid.shape[-2:]).astype(np.int8)
    np.savez_compressed(Path(__file__).with_name("grids.npz"), **arrays)


if __name__ == "__main__":
    main()
