"""How exact the functions of float32 vectors are, against float64 formulas, over all their useful range; and what they
make of zeros, infinities and NaN. `test_targets.py` runs this file again with the target forced to plainer ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from prism_inference.graph import Context, Graph, Tensor, Unary

Floats = npt.NDArray[np.float32]
Wide = npt.NDArray[np.float64]
Apply = Callable[[Tensor], Tensor]
COUNT = 50_000


def run(apply: Callable[..., Tensor], *arguments: Floats) -> Floats:
    context = Context()
    result = apply(*(context.tensor("F32", (a.size,)).set(a) for a in arguments)).mark_output()
    graph = Graph(context)
    graph.expand(result)
    graph.compute(2)
    return result.numpy()


def arguments(low: float, high: float, rng: np.random.Generator) -> Floats:
    """Values of the range, half of them uniform, half of them of any magnitude down to 1e-17."""
    most = math.log(max(abs(low), abs(high)))
    small = np.exp(rng.uniform(-40, most, COUNT)) * rng.choice([-1, 1], COUNT)
    x = np.concatenate([rng.uniform(low, high, COUNT), small]).astype(np.float32)
    return x[(x >= low) & (x <= high)]


def units(actual: Floats, expected: Wide) -> Wide:
    """The error in units in the last place of the expected value as float32."""
    unit = np.spacing(np.abs(expected.astype(np.float32))).astype(np.float64)
    return np.abs(actual.astype(np.float64) - expected) / unit


_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def sigmoid(x: Wide) -> Wide:
    return np.asarray(1 / (1 + np.exp(-x)))


def gelu(x: Wide) -> Wide:
    return x * sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))


def below(x: Wide) -> Wide:
    """Φ of the standard normal distribution."""
    return np.asarray(0.5 * _erfc(-x / math.sqrt(2)))


@dataclass(frozen=True)
class Exactness:
    """A function, its float64 formula, a range of arguments, and the largest error in units in the last place."""

    name: str
    apply: Apply
    formula: Callable[[Wide], Wide]
    low: float
    high: float
    units: float

    def __str__(self) -> str:
        return f"{self.name} {self.low:g} to {self.high:g}"


EXACTNESS = [
    Exactness("exp", Tensor.exp, np.exp, -87.3, 88.7, 2),
    Exactness("exp, subnormal", Tensor.exp, np.exp, -104.5, -87.3, 2),
    Exactness("expm1", Tensor.expm1, np.expm1, -40, 88.7, 2),
    Exactness("log", Tensor.log, np.log, 1e-45, 3e38, 1),
    Exactness("log, near 1", Tensor.log, np.log, 0.5, 2, 1),
    Exactness("sqrt", Tensor.sqrt, np.sqrt, 0, 3e38, 0.5),
    Exactness("sin", Tensor.sin, np.sin, -1e5, 1e5, 0.51),
    Exactness("cos", Tensor.cos, np.cos, -1e5, 1e5, 0.51),
    Exactness("tanh", Tensor.tanh, np.tanh, -20, 20, 4),
    Exactness("sigmoid", Tensor.sigmoid, sigmoid, -87, 100, 4),
    Exactness("silu", Tensor.silu, lambda x: x * sigmoid(x), -87, 100, 4),
    Exactness("softplus", Tensor.softplus, lambda x: np.logaddexp(0, x), -87, 100, 4),
    Exactness("elu", Tensor.elu, lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))), -90, 90, 2),
    Exactness("gelu_erf", Tensor.gelu_erf, lambda x: x * below(x), -13, 50, 8),
    # The rounding of the sigmoid's argument u costs up to 1.5·|u| units.
    Exactness("gelu", Tensor.gelu, gelu, -1, 50, 6),
    Exactness("gelu, tail", Tensor.gelu, gelu, -4, -1, 20),
    Exactness("gelu_quick", Tensor.gelu_quick, lambda x: x * sigmoid(1.702 * x), -1, 50, 6),
    Exactness("gelu_quick, tail", Tensor.gelu_quick, lambda x: x * sigmoid(1.702 * x), -8, -1, 22),
    Exactness("hardswish", Tensor.hardswish, lambda x: x * np.clip((x + 3) / 6, 0, 1), -2.9, 10, 3),
]


@pytest.mark.parametrize("case", EXACTNESS, ids=str)
def test_functions_are_exact_to_a_few_units(case: Exactness, rng: np.random.Generator) -> None:
    x = arguments(case.low, case.high, rng)
    errors = units(run(case.apply, x), case.formula(x.astype(np.float64)))
    worst = int(errors.argmax())
    assert errors[worst] <= case.units, f"{errors[worst]:.2f} units at {x[worst]!r}"


WHOLE = {
    "floor": (Tensor.floor, np.floor),
    "ceil": (Tensor.ceil, np.ceil),
    "trunc": (Tensor.trunc, np.trunc),
    "round": (Tensor.round, lambda x: np.copysign(np.floor(np.abs(x.astype(np.float64)) + 0.5), x)),
}


@pytest.mark.parametrize("name", WHOLE)
def test_rounding_is_exact(name: str, rng: np.random.Generator) -> None:
    """Everywhere, with the sign of zero, and next to ties."""
    ties = np.arange(-8, 8, 0.5, dtype=np.float32)
    edges = np.array([2.0**22 + 0.5, 2.0**23 - 0.5, 2.0**23 + 1, 2.0**31, 3e38, 0.49999997, np.inf], np.float32)
    near = [np.nextafter(ties, np.float32(side)) for side in (-np.inf, np.inf)]
    x = np.concatenate([ties, *near, edges, -edges, rng.standard_normal(COUNT).astype(np.float32) * 100])
    apply, formula = WHOLE[name]
    actual, expected = run(apply, x), formula(x).astype(np.float32)
    np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(np.signbit(actual), np.signbit(expected))


# --- The way back: errors of the slopes, absolute, because they go through 0 -------------------------------------


def density(x: Wide) -> Wide:
    return np.asarray(np.exp(-x * x / 2) / math.sqrt(2 * math.pi))


def gelu_slope(x: Wide) -> Wide:
    c = math.sqrt(2 / math.pi)
    s = sigmoid(np.maximum(-700, 2 * c * (x + 0.044715 * x**3)))
    return s + 2 * x * s * (1 - s) * c * (1 + 3 * 0.044715 * x * x)


def gated_slope(x: Wide, factor: float) -> Wide:
    s = sigmoid(factor * x)
    return s * (1 + factor * x * (1 - s))


SLOPES: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Wide], Wide]]] = {
    "silu": (Tensor.silu_back, lambda x: gated_slope(x, 1.0)),
    "gelu": (lambda g, x: g.unary_back(x, Unary.GELU), gelu_slope),
    "gelu_quick": (lambda g, x: g.unary_back(x, Unary.GELU_QUICK), lambda x: gated_slope(x, 1.702)),
    "gelu_erf": (lambda g, x: g.unary_back(x, Unary.GELU_ERF), lambda x: below(x) + x * density(x)),
    "elu": (lambda g, x: g.unary_back(x, Unary.ELU), lambda x: np.exp(np.minimum(x, 0))),
}


@pytest.mark.parametrize("name", SLOPES)
def test_slopes_are_exact_to_a_few_units_of_1(name: str, rng: np.random.Generator) -> None:
    apply, formula = SLOPES[name]
    x = arguments(-40, 40, rng)
    actual = run(apply, np.ones_like(x), x)
    np.testing.assert_allclose(actual, formula(x.astype(np.float64)), rtol=0, atol=3 * 2.0**-23)


# --- Special values ------------------------------------------------------------------------------------------

INF, NAN = float("inf"), float("nan")
# name -> (function, {argument: result})
SPECIAL: dict[str, tuple[Apply, dict[float, float]]] = {
    "exp": (Tensor.exp, {0.0: 1.0, 89.0: INF, INF: INF, -104.0: 0.0, -INF: 0.0, 88.72: 3.3931806e38}),
    "expm1": (Tensor.expm1, {0.0: 0.0, 89.0: INF, INF: INF, -INF: -1.0, -100.0: -1.0, 1e-20: 1e-20, -1e-38: -1e-38}),
    "log": (Tensor.log, {0.0: -INF, 1.0: 0.0, -1.0: NAN, -INF: NAN, INF: INF, 1e-45: -103.27893}),
    "sqrt": (Tensor.sqrt, {0.0: 0.0, -1.0: NAN, INF: INF}),
    "sin": (Tensor.sin, {0.0: 0.0, INF: NAN, -INF: NAN}),
    "cos": (Tensor.cos, {0.0: 1.0, INF: NAN, -INF: NAN}),
    "tanh": (Tensor.tanh, {0.0: 0.0, INF: 1.0, -INF: -1.0, 50.0: 1.0, 1e-30: 1e-30, -1e-4: -1e-4 + 1e-12 / 3}),
    "sigmoid": (Tensor.sigmoid, {0.0: 0.5, INF: 1.0, -INF: 0.0, 1000.0: 1.0, -1000.0: 0.0}),
    "silu": (Tensor.silu, {0.0: 0.0, INF: INF, 1000.0: 1000.0, -1000.0: 0.0, -1e30: 0.0}),
    "softplus": (Tensor.softplus, {0.0: math.log(2), INF: INF, -INF: 0.0, 1000.0: 1000.0, -1000.0: 0.0}),
    "gelu": (Tensor.gelu, {0.0: 0.0, INF: INF, 1e30: 1e30, -1e30: 0.0, -20.0: 0.0}),
    "gelu_quick": (Tensor.gelu_quick, {0.0: 0.0, INF: INF, 1e30: 1e30, -1e30: 0.0, -60.0: 0.0}),
    "gelu_erf": (Tensor.gelu_erf, {0.0: 0.0, INF: INF, 1e30: 1e30, -1e30: 0.0, -20.0: 0.0}),
    "elu": (Tensor.elu, {0.0: 0.0, INF: INF, -INF: -1.0}),
    "relu": (Tensor.relu, {0.0: 0.0, INF: INF, -INF: 0.0}),
    "sgn": (Tensor.sgn, {0.0: 0.0, INF: 1.0, -INF: -1.0}),
    "neg": (Tensor.neg, {INF: -INF, -INF: INF}),
    "abs": (Tensor.abs, {-INF: INF}),
    "hardswish": (Tensor.hardswish, {INF: INF, -4.0: 0.0}),
    "hardsigmoid": (Tensor.hardsigmoid, {INF: 1.0, -INF: 0.0}),
    "clamp": (lambda t: t.clamp(-1.0, 2.0), {INF: 2.0, -INF: -1.0}),
    "leaky_relu": (lambda t: t.leaky_relu(0.5), {INF: INF, -INF: -INF}),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_special_values(name: str) -> None:
    """Each value at the stated argument; NaN gives NaN."""
    apply, values = SPECIAL[name]
    x = np.array([*values, NAN], np.float32)
    np.testing.assert_allclose(run(apply, x), np.array([*values.values(), NAN]), rtol=1e-6, atol=1e-35)


def test_step_of_nan_is_0() -> None:
    """As the comparison x > 0 has it."""
    np.testing.assert_array_equal(run(Tensor.step, np.array([NAN, INF, -INF, 0.0], np.float32)), [0, 1, 0, 0])


@pytest.mark.parametrize("name", SLOPES)
def test_slopes_far_out_are_0_and_1(name: str) -> None:
    """Nothing infinite is multiplied with 0 on the way."""
    x = np.array([-1e30, -1e20, -1000, 1000, 1e20, 1e30], np.float32)
    actual = run(SLOPES[name][0], np.ones_like(x), x)
    np.testing.assert_allclose(actual, [0, 0, 0, 1, 1, 1], rtol=0, atol=1e-6)


@pytest.mark.parametrize("value", [0.3, -1.7, INF, NAN])
@pytest.mark.parametrize("kind", [Unary.SGN, Unary.STEP, Unary.FLOOR, Unary.CEIL, Unary.ROUND, Unary.TRUNC])
def test_piecewise_constant_functions_have_a_derivative_of_0(kind: Unary, value: float) -> None:
    """Also where the argument is not a number: nothing is multiplied with it."""
    context = Context()
    x = context.tensor("F32", (1,)).set([value]).mark_parameter()
    graph = Graph(context, gradients=True)
    graph.expand(x.unary(kind).mark_loss())
    graph.build_backward()
    graph.reset()
    graph.compute(1)
    gradient = graph.gradient(x)
    assert gradient is not None
    np.testing.assert_array_equal(gradient.numpy(), [0.0])
