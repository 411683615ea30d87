"""Derivatives of matrix products. Weights of quantized types pass gradients on to what they multiply."""

from __future__ import annotations

from ..derivative import Derivative, Rule
from ..ops import Op
from ..tensor import Tensor


def folded_batches(gradient: Tensor, source: Tensor) -> Tensor:
    """Add up the batches that shared one matrix: batch i of the result read batch i // (n / m) of the source."""
    if gradient.ne == source.ne:
        return gradient
    size, (n2, n3), (m2, m3) = gradient.ne[0] * gradient.ne[1], gradient.ne[2:], source.ne[2:]
    first = gradient.reshape(size, n2 // m2, m2, n3).repeat_back(size, 1, m2, n3)
    second = first.reshape(size * m2, n3 // m3, m3).repeat_back(size * m2, 1, m3)
    return second.reshape(*source.ne)


def _mul_mat(d: Derivative, number: int) -> Tensor:
    w, x, g = d.source(0), d.source(1), d.gradient
    if number == 0:
        return folded_batches(x.out_prod(g), w)
    return w.out_prod(g.transpose())


def _out_prod(d: Derivative, number: int) -> Tensor:
    """y[k, n] = Σ_m a[k, m]·b[n, m]: by b, aᵀ·y as a product of rows; by a, Σ_n y[k, n]·b[n, m]."""
    a, b, g = d.source(0), d.source(1), d.gradient
    if number == 1:
        return a.mul_mat(g, exact=True).transpose().cont()
    return folded_batches(g.out_prod(b.transpose()), a)


def _mul_mat_id(d: Derivative, number: int) -> Tensor:
    w, x, index, g = d.source(0), d.source(1), d.source(2), d.gradient
    if number == 0:
        return g.mul_mat_id_back(x, index, w.ne[2])
    back = w.out_prod_id(g, index)
    return back if back.ne == x.ne else back.repeat_back(*x.ne)


def _out_prod_id(d: Derivative, number: int) -> Tensor:
    w, g, index, u = d.source(0), d.source(1), d.source(2), d.gradient
    if number == 0:
        return g.mul_mat_id_back(u, index, w.ne[2])
    return w.mul_mat_id(u, index, exact=True)


def _mul_mat_id_back(d: Derivative, number: int) -> Tensor:
    g, x, index, u = d.source(0), d.source(1), d.source(2), d.gradient
    if number == 0:
        return u.mul_mat_id(x, index, exact=True)
    back = u.out_prod_id(g, index)
    return back if back.ne == x.ne else back.repeat_back(*x.ne)


GRADIENTS: dict[Op, Rule | str] = {
    Op.MUL_MAT: _mul_mat,
    Op.OUT_PROD: _out_prod,
    Op.MUL_MAT_ID: _mul_mat_id,
    Op.OUT_PROD_ID: _out_prod_id,
    Op.MUL_MAT_ID_BACK: _mul_mat_id_back,
}
IGNORED: dict[Op, frozenset[int]] = {
    Op.MUL_MAT_ID: frozenset({2}),
    Op.OUT_PROD_ID: frozenset({2}),
    Op.MUL_MAT_ID_BACK: frozenset({2}),
}
