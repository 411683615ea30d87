"""Twins of what is done with images."""

from __future__ import annotations

import numpy as np

from ..interpolation import Taps, all_taps
from ..ops import Interpolation, Op, Pool
from ..tensor import Tensor
from .memory import Array, Memory, Twin, wide_inputs


def _as_2d(kernel: Tensor, image: Array, node: Tensor) -> tuple[Array, list[int], tuple[int, ...]]:
    """Return an image [N, C, H, W], kernel sizes (KH, KW) and strides, paddings and dilations (s0, s1, p0, …)."""
    *numbers, two_d = node.params
    if two_d:
        return image, [int(kernel.ne[1]), int(kernel.ne[0])], tuple(numbers)
    s0, _, p0, _, d0, _ = numbers
    return image[0][:, :, None, :], [1, int(kernel.ne[0])], (s0, 1, p0, 0, d0, 1)


def _unfolded(image: Array, kernel: list[int], numbers: tuple[int, ...]) -> Array:
    """Return [N, OH, OW, C, KH, KW]."""
    s0, s1, p0, p1, d0, d1 = numbers
    padded = np.pad(image, ((0, 0), (0, 0), (p1, p1), (p0, p0)))
    oh = (padded.shape[2] - d1 * (kernel[0] - 1) - 1) // s1 + 1
    ow = (padded.shape[3] - d0 * (kernel[1] - 1) - 1) // s0 + 1
    out = np.empty((image.shape[0], oh, ow, image.shape[1], *kernel))
    for kh in range(kernel[0]):
        for kw in range(kernel[1]):
            part = padded[:, :, kh * d1 : kh * d1 + s1 * oh : s1, kw * d0 : kw * d0 + s0 * ow : s0]
            out[..., kh, kw] = part[:, :, :oh, :ow].transpose(0, 2, 3, 1)
    return out


def _kernel(node: Tensor) -> Tensor:
    kernel = node.sources[0]
    assert kernel is not None
    return kernel


def _im2col(memory: Memory, node: Tensor) -> None:
    image = wide_inputs(memory, node)[1]
    columns = _unfolded(*_as_2d(_kernel(node), image, node))
    memory.write(node, columns.reshape(memory.place(node).shape))


def _im2col_back(memory: Memory, node: Tensor) -> None:
    g = wide_inputs(memory, node)[1]
    y = np.zeros(tuple(int(extent) for extent in reversed(node.ne)))
    image, kernel, numbers = _as_2d(_kernel(node), y, node)
    s0, s1, p0, p1, d0, d1 = numbers
    padded = np.pad(image, ((0, 0), (0, 0), (p1, p1), (p0, p0)))
    shape = _unfolded(image, kernel, numbers).shape
    parts = g.reshape(shape)
    oh, ow = shape[1:3]
    for kh in range(kernel[0]):
        for kw in range(kernel[1]):
            rows, columns = np.arange(oh) * s1 + kh * d1, np.arange(ow) * s0 + kw * d0
            padded[:, :, rows[:, None], columns] += parts[..., kh, kw].transpose(0, 3, 1, 2)
    inner = padded[:, :, p1 : p1 + image.shape[2], p0 : p0 + image.shape[3]]
    memory.write(node, inner.reshape(y.shape))


def _conv_2d(memory: Memory, node: Tensor) -> None:
    kernel, image = wide_inputs(memory, node)
    columns = _unfolded(image, [kernel.shape[2], kernel.shape[3]], node.params)
    memory.write(node, np.einsum("nhwcij,ocij->nohw", columns, kernel, optimize=True))


def _windows(node: Tensor) -> tuple[Pool, tuple[int, int], tuple[int, ...]]:
    kind, *numbers = node.params
    if node.op is Op.POOL_1D:
        k, s, p = numbers
        return kind, (1, k), (s, 1, p, 0, 1, 1)
    k0, k1, s0, s1, p0, p1 = numbers
    return kind, (k1, k0), (s0, s1, p0, p1, 1, 1)


def _marked(image: Array, kernel: tuple[int, int], numbers: tuple[int, ...]) -> tuple[Array, Array]:
    """Return the windows [N, OH, OW, C, KH, KW] and which of their places lie inside the image."""
    inside = _unfolded(np.ones_like(image), list(kernel), numbers) > 0
    return _unfolded(image, list(kernel), numbers), inside


def _pool(memory: Memory, node: Tensor) -> None:
    a = wide_inputs(memory, node)[0]
    kind, kernel, numbers = _windows(node)
    windows, inside = _marked(a, kernel, numbers)
    if kind is Pool.MAX:
        y = np.where(inside, windows, -np.inf).max((-1, -2))
    else:
        y = windows.sum((-1, -2)) / (inside.sum((-1, -2)) if node.op is Op.POOL_1D else kernel[0] * kernel[1])
    memory.write(node, y.transpose(0, 3, 1, 2))


def _pool_2d_back(memory: Memory, node: Tensor) -> None:
    g, a = wide_inputs(memory, node)
    kind, kernel, numbers = _windows(node)
    s0, s1, p0, p1, _, _ = numbers
    windows, inside = _marked(a, kernel, numbers)
    shape = windows.shape
    if kind is Pool.MAX:
        flat = np.where(inside, windows, -np.inf).reshape(*shape[:4], -1)
        share = (np.arange(flat.shape[-1]) == flat.argmax(-1)[..., None]).reshape(shape).astype(np.float64)
    else:
        share = np.full(shape, 1.0 / (kernel[0] * kernel[1]))
    share *= g.transpose(0, 2, 3, 1)[..., None, None]
    y = np.pad(np.zeros_like(a), ((0, 0), (0, 0), (p1, p1), (p0, p0)))
    for kh in range(kernel[0]):
        for kw in range(kernel[1]):
            rows, columns = np.arange(shape[1]) * s1 + kh, np.arange(shape[2]) * s0 + kw
            y[:, :, rows[:, None], columns] += share[..., kh, kw].transpose(0, 3, 1, 2)
    memory.write(node, y[:, :, p1 : p1 + a.shape[2], p0 : p0 + a.shape[3]])


def _matrix(source: int, taps: Taps) -> Array:
    """The map of one dimension: [size, source]."""
    first, second, weight = taps
    matrix = np.zeros((first.size, source))
    np.add.at(matrix, (np.arange(first.size), first), 1.0 - weight.astype(np.float64))
    np.add.at(matrix, (np.arange(first.size), second), weight.astype(np.float64))
    return matrix


def _maps(large: Tensor, small: Tensor, mode: Interpolation, align_corners: bool) -> list[Array]:
    taps = all_taps(large.ne, small.ne, mode, align_corners)
    return [_matrix(int(small.ne[d]), taps[d]) for d in (3, 2, 1, 0)]


def _upscale(memory: Memory, node: Tensor) -> None:
    a = wide_inputs(memory, node)[0]
    source = node.sources[0]
    assert source is not None
    memory.write(node, np.einsum("ai,bj,ck,dl,ijkl->abcd", *_maps(node, source, *node.params), a, optimize=True))


def _upscale_back(memory: Memory, node: Tensor) -> None:
    g = wide_inputs(memory, node)[0]
    source = node.sources[0]
    assert source is not None
    memory.write(node, np.einsum("ai,bj,ck,dl,abcd->ijkl", *_maps(source, node, *node.params), g, optimize=True))


TWINS: dict[Op, Twin] = {
    Op.IM2COL: _im2col,
    Op.IM2COL_BACK: _im2col_back,
    Op.CONV_2D: _conv_2d,
    Op.POOL_1D: _pool,
    Op.POOL_2D: _pool,
    Op.POOL_2D_BACK: _pool_2d_back,
    Op.UPSCALE: _upscale,
    Op.UPSCALE_BACK: _upscale_back,
}
