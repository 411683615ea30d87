"""Element by element: arithmetic with broadcasting, functions of one value, gated units, constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...gguf import tensor_type
from ..ops import Glu, Op, Unary
from .checks import repeats, require, require_f32

if TYPE_CHECKING:
    from ..tensor import Context, Tensor


def add(self: Tensor, other: Tensor) -> Tensor:
    """self + other, `other` repeated to this shape."""
    return _elements(self, Op.ADD, other)


def add_inplace(self: Tensor, other: Tensor) -> Tensor:
    """self + other, written to self: the result is a view of it."""
    require_f32(Op.ADD, self, other)
    require(self.ne == other.ne, Op.ADD, "different shapes", self, other)
    node = self.context.view(Op.ADD, self, self.ne, self.nb, 0)
    node.sources = (self, other)
    return node


def add1(self: Tensor, other: Tensor) -> Tensor:
    """self + the one value of `other`."""
    require_f32(Op.ADD1, self, other)
    require(other.elements == 1, Op.ADD1, "the second has more than one value", self, other)
    return self.context.node(Op.ADD1, self.type, self.ne, [self, other])


def add_id(self: Tensor, other: Tensor, index: Tensor) -> Tensor:
    """Add picked rows: self [N, used, tokens] + other [N, rows] at index I32 [used, tokens]."""
    op = Op.ADD_ID
    require_f32(op, self, other)
    require(index.type.name == "I32", op, "wrong index type", index, expected="I32")
    fits = other.ne[0] == self.ne[0] and index.ne[:2] == self.ne[1:3] and self.ne[3] == 1
    require(fits and other.ne[2] == other.ne[3] == 1, op, "shapes do not fit", self, other, index)
    return self.context.node(op, self.type, self.ne, [self, other, index])


def sub(self: Tensor, other: Tensor) -> Tensor:
    """self - other, `other` repeated to this shape."""
    return _elements(self, Op.SUB, other)


def mul(self: Tensor, other: Tensor) -> Tensor:
    """self · other element by element, `other` repeated to this shape."""
    return _elements(self, Op.MUL, other)


def div(self: Tensor, other: Tensor) -> Tensor:
    """self / other element by element, `other` repeated to this shape."""
    return _elements(self, Op.DIV, other)


def _elements(self: Tensor, op: Op, other: Tensor) -> Tensor:
    require_f32(op, self, other)
    require(repeats(other, self), op, "cannot repeat the second to the first", self, other)
    return self.context.node(op, self.type, self.ne, [self, other])


def scale(self: Tensor, factor: float, offset: float = 0.0) -> Tensor:
    """self · factor + offset."""
    return _function(self, Op.SCALE, float(factor), float(offset))


def sqr(self: Tensor) -> Tensor:
    """x²."""
    return _function(self, Op.SQR)


def sqrt(self: Tensor) -> Tensor:
    """The square root; its derivative is infinite at 0."""
    return _function(self, Op.SQRT)


def log(self: Tensor) -> Tensor:
    """The natural logarithm."""
    return _function(self, Op.LOG)


def sin(self: Tensor) -> Tensor:
    """The sine."""
    return _function(self, Op.SIN)


def cos(self: Tensor) -> Tensor:
    """The cosine."""
    return _function(self, Op.COS)


def clamp(self: Tensor, low: float, high: float) -> Tensor:
    """Each value, or the bound that it exceeds."""
    require(low <= high, Op.CLAMP, f"no values between {low} and {high}", self)
    return _function(self, Op.CLAMP, float(low), float(high))


def leaky_relu(self: Tensor, slope: float) -> Tensor:
    """x where it is positive, slope·x elsewhere."""
    return _function(self, Op.LEAKY_RELU, float(slope))


def fill(self: Tensor, value: float) -> Tensor:
    """An F32 tensor of this shape with one value everywhere; reads nothing of this one."""
    return self.context.node(Op.FILL, tensor_type("F32"), self.ne, [], (float(value),))


def arange(context: Context, start: float, stop: float, step: float = 1.0) -> Tensor:
    """start, start + step, … below stop, as F32."""
    count = -int(-(stop - start) // step) if step else 0
    require(count > 0, Op.ARANGE, f"no values from {start} to {stop} by {step}")
    return context.node(Op.ARANGE, tensor_type("F32"), (count,), [], (float(start), float(stop), float(step)))


def round_to(self: Tensor, kind: str) -> Tensor:
    """Each value as a tensor type stores it: encoded and decoded again, in F32.

    Its derivative is taken as that of the identity (straight-through, arXiv 1308.3432), so that weights can be trained
    that are used in few bits.
    """
    op = Op.ROUND_TO
    require_f32(op, self)
    row = tensor_type(kind)
    require(row.name in ROUNDED, op, f"cannot round to {row.name}", self, expected=", ".join(ROUNDED))
    require(self.ne[0] % row.block == 0, op, f"rows are no multiple of {row.block}", self)
    return self.context.node(op, self.type, self.ne, [self], (row.name,))


ROUNDED = ("Q1_0", "Q2_0")


def _function(self: Tensor, op: Op, *params: float) -> Tensor:
    require_f32(op, self)
    return self.context.node(op, self.type, self.ne, [self], params)


# --- Functions of one value ---------------------------------------------------------------------------


def unary(self: Tensor, kind: Unary, *params: float) -> Tensor:
    """A function of each value, by its number; XIELU takes (alpha_n, alpha_p, beta, eps)."""
    require_f32(Op.UNARY, self)
    wanted = 4 if kind is Unary.XIELU else 0
    require(len(params) == wanted, Op.UNARY, f"{kind.name} takes {wanted} parameters", self, expected=wanted)
    return self.context.node(Op.UNARY, self.type, self.ne, [self], (kind, *(float(value) for value in params)))


def unary_back(self: Tensor, argument: Tensor, kind: Unary, *params: float) -> Tensor:
    """self · f'(argument) for a function by its number: the way back through `unary`."""
    op = Op.UNARY_BACK
    require_f32(op, self, argument)
    require(self.ne == argument.ne, op, "different shapes", self, argument)
    return self.context.node(op, self.type, self.ne, [self, argument], (kind, *params))


def silu_back(self: Tensor, argument: Tensor) -> Tensor:
    """self · silu'(argument)."""
    op = Op.SILU_BACK
    require_f32(op, self, argument)
    require(self.ne == argument.ne, op, "different shapes", self, argument)
    return self.context.node(op, self.type, self.ne, [self, argument])


def abs(self: Tensor) -> Tensor:
    """The magnitude."""
    return unary(self, Unary.ABS)


def sgn(self: Tensor) -> Tensor:
    """-1, 0 or 1."""
    return unary(self, Unary.SGN)


def neg(self: Tensor) -> Tensor:
    """-x."""
    return unary(self, Unary.NEG)


def step(self: Tensor) -> Tensor:
    """1 where x is positive, else 0."""
    return unary(self, Unary.STEP)


def tanh(self: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return unary(self, Unary.TANH)


def elu(self: Tensor) -> Tensor:
    """x where it is positive, e^x - 1 elsewhere."""
    return unary(self, Unary.ELU)


def relu(self: Tensor) -> Tensor:
    """x where it is positive, else 0."""
    return unary(self, Unary.RELU)


def sigmoid(self: Tensor) -> Tensor:
    """1 / (1 + e^-x)."""
    return unary(self, Unary.SIGMOID)


def gelu(self: Tensor) -> Tensor:
    """x·Φ(x) by its tanh form: 0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))."""
    return unary(self, Unary.GELU)


def gelu_erf(self: Tensor) -> Tensor:
    """x·Φ(x) by the error function: 0.5·x·(1 + erf(x/√2))."""
    return unary(self, Unary.GELU_ERF)


def gelu_quick(self: Tensor) -> Tensor:
    """x·sigmoid(1.702·x)."""
    return unary(self, Unary.GELU_QUICK)


def silu(self: Tensor) -> Tensor:
    """x / (1 + e^-x)."""
    return unary(self, Unary.SILU)


def hardswish(self: Tensor) -> Tensor:
    """x·min(1, max(0, (x + 3) / 6))."""
    return unary(self, Unary.HARDSWISH)


def hardsigmoid(self: Tensor) -> Tensor:
    """min(1, max(0, (x + 3) / 6))."""
    return unary(self, Unary.HARDSIGMOID)


def exp(self: Tensor) -> Tensor:
    """e^x."""
    return unary(self, Unary.EXP)


def expm1(self: Tensor) -> Tensor:
    """e^x - 1, exact near 0."""
    return unary(self, Unary.EXPM1)


def softplus(self: Tensor) -> Tensor:
    """ln(1 + e^x)."""
    return unary(self, Unary.SOFTPLUS)


def xielu(self: Tensor, alpha_n: float, alpha_p: float, beta: float, eps: float) -> Tensor:
    """alpha_p·x² + beta·x where x > 0, (e^min(x, eps) - 1 - x)·alpha_n + beta·x elsewhere (arXiv 2411.13010)."""
    return unary(self, Unary.XIELU, alpha_n, alpha_p, beta, eps)


def floor(self: Tensor) -> Tensor:
    """The next integer below."""
    return unary(self, Unary.FLOOR)


def ceil(self: Tensor) -> Tensor:
    """The next integer above."""
    return unary(self, Unary.CEIL)


def round(self: Tensor) -> Tensor:
    """The nearest integer, ties away from zero."""
    return unary(self, Unary.ROUND)


def trunc(self: Tensor) -> Tensor:
    """The next integer towards zero."""
    return unary(self, Unary.TRUNC)


# --- Gated units -------------------------------------------------------------------------------------


def glu(self: Tensor, kind: Glu, other: Tensor | None = None, *params: float, swapped: bool = False) -> Tensor:
    """activation(a)·b. With `other`: a is this tensor; without it: a and b are the halves of each row (b first if
    `swapped`). SWIGLU_OAI takes (alpha, limit): min(a, limit)·sigmoid(alpha·min(a, limit))·(1 + clamp(b, ±limit))."""
    op = Op.GLU
    require_f32(op, self, other)
    wanted = 2 if kind is Glu.SWIGLU_OAI else 0
    require(len(params) == wanted, op, f"{kind.name} takes {wanted} parameters", self, expected=wanted)
    if other is None:
        require(self.ne[0] % 2 == 0, op, "rows have no halves", self)
        ne: Sequence[int] = (self.ne[0] // 2, *self.ne[1:])
    else:
        require(self.ne == other.ne, op, "different shapes", self, other)
        ne = self.ne
    return self.context.node(op, self.type, ne, [self, other], (kind, *params, swapped))


def reglu(self: Tensor, other: Tensor | None = None) -> Tensor:
    """relu(self) · other."""
    return glu(self, Glu.REGLU, other)


def geglu(self: Tensor, other: Tensor | None = None) -> Tensor:
    """gelu(self) · other, gelu by its tanh form."""
    return glu(self, Glu.GEGLU, other)


def geglu_erf(self: Tensor, other: Tensor | None = None) -> Tensor:
    """gelu_erf(self) · other."""
    return glu(self, Glu.GEGLU_ERF, other)


def geglu_quick(self: Tensor, other: Tensor | None = None) -> Tensor:
    """gelu_quick(self) · other."""
    return glu(self, Glu.GEGLU_QUICK, other)


def swiglu(self: Tensor, other: Tensor | None = None) -> Tensor:
    """silu(self) · other."""
    return glu(self, Glu.SWIGLU, other)


def swiglu_oai(self: Tensor, other: Tensor, alpha: float, limit: float) -> Tensor:
    """The clamped gate of gpt-oss; see `glu`."""
    return glu(self, Glu.SWIGLU_OAI, other, float(alpha), float(limit))
