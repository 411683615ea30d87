"""Derivatives of what is done with images."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..derivative import Derivative, Rule
from ..ops import Op, Pool
from ..tensor import Tensor
from .layout import contiguous


def _pairs(numbers: tuple[Any, ...]) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    s0, s1, p0, p1, d0, d1 = numbers
    return (s0, s1), (p0, p1), (d0, d1)


def _im2col(d: Derivative, number: int) -> Tensor:
    *numbers, two_d = d.node.params
    image = d.source(1)
    return d.source(0).im2col_back(contiguous(d.gradient), image.ne, *_pairs(tuple(numbers)), two_d)


def _im2col_back(d: Derivative, number: int) -> Tensor:
    *numbers, two_d = d.node.params
    return d.source(0).im2col(d.gradient, *_pairs(tuple(numbers)), two_d)


def _conv_2d(d: Derivative, number: int) -> Tensor:
    """As a product: y[p, o] = Σ_k columns[k, p]·kernel[k, o] for each image."""
    kernel, image, pairs = d.source(0), d.source(1), _pairs(d.node.params)
    width, height, outputs, images = d.node.ne
    k = kernel.ne[0] * kernel.ne[1] * kernel.ne[2]
    g = contiguous(d.gradient).reshape(width * height, outputs, 1, images)
    if number == 1:
        columns = kernel.reshape(k, outputs).out_prod(g).reshape(k, width, height, images)
        return kernel.im2col_back(columns, image.ne, *pairs)
    columns = kernel.im2col(image, *pairs).reshape(k, width * height, 1, images)
    each = columns.out_prod(g.transpose())
    return each.repeat_back(k, outputs).reshape(*kernel.ne)


def _pool_1d(d: Derivative, number: int) -> Tensor:
    kind, kernel, stride, padding = d.node.params
    g = contiguous(d.gradient)
    if kind is Pool.AVG and padding > 0:
        # The mean over what lies inside, in terms of the mean over the whole window.
        begins = np.arange(int(d.node.ne[0])) * stride - padding
        inside = np.minimum(begins + kernel, int(d.source(0).ne[0])) - np.maximum(begins, 0)
        g = g.mul(d.node.context.tensor("F32", (inside.size,), name="shares").set(kernel / inside))
    return g.pool_2d_back(d.source(0), kind, (kernel, 1), (stride, 1), (padding, 0))


def _pool_2d(d: Derivative, number: int) -> Tensor:
    kind, k0, k1, s0, s1, p0, p1 = d.node.params
    return contiguous(d.gradient).pool_2d_back(d.source(0), kind, (k0, k1), (s0, s1), (p0, p1))


def _pool_2d_back(d: Derivative, number: int) -> Tensor:
    """Linear in the gradient; of means it is the mean again. Which values are largest changes in steps only."""
    kind, k0, k1, s0, s1, p0, p1 = d.node.params
    if number == 1:
        return d.source(1).fill(0.0)
    if kind is not Pool.AVG:
        raise d.refuse(0, "of the way back through the largest value none is known here")
    return d.gradient.pool_2d(kind, (k0, k1), (s0, s1), (p0, p1))


def _upscale(d: Derivative, number: int) -> Tensor:
    mode, align_corners = d.node.params
    return contiguous(d.gradient).upscale_back(*d.source(0).ne, mode=mode, align_corners=align_corners)


def _upscale_back(d: Derivative, number: int) -> Tensor:
    mode, align_corners = d.node.params
    return contiguous(d.gradient).upscale(*d.source(0).ne, mode=mode, align_corners=align_corners)


GRADIENTS: dict[Op, Rule | str] = {
    Op.IM2COL: _im2col,
    Op.IM2COL_BACK: _im2col_back,
    Op.CONV_2D: _conv_2d,
    Op.POOL_1D: _pool_1d,
    Op.POOL_2D: _pool_2d,
    Op.POOL_2D_BACK: _pool_2d_back,
    Op.UPSCALE: _upscale,
    Op.UPSCALE_BACK: _upscale_back,
}
IGNORED: dict[Op, frozenset[int]] = {Op.IM2COL: frozenset({0}), Op.IM2COL_BACK: frozenset({0})}
