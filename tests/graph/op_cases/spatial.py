"""Cases of what is done with images."""

from __future__ import annotations

from prism_inference.graph import Interpolation, Op, Pool, Tensor
from tolerances import SUMS

from . import Maker, OpCase

# kernel (width, height), stride, padding, dilation
WINDOWS = [
    ((1, 1), (1, 1), (0, 0), (1, 1)),
    ((3, 2), (1, 1), (0, 0), (1, 1)),
    ((3, 3), (2, 1), (1, 1), (1, 1)),
    ((2, 3), (1, 2), (2, 0), (2, 1)),
]
POOLS = [
    ((2, 2), (2, 2), (0, 0)),
    ((3, 2), (1, 2), (1, 0)),
    ((3, 3), (2, 2), (1, 1)),
    ((3, 2), (2, 1), (2, 1)),  # more padding than half a window
]
MODES = [
    (Interpolation.NEAREST, False),
    (Interpolation.NEAREST, True),
    (Interpolation.BILINEAR, False),
    (Interpolation.BILINEAR, True),
]
SIZES = [
    ((3, 2, 2, 1), (6, 4, 2, 1)),
    ((4, 3, 1, 2), (7, 5, 2, 2)),
    ((5, 4, 2, 1), (3, 2, 2, 1)),
    ((1, 4, 3, 2), (3, 1, 2, 3)),
]


def _image(m: Maker) -> Tensor:
    return m.parameter(6, 5, 2, 2)


def _columns(m: Maker, ne: tuple[int, ...], *window: tuple[int, int]) -> Tensor:
    """A gradient of columns, of the extents that the unfolding of such an image has."""
    kernel, *numbers = window
    shape = m.leaf(*kernel, ne[2], 1)
    like = shape.im2col(m.leaf(*ne), *numbers)
    return shape.im2col_back(m.parameter(*like.ne), ne, *numbers)


def _pool_back(m: Maker, kind: Pool, *window: tuple[int, int]) -> Tensor:
    image = m.apart(5, 4, 2)
    image.is_parameter = kind is Pool.MAX
    like = image.pool_2d(kind, *window)
    image.is_parameter = False
    return m.parameter(*like.ne).pool_2d_back(image, kind, *window)


CASES = [
    *(OpCase(Op.IM2COL, f"{w}", lambda m, w=w: m.leaf(*w[0], 2, 3).im2col(_image(m), *w[1:])) for w in WINDOWS),
    OpCase(Op.IM2COL, "signal", lambda m: m.leaf(3, 2, 4).im2col(m.parameter(9, 2, 3), (2, 1), (1, 0), (2, 1), False)),
    OpCase(
        Op.IM2COL,
        "permuted",
        lambda m: m.leaf(2, 2, 2, 1).im2col(m.parameter(5, 6, 2).permute(1, 0, 2, 3), (1, 1), (1, 1)),
    ),
    *(OpCase(Op.IM2COL_BACK, f"{w}", lambda m, w=w: _columns(m, (4, 5, 1, 2), *w), SUMS) for w in WINDOWS),
    OpCase(
        Op.IM2COL_BACK,
        "signal",
        lambda m: m.leaf(3, 2, 4).im2col_back(m.parameter(6, 4, 3), (9, 2, 3), (2, 1), (1, 0), (2, 1), False),
        SUMS,
    ),
    *(
        OpCase(Op.CONV_2D, f"{w}", lambda m, w=w: m.parameter(*w[0], 2, 3).conv_2d(_image(m), *w[1:]), SUMS)
        for w in WINDOWS
    ),
    OpCase(
        Op.CONV_2D,
        "more outputs than a vector has lanes",
        lambda m: m.parameter(2, 1, 2, 19).conv_2d(m.parameter(5, 2, 2), padding=(1, 1)),
        SUMS,
    ),
    OpCase(
        Op.CONV_2D,
        "tails",
        lambda m: m.leaf(3, 3, 5, 18).conv_2d(m.leaf(19, 17, 5, 3), (1, 2), (2, 1)),
        SUMS,
        smooth=False,
    ),
    OpCase(
        Op.CONV_2D,
        "permuted",
        lambda m: m.parameter(2, 3, 2, 3).conv_2d(m.parameter(2, 6, 5, 2).permute(2, 0, 1, 3), (2, 1), (1, 1)),
        SUMS,
    ),
    OpCase(
        Op.CONV_2D,
        "part of a tensor",
        lambda m: m.parameter(2, 2, 1, 3).conv_2d(m.parameter(7, 6, 2).view((4, 5, 1), (28, 168), 32)),
        SUMS,
    ),
    *(
        OpCase(Op.POOL_1D, f"{kind.name} {w}", lambda m, kind=kind, w=w: m.apart(9, 2, 2).pool_1d(kind, *w), SUMS)
        for kind in Pool
        for w in ((3, 3, 0), (3, 2, 1), (2, 1, 0), (4, 3, 3))
    ),
    *(
        OpCase(Op.POOL_2D, f"{kind.name} {w}", lambda m, kind=kind, w=w: m.apart(6, 5, 2, 2).pool_2d(kind, *w), SUMS)
        for kind in Pool
        for w in POOLS
    ),
    OpCase(
        Op.POOL_2D,
        "permuted",
        lambda m: m.apart(5, 6, 2).permute(1, 0, 2, 3).pool_2d(Pool.MAX, (2, 2), (2, 2)),
    ),
    OpCase(
        Op.POOL_2D_BACK,
        "permuted",
        lambda m: (
            m.leaf(2, 3, 2)
            .permute(2, 0, 1, 3)
            .pool_2d_back(m.apart(5, 6, 2).permute(1, 0, 2, 3), Pool.MAX, (2, 3), (2, 2))
        ),
        smooth=False,
    ),
    OpCase(
        Op.POOL_2D_BACK,
        "ties",
        lambda m: m.leaf(2, 2).pool_2d_back(m.values([[1, 1, 2], [1, 0, 2], [-1, -1, -1]]), Pool.MAX, (2, 2), (1, 1)),
        smooth=False,
    ),
    *(
        OpCase(
            Op.POOL_2D_BACK,
            f"{kind.name} {w}",
            lambda m, kind=kind, w=w: _pool_back(m, kind, *w),
            SUMS,
            smooth=kind is Pool.AVG,
        )
        for kind in Pool
        for w in POOLS
    ),
    *(
        OpCase(
            op,
            f"{mode.name} {small} {large} {'corners' if align else ''}",
            lambda m, op=op, mode=mode, small=small, large=large, align=align: (
                m.parameter(*small).upscale(*large, mode=mode, align_corners=align)
                if op is Op.UPSCALE
                else m.parameter(*large).upscale_back(*small, mode=mode, align_corners=align)
            ),
            SUMS,
        )
        for op in (Op.UPSCALE, Op.UPSCALE_BACK)
        for mode, align in MODES
        for small, large in SIZES
    ),
    OpCase(
        Op.UPSCALE,
        "permuted",
        lambda m: m.parameter(2, 4, 3).permute(2, 0, 1, 3).upscale(7, 6, 2, mode=Interpolation.BILINEAR),
        SUMS,
    ),
    OpCase(
        Op.UPSCALE_BACK,
        "permuted",
        lambda m: m.parameter(2, 7, 6).permute(2, 0, 1, 3).upscale_back(4, 3, 2, mode=Interpolation.BILINEAR),
        SUMS,
    ),
]
