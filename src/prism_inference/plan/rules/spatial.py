"""Lowering rules: what is done with images."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...graph import Op, Pool, Tensor
from ...graph.interpolation import all_taps
from ..layouts import panel_scratch
from ..lowering import Lowering, source_of
from ..steps import Operand


def _packed(*pairs: tuple[int, int]) -> tuple[int, ...]:
    """Two numbers in one parameter each, as `kernels/spatial` reads them."""
    return tuple(int(first) | int(second) << 32 for first, second in pairs)


def _flat(operand: Operand) -> Operand:
    """A signal [W, C, N] seen as an image [W, 1, C, N]."""
    ne, nb = operand.ne, operand.nb
    return replace(operand, ne=(ne[0], 1, ne[1], ne[2]), nb=(nb[0], nb[1], nb[1], nb[2]))


def _flat_columns(operand: Operand) -> Operand:
    """Columns of a signal [C·K, OW, N] seen as those of an image [C·K, OW, 1, N]."""
    ne, nb = operand.ne, operand.nb
    return replace(operand, ne=(ne[0], ne[1], 1, ne[2]), nb=(nb[0], nb[1], nb[2], nb[2]))


def _unfolding(low: Lowering, node: Tensor) -> None:
    s0, s1, p0, p1, d0, d1, two_d = node.params
    kernel, x = source_of(node, 0), source_of(node, 1)
    back = node.op is Op.IM2COL_BACK
    result, source = low.operand(node), low.contiguous(x) if back else low.operand(x)
    size = (kernel.ne[0], kernel.ne[1]) if two_d else (kernel.ne[0], 1)
    params = _packed((s0, s1), (p0, p1), (d0, d1), size)
    if not two_d:
        params = _packed((s0, 1), (p0, 0), (d0, 1), size)
        result = _flat(result) if back else _flat_columns(result)
        source = _flat_columns(source) if back else _flat(source)
    low.emit("spatial.im2col_back" if back else "spatial.im2col", result, source, params=params)


def _conv_2d(low: Lowering, node: Tensor) -> None:
    """Columns, then y[p, o] = Σ_k columns[k, p]·kernel[k, o] for each image."""
    s0, s1, p0, p1, d0, d1 = node.params
    kernel, image = source_of(node, 0), source_of(node, 1)
    width, height, outputs, images = node.ne  # the number of images may vary
    k, places = int(kernel.ne[0] * kernel.ne[1] * kernel.ne[2]), width * height
    nb = (4, 4 * k, 4 * k * width, 4 * k * places)
    columns = low.temporary((k, width, height, images), nb, nb[3] * int(images), "columns")
    params = _packed((s0, s1), (p0, p1), (d0, d1), (kernel.ne[0], kernel.ne[1]))
    low.emit("spatial.im2col", columns, low.operand(image), params=params)
    plane = 4 * places * outputs
    result = replace(low.operand(node), ne=(places, outputs, 1, images), nb=(4, 4 * places, plane, plane))
    rows = replace(columns, ne=(k, places, 1, images), nb=(4, 4 * k, nb[3], nb[3]))
    # One kernel for all images: a stride of nothing.
    weights = replace(low.operand(kernel), ne=(k, outputs, 1, images), nb=(4, 4 * k, 0, 0))
    low.emit(f"panels.mul_mat.f32@{low.isa}", result, rows, weights, params=(0,), scratch=panel_scratch(low.isa))


def _pool(low: Lowering, node: Tensor) -> None:
    kind, *numbers = node.params
    if node.op is Op.POOL_1D:
        k, s, p = numbers
        numbers = [k, 1, s, 1, p, 0]
    k0, k1, s0, s1, p0, p1 = numbers
    mean = 0 if kind is Pool.MAX else 2 if node.op is Op.POOL_1D else 1
    params = (*_packed((s0, s1), (p0, p1), (1, 1), (k0, k1)), mean)
    if node.op is Op.POOL_2D_BACK:
        g, a = low.contiguous(source_of(node, 0)), low.operand(source_of(node, 1))
        low.emit("spatial.pool_2d_back", low.operand(node), g, a, params=params)
    else:
        low.emit("spatial.pool_2d", low.operand(node), low.operand(source_of(node, 0)), params=params)


def _resize(low: Lowering, node: Tensor) -> None:
    x, back = source_of(node, 0), node.op is Op.UPSCALE_BACK
    large, small = (x, node) if back else (node, x)
    tables = [
        low.constant(np.concatenate([first, second, weight.view(np.int32)]), f"places of dimension {d}")
        for d, (first, second, weight) in enumerate(all_taps(large.ne, small.ne, *node.params))
    ]
    source = low.contiguous(x) if back else low.operand(x)
    low.emit("spatial.upscale_back" if back else "spatial.upscale", low.operand(node), source, *tables)


RULES = {
    Op.IM2COL: _unfolding,
    Op.IM2COL_BACK: _unfolding,
    Op.CONV_2D: _conv_2d,
    Op.POOL_1D: _pool,
    Op.POOL_2D: _pool,
    Op.POOL_2D_BACK: _pool,
    Op.UPSCALE: _resize,
    Op.UPSCALE_BACK: _resize,
}
