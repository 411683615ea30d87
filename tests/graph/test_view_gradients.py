"""Gradients through views: of one source and of several, of sources with gaps or turned dimensions, beside NaN.

Where a view looks is asked of the interpreter, with the numbers of the elements as values; the gradient of a weighted
sum is then the weights, added up in those places.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from prism_inference.errors import GraphError
from prism_inference.graph import Context, Graph, Tensor
from prism_inference.graph.interpret import interpret

NE = (6, 5)


def inner(x: Tensor, ne: tuple[int, ...], *start: int) -> Tensor:
    """A view with the strides of its source, from a place in it on."""
    return x.view(ne, x.nb[1:], sum(step * index for step, index in zip(x.nb, start, strict=False)))


def every_second_row(x: Tensor) -> Tensor:
    return x.view((4, 2), (2 * x.nb[1],), x.nb[0])


def windows(x: Tensor) -> Tensor:
    """Rows that begin two columns after the last one began."""
    return x.view((3, 2), (2 * x.nb[0],), x.nb[1])


def turned(x: Tensor) -> Tensor:
    return x.permute(1, 2, 0, 3)


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "all": lambda x: inner(x, (6, 5)),
    "rows": lambda x: inner(x, (6, 2), 0, 1),
    "an inner part": lambda x: inner(x, (3, 2), 1, 2),
    "every second row": every_second_row,
    "one value": lambda x: inner(x, (1,), 5, 4),
    "flat": lambda x: x.view((17,), (), 7 * x.nb[0]),
    "three dimensions": lambda x: x.view((2, 3, 4), (2 * x.nb[0], x.nb[1]), x.nb[1]),
    "windows": windows,
    "one row many times": lambda x: x.view((6, 4), (0,), x.nb[1]),
    "windows of windows": lambda x: x.view((4, 3, 2), (x.nb[0], 3 * x.nb[0]), x.nb[0]),
    "of a view": lambda x: inner(inner(x, (5, 4), 1, 1), (3, 2), 1, 1),
    "of a view of a view": lambda x: inner(inner(inner(x, (5, 4), 1, 1), (4, 3), 1, 1), (2, 2), 1),
    "every second row of a view": lambda x: every_second_row(inner(x, (5, 4), 1, 1)),
    "windows of a view": lambda x: windows(inner(x, (5, 4), 1, 1)),
    "of a transposed source": lambda x: inner(x.transpose(), (3, 4), 2, 1),
    "of a permuted source": lambda x: inner(turned(x), (1, 4, 3), 0, 1, 2),
    "every second row of a transposed source": lambda x: x.transpose().view((5, 3), (2 * x.nb[0],)),
    "of a view of a transposed source": lambda x: inner(inner(x.transpose(), (4, 5), 1), (2, 3), 1, 2),
    "one row of a transposed source, many times": lambda x: x.transpose().view((5, 3), (0,), 2 * x.nb[0]),
    "of a reshaped view": lambda x: inner(inner(x, (6, 4), 0, 1).reshape(4, 6), (3, 3), 1, 2),
    "transposed, of a transposed view": lambda x: inner(inner(x.transpose(), (4, 5), 1).transpose(), (2, 2), 1, 1),
}


def places(name: str) -> np.ndarray:
    """The numbers of the elements at which a view looks, in its four dimensions."""
    ctx = Context()
    view = VIEWS[name](ctx.tensor("F32", NE).set(np.arange(30.0).reshape(5, 6))).cont()
    graph = Graph(ctx)
    graph.expand(view)
    return interpret(graph)[view.index].astype(int)


def weighted(view: Tensor, seed: int) -> tuple[Tensor, np.ndarray]:
    """A weighted sum of a view's elements, and the weights."""
    shape = tuple(int(extent) for extent in reversed(view.ne))
    weights = np.random.default_rng(seed).uniform(0.5, 1.5, shape).astype(np.float32)
    return view.mul(view.context.tensor("F32", view.ne).set(weights)).sum(), weights


def added(name: str, weights: np.ndarray) -> np.ndarray:
    """The gradient that a view's weights make."""
    result = np.zeros(30)
    np.add.at(result, places(name).reshape(-1), weights.astype(np.float64).reshape(-1))
    return result.reshape(5, 6)


def trained(x: Tensor, loss: Tensor, keep: list[Tensor] | None = None) -> Graph:
    graph = Graph(x.context, gradients=True)
    graph.expand(loss.mark_loss())
    graph.build_backward(keep=keep)
    graph.reset()
    return graph


def gradient(graph: Graph, x: Tensor, threads: int = 2) -> np.ndarray:
    graph.compute(threads=threads)
    node = graph.gradient(x)
    assert node is not None
    return node.numpy()


def test_the_table_of_views_holds_all_kinds() -> None:
    sources = [VIEWS[name](Context().tensor("F32", NE)).sources[0] for name in VIEWS]
    assert sum(source is not None and not source.contiguous for source in sources) >= 8
    repeated = [name for name in VIEWS if len(set(places(name).reshape(-1))) < places(name).size]
    assert len(repeated) >= 5


@pytest.mark.parametrize("again", [False, True], ids=["kept", "again"])
@pytest.mark.parametrize("name", VIEWS)
def test_the_gradient_lies_where_the_view_looks(name: str, again: bool) -> None:
    """The source consists of NaN and infinities: nothing of it may get into the gradient."""
    ctx = Context()
    x = ctx.parameter("F32", NE).set(np.where(np.arange(30) % 2, np.nan, np.inf).reshape(5, 6))
    loss, weights = weighted(VIEWS[name](x.dup()), 1)
    graph = trained(x, loss, [] if again else None)
    first = gradient(graph, x, threads=1)
    np.testing.assert_allclose(first, added(name, weights), rtol=1e-6)
    np.testing.assert_array_equal(gradient(graph, x), first)


ORDERS = (("view", "view", "whole"), ("view", "whole", "view"), ("whole", "view", "view"))
PAIRS = [(a, b) for i, a in enumerate(VIEWS) for b in list(VIEWS)[i::5]]


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_several_views_of_one_source_add_up(a: str, b: str, order: tuple[str, ...]) -> None:
    ctx = Context()
    x = ctx.parameter("F32", NE).set(np.ones((5, 6)))
    names = iter((a, b))
    total, expected = None, np.zeros((5, 6))
    for number, kind in enumerate(order):
        name = next(names) if kind == "view" else "all"
        part, weights = weighted(VIEWS[name](x) if kind == "view" else x, number)
        total = part if total is None else total.add(part)
        expected += added(name, weights)
    assert total is not None
    np.testing.assert_allclose(gradient(trained(x, total), x), expected, rtol=1e-6)


def test_an_accumulator_gets_what_the_views_got_at_each_run() -> None:
    ctx = Context()
    x = ctx.parameter("F32", NE).set(np.ones((5, 6)))
    loss, weights = weighted(inner(x, (3, 2), 1, 2), 1)
    other, more = weighted(every_second_row(x), 2)
    graph = Graph(ctx, gradients=True)
    graph.expand(loss.add(other).mark_loss())
    accumulator = ctx.tensor("F32", NE)
    graph.build_backward({x: accumulator})
    graph.reset()
    expected = added("an inner part", weights) + added("every second row", more)
    for runs in (1, 2, 3):
        graph.compute(threads=2)
        np.testing.assert_allclose(accumulator.numpy(), runs * expected, rtol=1e-6)


@pytest.mark.parametrize("name", VIEWS)
def test_strides_of_other_types_become_those_of_float32(name: str) -> None:
    """A view of float16 values: its strides count two bytes, the gradient's four."""
    ctx = Context()
    x = ctx.parameter("F32", NE).set(np.ones((5, 6)))
    half = x.cpy(ctx.tensor("F16", NE).set(np.zeros((5, 6))))
    view = VIEWS[name](half)
    loss, weights = weighted(view.cpy(ctx.tensor("F32", view.ne).set(np.zeros(tuple(reversed(view.ne))))), 1)
    np.testing.assert_allclose(gradient(trained(x, loss), x), added(name, weights), rtol=1e-6)


def test_a_view_beyond_its_source_is_refused() -> None:
    """What lies between the rows of a view is part of no element of it."""
    ctx = Context()
    x = ctx.parameter("F32", NE)
    part = inner(x, (2, 4), 0, 0)
    loss, _ = weighted(part.view((4, 4), part.nb[1:]), 1)
    graph = Graph(ctx, gradients=True)
    graph.expand(loss.mark_loss())
    nodes, tensors = list(graph.nodes), list(ctx.tensors)
    with pytest.raises(GraphError, match="beyond the elements of its source"):
        graph.build_backward()
    assert (graph.nodes, ctx.tensors) == (nodes, tensors)
