"""Derivatives as nodes: who gets a gradient, how losses and accumulators add up, and that a failure changes nothing.

Values are computed by the interpreter; kernels have tests of their own.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from differences import numeric_gradient

from prism_inference.errors import GraphError
from prism_inference.graph import Context, Graph, Tensor
from prism_inference.graph.interpret import interpret


def graph_of(*results: Tensor, capacity: int = 2048) -> Graph:
    graph = Graph(results[0].context, capacity, gradients=True)
    for result in results:
        graph.expand(result)
    return graph


def gradient(graph: Graph, tensor: Tensor) -> np.ndarray:
    """The gradient's value in the tensor's NumPy order, by the interpreter."""
    node = graph.gradient(tensor)
    assert node is not None
    values = interpret(graph)
    return values[node.index].reshape(tensor.shape)


def large(ctx: Context) -> tuple[Tensor, list[Tensor]]:
    """A graph with products, norms, views, broadcasting and a shared parameter: loss and parameters."""
    rng = np.random.default_rng(0)

    def parameter(*ne: int) -> Tensor:
        return ctx.parameter("F32", ne).set(rng.uniform(0.5, 1.5, tuple(reversed(ne))))

    x = ctx.tensor("F32", (8, 5)).set(rng.standard_normal((5, 8)))
    shared = parameter(8, 8)
    parameters = [shared]
    for _ in range(6):
        gain, gate = parameter(8), parameter(8, 8)
        parameters += [gain, gate]
        h = x.rms_norm(1e-5).mul(gain)
        h = gate.mul_mat(h, exact=True).swiglu(shared.mul_mat(h, exact=True))
        left = h.view((4, 5), (h.nb[1],))
        right = h.view((4, 5), (h.nb[1],), 16)
        x = x.add(left.concat(right.soft_max()))
    return x.sqr().sum().mark_loss(), parameters


def snapshot(graph: Graph) -> tuple[object, ...]:
    """All that a failed construction must leave as it was."""
    tensors = graph.context.tensors
    flags = [(t.is_output, t.is_parameter, t.is_loss, t.is_input) for t in tensors]
    contents = [None if t.storage is None else t.storage.array.tobytes() for t in tensors]
    made = [(id(t), t.op, t.ne, t.nb, t.sources, t.view_of, t.params, t.index) for t in tensors]
    maps = (dict(graph._gradients), dict(graph._accumulators))
    return list(graph.nodes), list(graph.leafs), set(graph._seen), flags, contents, made, maps


@pytest.mark.parametrize("built", [False, True], ids=["first", "again"])
def test_a_failure_at_any_node_changes_nothing(monkeypatch: pytest.MonkeyPatch, built: bool) -> None:
    ctx = Context()
    loss, _ = large(ctx)
    graph = graph_of(loss)
    if built:  # gradients of an earlier construction must survive a failed one
        graph.build_backward()
    before = snapshot(graph)
    expand = Graph.expand
    calls = 0
    limit = 0

    def failing(self: Graph, result: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if calls > limit:
            raise MemoryError("injected")
        return expand(self, result)

    monkeypatch.setattr(Graph, "expand", failing)
    failures = 0
    while True:
        calls = 0
        try:
            graph.build_backward()
        except MemoryError:
            failures += 1
            limit += 1
            assert snapshot(graph) == before
        else:
            break
    assert failures > 60, "the graph is too small to show anything"


def test_a_full_graph_changes_nothing() -> None:
    ctx = Context()
    loss, _ = large(ctx)
    needed = graph_of(loss)
    needed.build_backward()
    forward = graph_of(large(Context())[0])
    count = len(forward.nodes)
    for capacity in range(count, len(needed.nodes), 7):
        loss, _ = large(Context())
        graph = graph_of(loss, capacity=capacity)
        before = snapshot(graph)
        with pytest.raises(GraphError, match="the graph is full"):
            graph.build_backward()
        assert snapshot(graph) == before


def test_the_large_graph_has_the_right_gradients() -> None:
    loss, parameters = large(Context())
    graph = graph_of(loss)
    forward = graph_of(loss)
    graph.build_backward()
    graph.reset()
    for parameter in parameters[:3]:
        expected = numeric_gradient(forward, loss, parameter).reshape(parameter.shape)
        np.testing.assert_allclose(gradient(graph, parameter), expected, rtol=1e-4, atol=1e-5)


def scalar(ctx: Context, value: float, parameter: bool = True) -> Tensor:
    leaf = ctx.parameter("F32", (1,)) if parameter else ctx.tensor("F32", (1,))
    return leaf.set([value])


def test_only_what_lies_between_a_parameter_and_a_loss_takes_part() -> None:
    ctx = Context()
    w, c, idle = scalar(ctx, 2.0), scalar(ctx, 3.0, parameter=False), scalar(ctx, 4.0)
    aside = idle.sqr()  # leads to no loss
    y = w.mul(c)
    graph = graph_of(y.mark_loss(), aside)
    graph.build_backward()
    graph.reset()
    assert gradient(graph, w) == 3.0
    assert [graph.gradient(t) for t in (c, idle, aside)] == [None, None, None]
    assert graph.gradient_accumulator(w) is None
    assert graph.gradient_accumulator(y) is not None


def test_several_losses_add_up() -> None:
    ctx = Context()
    w = scalar(ctx, 3.0)
    graph = graph_of(w.sqr().mark_loss(), w.scale(5.0).mark_loss())
    graph.build_backward()
    graph.reset()
    assert gradient(graph, w) == 2 * 3.0 + 5.0


def test_a_loss_that_feeds_a_loss_does_not_grow() -> None:
    """l1 = w², l2 = l1²: d(l1 + l2)/dw = 2w + 4w³. The reference adds into the factor of l1 at every run."""
    ctx = Context()
    w = scalar(ctx, 2.0)
    first = w.sqr().mark_loss()
    graph = graph_of(first.sqr().mark_loss())
    graph.build_backward()
    graph.reset()
    for _ in range(2):
        graph.compute(threads=1)
        node = graph.gradient(w)
        assert node is not None
        assert node.numpy() == 2 * 2.0 + 4 * 8.0


def test_accumulators_add_over_runs_until_reset() -> None:
    """Gradients of x over 6 points, 2 at a time, as the reference's own test has it (cases, B02)."""
    ctx = Context()
    w, x = scalar(ctx, 1.0), scalar(ctx, 0.0, parameter=False)
    loss = w.mul(x).mark_loss()
    graph = graph_of(loss)
    accumulator = ctx.tensor("F32", (1,))
    graph.build_backward({w: accumulator})
    assert graph.gradient_accumulator(w) is accumulator
    for _ in range(2):
        graph.reset()
        total = 0.0
        for value in range(1, 7):
            x.set([value])
            graph.compute(threads=2)
            total += value
            assert accumulator.numpy() == total
            node = graph.gradient(w)
            assert node is not None
            assert node.numpy() == total
    assert w.numpy() == 1.0
    assert loss.numpy() == 6.0


def test_reset_leaves_parameters_and_values_and_clears_moments() -> None:
    ctx = Context()
    w = ctx.parameter("F32", (3,)).set([1, 2, 3])
    loss = w.sqr().sum().mark_loss()
    graph = graph_of(loss)
    graph.build_backward()
    g = graph.gradient(w)
    assert g is not None
    m, v = (ctx.tensor("F32", (3,)).set([9, 9, 9]) for _ in range(2))
    numbers = ctx.tensor("F32", (7,)).set([0, 0.9, 0.999, 1e-8, 0, 1, 1])
    graph.expand(w.opt_step_adamw(g, m, v, numbers))
    graph.reset()
    graph.compute(threads=1)
    np.testing.assert_allclose(m.numpy(), 0.1 * 2 * np.array([1, 2, 3]), rtol=1e-6)
    graph.reset()
    assert not m.numpy().any()
    assert not v.numpy().any()
    np.testing.assert_array_equal(w.numpy(), [1, 2, 3])
    assert loss.numpy() == 14.0
    factor = graph.gradient_accumulator(loss)
    assert factor is not None
    assert factor.numpy() == 1.0


def chain(ctx: Context, w: Tensor) -> list[Tensor]:
    values = [w]
    for _ in range(12):
        values.append(values[-1].silu().mul(w))
    return values


def test_values_computed_again_give_the_same_gradients_and_are_freed() -> None:
    def built(keep: Callable[[list[Tensor]], list[Tensor]] | None) -> tuple[Graph, Tensor]:
        ctx = Context()
        w = ctx.parameter("F32", (1024,)).set(np.linspace(0.5, 1.5, 1024))
        values = chain(ctx, w)
        graph = graph_of(values[-1].sum().mark_loss())
        graph.build_backward(keep=None if keep is None else keep(values))
        graph.reset()
        return graph, w

    def run(graph: Graph, w: Tensor) -> np.ndarray:
        graph.compute(threads=2)
        node = graph.gradient(w)
        assert node is not None
        return node.numpy()

    from prism_inference.plan import make_plan

    (whole, w0), (again, w1) = built(None), built(lambda values: values[4::4])
    assert len(again.nodes) > len(whole.nodes)
    np.testing.assert_array_equal(run(whole, w0), run(again, w1))
    assert make_plan(again, "generic").arena < make_plan(whole, "generic").arena


def test_a_deep_graph_is_differentiated_without_recursion() -> None:
    ctx = Context()
    w = scalar(ctx, 1.0)
    node = w
    for _ in range(20_000):
        node = node.scale(1.0)
    graph = graph_of(node.mark_loss(), capacity=50_000)
    graph.build_backward(keep=[])
    graph.reset()
    assert gradient(graph, w) == 1.0


REFUSALS: dict[str, tuple[Callable[[Context], Graph], str]] = {}


def refusal(message: str) -> Callable[[Callable[[Context], Graph]], Callable[[Context], Graph]]:
    def add(build: Callable[[Context], Graph]) -> Callable[[Context], Graph]:
        REFUSALS[build.__name__] = build, message
        return build

    return add


@refusal("expected a parameter")
def no_parameter(ctx: Context) -> Graph:
    return graph_of(scalar(ctx, 1.0, parameter=False).sqr().mark_loss())


@refusal("expected a loss")
def no_loss(ctx: Context) -> Graph:
    return graph_of(scalar(ctx, 1.0).sqr())


@refusal("expected one F32 number")
def loss_of_many(ctx: Context) -> Graph:
    return graph_of(ctx.parameter("F32", (3,)).sqr().mark_loss())


@refusal("has no gradients")
def not_made_for_it(ctx: Context) -> Graph:
    graph = Graph(ctx)
    graph.expand(scalar(ctx, 1.0).sqr().mark_loss())
    return graph


@refusal(r"ARANGE|no derivative|COUNT_EQUAL|index")
def an_integer_between(ctx: Context) -> Graph:
    w = ctx.parameter("F32", (4, 1)).set([[1, 2, 3, 4]])
    picked = ctx.tensor("F32", (1, 4)).set(np.ones((4, 1))).get_rows(w.argmax())
    return graph_of(picked.sum().mark_loss(), w.sum().mark_loss())


@refusal("in place")
def in_place(ctx: Context) -> Graph:
    w = scalar(ctx, 1.0)
    return graph_of(scalar(ctx, 2.0, parameter=False).add_inplace(w).sqr().mark_loss())


@refusal(r"OPT_STEP_SGD.*in place|in place")
def a_step_of_an_optimizer(ctx: Context) -> Graph:
    w, g = scalar(ctx, 1.0), scalar(ctx, 1.0)
    numbers = ctx.tensor("F32", (2,)).set([0.1, 0.0])
    return graph_of(w.opt_step_sgd(g.sqr(), numbers).sqr().mark_loss())


@pytest.mark.parametrize("name", [name for name in REFUSALS if name != "an_integer_between"])
def test_refusals(name: str) -> None:
    build, message = REFUSALS[name]
    graph = build(Context())
    before = snapshot(graph)
    with pytest.raises(GraphError, match=message):
        graph.build_backward()
    assert snapshot(graph) == before


def test_indices_pass_no_gradient() -> None:
    graph = REFUSALS["an_integer_between"][0](Context())
    graph.build_backward()
    graph.reset()
    w = graph.leafs[0] if graph.leafs[0].is_parameter else graph.leafs[1]
    np.testing.assert_array_equal(gradient(graph, w), np.ones(4))


def test_errors_name_operation_tensor_and_input() -> None:
    ctx = Context()
    w = ctx.parameter("F32", (8, 2), name="weights")
    scores = w.pad(0, 1, circular=True)
    graph = graph_of(scores.sum().mark_loss())
    with pytest.raises(GraphError, match=r"PAD F32 .*source 0, weights: NONE F32 \[8, 2, 1, 1\]"):
        graph.build_backward()


def test_wrong_accumulators_are_refused() -> None:
    ctx = Context()
    w = ctx.parameter("F32", (4,)).set(np.ones(4))
    graph = graph_of(w.sum().mark_loss())
    for wrong in (ctx.tensor("F16", (4,)), ctx.tensor("F32", (2, 2)), w.sqr()):
        with pytest.raises(GraphError, match="wrong accumulator"):
            graph.build_backward({w: wrong})


def test_a_view_lets_no_nan_through() -> None:
    """The zeros round a view's gradient are made without the source: 0·inf would poison the gradient."""
    ctx = Context()
    w = ctx.parameter("F32", (4,)).set([np.nan, np.inf, 1.0, 2.0])
    graph = graph_of(w.view((2,), (), 8).sqr().sum().mark_loss())
    graph.build_backward()
    graph.reset()
    np.testing.assert_array_equal(gradient(graph, w), [0, 0, 2, 4])


def test_the_scalar_of_add1_gets_the_sum() -> None:
    """The reference takes the mean of each row, too small by the length of a row (facts, h5)."""
    ctx = Context()
    a, b = ctx.tensor("F32", (3, 4)).set(np.ones((4, 3))), scalar(ctx, 1.0)
    graph = graph_of(a.add1(b).sum().mark_loss())
    graph.build_backward()
    graph.reset()
    assert gradient(graph, b) == 12.0


SECOND: dict[str, Callable[[Tensor], Tensor]] = {
    "sqr": lambda x: x.sqr(),
    "silu": lambda x: x.silu(),
    "tanh": lambda x: x.tanh(),
    "sigmoid": lambda x: x.sigmoid(),
    "exp": lambda x: x.exp(),
    "rms_norm": lambda x: x.rms_norm(1e-3).mul(x),
    "soft_max": lambda x: x.soft_max().mul(x),
    "div": lambda x: x.sqr().scale(1.0, 1.0).div(x.scale(1.0, 3.0)),
    "views": lambda x: x.view((3,), (), 4).mul(x.view((3,), (), 0)),
    "mul_mat": lambda x: x.reshape(2, 2).mul_mat(x.reshape(2, 2).sqr(), exact=True),
}


@pytest.mark.parametrize("name", SECOND)
def test_second_derivatives(name: str) -> None:
    """The gradient of a function of the gradient, against differences of the first gradient's own nodes."""
    ctx = Context()
    x = ctx.parameter("F32", (4,)).set([0.3, -0.7, 1.1, 0.4])
    loss = SECOND[name](x)
    loss = loss.mul(loss).sum().mark_loss()
    graph = graph_of(loss)
    graph.build_backward()
    graph.reset()
    first = graph.gradient(x)
    assert first is not None
    steepness = first.sqr().sum()
    forward = graph_of(steepness)
    loss.is_loss = False
    steepness.mark_loss()
    second = graph_of(steepness)
    second.build_backward()
    second.reset()
    expected = numeric_gradient(forward, steepness, x).reshape(-1)
    np.testing.assert_allclose(gradient(second, x), expected, rtol=2e-4, atol=1e-5)
