"""Derivatives of what concerns whole rows."""

from __future__ import annotations

from ..derivative import Derivative, Rule
from ..ops import Op
from ..rope import alibi_slopes
from ..tensor import Tensor
from .layout import contiguous


def _sum(d: Derivative, number: int) -> Tensor:
    return d.gradient.repeat(*d.source(0).ne)


def _mean(d: Derivative, number: int) -> Tensor:
    a = d.source(0)
    return d.gradient.scale(1.0 / a.ne[0]).repeat(*a.ne)


def _cumsum(d: Derivative, number: int) -> Tensor:
    # dL/dx_i = Σ_{j≥i} g_j: the sum of the row less that of what comes before i.
    g = d.gradient
    return g.sub(g.cumsum()).add(g.sum_rows())


def _rms_norm(d: Derivative, number: int) -> Tensor:
    return d.gradient.rms_norm_back(d.source(0), d.node.params[0])


def _rms_norm_back(d: Derivative, number: int) -> Tensor:
    """y = r·(g - x·r²·m) with r = (mean(x²) + eps)^-1/2 and m = mean(x·g); linear and symmetric in g.

    By x, for the gradient u: -r³·(c·x + m·u + p·g) + 3·r⁵·p·m·x with p = mean(x·u), c = mean(g·u).
    """
    x, u, eps = d.source(1), d.gradient, d.node.params[0]
    if number == 0:
        return u.rms_norm_back(x, eps)
    g = d.source(0)
    power = x.sqr().mean().scale(1.0, eps)  # r^-2
    cube = power.mul(power.sqrt())  # r^-3
    p, m, c = x.mul(u).mean(), x.mul(g).mean(), g.mul(u).mean()
    first = x.mul(c).add(u.mul(m)).add(g.mul(p)).div(cube)
    return x.mul(p.mul(m).scale(3.0).div(cube.mul(power))).sub(first)


def _norm(d: Derivative, number: int) -> Tensor:
    return d.gradient.norm_back(d.source(0), d.node.params[0])


def _group_norm(d: Derivative, number: int) -> Tensor:
    """The planes of a group are one row of NORM; the last group may have fewer."""
    groups, eps = d.node.params
    a = d.source(0)
    width = -(-a.ne[2] // groups)
    full, rest = divmod(a.ne[2], width)
    parts = []
    for start, channels, count in ((0, full * width, full), (full * width, rest, 1)):
        if channels:
            ne = (a.ne[0], a.ne[1], channels, a.ne[3])
            rows = (a.ne[0] * a.ne[1] * channels // count, count, a.ne[3])
            g, x = (contiguous(t.view(ne, t.nb[1:], t.nb[2] * start)).reshape(*rows) for t in (d.gradient, a))
            parts.append(g.norm_back(x, eps).reshape(*ne))
    return parts[0] if len(parts) == 1 else parts[0].concat(parts[1], 2)


def _l2_norm(d: Derivative, number: int) -> Tensor:
    return d.gradient.l2_norm_back(d.source(0), d.node.params[0])


def _self_adjoint(d: Derivative, number: int) -> Tensor:
    """Back nodes of norms are linear and symmetric in their gradient; by the argument they have no rule here."""
    x, eps = d.source(1), d.node.params[0]
    if number == 1:
        raise d.refuse(1, "no second derivative of this norm is known here")
    return d.gradient.norm_back(x, eps) if d.node.op is Op.NORM_BACK else d.gradient.l2_norm_back(x, eps)


def _soft_max(d: Derivative, number: int) -> Tensor:
    scale, max_bias = d.node.params
    if number == 0:
        return d.gradient.soft_max_back(d.result, scale)
    if number == 1:
        return _mask(d, max_bias)
    # A sink's score takes y_sink = 1 - Σ y of each row: dL/dsink = -Σ_rows y_sink·Σ y·g.
    y, heads = d.result, d.node.ne[2]
    shares = y.sum_rows().scale(-1.0, 1.0)
    per_row = y.mul(d.gradient).sum_rows().mul(shares).neg()
    return per_row.repeat_back(1, 1, heads, 1).reshape(*d.source(2).ne)


def _mask(d: Derivative, max_bias: float) -> Tensor:
    """slope·∂L/∂z, added up over the batches that share the mask; rows of the mask beyond the scores' get zeros."""
    mask = d.source(1)
    z = d.gradient.soft_max_back(d.result)
    if max_bias > 0:
        z = z.mul(_slopes(d, max_bias))
    z = z.repeat_back(z.ne[0], z.ne[1], mask.ne[2], mask.ne[3])
    return z if z.ne == mask.ne else z.pad(0, mask.ne[1] - z.ne[1])


def _slopes(d: Derivative, max_bias: float) -> Tensor:
    """ALiBi's slopes of the heads, [1, 1, heads]."""
    heads = int(d.node.ne[2])
    leaf = d.node.context.tensor("F32", (1, 1, heads), name="slopes")
    return leaf.set([[[slope]] for slope in alibi_slopes(heads, max_bias)])


def _soft_max_back(d: Derivative, number: int) -> Tensor:
    """z = s·y·(g - Σ y·g): linear in g and the same operator there; by y, s·(g·u - u·Σ y·g - g·Σ y·u)."""
    scale = d.node.params[0]
    g, y, u = d.source(0), d.source(1), d.gradient
    if number == 0:
        return u.soft_max_back(y, scale)
    first = g.mul(u).sub(u.mul(y.mul(g).sum_rows())).sub(g.mul(y.mul(u).sum_rows()))
    return first.scale(scale)


def _diag_mask(d: Derivative, number: int) -> Tensor:
    return d.gradient.diag_mask_zero(d.node.params[0])


def _get_rows(d: Derivative, number: int) -> Tensor:
    return d.gradient.get_rows_back(d.source(1), d.source(0))


def _get_rows_back(d: Derivative, number: int) -> Tensor:
    return d.gradient.get_rows(d.source(1))


def _set_rows(d: Derivative, number: int) -> Tensor:
    rows, index, g = d.source(0), d.source(1), d.gradient
    if number == 2:
        return g.dup().set_rows(rows.fill(0.0), index)
    if index.ne[1:3] == rows.ne[2:4]:
        return g.get_rows(index)
    if index.elements != index.ne[0]:
        raise d.refuse(0, "of an index that some of the batches share none is known here")
    # One index for all batches: they become part of the row.
    width, n2, n3 = rows.ne[0], rows.ne[2], rows.ne[3]
    flat = g.permute(0, 3, 1, 2).cont().reshape(width * n2 * n3, g.ne[1])
    return flat.get_rows(index).reshape(width, n2, n3, rows.ne[1]).permute(0, 2, 3, 1).cont()


_DISCRETE = "its result is an index or a count"

GRADIENTS: dict[Op, Rule | str] = {
    Op.SUM: _sum,
    Op.SUM_ROWS: _sum,
    Op.MEAN: _mean,
    Op.CUMSUM: _cumsum,
    Op.RMS_NORM: _rms_norm,
    Op.RMS_NORM_BACK: _rms_norm_back,
    Op.NORM: _norm,
    Op.NORM_BACK: _self_adjoint,
    Op.GROUP_NORM: _group_norm,
    Op.L2_NORM: _l2_norm,
    Op.L2_NORM_BACK: _self_adjoint,
    Op.SOFT_MAX: _soft_max,
    Op.SOFT_MAX_BACK: _soft_max_back,
    Op.DIAG_MASK_INF: _diag_mask,
    Op.DIAG_MASK_ZERO: _diag_mask,
    Op.GET_ROWS: _get_rows,
    Op.GET_ROWS_BACK: _get_rows_back,
    Op.SET_ROWS: _set_rows,
    Op.ARGMAX: _DISCRETE,
    Op.COUNT_EQUAL: _DISCRETE,
    Op.ARGSORT: _DISCRETE,
    Op.TOP_K: _DISCRETE,
}
IGNORED: dict[Op, frozenset[int]] = {
    Op.GET_ROWS: frozenset({1}),
    Op.GET_ROWS_BACK: frozenset({1}),
    Op.SET_ROWS: frozenset({1}),
}
