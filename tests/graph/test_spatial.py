"""What the cases of images do not show: the operations by their definitions, NaN and infinities, numbers of images that
vary, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from prism_inference.engine.run import prepare
from prism_inference.errors import GraphError
from prism_inference.graph import Context, Dim, Graph, Interpolation, Pool, Tensor
from tolerances import SUMS, check

Pair = tuple[int, int]


def computed(result: Tensor) -> np.ndarray:
    """A result in four dimensions."""
    graph = Graph(result.context)
    graph.expand(result.mark_output())
    graph.compute(threads=2)
    return result.numpy().reshape([int(extent) for extent in reversed(result.ne)])


def leaf(values: object, ctx: Context | None = None) -> Tensor:
    array = np.asarray(values, np.float32)
    return (ctx or Context()).tensor("F32", tuple(reversed(array.shape))).set(array)


# --- Definitions ------------------------------------------------------------------------------------------------

# kernel (width, height), stride, padding, dilation
CONVOLUTIONS: list[tuple[Pair, Pair, Pair, Pair]] = [
    ((1, 1), (1, 1), (0, 0), (1, 1)),
    ((3, 2), (1, 1), (0, 0), (1, 1)),
    ((3, 3), (2, 1), (1, 1), (1, 1)),
    ((2, 3), (1, 2), (3, 1), (2, 1)),
    ((2, 2), (3, 2), (0, 4), (1, 3)),
    ((1, 4), (2, 2), (2, 5), (3, 2)),
]
# kernel, stride, padding: all that a window may have
POOLS: list[tuple[Pair, Pair, Pair]] = [
    ((1, 1), (1, 1), (0, 0)),
    ((2, 2), (2, 2), (0, 0)),
    ((3, 2), (1, 2), (1, 1)),
    ((3, 4), (2, 1), (2, 3)),
    ((5, 1), (3, 3), (4, 0)),
]


def convolved(
    kernel: np.ndarray, image: np.ndarray, stride: Pair, padding: Pair, dilation: Pair
) -> dict[tuple[int, ...], float]:
    """Σ over the kernel's places of kernel · image, by place of the result; there is nothing outside the image."""
    outputs, channels, kh, kw = kernel.shape
    images, _, height, width = image.shape
    found = {}
    for n, o in np.ndindex(images, outputs):
        for oh in range((height + 2 * padding[1] - dilation[1] * (kh - 1) - 1) // stride[1] + 1):
            for ow in range((width + 2 * padding[0] - dilation[0] * (kw - 1) - 1) // stride[0] + 1):
                total = 0.0
                for c, j, i in np.ndindex(channels, kh, kw):
                    y, x = oh * stride[1] - padding[1] + j * dilation[1], ow * stride[0] - padding[0] + i * dilation[0]
                    if 0 <= y < height and 0 <= x < width:
                        total += float(kernel[o, c, j, i]) * float(image[n, c, y, x])
                found[n, o, oh, ow] = total
    return found


def gathered(places: dict[tuple[int, ...], float]) -> np.ndarray:
    result = np.empty(np.max(list(places), 0) + 1)
    for place, value in places.items():
        result[place] = value
    return result


@pytest.mark.parametrize("window", CONVOLUTIONS, ids=str)
def test_convolution_is_what_its_definition_says(
    window: tuple[Pair, Pair, Pair, Pair], rng: np.random.Generator
) -> None:
    (kw, kh), *numbers = window
    kernel, image = rng.standard_normal((3, 2, kh, kw)), rng.standard_normal((2, 2, 6, 7))
    ctx = Context()
    weights, x = leaf(kernel, ctx), leaf(image, ctx)
    expected = gathered(convolved(kernel.astype(np.float32), image.astype(np.float32), *numbers))
    check(computed(weights.conv_2d(x, *numbers)), expected, SUMS)
    # The same by a product with the columns.
    columns = computed(weights.im2col(x, *numbers))
    check(np.einsum("nhwk,ok->nohw", columns, weights.numpy().reshape(3, -1)), expected, SUMS)


def windows(image: np.ndarray, kernel: Pair, stride: Pair, padding: Pair) -> dict[tuple[int, ...], np.ndarray]:
    """The part of the image that lies in each window."""
    images, channels, height, width = image.shape
    found = {}
    for n, c in np.ndindex(images, channels):
        for oh in range((height + 2 * padding[1] - kernel[1]) // stride[1] + 1):
            for ow in range((width + 2 * padding[0] - kernel[0]) // stride[0] + 1):
                y, x = oh * stride[1] - padding[1], ow * stride[0] - padding[0]
                found[n, c, oh, ow] = image[n, c, max(y, 0) : y + kernel[1], max(x, 0) : x + kernel[0]]
    return found


@pytest.mark.parametrize("window", POOLS, ids=str)
def test_pooling_is_what_its_definition_says(window: tuple[Pair, Pair, Pair], rng: np.random.Generator) -> None:
    image = rng.standard_normal((2, 2, 6, 7)).astype(np.float32)
    seen, size = windows(image, *window), window[0][0] * window[0][1]
    check(computed(leaf(image).pool_2d(Pool.MAX, *window)), gathered({k: w.max() for k, w in seen.items()}), SUMS)
    check(
        computed(leaf(image).pool_2d(Pool.AVG, *window)), gathered({k: w.sum() / size for k, w in seen.items()}), SUMS
    )
    (kernel, _), (stride, _), (padding, _) = window
    seen = windows(image, (kernel, 1), (stride, 1), (padding, 0))
    check(
        computed(leaf(image).pool_1d(Pool.MAX, kernel, stride, padding)),
        gathered({k: w.max() for k, w in seen.items()}),
        SUMS,
    )
    check(
        computed(leaf(image).pool_1d(Pool.AVG, kernel, stride, padding)),
        gathered({k: w.mean() for k, w in seen.items()}),
        SUMS,
    )


@pytest.mark.parametrize("sizes", [(3, 5), (4, 7), (5, 3), (6, 6), (1, 4), (4, 1), (2, 9)], ids=str)
def test_resizing_is_interpolation(sizes: Pair, rng: np.random.Generator) -> None:
    source, size = sizes
    values, places = rng.standard_normal(source), np.arange(size)
    for_rows, for_columns = leaf(values), leaf(values[:, None])

    def resized(mode: Interpolation, align_corners: bool) -> np.ndarray:
        across = computed(for_rows.upscale(size, 1, mode=mode, align_corners=align_corners)).reshape(-1)
        down = computed(for_columns.upscale(1, size, mode=mode, align_corners=align_corners)).reshape(-1)
        np.testing.assert_array_equal(across, down)
        return across

    middles = (places + 0.5) * source / size - 0.5
    corners = places * (source - 1) / (size - 1) if min(sizes) > 1 else places * source / size
    straight = np.arange(source), values
    check(resized(Interpolation.BILINEAR, False), np.interp(middles, *straight), SUMS)
    check(resized(Interpolation.BILINEAR, True), np.interp(corners, *straight), SUMS)
    nearest = values.astype(np.float32)
    np.testing.assert_array_equal(resized(Interpolation.NEAREST, False), nearest[places * source // size])
    aligned = places * (source - 1) // (size - 1) if min(sizes) > 1 else places * source // size
    np.testing.assert_array_equal(resized(Interpolation.NEAREST, True), nearest[aligned])


def test_channels_and_images_are_repeated_and_never_mixed(rng: np.random.Generator) -> None:
    image = rng.standard_normal((2, 3, 1, 1)).astype(np.float32)
    expected = image[np.arange(3) * 2 // 3][:, np.arange(5) * 3 // 5]
    for mode in Interpolation:
        for align_corners in (False, True):
            made = leaf(image).upscale(1, 1, 5, 3, mode=mode, align_corners=align_corners)
            np.testing.assert_array_equal(computed(made), expected)


def test_of_a_signal_the_second_numbers_are_not_looked_at(rng: np.random.Generator) -> None:
    """ggml's own one-dimensional convolution gives zeros there."""
    ctx = Context()
    kernel, signals = leaf(rng.standard_normal((4, 2, 3)), ctx), leaf(rng.standard_normal((3, 2, 9)), ctx)
    columns = kernel.im2col(signals, (2, 0), (1, 0), (2, 0), two_d=False)
    np.testing.assert_array_equal(
        computed(columns), computed(kernel.im2col(signals, (2, 1), (1, 0), (2, 1), two_d=False))
    )
    back = kernel.im2col_back(columns, signals.ne, (2, 0), (1, 0), (2, 0), two_d=False)
    places = computed(kernel.im2col_back(columns.fill(1.0), signals.ne, (2, 1), (1, 0), (2, 1), two_d=False))
    check(computed(back), places * computed(signals.scale(1.0)), SUMS)


# --- What is not finite -------------------------------------------------------------------------------------------

# A pair, its largest value, and where the gradient goes.
PAIRS = [
    ((np.nan, 1.0), np.nan, 0),
    ((1.0, np.nan), np.nan, 1),
    ((np.nan, np.nan), np.nan, 0),
    ((-np.inf, -np.inf), -np.inf, 0),
    ((-np.inf, 2.0), 2.0, 1),
    ((np.inf, np.nan), np.nan, 1),
    ((3.0, 3.0), 3.0, 0),
]


@pytest.mark.parametrize(("pair", "largest", "place"), PAIRS, ids=str)
def test_nan_is_the_largest_and_the_first_of_the_largest_gets_the_gradient(
    pair: tuple[float, float], largest: float, place: int
) -> None:
    np.testing.assert_array_equal(computed(leaf([pair]).pool_2d(Pool.MAX, (2, 1), (2, 1))).reshape(-1), [largest])
    np.testing.assert_array_equal(computed(leaf([pair]).pool_1d(Pool.MAX, 2, 2)).reshape(-1), [largest])
    ctx = Context()
    back = leaf([[5.0]], ctx).pool_2d_back(leaf([pair], ctx), Pool.MAX, (2, 1), (2, 1))
    np.testing.assert_array_equal(computed(back).reshape(-1), [5.0 * (place == 0), 5.0 * (place == 1)])


def test_infinite_values_do_not_spread_where_they_have_no_weight() -> None:
    values = np.array([[1.0, -np.inf, 2.0], [np.inf, 0.0, 3.0]], np.float32)
    large = values.repeat(2, 0).repeat(2, 1)
    np.testing.assert_array_equal(computed(leaf(values).upscale(6, 4))[0, 0], large)
    corners = leaf(values).upscale(5, 3, mode=Interpolation.BILINEAR, align_corners=True)
    np.testing.assert_array_equal(computed(corners)[0, 0, ::2, ::2], values)
    back = computed(leaf(large).upscale_back(3, 2))[0, 0]
    np.testing.assert_array_equal(back, values * 4)


# --- Numbers of images that vary --------------------------------------------------------------------------------------


def network(ctx: Context, images: int, values: np.ndarray) -> tuple[Tensor, list[Tensor]]:
    """A loss of a small network over images, and its parameters."""
    rng = np.random.default_rng(5)
    kernel = ctx.parameter("F32", (3, 2, 2, 4)).set(rng.standard_normal((4, 2, 2, 3)))
    x = ctx.parameter("F32", (6, 5, 2, images)).set(values)
    features = kernel.conv_2d(x, (1, 1), (1, 0)).pool_2d(Pool.MAX, (2, 2), (2, 2))
    features = features.upscale(5, 3, 4, images, mode=Interpolation.BILINEAR)
    return features.sqr().sum().mark_loss(), [kernel, x]


def test_the_number_of_images_may_vary(rng: np.random.Generator) -> None:
    values = rng.standard_normal((5, 2, 5, 6)).astype(np.float32)
    results = []
    for images, bound in ((Dim(5, "images"), 3), (3, None)):
        loss, parameters = network(Context(), images, values[:images])
        graph = Graph(loss.context, gradients=True)
        graph.expand(loss)
        graph.build_backward()
        executable = prepare(graph, 2)
        graph.reset()
        if bound is not None:
            executable.bind(images=bound)
        executable.run()
        gradients = [graph.gradient(parameter).numpy() for parameter in parameters]
        results.append([loss.numpy(), gradients[0], gradients[1][:3]])
    for varying, fixed in zip(*results, strict=True):
        np.testing.assert_array_equal(varying, fixed)


# --- Refusals ---------------------------------------------------------------------------------------------------------


def _wrong(ctx: Context) -> dict[str, Callable[[], Tensor]]:
    kernel, image = ctx.tensor("F32", (3, 3, 2, 4)), ctx.tensor("F32", (8, 6, 2, 3))
    line, signals = ctx.tensor("F32", (3, 2, 4)), ctx.tensor("F32", (9, 2, 3))
    wide = ctx.tensor("F32", (Dim(8, "width"), 6, 2, 3))
    half = ctx.tensor("F16", (8, 6, 2, 3))
    pooled = ctx.tensor("F32", (4, 3, 2, 3))
    return {
        "wrong type": lambda: kernel.conv_2d(half),
        "different channels": lambda: kernel.conv_2d(ctx.tensor("F32", (8, 6, 3))),
        "wrong stride": lambda: kernel.conv_2d(image, (1, 0)),
        r"padding \(-1, 0\)": lambda: kernel.im2col(image, (1, 1), (-1, 0)),
        r"dilation \(0, 1\)": lambda: kernel.im2col(image, (1, 1), (0, 0), (0, 1)),
        "does not fit into the image": lambda: kernel.conv_2d(image, dilation=(1, 3)),
        "kernel is not contiguous": lambda: kernel.permute(1, 0, 2, 3).conv_2d(image),
        "three dimensions": lambda: line.im2col(ctx.tensor("F32", (9, 2, 3, 2)), two_d=False),
        "does not fit the image": lambda: line.im2col_back(signals, (9, 2, 3), two_d=False),
        "does not fit: expected": lambda: pooled.pool_2d_back(image, Pool.MAX, (3, 2), (2, 2)),
        r"padding \(2, 0\)": lambda: image.pool_2d(Pool.AVG, (2, 2), (1, 1), (2, 0)),
        r"window \(0, 1\)": lambda: image.pool_1d(Pool.MAX, 0, 1),
        "window does not fit": lambda: image.pool_2d(Pool.MAX, (9, 2), (1, 1)),
        "7 is not known here: expected .'MAX', 'AVG'": lambda: image.pool_2d(7, (2, 2), (2, 2)),
        "2 is not known here: expected .'NEAREST', 'BILINEAR'": lambda: image.upscale(16, 12, 2, 3, mode=2),
        "UPSCALE: an extent of .*width≤8": lambda: wide.upscale(16, 12, 2, 3),
        "CONV_2D: an extent of .width≤8": lambda: kernel.conv_2d(wide),
        "POOL_2D: an extent of .width≤8": lambda: wide.pool_2d(Pool.MAX, (2, 2), (2, 2)),
    }


WRONG = list(_wrong(Context()))
assert WRONG


@pytest.mark.parametrize("message", WRONG)
def test_what_does_not_fit_is_refused(message: str) -> None:
    with pytest.raises(GraphError, match=message):
        _wrong(Context())[message]()


def test_the_way_back_through_a_largest_value_has_no_derivative_by_its_gradient() -> None:
    ctx = Context()
    gradient, image = ctx.parameter("F32", (2, 2)), ctx.tensor("F32", (4, 4))
    graph = Graph(ctx, gradients=True)
    graph.expand(gradient.pool_2d_back(image, Pool.MAX, (2, 2), (2, 2)).sum().mark_loss())
    with pytest.raises(GraphError, match="largest value none is known"):
        graph.build_backward()
