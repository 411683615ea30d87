"""Cases of what is done element by element."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from prism_inference.graph import Glu, Op, Tensor, Unary
from tolerances import ELEMENTS, EXACT, FUNCTIONS, Tolerance

from . import Maker, OpCase

Build = Callable[[Maker], Tensor]
Binary = Callable[[Tensor, Tensor], Tensor]

# --- Two tensors, the second repeated to the first ---------------------------------------------------------

BINARY: dict[Op, Binary] = {Op.ADD: Tensor.add, Op.SUB: Tensor.sub, Op.MUL: Tensor.mul, Op.DIV: Tensor.div}
# name -> (first, second): small ones, by both of which the case is differentiated
PAIRS = {
    "one value": ((1,), (1,)),
    "equal": ((19, 2), (19, 2)),
    "a row": ((17, 3), (17,)),
    "a column": ((5, 3, 2), (1, 3, 2)),
    "one number": ((6, 3), (1,)),
    "rows repeated": ((18, 2), (6, 1)),
    "everywhere": ((4, 2, 3, 2), (2, 1, 3, 1)),
}
LONG = {
    "long": ((2500, 3), (2500, 3)),
    "long row": ((2500, 3), (2500,)),
    "long, one number": ((1030, 2, 2), (1, 2)),
    "long, repeated": ((3000, 2), (1500, 2)),
    "many": ((33, 7, 5, 3), (33, 1, 5, 3)),
}


def _pair(function: Binary, a: tuple[int, ...], b: tuple[int, ...]) -> Build:
    return lambda m: function(m.parameter(*a), m.parameter(*b, low=0.5, high=2.0))


def _leaves(function: Binary, a: tuple[int, ...], b: tuple[int, ...]) -> Build:
    return lambda m: function(m.leaf(*a), m.leaf(*b, low=0.5, high=2.0))


def _strided(function: Binary) -> Build:
    """The first transposed, the second a view with gaps between its rows."""

    def build(m: Maker) -> Tensor:
        b = m.parameter(9, 3, low=0.5, high=2.0)
        return function(m.parameter(3, 7).transpose(), b.view((7, 3), (b.nb[1],), 4))

    return build


def _permuted(function: Binary) -> Build:
    return lambda m: function(
        m.parameter(4, 5, 3).permute(1, 0, 2, 3), m.parameter(5, 3, 4, low=0.5, high=2.0).permute(0, 2, 1, 3)
    )


def _add_inplace(m: Maker) -> Tensor:
    return m.leaf(37, 3).add_inplace(m.leaf(37, 3))


def _add_inplace_part(m: Maker) -> Tensor:
    """In place of a view with gaps between its rows."""
    whole = m.leaf(21, 4)
    return whole.view((18, 3), (whole.nb[1],), 8).add_inplace(m.leaf(3, 18).transpose())


def _picks(m: Maker) -> Tensor:
    return m.integers([[0, 3], [2, 0], [3, 1]])


def _add_id_strided(m: Maker) -> Tensor:
    rows, table = m.parameter(2, 5, 3).permute(1, 0, 2, 3), m.parameter(4, 5).transpose()
    return rows.add_id(table, m.integers([[0, 2, 3], [3, 0, 1]]).transpose())


def _binary() -> list[OpCase]:
    cases = []
    for op, function in BINARY.items():
        cases += [OpCase(op, name, _pair(function, a, b)) for name, (a, b) in PAIRS.items()]
        cases += [OpCase(op, name, _leaves(function, a, b), smooth=False) for name, (a, b) in LONG.items()]
        cases += [OpCase(op, "strided", _strided(function)), OpCase(op, "permuted", _permuted(function))]
    return [
        *cases,
        OpCase(Op.ADD, "in place", _add_inplace, smooth=False),
        OpCase(Op.ADD, "in place of a part", _add_inplace_part, smooth=False),
        OpCase(Op.ADD1, "", lambda m: m.parameter(19, 2).add1(m.parameter(1))),
        OpCase(Op.ADD1, "strided", lambda m: m.parameter(3, 7).transpose().add1(m.parameter(1))),
        OpCase(Op.ADD_ID, "", lambda m: m.parameter(5, 2, 3).add_id(m.parameter(5, 4), _picks(m))),
        OpCase(Op.ADD_ID, "strided", _add_id_strided),
        OpCase(Op.ADD_ID, "long", lambda m: m.leaf(1100, 2, 3).add_id(m.leaf(1100, 4), _picks(m)), smooth=False),
    ]


# --- Functions of one value -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Function:
    """A function with the range of its argument, or the gap between arguments where it has kinks."""

    op: Op
    name: str
    apply: Callable[[Tensor], Tensor]
    low: float = -3.0
    high: float = 3.0
    gap: float = 0.0
    smooth: bool = True
    tolerance: Tolerance = FUNCTIONS

    def argument(self, m: Maker, *ne: int) -> Tensor:
        """A parameter."""
        return m.apart(*ne, gap=self.gap) if self.gap else m.parameter(*ne, low=self.low, high=self.high)

    def cases(self) -> list[OpCase]:
        """Small and smooth, strided, and long ones with tails."""

        def case(name: str, build: Build, smooth: bool = False) -> OpCase:
            return OpCase(self.op, f"{self.name} {name}".strip(), build, self.tolerance, smooth and self.smooth)

        return [
            case("", lambda m: self.apply(self.argument(m, 19, 2)), True),
            case("strided", lambda m: self.apply(self.argument(m, 3, 11).transpose()), True),
            case("a part", lambda m: self.apply(_part(self.argument(m, 10, 3))), True),
            case("long", lambda m: self.apply(m.leaf(1103, 3, 2, low=max(self.low, -9.0), high=9.0))),
        ]


def _part(whole: Tensor) -> Tensor:
    """The values 1 … 7 of the last two rows."""
    return whole.view((7, 2), (whole.nb[1],), whole.nb[1] + 4)


def _unary(kind: Unary, *params: float, name: str = "", **given: float | bool) -> Function:
    label = f"{kind.name.lower()} {name}".strip()
    return Function(Op.UNARY, label, lambda a: a.unary(kind, *params), **given)


# (alpha_n, alpha_p, beta, eps); the second with a threshold that values lie on both sides of.
XIELU = {"": (0.8, 0.6, 0.5, -1e-6), "threshold": (0.7, 1.2, 0.4, -0.5)}

FUNCTIONS_OF_ONE = [
    Function(Op.SCALE, "", lambda a: a.scale(-1.5, 0.25), tolerance=ELEMENTS),
    Function(Op.SCALE, "without offset", lambda a: a.scale(3.0), tolerance=ELEMENTS),
    Function(Op.SQR, "", Tensor.sqr, tolerance=ELEMENTS),
    Function(Op.SQRT, "", Tensor.sqrt, low=0.1, tolerance=ELEMENTS),
    Function(Op.LOG, "", Tensor.log, low=0.1),
    Function(Op.SIN, "", Tensor.sin, tolerance=ELEMENTS),
    Function(Op.COS, "", Tensor.cos, tolerance=ELEMENTS),
    Function(Op.CLAMP, "", lambda a: a.clamp(-0.5, 0.25 + 0.05), gap=0.05, tolerance=ELEMENTS),
    Function(Op.CLAMP, "below", lambda a: a.clamp(-0.2, float("inf")), gap=0.05, tolerance=ELEMENTS),
    Function(Op.CLAMP, "above", lambda a: a.clamp(float("-inf"), 0.2), gap=0.05, tolerance=ELEMENTS),
    Function(Op.LEAKY_RELU, "", lambda a: a.leaky_relu(0.1), gap=0.05, tolerance=ELEMENTS),
    *(_unary(kind, gap=0.05) for kind in (Unary.ABS, Unary.RELU, Unary.ELU)),
    *(_unary(kind, gap=0.5) for kind in (Unary.HARDSWISH, Unary.HARDSIGMOID)),
    *(_unary(kind) for kind in (Unary.NEG, Unary.TANH, Unary.SIGMOID, Unary.SILU, Unary.SOFTPLUS)),
    *(_unary(kind) for kind in (Unary.EXP, Unary.EXPM1, Unary.GELU, Unary.GELU_QUICK, Unary.GELU_ERF)),
    *(_unary(Unary.XIELU, *params, name=name, gap=0.05) for name, params in XIELU.items()),
    # Piecewise constant: their derivative is 0, which test_functions holds.
    *(
        _unary(kind, smooth=False)
        for kind in (Unary.SGN, Unary.STEP, Unary.FLOOR, Unary.CEIL, Unary.ROUND, Unary.TRUNC)
    ),
]

# --- The way back through functions ---------------------------------------------------------------------------

SLOPES = {Unary.ELU: 0.05, Unary.HARDSWISH: 0.5, Unary.HARDSIGMOID: 0.5, Unary.XIELU: 0.05}  # kinked: the gap
SMOOTH_SLOPES = (Unary.GELU, Unary.GELU_QUICK, Unary.GELU_ERF)
TWICE = (*SMOOTH_SLOPES, Unary.ELU)  # those that can be differentiated by the argument too


def _argument(kind: Unary, m: Maker, *ne: int) -> Tensor:
    made = m.apart(*ne, gap=SLOPES[kind]) if kind in SLOPES else m.parameter(*ne, low=-3.0, high=3.0)
    made.is_parameter = kind in TWICE
    return made


def _slopes() -> list[OpCase]:
    cases = []
    for kind in (*SMOOTH_SLOPES, *SLOPES):
        params = XIELU["threshold"] if kind is Unary.XIELU else ()

        def small(m: Maker, kind: Unary = kind, params: tuple[float, ...] = params) -> Tensor:
            return m.parameter(19, 2).unary_back(_argument(kind, m, 19, 2), kind, *params)

        def strided(m: Maker, kind: Unary = kind, params: tuple[float, ...] = params) -> Tensor:
            return _part(m.parameter(10, 3)).unary_back(_argument(kind, m, 2, 7).transpose(), kind, *params)

        def long(m: Maker, kind: Unary = kind, params: tuple[float, ...] = params) -> Tensor:
            return m.leaf(1103, 3).unary_back(m.leaf(1103, 3, low=-9.0, high=9.0), kind, *params)

        name = kind.name.lower()
        cases += [
            OpCase(Op.UNARY_BACK, name, small, FUNCTIONS),
            OpCase(Op.UNARY_BACK, f"{name} strided", strided, FUNCTIONS),
            OpCase(Op.UNARY_BACK, f"{name} long", long, FUNCTIONS, smooth=False),
        ]
    return [
        *cases,
        OpCase(Op.SILU_BACK, "", lambda m: m.parameter(19, 2).silu_back(m.parameter(19, 2, low=-4, high=4)), FUNCTIONS),
        OpCase(
            Op.SILU_BACK,
            "strided",
            lambda m: _part(m.parameter(10, 3)).silu_back(m.parameter(2, 7).transpose()),
            FUNCTIONS,
        ),
        OpCase(
            Op.SILU_BACK,
            "long",
            lambda m: m.leaf(1103, 3).silu_back(m.leaf(1103, 3, low=-20, high=20)),
            FUNCTIONS,
            smooth=False,
        ),
    ]


# --- Gated units ------------------------------------------------------------------------------------------------

OAI = (1.7, 0.5)  # alpha, limit: half-way between two of the values of `apart`


def _gate(kind: Glu) -> list[OpCase]:
    params = OAI if kind is Glu.SWIGLU_OAI else ()
    kinked = kind in (Glu.REGLU, Glu.SWIGLU_OAI)

    def operand(m: Maker, *ne: int) -> Tensor:
        return m.apart(*ne) if kinked else m.parameter(*ne, low=-3.0, high=3.0)

    def fused(m: Maker, swapped: bool) -> Tensor:
        return operand(m, 22, 2).glu(kind, None, *params, swapped=swapped)

    def fused_strided(m: Maker, swapped: bool) -> Tensor:
        return operand(m, 3, 14).transpose().glu(kind, None, *params, swapped=swapped)

    builds: dict[str, Build] = {
        "split": lambda m: operand(m, 19, 2).glu(kind, operand(m, 19, 2), *params),
        "split, strided": lambda m: operand(m, 3, 7).transpose().glu(kind, operand(m, 7, 3), *params),
        "fused": lambda m: fused(m, False),
        "fused, swapped": lambda m: fused(m, True),
        "fused, strided": lambda m: fused_strided(m, False),
        "fused, strided, swapped": lambda m: fused_strided(m, True),
    }
    cases = [OpCase(Op.GLU, f"{kind.name.lower()} {name}", build, FUNCTIONS) for name, build in builds.items()]

    def long(m: Maker) -> Tensor:
        return m.leaf(1103, 3, low=-9, high=9).glu(kind, m.leaf(1103, 3, low=-9, high=9), *params)

    def long_fused(m: Maker) -> Tensor:
        return m.leaf(2206, 3, low=-9, high=9).glu(kind, None, *params, swapped=True)

    name = kind.name.lower()
    return [
        *cases,
        OpCase(Op.GLU, f"{name} long", long, FUNCTIONS, smooth=False),
        OpCase(Op.GLU, f"{name} long, fused", long_fused, FUNCTIONS, smooth=False),
    ]


# --- Constants, rounding to a tensor type --------------------------------------------------------------------------

OTHERS = [
    OpCase(Op.FILL, "", lambda m: m.leaf(19, 2, 3).fill(-2.5), EXACT, smooth=False),
    OpCase(Op.FILL, "long", lambda m: m.leaf(5000).fill(0.1), ELEMENTS, smooth=False),
    OpCase(Op.ARANGE, "", lambda m: m.context.arange(0, 19), EXACT, smooth=False),
    OpCase(Op.ARANGE, "fractions", lambda m: m.context.arange(-1.25, 700, 0.75), EXACT, smooth=False),
    OpCase(Op.ARANGE, "down", lambda m: m.context.arange(3, -8, -0.1), ELEMENTS, smooth=False),
]
for _kind, _block in (("Q1_0", 128), ("Q2_0", 64)):
    # Its derivative is that of the identity, not of the steps: test_round_to holds it.
    OTHERS += [
        OpCase(
            Op.ROUND_TO,
            f"{_kind} {name}",
            lambda m, k=_kind, ne=(blocks * _block, *rest): m.leaf(*ne).round_to(k),
            EXACT,
            smooth=False,
        )
        for name, (blocks, *rest) in {"a block": (1,), "rows": (3, 5), "matrices": (2, 3, 2, 2)}.items()
    ]

CASES: list[OpCase] = [
    *_binary(),
    *(case for function in FUNCTIONS_OF_ONE for case in function.cases()),
    *_slopes(),
    *(case for kind in Glu for case in _gate(kind)),
    *OTHERS,
]
