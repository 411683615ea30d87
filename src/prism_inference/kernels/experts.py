"""Mixtures of experts: products with the weights that an index picks.

Names of the products are those of `matmul`, whose inner loops they share.
"""

from __future__ import annotations

from .matmul import row_products
from .operands import address, extent, share, stride
from .simd import load_i32


def _product(multiply):
    """Kernel y[:, s, t] = W[:, :, index[s, t]]ᵀ·x[:, s, t]; operands 0 y [M, used, tokens], 1 W [K, M, experts],
    2 x [K, used or 1, tokens], 3 index (int32 [used, tokens]). Experts come one after another, so that each one's rows
    are read once for all tokens that chose it."""

    def kernel(desc, ith, nth):
        k, experts = extent(desc, 1, 0), extent(desc, 1, 2)
        used, tokens = extent(desc, 0, 1), extent(desc, 0, 2)
        step_w = stride(desc, 1, 1)
        m = extent(desc, 0, 0)
        first, last = share((m + 7) // 8, ith, nth)
        first, last = 8 * first, min(m, 8 * last)
        for expert in range(experts):
            w = address(desc, 1) + stride(desc, 1, 2) * expert
            for t in range(tokens):
                for s in range(used):
                    if load_i32(address(desc, 3) + 4 * s + stride(desc, 3, 1) * t) == expert:
                        x = address(desc, 2) + stride(desc, 2, 1) * (s % extent(desc, 2, 1)) + stride(desc, 2, 2) * t
                        y = address(desc, 0) + stride(desc, 0, 1) * s + stride(desc, 0, 2) * t
                        multiply(w, step_w, first, last, x, k, y, False)

    return kernel


KERNELS = {name: _product(multiply) for name, multiply in row_products().items()}
