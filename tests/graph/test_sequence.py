"""What attention, convolution and the delta rule promise beyond their values: independence, bounds, refusals."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from differences import weighted_sum

from prism_inference.engine.objects import library
from prism_inference.engine.run import Executable
from prism_inference.engine.team import team
from prism_inference.errors import GraphError
from prism_inference.graph import Context, Graph, RopeMode, RopeParameters, Tensor
from prism_inference.kernels.target import target
from prism_inference.plan import make_plan

Floats = npt.NDArray[np.float32]
HEADS, SHARED, SIZE = 4, 2, 24


def leaf(ctx: Context, array: npt.ArrayLike) -> Tensor:
    values = np.asarray(array)
    kind = "I32" if values.dtype.kind == "i" else "F32"
    return ctx.tensor(kind, tuple(reversed(values.shape))).set(values)


def attended(
    q: Floats, k: Floats, v: Floats, ranges: object, g: Floats | None = None, *, kept: bool = False
) -> tuple[Floats, Floats]:
    """Attention of [tokens, heads, size] over [cells, key heads, size], and the flat gradients for the result's `g`.

    Keys in leaves are taken one query at a time, computed ones by tiles."""
    ctx = Context()
    queries = leaf(ctx, q).permute(0, 2, 1, 3)
    keys, values = (leaf(ctx, part) if kept else leaf(ctx, part).scale(1.0) for part in (k, v))
    keys, values, rows = keys.permute(0, 2, 1, 3), values.permute(0, 2, 1, 3), leaf(ctx, np.asarray(ranges, np.int32))
    y = queries.flash_attn_ext(keys, values, rows, SIZE**-0.5).mark_output()
    graph = Graph(ctx)
    graph.expand(y)
    back = y
    if g is not None:
        back = leaf(ctx, g).flash_attn_back(queries, keys, values, y, rows, SIZE**-0.5).mark_output()
        graph.expand(back)
    graph.compute(threads=2)
    return y.numpy(), back.numpy()


def operands(tokens: int, rng: np.random.Generator) -> tuple[Floats, Floats, Floats]:
    q, k, v = (rng.standard_normal((tokens, heads, SIZE), np.float32) for heads in (HEADS, SHARED, SHARED))
    return q, k, v


@pytest.mark.parametrize("kept", [False, True])
def test_a_token_does_not_depend_on_the_others_of_its_batch(kept: bool, rng: np.random.Generator) -> None:
    q, k, v = operands(150, rng)
    ranges = np.array([[max(0, t - 90), t + 1] for t in range(150)])
    whole, _ = attended(q, k, v, ranges, kept=kept)
    for first, last in ((0, 1), (5, 40), (31, 33), (149, 150)):
        part, _ = attended(q[first:last], k, v, ranges[first:last], kept=kept)
        np.testing.assert_array_equal(part.reshape(last - first, HEADS, SIZE), whole[first:last])


def test_packed_sequences_are_as_if_each_were_alone(rng: np.random.Generator) -> None:
    """Sequences of a multiple of 64 tokens (the blocks of keys): the same bits, there and back."""
    length = 128
    q, k, v = operands(2 * length, rng)
    g = rng.standard_normal((2 * length, HEADS, SIZE), np.float32)
    ranges = np.array([[t // length * length, t + 1] for t in range(2 * length)])
    whole, back = attended(q, k, v, ranges, g)
    shapes = [(HEADS, 2 * length, SIZE), (SHARED, 2 * length, SIZE), (SHARED, 2 * length, SIZE)]
    ends = np.cumsum([np.prod(shape) for shape in shapes])
    parts = [part.reshape(shape) for part, shape in zip(np.split(back, ends[:-1]), shapes, strict=True)]
    for first in (0, length):
        own = slice(first, first + length)
        alone, gradients = attended(q[own], k[own], v[own], ranges[:length], g[own])
        np.testing.assert_array_equal(alone, whole[own])
        expected = np.concatenate([part[:, own].reshape(-1) for part in parts])
        np.testing.assert_array_equal(gradients, expected)


@pytest.mark.parametrize("kept", [False, True])
def test_cells_that_nobody_sees_may_hold_anything(kept: bool, rng: np.random.Generator) -> None:
    q, k, v = operands(40, rng)
    g = rng.standard_normal((40, HEADS, SIZE), np.float32)
    ranges = np.array([[0, 5], [30, 38], [7, 7], [12, 20]] * 10)
    clean, gradients = attended(q, k, v, ranges, g, kept=kept)
    for unseen in (slice(5, 12), slice(20, 30), slice(38, 40)):
        k[unseen], v[unseen] = np.nan, np.inf
    dirty, same = attended(q, k, v, ranges, g, kept=kept)
    np.testing.assert_array_equal(dirty, clean)
    np.testing.assert_array_equal(same, gradients)
    assert np.isfinite(dirty).all()
    assert np.isfinite(same).all()
    assert not dirty[2].any(), "a token that sees nothing gets nothing"


def test_no_matrix_of_scores_is_stored(rng: np.random.Generator) -> None:
    tokens = 2048
    ctx = Context()
    q, k, v = (ctx.parameter("F32", (16, tokens, 1)).set(rng.standard_normal((1, tokens, 16))) for _ in range(3))
    y = q.scale(1.0).flash_attn_ext(k.scale(1.0), v.scale(1.0))
    graph = Graph(ctx, gradients=True)
    graph.expand(weighted_sum(graph, y))
    graph.build_backward()
    plan = make_plan(graph, target().isa)
    assert plan.arena + 2 * plan.scratch < 4 * tokens * tokens // 4
    graph.reset()
    Executable(plan, team(2), library()).run()
    for parameter in (q, k, v):
        gradient = graph.gradient(parameter)
        assert gradient is not None
        assert np.abs(gradient.numpy()).max() > 0


@pytest.mark.parametrize("tokens", [1, 100, 1000])
def test_states_of_the_delta_rule_are_kept_for_some_tokens_only(tokens: int) -> None:
    """Scratch holds a checkpoint every √tokens and the states between two of them, for 16 rows of a state."""
    size, run = 32, int(np.ceil(np.sqrt(tokens)))
    ctx = Context()
    q, k, v = (ctx.parameter("F32", (size, 1, tokens)) for _ in range(3))
    gate, beta = (ctx.parameter("F32", (1, tokens)) for _ in range(2))
    graph = Graph(ctx, gradients=True)
    graph.expand(q.gated_delta_net(k, v, gate, beta).sum().mark_loss())
    graph.build_backward()
    plan = make_plan(graph, target().isa)
    assert plan.scratch <= 4 * 16 * size * (2 * run + 3) + 64 * run + 4 * 4 * size + 512


# --- Refusals ---------------------------------------------------------------------------------------------


def refused(result: Tensor) -> str:
    """What building the derivative says."""
    graph = Graph(result.context, gradients=True)
    graph.expand(weighted_sum(graph, result))
    with pytest.raises(GraphError, match="no derivative") as caught:
        graph.build_backward()
    return str(caught.value)


def test_what_has_no_derivative_says_why() -> None:
    ctx = Context()
    leaves = ctx.parameter("F32", (8, 4, 2))
    mask, signs, factors = ctx.parameter("F32", (4, 4)), ctx.parameter("F32", (8,)), ctx.parameter("F32", (4,))
    places = ctx.tensor("I32", (2,))
    assert "mask of attention" in refused(leaves.flash_attn_ext(leaves, leaves, mask=mask))
    assert "signs of a rotation" in refused(leaves.hadamard(8, signs))
    assert "factors" in refused(leaves.rope(places, RopeParameters(8, RopeMode.NEOX), factors))
    shared = ctx.parameter("F32", (8, 4, 2, 1))
    assert "share keys" in refused(ctx.parameter("F32", (8, 3, 2, 2)).flash_attn_ext(shared, shared))


def test_the_derivative_over_a_state_is_refused() -> None:
    ctx = Context()
    x, state = ctx.parameter("F32", (6, 5)), ctx.tensor("F32", (6, 2))
    assert "state is overwritten" in refused(x.causal_conv(ctx.tensor("F32", (3, 6)), state))
    q = ctx.parameter("F32", (4, 1, 5))
    gate, matrices = ctx.tensor("F32", (1, 5)), ctx.tensor("F32", (4, 4, 1))
    assert "state is overwritten" in refused(q.gated_delta_net(q, q, gate, gate, matrices))


def test_shapes_that_do_not_fit_are_refused() -> None:
    ctx = Context()
    q, k = ctx.tensor("F32", (8, 3, 4)), ctx.tensor("F32", (8, 5, 2))
    ranges, long = ctx.tensor("I32", (2, 4)), ctx.tensor("F32", (5, 2))
    gate = ctx.tensor("F32", (2, 3))
    wrong = [
        lambda: q.flash_attn_ext(k, ctx.tensor("F32", (8, 4, 2))),
        lambda: q.flash_attn_ext(k, k, ranges),
        lambda: q.flash_attn_ext(k, k, mask=long),
        lambda: q.flash_attn_ext(k, k, max_bias=1.0),
        lambda: q.flash_attn_ext(k, k, sinks=ctx.tensor("F32", (3,))),
        lambda: q.flash_attn_ext(ctx.tensor("F32", (8, 5, 3)), ctx.tensor("F32", (8, 5, 3))),
        lambda: q.flash_attn_back(q, ctx.tensor("Q8_0", (32, 5, 2)), ctx.tensor("Q8_0", (32, 5, 2)), q),
        lambda: q.causal_conv(ctx.tensor("F32", (1, 8))),
        lambda: q.causal_conv(ctx.tensor("F32", (3, 8)), ctx.tensor("F32", (8, 2))),  # a state and several sequences
        lambda: q.ssm_conv(ctx.tensor("F32", (9, 3))),
        lambda: q.ssm_conv_back(q, 2),
        lambda: q.gated_delta_net(q, q, gate, gate),
    ]
    for build in wrong:
        with pytest.raises(GraphError):
            build()
