"""Operations by their names in ggml's C interface: every operation is reached, arguments mean what they mean there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ggml_bridge import Answer, ask
from ggml_library import folder
from op_cases import Maker
from upstream_calls import CALLS

from prism_inference.errors import GraphError, UnsupportedError
from prism_inference.graph import Context, Graph, Op, Tensor
from prism_inference.graph.interpret import interpret
from prism_inference.graph.table import REFUSED, TABLE
from prism_inference.graph.upstream import FUNCTIONS, find
from tolerances import SUMS, nmse

# Functions that make no node, or change one: each has a test of its own below.
OTHERS = {
    *(f"ggml_new_tensor{suffix}" for suffix in ("", "_1d", "_2d", "_3d", "_4d")),
    "ggml_dup_tensor",
    "ggml_view_tensor",
    "ggml_set_name",
    "ggml_set_input",
    "ggml_set_output",
    "ggml_set_param",
    "ggml_set_loss",
    "ggml_new_graph",
    "ggml_new_graph_custom",
    "ggml_build_forward_expand",
    "ggml_build_backward_expand",
    "ggml_graph_reset",
    "ggml_graph_compute_with_ctx",
    "ggml_graph_get_grad",
    "ggml_graph_get_grad_acc",
    "ggml_graph_n_nodes",
    "ggml_graph_node",
    "ggml_mul_mat_set_prec",
    "ggml_soft_max_add_sinks",
    "ggml_flash_attn_ext_add_sinks",
    "ggml_flash_attn_ext_set_prec",
}


def values(result: Tensor) -> np.ndarray[Any, Any]:
    """What the interpreter makes of a tensor."""
    graph = Graph(result.context)
    graph.expand(result)
    return interpret(graph)[result.index]


def computed(result: Tensor) -> np.ndarray[Any, Any]:
    """What the kernels make of it."""
    graph = Graph(result.context)
    graph.expand(result.mark_output())
    graph.compute(threads=2)
    return result.numpy().reshape(tuple(reversed(result.ne)))


def error(actual: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> float:
    """NMSE of two arrays that are infinite in the same places."""
    infinite = np.isinf(expected)
    np.testing.assert_array_equal(np.isinf(actual), infinite)
    return nmse(np.where(infinite, 0, actual), np.where(infinite, 0, expected))


def named(name: str) -> Tensor:
    """Make the example of a function by its name."""
    m = Maker()
    made = m.context.call(name, *CALLS[name].arguments(m))
    assert isinstance(made, Tensor)
    return made


@pytest.mark.parametrize("name", CALLS)
def test_equals_the_method(name: str) -> None:
    call = CALLS[name]
    made, expected = named(name), call.method(*call.arguments(Maker()))
    assert made.ne == expected.ne
    assert made.type == expected.type
    np.testing.assert_array_equal(values(made), values(expected))
    assert error(computed(made), values(expected)) <= SUMS.nmse


@pytest.fixture(scope="module")
def answers() -> dict[str, Answer]:
    """What libggml's own functions give for the same arguments."""
    if folder() is None:
        pytest.skip("libggml-python is not installed")
    return ask([name for name, call in CALLS.items() if not call.alone])


@pytest.mark.parametrize("name", [name for name, call in CALLS.items() if not call.alone])
def test_means_what_it_means_in_ggml(name: str, answers: dict[str, Answer]) -> None:
    answer = answers[name]
    assert answer.result is not None, answer.failure
    actual = values(named(name))
    assert actual.shape == answer.result.shape
    assert error(actual, answer.result) <= 1e-6  # ggml looks GELU up in a table of float16 numbers


def test_every_operation_can_be_reached() -> None:
    assert CALLS.keys() | OTHERS == FUNCTIONS.keys()
    assert not CALLS.keys() & OTHERS
    reached = set()
    for name, call in CALLS.items():
        made = named(name)
        assert call.op in {tensor.op for tensor in made.context.tensors}
        reached.add(call.op)
    assert reached == {op for op in TABLE if op < 1000}


# --- Functions that make no node -----------------------------------------------------------------------------


def test_tensors() -> None:
    context = Context()
    assert context.call("ggml_new_tensor", "f16", 2, [3, 4]).ne == (3, 4, 1, 1)
    for ne in ((3,), (3, 4), (3, 4, 5), (3, 4, 5, 6)):
        made = context.call(f"ggml_new_tensor_{len(ne)}d", 0, *ne)
        assert made.ne[: len(ne)] == ne
        assert made.type.name == "F32"
    twin = context.call("ggml_dup_tensor", made)
    assert (twin.ne, twin.type, twin.op) == (made.ne, made.type, Op.NONE)
    view = context.call("ggml_view_tensor", made)
    assert (view.ne, view.nb, view.root()) == (made.ne, made.nb, (made, 0))
    assert context.call("ggml_set_name", made, "x").name == "x"
    assert context.call("ggml_set_input", made).is_input
    assert context.call("ggml_set_output", made).is_output
    assert context.call("ggml_set_param", made).is_parameter


def test_a_graph_from_names_alone() -> None:
    context = Context()
    w = context.call("ggml_new_tensor_2d", "f32", 4, 2).set([[1, 2, 3, 4], [5, 6, 7, 8]])
    x = context.call("ggml_new_tensor_2d", "f32", 4, 3).set(np.arange(12).reshape(3, 4))
    context.call("ggml_set_param", w)
    loss = context.call("ggml_sum", context.call("ggml_mul_mat", w, x))
    context.call("ggml_set_loss", loss)
    graph = context.call("ggml_new_graph_custom", 64, True)
    context.call("ggml_build_forward_expand", graph, loss)
    assert context.call("ggml_graph_n_nodes", graph) == 2
    assert context.call("ggml_graph_node", graph, -1) is loss
    accumulator = context.call("ggml_dup_tensor", w)
    context.call("ggml_build_backward_expand", graph, {w: accumulator})
    context.call("ggml_graph_reset", graph)
    context.call("ggml_graph_compute_with_ctx", graph, 2)
    context.call("ggml_graph_compute_with_ctx", graph, 2)
    # d/dw Σ_mn Σ_k w[m, k]·x[n, k] = Σ_n x[n, k], added up over two runs.
    expected = 2 * np.tile(np.arange(12).reshape(3, 4).sum(0), (2, 1))
    np.testing.assert_allclose(context.call("ggml_graph_get_grad", graph, w).numpy(), expected)
    assert context.call("ggml_graph_get_grad_acc", graph, w) is accumulator
    plain = context.call("ggml_new_graph")
    assert (plain.capacity, plain.gradients) == (2048, False)


def test_precision_of_a_product() -> None:
    m = Maker()
    product = m.context.call("ggml_mul_mat", m.weights("Q4_0", 64, 3), m.leaf(64, 2))
    rounded = values(product)
    m.context.call("ggml_mul_mat_set_prec", product, 10)
    exact = values(product)
    assert np.abs(exact - rounded).max() > 0
    w, x = (tensor.numpy().astype(np.float64) for tensor in product.sources)
    np.testing.assert_allclose(exact.reshape(2, 3), x @ w.T, rtol=1e-6)
    with pytest.raises(GraphError, match="not a product"):
        m.context.call("ggml_mul_mat_set_prec", product.sources[1], 10)


def test_sinks_are_added_to_a_node() -> None:
    m, other = Maker(), Maker()
    scores = m.leaf(5, 3, 4)
    made = m.context.call("ggml_soft_max_ext", scores, None, 0.5, 0.0)
    m.context.call("ggml_soft_max_add_sinks", made, m.leaf(4))
    np.testing.assert_array_equal(values(made), values(other.leaf(5, 3, 4).soft_max(None, 0.5, 0.0, other.leaf(4))))
    with pytest.raises(GraphError, match="not a soft-max"):
        m.context.call("ggml_soft_max_add_sinks", scores, None)
    with pytest.raises(GraphError, match="one sink per head"):
        m.context.call("ggml_soft_max_add_sinks", made, m.leaf(3))


def test_sinks_are_added_to_attention() -> None:
    m, other = Maker(), Maker()
    made = m.context.call("ggml_flash_attn_ext", *CALLS["ggml_flash_attn_ext"].arguments(m))
    m.context.call("ggml_flash_attn_ext_add_sinks", made, m.leaf(4))
    m.context.call("ggml_flash_attn_ext_set_prec", made, 10)
    q, k, v, mask, scale, bias, cap = CALLS["ggml_flash_attn_ext"].arguments(other)
    sinks = other.leaf(4)
    expected = q.flash_attn_ext(k, v, None, scale, cap, mask=mask, sinks=sinks, max_bias=bias)
    np.testing.assert_array_equal(values(made), values(expected))
    with pytest.raises(GraphError, match="not attention"):
        m.context.call("ggml_flash_attn_ext_add_sinks", made.sources[0], None)


def test_signals_are_convolved_each_by_itself() -> None:
    m = Maker()
    kernel, signals = m.leaf(3, 2, 1), m.leaf(9, 2, 2)
    made = values(m.context.call("ggml_conv_1d", kernel, signals, 1, 0, 1))
    k, x = kernel.numpy().reshape(2, 3).astype(np.float64), signals.numpy().astype(np.float64)
    expected = [sum(np.correlate(x[n, c], k[c]) for c in range(2)) for n in range(2)]
    np.testing.assert_allclose(made.reshape(2, 7), expected, rtol=1e-5)


# --- Refusals -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("ggml_conv_transpose_1d", Op.CONV_TRANSPOSE_1D),
        ("ggml_conv_2d_dw_direct", Op.CONV_2D_DW),
        ("ggml_conv_transpose_2d_p0", Op.CONV_TRANSPOSE_2D),
        ("ggml_im2col_3d", Op.IM2COL_3D),
        ("ggml_win_part", Op.WIN_PART),
        ("ggml_rwkv_wkv7", Op.RWKV_WKV7),
        ("ggml_map_custom2", Op.MAP_CUSTOM2),
        ("ggml_custom_4d", Op.CUSTOM),
    ],
)
def test_what_is_refused_says_why(name: str, op: Op) -> None:
    with pytest.raises(UnsupportedError) as caught:
        find(name)
    assert caught.value.where == name
    assert caught.value.problem == REFUSED[op]


def test_every_refused_operation_has_its_reason() -> None:
    for op, reason in REFUSED.items():
        with pytest.raises(UnsupportedError) as caught:
            Context().call(f"ggml_{op.name.lower()}")
        assert caught.value.problem == reason


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("ggml_mul_matt", "Did you mean ggml_mul_mat?"),
        ("soft_max_ext", "Did you mean ggml_soft_max_ext?"),
        ("ggml_sqr_inplace", "Call ggml_sqr"),
        ("zzz", None),
    ],
)
def test_an_unknown_name_gets_a_hint(name: str, hint: str | None) -> None:
    with pytest.raises(UnsupportedError) as caught:
        find(name)
    assert caught.value.where == name
    assert (caught.value.hint is None) if hint is None else caught.value.hint.startswith(hint)


def test_arguments_are_checked() -> None:
    m = Maker()
    a, foreign = m.leaf(3), Maker().leaf(3)
    with pytest.raises(GraphError, match=r"ggml_add: wrong number of arguments: expected \(a b\), found 1"):
        m.context.call("ggml_add", a)
    with pytest.raises(GraphError, match="another context"):
        m.context.call("ggml_add", a, foreign)
    with pytest.raises(UnsupportedError, match="inplace"):
        m.context.call("ggml_leaky_relu", a, 0.1, True)
    with pytest.raises(UnsupportedError, match="rotary mode"):
        m.context.call("ggml_rope", m.leaf(8, 2, 3), m.integers([0, 1, 2]), 8, 24)
    with pytest.raises(UnsupportedError, match="delta rule"):
        m.context.call("ggml_gated_delta_net", *CALLS["ggml_gated_delta_net"].arguments(m)[:-1], 2)
