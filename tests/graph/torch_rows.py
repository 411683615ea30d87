"""What each operation is in torch, float64: one row per number, written with torch's own functions, and the ways back
as vector-Jacobian products that torch differentiates by itself.

Values come and go in NumPy order with four dimensions. Views have no rows: `torch_bridge` reads them through strides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

from prism_inference.graph import Glu, Op, Order, Tensor, Triangle, Unary

Value = torch.Tensor
Row = Callable[..., Value | tuple[Value, dict[int, Value]]]
"""(node, *values of its sources, None for absent ones) → the node's values; where a node writes to sources too, also
what those hold afterwards, by their numbers."""


def _function(function: Callable[..., Value]) -> Row:
    """A function of the sources, then the node's parameters."""
    return lambda node, *s: function(*s, *node.params)


def extents(node: Tensor) -> tuple[int, ...]:
    """A node's shape in NumPy order."""
    return tuple(reversed([int(extent) for extent in node.ne]))


def back(function: Callable[..., Value], arguments: Sequence[Value], gradient: Value) -> list[Value]:
    """The products of a gradient of a function's result with its Jacobians, differentiable again."""
    inputs = [value if value.requires_grad else value.clone().requires_grad_() for value in arguments]
    result = function(*inputs)
    return list(torch.autograd.grad(result, inputs, gradient, create_graph=True))


# --- Element by element ---------------------------------------------------------------------------------


def _binary(function: Callable[[Value, Value], Value]) -> Row:
    return lambda node, a, b: function(a, _repeated(b, a.shape))


def _repeated(b: Value, shape: Sequence[int]) -> Value:
    return b.repeat([n // m for n, m in zip(shape, b.shape, strict=True)])


def _add_id(node: Tensor, a: Value, b: Value, index: Value) -> Value:
    return a + b[0, 0][index[0, 0]][None]


def _round_to(node: Tensor, a: Value) -> Value:
    """Straight through: the rounded value, with the derivative of the identity."""
    size, rounded = {"Q1_0": (128, _one_bit), "Q2_0": (64, _two_bits)}[node.params[0]]
    blocks = a.detach().reshape(-1, size)
    return a + (rounded(blocks).reshape(a.shape) - a).detach()


def _one_bit(blocks: Value) -> Value:
    scale = blocks.abs().mean(-1, keepdim=True).half().double()
    return torch.where(blocks >= 0, scale, -scale)


def _two_bits(blocks: Value) -> Value:
    scale = blocks.abs().amax(-1, keepdim=True)
    codes = _round_away(blocks / torch.where(scale > 0, scale, 1.0))
    return codes * scale.half().double()


def _round_away(x: Value) -> Value:
    return x.sign() * (x.abs() + 0.5).floor()


def _xielu(x: Value, alpha_n: float, alpha_p: float, beta: float, eps: float) -> Value:
    negative = (x.clamp(max=eps).expm1() - x) * alpha_n
    return torch.where(x > 0, alpha_p * x * x, negative) + beta * x


UNARY: dict[Unary, Callable[..., Value]] = {
    Unary.ABS: torch.abs,
    Unary.SGN: torch.sign,
    Unary.NEG: torch.neg,
    Unary.STEP: lambda x: (x > 0).double(),
    Unary.TANH: torch.tanh,
    Unary.ELU: F.elu,
    Unary.RELU: F.relu,
    Unary.SIGMOID: torch.sigmoid,
    Unary.GELU: lambda x: F.gelu(x, approximate="tanh"),
    Unary.GELU_QUICK: lambda x: x * torch.sigmoid(1.702 * x),
    Unary.SILU: F.silu,
    Unary.HARDSWISH: F.hardswish,
    Unary.HARDSIGMOID: lambda x: F.relu6(x + 3) / 6,  # torch has no second derivative of its own
    Unary.EXP: torch.exp,
    Unary.EXPM1: torch.expm1,
    Unary.SOFTPLUS: lambda x: torch.logaddexp(x, torch.zeros_like(x)),
    Unary.GELU_ERF: F.gelu,
    Unary.XIELU: _xielu,
    Unary.FLOOR: torch.floor,
    Unary.CEIL: torch.ceil,
    Unary.ROUND: _round_away,
    Unary.TRUNC: torch.trunc,
}


def _unary(node: Tensor, x: Value) -> Value:
    kind, *params = node.params
    return UNARY[kind](x, *params)


def _unary_back(node: Tensor, g: Value, x: Value) -> Value:
    kind, *params = node.params
    return back(lambda x: UNARY[kind](x, *params), [x], g)[0]


GATES: dict[Glu, Unary] = {
    Glu.REGLU: Unary.RELU,
    Glu.GEGLU: Unary.GELU,
    Glu.SWIGLU: Unary.SILU,
    Glu.GEGLU_ERF: Unary.GELU_ERF,
    Glu.GEGLU_QUICK: Unary.GELU_QUICK,
}


def _glu(node: Tensor, a: Value, b: Value | None) -> Value:
    kind, *params, swapped = node.params
    if b is None:
        a, b = a.chunk(2, -1)[:: -1 if swapped else 1]
    if kind is not Glu.SWIGLU_OAI:
        return UNARY[GATES[kind]](a) * b
    alpha, limit = params
    x, y = a.clamp(max=limit), b.clamp(-limit, limit)
    return x * torch.sigmoid(alpha * x) * (y + 1)


# --- Rows -------------------------------------------------------------------------------------------------


def norm(x: Value, eps: float) -> Value:
    """Rows of mean 0 and variance 1."""
    return F.layer_norm(x, x.shape[-1:], eps=eps)


def rms_norm(x: Value, eps: float) -> Value:
    """Rows of mean square 1."""
    return F.rms_norm(x, x.shape[-1:], eps=eps)


def l2_norm(x: Value, eps: float) -> Value:
    """Rows of length 1."""
    return F.normalize(x, dim=-1, eps=eps)


def _norm_back(function: Callable[[Value, float], Value]) -> Row:
    return lambda node, g, x: back(lambda x: function(x, node.params[0]), [x], g)[0]


def _group_norm(node: Tensor, x: Value) -> Value:
    groups, eps = node.params
    parts = x.split(-(-x.shape[1] // groups), 1)
    return torch.cat([F.group_norm(part, 1, eps=eps) for part in parts], 1)


def slopes(heads: int, max_bias: float) -> Value:
    """ALiBi's slopes (arXiv 2108.12409): a geometric series for a power of two, then every second of the next one."""
    if max_bias == 0:
        return torch.ones(heads, dtype=torch.float64)
    power = 2 ** math.floor(math.log2(heads))
    first = [2.0 ** (-max_bias * (i + 1) / power) for i in range(power)]
    rest = [2.0 ** (-max_bias * (2 * i + 1) / (2 * power)) for i in range(heads - power)]
    return torch.tensor(first + rest, dtype=torch.float64)


def weights(scores: Value, mask: Value | None, sinks: Value | None, max_bias: float) -> Value:
    """Soft-max of scores [n, heads, rows, N] with a mask and sinks; rows that see nothing are zero."""
    heads, rows = scores.shape[1:3]
    if mask is not None:
        mask = _repeated(mask[:, :, :rows], scores.shape)
        scores = scores + slopes(heads, max_bias)[:, None, None] * mask
    if sinks is not None:
        column = sinks.reshape(1, heads, 1, 1).expand(*scores.shape[:3], 1)
        scores = torch.cat([scores, column], -1)
    seen = torch.isfinite(scores).any(-1, keepdim=True)
    p = torch.softmax(torch.where(seen, scores, 0.0), -1)
    p = torch.where(seen, p, 0.0)
    return p if sinks is None else p[..., :-1]


def _soft_max(node: Tensor, x: Value, mask: Value | None, sinks: Value | None) -> Value:
    scale, max_bias = node.params
    return weights(x * scale, mask, sinks, max_bias)


def _soft_max_back(node: Tensor, g: Value, y: Value) -> Value:
    return node.params[0] * (torch.diag_embed(y) - y[..., :, None] * y[..., None, :]).matmul(g[..., None])[..., 0]


def _diag_mask(value: float) -> Row:
    def row(node: Tensor, x: Value) -> Value:
        beyond = torch.ones(x.shape[-2:], dtype=torch.bool).triu(node.params[0] + 1)
        return x.masked_fill(beyond, value)

    return row


def _argsort(node: Tensor, x: Value) -> Value:
    return torch.argsort(x, dim=-1, descending=node.params[0] is Order.DESC, stable=True)


def _top_k(node: Tensor, x: Value) -> Value:
    return torch.argsort(x, dim=-1, descending=True, stable=True)[..., : int(node.ne[0])]


def _get_rows(node: Tensor, table: Value, index: Value) -> Value:
    picked = index[0][..., None].expand(*index.shape[1:], table.shape[-1])
    return torch.gather(table, 2, picked)


def _get_rows_back(node: Tensor, g: Value, index: Value) -> Value:
    picked = index[0][..., None].expand(*index.shape[1:], g.shape[-1])
    return torch.zeros(extents(node), dtype=torch.float64).scatter_add(2, picked, g)


def _set_rows(node: Tensor, rows: Value, index: Value, target: Value) -> Value:
    index = _repeated(index[0], rows.shape[:3])[..., None].expand(rows.shape)
    return target.scatter(2, index, rows)


# --- Products ---------------------------------------------------------------------------------------------


def _grown(a: Value, b: Value) -> Value:
    """Repeat the batches of the first to those of the second, each next to itself."""
    return a.repeat_interleave(b.shape[0] // a.shape[0], 0).repeat_interleave(b.shape[1] // a.shape[1], 1)


def _mul_mat(node: Tensor, w: Value, x: Value) -> Value:
    return x @ _grown(w, x).transpose(-1, -2)


def _out_prod(node: Tensor, a: Value, b: Value) -> Value:
    return b.transpose(-1, -2) @ _grown(a, b)


def mul_mat_id(w: Value, x: Value, index: Value) -> Value:
    """Products with picked experts: w [E, M, K], x [tokens, used or 1, K], index [tokens, used]."""
    return torch.einsum("tsmk,tsk->tsm", w[index], x.expand(*index.shape, x.shape[-1]))


def _mul_mat_id(node: Tensor, w: Value, x: Value, index: Value) -> Value:
    return mul_mat_id(w[0], x[0], index[0, 0])[None]


def _out_prod_id(node: Tensor, w: Value, g: Value, index: Value) -> Value:
    x = torch.zeros(*g.shape[1:3], w.shape[-1], dtype=torch.float64)
    return back(lambda x: mul_mat_id(w[0], x, index[0, 0]), [x], g[0])[0][None]


def _mul_mat_id_back(node: Tensor, g: Value, x: Value, index: Value) -> Value:
    w = torch.zeros(extents(node)[1:], dtype=torch.float64)
    return back(lambda w: mul_mat_id(w, x[0], index[0, 0]), [w], g[0])[0][None]


# --- Layout -----------------------------------------------------------------------------------------------


def _repeat_back(node: Tensor, y: Value) -> Value:
    return back(lambda x: _repeated(x, y.shape), [torch.zeros(extents(node), dtype=torch.float64)], y)[0]


def _placed(adds: bool) -> Row:
    """ACC and SET: each element's place is where a view with the node's strides finds it."""

    def row(node: Tensor, a: Value, part: Value) -> Value:
        *nb, offset = node.params
        strides = [step // 4 for step in reversed(nb)]
        places = torch.arange(a.numel()).as_strided(part.shape, (*strides, 1), offset // 4).reshape(-1)
        flat, values = a.reshape(-1), part.reshape(-1)
        return (flat.index_add(0, places, values) if adds else flat.index_copy(0, places, values)).reshape(a.shape)

    return row


_TRIANGLES: dict[Triangle, Callable[[Value], Value]] = {
    Triangle.UPPER_DIAG: torch.triu,
    Triangle.UPPER: lambda a: torch.triu(a, 1),
    Triangle.LOWER_DIAG: torch.tril,
    Triangle.LOWER: lambda a: torch.tril(a, -1),
}


def _pad(node: Tensor, a: Value) -> Value:
    *before, circular = node.params
    sizes = [(before[d], int(node.ne[d]) - before[d] - a.shape[3 - d]) for d in range(4)]
    if not circular:
        return F.pad(a, [size for pair in sizes for size in pair])
    for d, (left, right) in enumerate(sizes):
        extent = a.shape[3 - d]
        a = a.index_select(3 - d, torch.arange(-left, extent + right) % extent)
    return a


# --- Learning ---------------------------------------------------------------------------------------------


def cross_entropy(logits: Value, labels: Value) -> Value:
    """The mean over all rows of the cross-entropy with distributions."""
    return F.cross_entropy(logits.flatten(0, 2), labels.flatten(0, 2)).reshape(1, 1, 1, 1)


def token_loss(logits: Value, labels: Value) -> Value:
    """The sum over rows of the cross-entropy with one class each; rows with a negative class count nothing."""
    targets = labels.reshape(-1).where(labels.reshape(-1) >= 0, -100)
    return F.cross_entropy(logits[0, 0], targets, reduction="sum", ignore_index=-100).reshape(1, 1, 1, 1)


def _adamw(
    node: Tensor, w: Value, g: Value, m: Value, v: Value, parameters: Value, factor: Value | None
) -> tuple[Value, dict[int, Value]]:
    alpha, beta1, beta2, eps, decay, h1, h2 = parameters.reshape(-1)
    g = g if factor is None else g * factor
    m, v = torch.lerp(g, m, beta1), torch.lerp(g.square(), v, beta2)
    return torch.addcdiv(w * (1 - alpha * decay), m * h1, (v * h2).sqrt() + eps, value=-float(alpha)), {2: m, 3: v}


def _sgd(node: Tensor, w: Value, g: Value, parameters: Value, factor: Value | None) -> Value:
    alpha, decay = parameters.reshape(-1)
    return w - alpha * (decay * w + (g if factor is None else g * factor))


ROWS: dict[Op, Row] = {
    Op.DUP: _function(torch.clone),
    Op.ADD: _binary(torch.add),
    Op.ADD_ID: _add_id,
    Op.ADD1: _binary(torch.add),
    Op.ACC: _placed(adds=True),
    Op.SUB: _binary(torch.sub),
    Op.MUL: _binary(torch.mul),
    Op.DIV: _binary(torch.div),
    Op.SQR: _function(torch.square),
    Op.SQRT: _function(torch.sqrt),
    Op.LOG: _function(torch.log),
    Op.SIN: _function(torch.sin),
    Op.COS: _function(torch.cos),
    Op.SUM: lambda node, a: a.sum().reshape(1, 1, 1, 1),
    Op.SUM_ROWS: lambda node, a: a.sum(-1, keepdim=True),
    Op.CUMSUM: lambda node, a: a.cumsum(-1),
    Op.MEAN: lambda node, a: a.mean(-1, keepdim=True),
    Op.ARGMAX: lambda node, a: a.argmax(-1),
    Op.COUNT_EQUAL: lambda node, a, b: (a == b).sum(),
    Op.REPEAT: lambda node, a: _repeated(a, extents(node)),
    Op.REPEAT_BACK: _repeat_back,
    Op.CONCAT: lambda node, a, b: torch.cat([a, b], 3 - node.params[0]),
    Op.SILU_BACK: lambda node, g, x: back(F.silu, [x], g)[0],
    Op.NORM: _function(norm),
    Op.RMS_NORM: _function(rms_norm),
    Op.RMS_NORM_BACK: _norm_back(rms_norm),
    Op.GROUP_NORM: _group_norm,
    Op.L2_NORM: _function(l2_norm),
    Op.MUL_MAT: _mul_mat,
    Op.MUL_MAT_ID: _mul_mat_id,
    Op.OUT_PROD: _out_prod,
    Op.SCALE: lambda node, a: torch.add(node.params[1], a, alpha=node.params[0]),
    Op.SET: _placed(adds=False),
    Op.CPY: lambda node, a, target: a.reshape(target.shape),
    Op.CONT: _function(torch.clone),
    Op.GET_ROWS: _get_rows,
    Op.GET_ROWS_BACK: _get_rows_back,
    Op.SET_ROWS: _set_rows,
    Op.DIAG: lambda node, a: torch.diag_embed(a[:, :, 0]),
    Op.DIAG_MASK_INF: _diag_mask(-math.inf),
    Op.DIAG_MASK_ZERO: _diag_mask(0.0),
    Op.SOFT_MAX: _soft_max,
    Op.SOFT_MAX_BACK: _soft_max_back,
    Op.CLAMP: _function(torch.clamp),
    Op.PAD: _pad,
    Op.ROLL: lambda node, a: a.roll(tuple(reversed(node.params)), (0, 1, 2, 3)),
    Op.ARANGE: lambda node: torch.arange(*node.params, dtype=torch.float64),
    Op.ARGSORT: _argsort,
    Op.TOP_K: _top_k,
    Op.LEAKY_RELU: _function(F.leaky_relu),
    Op.TRI: lambda node, a: _TRIANGLES[node.params[0]](a),
    Op.FILL: lambda node: torch.full(extents(node), node.params[0], dtype=torch.float64),
    Op.UNARY: _unary,
    Op.CROSS_ENTROPY_LOSS: _function(cross_entropy),
    Op.CROSS_ENTROPY_LOSS_BACK: lambda node, g, x, labels: back(lambda x: cross_entropy(x, labels), [x], g)[0],
    Op.OPT_STEP_ADAMW: _adamw,
    Op.OPT_STEP_SGD: _sgd,
    Op.GLU: _glu,
    Op.UNARY_BACK: _unary_back,
    Op.NORM_BACK: _norm_back(norm),
    Op.L2_NORM_BACK: _norm_back(l2_norm),
    Op.OUT_PROD_ID: _out_prod_id,
    Op.MUL_MAT_ID_BACK: _mul_mat_id_back,
    Op.TOKEN_LOSS: _function(token_loss),
    Op.TOKEN_LOSS_BACK: lambda node, g, x, labels: back(lambda x: token_loss(x, labels), [x], g)[0],
    Op.ROUND_TO: _round_to,
    Op.SUM_SQUARES: lambda node, a: a.square().sum().reshape(1, 1, 1, 1),
}
