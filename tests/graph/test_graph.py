"""Tensors, shape rules and order of execution; refusals name operation, tensor and input."""

from __future__ import annotations

import numpy as np
import pytest

from prism_inference.errors import GraphError
from prism_inference.graph import Context, Dim, Graph, Op, RopeParameters
from prism_inference.graph.rope import channels


def test_extents_and_numpy_shape_are_reversed() -> None:
    ctx = Context()
    tensor = ctx.tensor("F32", (2, 3)).set([[1, 2], [3, 4], [5, 6]])
    assert tensor.ne == (2, 3, 1, 1)
    assert tensor.nb == (4, 8, 24, 24)
    assert tensor.shape == (3, 2)
    np.testing.assert_array_equal(tensor.numpy(), np.array([[1, 2], [3, 4], [5, 6]], np.float32))
    np.testing.assert_array_equal(tensor.transpose().numpy(), [[1, 3, 5], [2, 4, 6]])


def test_operation_numbers_are_the_reference_s() -> None:
    wanted = {"NONE": 0, "MUL_MAT": 29, "ROPE": 48, "FLASH_ATTN_EXT": 74, "UNARY": 91, "OPT_STEP_ADAMW": 98, "GLU": 100}
    assert {name: int(Op[name]) for name in wanted} == wanted
    assert [int(op) for op in sorted(Op) if op < 1000] == list(range(101))


def test_a_deep_graph_does_not_recurse() -> None:
    ctx = Context()
    node = ctx.tensor("F32", (4,)).set([1, 2, 3, 4])
    for _ in range(20_000):
        node = node.scale(1.0)
    graph = Graph(ctx, capacity=20_000)
    graph.expand(node)
    assert len(graph.nodes) == 20_000
    assert [n.index for n in graph.nodes] == sorted(n.index for n in graph.nodes)


def test_capacity_overflow_changes_nothing() -> None:
    ctx = Context()
    x = ctx.tensor("F32", (4,)).set(np.ones(4))
    graph = Graph(ctx, capacity=3)
    graph.expand(x.scale(2.0))
    before = (list(graph.nodes), list(graph.leafs))
    with pytest.raises(GraphError, match="at most 3 nodes, found 4"):
        graph.expand(x.scale(2.0).scale(3.0).scale(4.0))
    assert (graph.nodes, graph.leafs) == before


def test_shared_sources_appear_once() -> None:
    ctx = Context()
    x = ctx.tensor("F32", (4,)).set(np.ones(4))
    a = x.scale(2.0)
    graph = Graph(ctx)
    graph.expand(a.add(a))
    graph.expand(a.mul(x))
    assert len(graph.nodes) == 3
    assert graph.leafs == [x]


REFUSALS = {
    "MUL_MAT": lambda c: c.tensor("F32", (3, 2)).mul_mat(c.tensor("F32", (4, 2))),
    "ADD": lambda c: c.tensor("F32", (3, 2)).add(c.tensor("F32", (2, 2))),
    "MUL": lambda c: c.tensor("F32", (3, 2)).mul(c.tensor("F16", (3, 2))),
    "RMS_NORM": lambda c: c.tensor("F32", (3,)).rms_norm(0.0),
    "GET_ROWS": lambda c: c.tensor("F32", (3, 2)).get_rows(c.tensor("F32", (2,))),
    "SET_ROWS": lambda c: c.tensor("F32", (3, 2)).set_rows(c.tensor("F32", (4, 1)), c.tensor("I32", (1,))),
    "ROPE": lambda c: c.tensor("F32", (4, 1, 2)).rope(c.tensor("I32", (2,)), RopeParameters(6)),
    "GLU": lambda c: c.tensor("F32", (3,)).swiglu(c.tensor("F32", (4,))),
    "CPY": lambda c: c.tensor("F32", (3,)).cpy(c.tensor("F32", (4,))),
    "RESHAPE": lambda c: c.tensor("F32", (3,)).reshape(2, 2),
    "PERMUTE": lambda c: c.tensor("F32", (3,)).permute(0, 0, 1, 2),
    "FLASH_ATTN_EXT": lambda c: c.tensor("F32", (8, 2, 2)).flash_attn_ext(
        c.tensor("F16", (4, 9, 1)), c.tensor("F16", (4, 9, 1)), c.tensor("I32", (2, 2)), 1.0
    ),
    "view outside": lambda c: c.tensor("F32", (3,)).view((2,), (), 8),
    "another context": lambda c: c.tensor("F32", (3,)).add(Context().tensor("F32", (3,))),
    "whole blocks": lambda c: c.tensor("Q4_0", (33, 2)),
    "extents": lambda c: c.tensor("F32", (3, 0)),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_name_the_operation(name: str) -> None:
    with pytest.raises(GraphError, match=name):
        REFUSALS[name](Context())


def test_sections_share_the_pairs_among_the_channels() -> None:
    """Bonsai-27B: sections 11, 11, 10 of 32 pairs: time, height, width in turn, the last pairs by what is left."""
    axes = channels(RopeParameters(64, sections=(11, 11, 10, 0))).tolist()
    assert axes == [0, 1, 2] * 10 + [0, 1]
    assert [axes.count(axis) for axis in (0, 1, 2)] == [11, 11, 10]
    assert channels(RopeParameters(8)).tolist() == [0, 0, 0, 0]


def test_set_checks_shape_and_views() -> None:
    ctx = Context()
    x = ctx.tensor("F32", (2, 3))
    with pytest.raises(GraphError, match="wrong shape"):
        x.set(np.zeros((2, 3)))
    with pytest.raises(GraphError, match="view"):
        x.transpose().set(np.zeros((2, 3)))
    with pytest.raises(GraphError, match="has no data"):
        x.numpy()


def test_a_varying_extent_reaches_the_results() -> None:
    ctx = Context()
    tokens = Dim(8, "tokens")
    x = ctx.tensor("F32", (4, tokens))
    y = ctx.tensor("F32", (4, 6)).mul_mat(x).reshape(3, 2, tokens).permute(0, 2, 1, 3)
    assert isinstance(y.ne[1], Dim)
    assert y.ne[1].name == "tokens"
