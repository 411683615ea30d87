"""Every operation that libggml has too: our kernels' results and gradients against its."""

from __future__ import annotations

import numpy as np
import pytest
from differences import mean_absolute_asymmetry, numeric_gradient, weighted_sum
from extra_cases import EXTRA, ROUNDED
from ggml_bridge import BEYOND_SECTIONS, DIFFERS, Answer, Array, ask, differentiated, differentiates, has_forward
from ggml_library import folder
from ggml_rows import BACKWARD, FORWARD_LIMITS, ROWS, SKIPPED
from op_cases import OpCase, all_cases

from prism_inference.codecs import decode
from prism_inference.graph import Glu, Graph, Op, Tensor, Unary
from prism_inference.graph.table import TABLE
from tolerances import Tolerance, check, nmse

if folder() is None:
    pytest.skip("libggml-python is not installed", allow_module_level=True)

FORWARD = [case for case in (*all_cases(), *EXTRA) if has_forward(case.graph()[0])]
BACKWARDS = [case for case in FORWARD if differentiates(case, case.graph()[0])]

SAME = Tolerance(1e-7, "float32 on both sides: ggml's own limit between its backends")
TABULATED = Tolerance(1e-6, "ggml looks these functions up in a table of float16 arguments and results")
LOOKED_UP = (Unary.GELU, Unary.GELU_QUICK, Glu.GEGLU, Glu.GEGLU_QUICK)
ASYMMETRY = 1e-4


@pytest.fixture(scope="module")
def answers() -> dict[str, Answer]:
    """What libggml says to all cases, from one run of it."""
    return ask([str(case) for case in (*FORWARD, BEYOND_SECTIONS, *(case for case, _ in DIFFERS))])


def tolerance(graph: Graph) -> Tolerance:
    """The budget of a graph: that of its least exact operation in ggml."""
    tabulated = any(node.op in (Op.UNARY, Op.GLU) and node.params[0] in LOOKED_UP for node in graph.nodes)
    products = [node for node in graph.nodes if node.op in (Op.MUL_MAT, Op.MUL_MAT_ID) and not node.params[0]]
    rounded = any(node.sources[0] is not None and node.sources[0].type.name != "F32" for node in products)
    return ROUNDED if rounded else TABULATED if tabulated else SAME


def comparable(tensor: Tensor, values: Array) -> Array:
    """A tensor's values from libggml in four dimensions; blocks are decoded."""
    shape = tuple(reversed([int(extent) for extent in tensor.ne]))
    return decode(tensor.type, values, tensor.elements).reshape(shape) if values.dtype == np.uint8 else values


@pytest.mark.parametrize("case", FORWARD, ids=str)
def test_forward(case: OpCase, answers: dict[str, Answer]) -> None:
    answer = answers[str(case)]
    assert not answer.failure, answer.failure
    assert answer.result is not None
    graph, result = case.graph()
    before = [leaf.numpy() for leaf in graph.leafs]
    graph.compute(threads=2)
    budget = tolerance(graph)
    compare(result.numpy(), comparable(result, answer.result), budget)
    for number, leaf in enumerate(graph.leafs):  # some are written to
        changed = answer.leaves.get(number)
        compare(leaf.numpy(), before[number] if changed is None else comparable(leaf, changed), budget)


def compare(actual: Array, expected: Array, budget: Tolerance) -> None:
    """Hold values against libggml's; what is infinite or an integer must be the same."""
    actual = actual.reshape(expected.shape)
    if expected.dtype.kind != "f":
        np.testing.assert_array_equal(actual, expected)
        return
    infinite = np.isinf(expected)
    np.testing.assert_array_equal(actual[infinite], expected[infinite])
    check(np.where(infinite, 0, actual), np.where(infinite, 0, expected), budget)


@pytest.mark.parametrize("case", BACKWARDS, ids=str)
def test_gradients(case: OpCase, answers: dict[str, Answer]) -> None:
    answer = answers[str(case)]
    assert not answer.failure, answer.failure
    assert answer.gradients
    graph, _, parameters = trained(case)
    assert len(answer.gradients) == len(parameters) > 0
    for leaf, expected in zip(parameters, answer.gradients, strict=True):
        node = graph.gradient(leaf)
        assert node is not None
        actual = node.numpy().reshape(expected.shape)
        same = nmse(actual, expected) <= SAME.nmse or mean_absolute_asymmetry(actual, expected) <= ASYMMETRY
        assert same, f"{leaf}:\n{actual}\n{expected}"


def trained(case: OpCase) -> tuple[Graph, Tensor, list[Tensor]]:
    """Run a case with its gradients; return the graph, the loss and the parameters."""
    graph, result = case.graph()
    loss = weighted_sum(graph, result)
    graph.expand(loss)
    parameters = [leaf for leaf in graph.leafs if leaf.is_parameter]
    graph.build_backward()
    graph.reset()
    graph.compute(threads=2)
    return graph, loss, parameters


@pytest.mark.parametrize(("case", "why"), DIFFERS, ids=lambda value: str(value) if isinstance(value, OpCase) else "")
def test_where_ggml_is_wrong(case: OpCase, why: str, answers: dict[str, Answer]) -> None:
    answer = answers[str(case)]
    graph, loss, parameters = trained(case)
    forward = Graph(graph.context)
    forward.expand(loss)
    right = []
    for number, leaf in enumerate(parameters):
        node = graph.gradient(leaf)
        assert node is not None
        expected = numeric_gradient(forward, loss, leaf)
        assert mean_absolute_asymmetry(node.numpy(), expected) <= ASYMMETRY
        right.append(bool(answer.gradients and mean_absolute_asymmetry(answer.gradients[number], expected) < 1e-2))
    assert answer.gradients or "GGML_ASSERT" in answer.failure
    assert not all(right), f"libggml has become right; it was said: {why}"


def test_pairs_beyond_the_sections_turn_by_time(answers: dict[str, Answer]) -> None:
    """As in the models' own code, where they keep the angle of the first channel; ggml turns them by the fourth."""
    graph, result = BEYOND_SECTIONS.graph()
    x, places = (leaf.numpy().astype(np.float64) for leaf in graph.leafs)
    graph.compute(threads=2)
    theirs = answers[str(BEYOND_SECTIONS)].result
    for actual, rest in ((result.numpy(), 0), (theirs, 3)):
        assert actual is not None
        channel = np.array([0, 1, 2, 0, rest, rest, 0, rest])
        angle = places[channel].T * 10000.0 ** (-np.arange(8) / 8)
        turned = (x[..., 0, :8] + 1j * x[..., 0, 8:]) * np.exp(1j * angle)
        expected = np.concatenate([turned.real, turned.imag], -1)
        np.testing.assert_allclose(actual.reshape(2, 16), expected, atol=1e-5)


# --- That nothing is left out unseen ---------------------------------------------------------------------------


def test_every_operation_is_compared_or_left_out_for_a_reason() -> None:
    assert ROWS.keys() | SKIPPED.keys() == TABLE.keys()
    assert not ROWS.keys() & SKIPPED.keys()
    assert all(SKIPPED.values())
    assert all(limit.only for limit in (*FORWARD_LIMITS.values(), *BACKWARD.values()))
    compared = {node.op for case in FORWARD for node in case.graph()[0].nodes}
    assert compared == ROWS.keys()


def test_every_derivative_of_ggml_is_compared() -> None:
    graphs = [case.graph()[0] for case in BACKWARDS]
    assert {node.op for graph in graphs for node in differentiated(graph)} == BACKWARD.keys()


def test_most_cases_are_compared() -> None:
    assert len(ROWS) >= 78
    assert len(BACKWARD) >= 37
    assert len(FORWARD) >= 780
    assert len(BACKWARDS) >= 200
