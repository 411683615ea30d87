"""Images and signals: unfolding, convolution, pooling, resizing. Extents are [width, height, channels, images]."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, TypeVar

from ..extents import Dim, full_extents
from ..ops import Interpolation, Op, Pool
from .checks import require, require_f32

if TYPE_CHECKING:
    from ..tensor import Tensor

Pair = tuple[int, int]
Kind = TypeVar("Kind", bound=IntEnum)


def im2col(
    self: Tensor,
    image: Tensor,
    stride: Pair = (1, 1),
    padding: Pair = (0, 0),
    dilation: Pair = (1, 1),
    two_d: bool = True,
) -> Tensor:
    """What each place of a kernel (self, of which only the extents matter) sees of an image, as rows.

    Two dimensions: kernel [KW, KH, C, …], image [W, H, C, N] → [C·KH·KW, OW, OH, N]. One dimension: kernel [K, C, …],
    image [W, C, N] → [C·K, OW, N], and the second numbers of stride, padding and dilation are not looked at.
    OW = (W + 2·padding - dilation·(KW - 1) - 1) // stride + 1; padding is zero.
    """
    op = Op.IM2COL
    require_f32(op, image)
    ne = _columns_of(self, image.ne, op, stride, padding, dilation, two_d)
    return self.context.node(op, image.type, ne, [self, image], (*stride, *padding, *dilation, two_d))


def im2col_back(
    self: Tensor,
    gradient: Tensor,
    ne: Sequence[int],
    stride: Pair = (1, 1),
    padding: Pair = (0, 0),
    dilation: Pair = (1, 1),
    two_d: bool = True,
) -> Tensor:
    """The way back through `im2col` to an image of extents `ne`: what came from one place is added up."""
    op = Op.IM2COL_BACK
    require_f32(op, gradient)
    full = (*ne, *(1,) * (4 - len(ne)))
    wanted = _columns_of(self, full, op, stride, padding, dilation, two_d)
    require(gradient.ne == wanted, op, "the gradient does not fit the image", gradient, expected=wanted)
    return self.context.node(op, gradient.type, full, [self, gradient], (*stride, *padding, *dilation, two_d))


def _columns_of(
    kernel: Tensor, ne: Sequence[int], op: Op, stride: Pair, padding: Pair, dilation: Pair, two_d: bool
) -> tuple[int, ...]:
    channels = 2 if two_d else 1  # as many dimensions come before them
    _check_window(op, kernel, channels, stride, padding, dilation)
    _check_fixed(op, ne[: channels + 1], kernel)
    require(two_d or ne[3] == 1, op, "signals have three dimensions", kernel, expected=(*ne[:3], 1))
    require(kernel.ne[channels] == ne[channels], op, "different channels", kernel, expected=ne[channels])
    sizes = [window_count(int(ne[d]), int(kernel.ne[d]), stride[d], padding[d], dilation[d]) for d in range(channels)]
    require(min(sizes) >= 1, op, "the kernel does not fit into the image", kernel, expected=tuple(ne))
    # The number of images is passed on as it is: it may vary from run to run.
    if two_d:
        return int(kernel.ne[0] * kernel.ne[1] * kernel.ne[2]), *sizes, ne[3]
    return int(kernel.ne[0] * kernel.ne[1]), sizes[0], ne[2], 1


def _check_window(
    op: Op, tensor: Tensor, dimensions: int, stride: Pair, padding: Pair, dilation: Pair = (1, 1)
) -> None:
    right = all(stride[d] >= 1 and padding[d] >= 0 and dilation[d] >= 1 for d in range(dimensions))
    require(right, op, f"wrong stride {stride}, padding {padding} or dilation {dilation}", tensor)


def _check_fixed(op: Op, ne: Sequence[int], *tensors: Tensor) -> None:
    """Only how many images there are may vary from run to run: windows and places are laid out for the rest."""
    require(not any(isinstance(extent, Dim) for extent in ne), op, f"an extent of {tuple(ne)} varies", *tensors)


def _one_of(op: Op, kinds: type[Kind], value: int, *tensors: Tensor) -> Kind:
    require(value in list(kinds), op, f"{value} is not known here", *tensors, expected=[kind.name for kind in kinds])
    return kinds(value)


def window_count(size: int, kernel: int, stride: int, padding: int, dilation: int = 1) -> int:
    """Return how many places a window has along one dimension."""
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def conv_2d(
    self: Tensor, image: Tensor, stride: Pair = (1, 1), padding: Pair = (0, 0), dilation: Pair = (1, 1)
) -> Tensor:
    """Convolution, without flipping: a kernel (self) [KW, KH, C, OC], an image [W, H, C, N] → [OW, OH, OC, N]."""
    op = Op.CONV_2D
    require_f32(op, self, image)
    require(self.contiguous, op, "the kernel is not contiguous", self)
    _, width, height, images = _columns_of(self, image.ne, op, stride, padding, dilation, True)
    return self.context.node(
        op, image.type, (width, height, self.ne[3], images), [self, image], (*stride, *padding, *dilation)
    )


def pool_1d(self: Tensor, kind: Pool, kernel: int, stride: int, padding: int = 0) -> Tensor:
    """The largest value, or the mean, of windows along each row; padding, less than a window, counts in neither."""
    op = Op.POOL_1D
    kind = _one_of(op, Pool, kind, self)
    ne = _pooled(self, op, (kernel, 1), (stride, 1), (padding, 0))
    return self.context.node(op, self.type, ne, [self], (kind, kernel, stride, padding))


def pool_2d(self: Tensor, kind: Pool, kernel: Pair, stride: Pair, padding: Pair = (0, 0)) -> Tensor:
    """The largest value, or the mean, of windows of each plane. Padding is never the largest; in a mean it counts as
    zeros. It is less than a window."""
    op = Op.POOL_2D
    kind = _one_of(op, Pool, kind, self)
    ne = _pooled(self, op, kernel, stride, padding)
    return self.context.node(op, self.type, ne, [self], (kind, *kernel, *stride, *padding))


def pool_2d_back(
    self: Tensor, argument: Tensor, kind: Pool, kernel: Pair, stride: Pair, padding: Pair = (0, 0)
) -> Tensor:
    """The way back through `pool_2d`: to the first of the largest values of a window, or evenly to all of it."""
    op = Op.POOL_2D_BACK
    kind = _one_of(op, Pool, kind, self)
    require_f32(op, self)
    ne = _pooled(argument, op, kernel, stride, padding)
    require(self.ne == ne, op, "the gradient does not fit", self, argument, expected=ne)
    return self.context.node(op, self.type, argument.ne, [self, argument], (kind, *kernel, *stride, *padding))


def _pooled(tensor: Tensor, op: Op, kernel: Pair, stride: Pair, padding: Pair) -> tuple[int, int, int, int]:
    require_f32(op, tensor)
    _check_window(op, tensor, 2, stride, padding)
    _check_fixed(op, tensor.ne[:2], tensor)
    # Windows that hold nothing but padding would have no largest value, and in rows no mean.
    right = all(padding[d] < kernel[d] for d in (0, 1))
    require(right, op, f"wrong window {kernel} or padding {padding}", tensor)
    sizes = [window_count(int(tensor.ne[d]), kernel[d], stride[d], padding[d]) for d in (0, 1)]
    require(min(sizes) >= 1, op, "the window does not fit", tensor)
    return sizes[0], sizes[1], tensor.ne[2], tensor.ne[3]


def upscale(self: Tensor, *ne: int, mode: Interpolation = Interpolation.NEAREST, align_corners: bool = False) -> Tensor:
    """Resized to extents `ne`: the first two dimensions by the mode, the others by the nearest value."""
    return _resized(self, Op.UPSCALE, ne, mode, align_corners)


def upscale_back(
    self: Tensor, *ne: int, mode: Interpolation = Interpolation.NEAREST, align_corners: bool = False
) -> Tensor:
    """The way back through `upscale` to a tensor of extents `ne`."""
    return _resized(self, Op.UPSCALE_BACK, ne, mode, align_corners)


def _resized(self: Tensor, op: Op, ne: Sequence[int], mode: Interpolation, align_corners: bool) -> Tensor:
    require_f32(op, self)
    full = full_extents(ne)
    for d, (extent, before) in enumerate(zip(full, self.ne, strict=True)):
        if d < 2 or extent != before:
            _check_fixed(op, (extent, before), self)
    kind = _one_of(op, Interpolation, mode, self)
    return self.context.node(op, self.type, full, [self], (kind, bool(align_corners)))
