"""Every operation in torch's words: our kernels' results against its float64, our gradients against its autograd."""

from __future__ import annotations

import numpy as np
import pytest
from differences import mean_absolute_asymmetry, weighted_sum
from extra_cases import EXTRA, ROUNDED
from op_cases import OpCase, all_cases

from prism_inference.graph import Graph, Op
from prism_inference.graph.ops import VIEWS
from prism_inference.graph.table import TABLE
from tolerances import Tolerance, check

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch_bridge import ROWS, Run, has  # noqa: E402

CASES = [case for case in (*all_cases(), *EXTRA) if has(case.graph()[0])]
SMOOTH = [case for case in CASES if case.smooth]
ASYMMETRY = 1e-4


def tolerance(case: OpCase, graph: Graph) -> Tolerance:
    """The case's own budget, but for products that round."""
    products = [node for node in graph.nodes if node.op in (Op.MUL_MAT, Op.MUL_MAT_ID) and not node.params[0]]
    rounds = any(node.sources[0] is not None and node.sources[0].type.block > 1 for node in products)
    return ROUNDED if rounds else case.tolerance


@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward(case: OpCase) -> None:
    graph, result = case.graph()
    run = Run(graph)
    graph.compute(threads=2)
    budget = tolerance(case, graph)
    for tensor in (result, *graph.leafs):  # some leaves are written to
        if tensor.type.block > 1:
            continue
        expected = run.read(tensor).detach().numpy()
        actual = tensor.numpy().reshape(expected.shape)
        if expected.dtype.kind != "f":
            np.testing.assert_array_equal(actual, expected)
            continue
        infinite = np.isinf(expected)
        np.testing.assert_array_equal(actual[infinite], expected[infinite])
        check(np.where(infinite, 0, actual), np.where(infinite, 0, expected), budget)


@pytest.mark.parametrize("case", SMOOTH, ids=str)
def test_gradients(case: OpCase) -> None:
    graph, result = case.graph()
    loss = weighted_sum(graph, result)
    graph.expand(loss)
    run = Run(graph)
    expected = run.gradients(loss)
    parameters = [leaf for leaf in graph.leafs if leaf.is_parameter]
    assert parameters, "a smooth case needs a parameter"
    graph.build_backward()
    graph.reset()
    graph.compute(threads=2)
    for leaf in parameters:
        node = graph.gradient(leaf)
        assert node is not None
        actual, wanted = node.numpy().reshape(-1), expected[leaf.index].numpy()
        assert np.abs(wanted).max() > 0
        error = mean_absolute_asymmetry(actual, wanted)
        assert error <= ASYMMETRY, f"{leaf}: mean absolute asymmetry {error:.2e}\n{actual}\n{wanted}"


def test_every_operation_is_compared() -> None:
    assert ROWS.keys() == TABLE.keys() - VIEWS
    assert {node.op for case in CASES for node in case.graph()[0].nodes} == TABLE.keys()
    derivatives = {op for op, row in TABLE.items() if callable(row.gradient)}
    assert {case.op for case in SMOOTH} >= derivatives


def test_most_cases_are_compared() -> None:
    assert len(ROWS) >= 86
    assert len(CASES) >= 900
    assert len(SMOOTH) >= 530
