"""What is done with images, in torch, float64; see `torch_rows`. Images are [N, C, H, W], our order of values."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch_rows import Row, Value, back, extents

from prism_inference.graph import Interpolation, Op, Pool, Tensor


def _window(numbers: tuple[int, ...]) -> dict[str, tuple[int, int]]:
    """Strides, paddings and dilations by torch's names, the height first."""
    s0, s1, p0, p1, d0, d1 = numbers
    return {"stride": (s1, s0), "padding": (p1, p0), "dilation": (d1, d0)}


def unfolded(node: Tensor, image: Value) -> Value:
    """What each place of a kernel sees: [N, OH, OW, C·KH·KW]; of signals [1, N, OW, C·K]."""
    kernel = node.sources[0]
    assert kernel is not None
    *numbers, two_d = node.params
    sizes = (int(kernel.ne[1]), int(kernel.ne[0]))
    if not two_d:
        s0, _, p0, _, d0, _ = numbers
        sizes, numbers = (1, int(kernel.ne[0])), [s0, 1, p0, 0, d0, 1]
        image = image[0][:, :, None]
    return F.unfold(image, sizes, **_window(tuple(numbers))).transpose(1, 2)


def _im2col(node: Tensor, kernel: Value, image: Value) -> Value:
    return unfolded(node, image).reshape(extents(node))


def _im2col_back(node: Tensor, kernel: Value, g: Value) -> Value:
    image = torch.zeros(extents(node), dtype=torch.float64)
    return back(lambda image: unfolded(node, image).reshape(g.shape), [image], g)[0]


def _conv_2d(node: Tensor, kernel: Value, image: Value) -> Value:
    return F.conv2d(image, kernel, **_window(node.params))


def pooled(node: Tensor, x: Value) -> Value:
    """The largest value or the mean of windows. As in ggml, padding counts as zeros in the mean of a plane's window and
    does not count in that of a row's."""
    kind, *numbers = node.params
    if node.op is Op.POOL_1D:
        k, s, p = numbers
        numbers = [k, 1, s, 1, p, 0]
    k0, k1, s0, s1, p0, p1 = numbers
    around, window = (p0, p0, p1, p1), {"kernel_size": (k1, k0), "stride": (s1, s0)}
    if kind is Pool.MAX:
        return F.max_pool2d(F.pad(x, around, value=-torch.inf), **window)
    mean = F.avg_pool2d(F.pad(x, around), **window)
    return mean / F.avg_pool2d(F.pad(torch.ones_like(x), around), **window) if node.op is Op.POOL_1D else mean


def _pool_2d_back(node: Tensor, g: Value, x: Value) -> Value:
    return back(lambda x: pooled(node, x), [x], g)[0]


def resized(node: Tensor, x: Value, shape: tuple[int, ...]) -> Value:
    """Planes resized by the node's mode, then channels and images repeated."""
    mode, align_corners = node.params
    if mode is Interpolation.NEAREST and align_corners:  # torch has none of this kind
        planes = x
        for axis in (2, 3):
            size, source = shape[axis], x.shape[axis]
            places = torch.arange(size) * (source - 1) // (size - 1) if size > 1 else torch.zeros(1, dtype=torch.int64)
            planes = planes.index_select(axis, places)
    elif mode is Interpolation.NEAREST:
        planes = F.interpolate(x, shape[2:], mode="nearest")
    else:
        planes = F.interpolate(x, shape[2:], mode="bilinear", align_corners=align_corners)
    for axis in (0, 1):
        planes = planes.index_select(axis, torch.arange(shape[axis]) * x.shape[axis] // shape[axis])
    return planes


def _upscale_back(node: Tensor, g: Value) -> Value:
    x = torch.zeros(extents(node), dtype=torch.float64)
    return back(lambda x: resized(node, x, tuple(g.shape)), [x], g)[0]


ROWS: dict[Op, Row] = {
    Op.IM2COL: _im2col,
    Op.IM2COL_BACK: _im2col_back,
    Op.CONV_2D: _conv_2d,
    Op.POOL_1D: pooled,
    Op.POOL_2D: pooled,
    Op.POOL_2D_BACK: _pool_2d_back,
    Op.UPSCALE: lambda node, x: resized(node, x, extents(node)),
    Op.UPSCALE_BACK: _upscale_back,
}
