"""The derivative of every operation against numerical ones of its twin (float64, four points), over all its inputs."""

from __future__ import annotations

import numpy as np
import pytest
from differences import mean_absolute_asymmetry, numeric_gradient, weighted_sum
from op_cases import OpCase, all_cases

from prism_inference.graph import Graph, Tensor

SMOOTH = [case for case in all_cases() if case.smooth]
assert len(SMOOTH) > 50


@pytest.mark.parametrize("case", SMOOTH, ids=str)
def test_gradient(case: OpCase) -> None:
    graph, result = case.graph()
    loss = weighted_sum(graph, result)
    graph.expand(loss)
    forward = Graph(graph.context, capacity=len(graph.nodes))
    forward.expand(loss)
    graph.build_backward()
    graph.reset()
    graph.compute(threads=2)
    parameters = [leaf for leaf in forward.leafs if leaf.is_parameter]
    assert parameters, "a smooth case needs a parameter"
    for number, leaf in enumerate(parameters):
        check_gradient(graph, forward, loss, leaf, number)


def check_gradient(graph: Graph, forward: Graph, loss: Tensor, leaf: Tensor, number: int) -> None:
    """Hold one parameter's computed gradient against the numerical one."""
    node = graph.gradient(leaf)
    assert node is not None, f"no gradient reached parameter {number}"
    computed = node.numpy().reshape(tuple(reversed(leaf.ne)))
    assert np.isfinite(computed).all()
    expected = numeric_gradient(forward, loss, leaf)
    assert np.abs(expected).max() > 0, f"nothing depends on parameter {number}"
    error = mean_absolute_asymmetry(computed, expected)
    assert error <= 1e-4, f"parameter {number}: mean absolute asymmetry {error:.2e}\n{computed}\n{expected}"
