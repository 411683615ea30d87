"""Twins of matrix products. Activations before quantized weights are rounded as the kernels round them."""

from __future__ import annotations

import numpy as np

from ..ops import Op
from ..rounding import round_activations
from ..tensor import Tensor
from .memory import Array, Memory, Twin, inputs, wide_inputs


def _mul_mat(memory: Memory, node: Tensor) -> None:
    w, x = inputs(memory, node)
    x = x if node.params[0] else _activations(node, x)
    w = w.repeat(x.shape[1] // w.shape[1], 1).repeat(x.shape[0] // w.shape[0], 0)
    memory.write(node, np.einsum("abmk,abnk->abnm", w.astype(np.float64), x.astype(np.float64), optimize=True))


def _mul_mat_id(memory: Memory, node: Tensor) -> None:
    w, x, index = inputs(memory, node)
    x = (x if node.params[0] else _activations(node, x))[0].astype(np.float64)
    index = index[0, 0]
    x = np.broadcast_to(x, (*index.shape, x.shape[-1]))
    memory.write(node, np.einsum("tsmk,tsk->tsm", w[0].astype(np.float64)[index], x)[None])


def _activations(node: Tensor, x: Array) -> Array:
    """Round the activations of a product if its weights are quantized."""
    source = node.sources[0]
    assert source is not None
    if source.type.block > 1:
        flat = round_activations(np.ascontiguousarray(x).reshape(-1, x.shape[-1]))
        return np.asarray(flat.reshape(x.shape))
    return x


def _out_prod(memory: Memory, node: Tensor) -> None:
    a, b = wide_inputs(memory, node)
    a = a.repeat(b.shape[1] // a.shape[1], 1).repeat(b.shape[0] // a.shape[0], 0)
    memory.write(node, np.einsum("abmk,abmn->abnk", a, b, optimize=True))


def _out_prod_id(memory: Memory, node: Tensor) -> None:
    w, g, index = wide_inputs(memory, node)
    memory.write(node, np.einsum("tsmk,tsm->tsk", w[0][index[0, 0]], g[0])[None])


def _mul_mat_id_back(memory: Memory, node: Tensor) -> None:
    g, x, index = wide_inputs(memory, node)
    x = np.broadcast_to(x[0], (*g.shape[1:3], x.shape[-1]))
    y = np.zeros((int(node.ne[2]), g.shape[-1], x.shape[-1]))
    np.add.at(y, index[0, 0], g[0][..., :, None] * x[..., None, :])
    memory.write(node, y[None])


TWINS: dict[Op, Twin] = {
    Op.MUL_MAT: _mul_mat,
    Op.MUL_MAT_ID: _mul_mat_id,
    Op.OUT_PROD: _out_prod,
    Op.OUT_PROD_ID: _out_prod_id,
    Op.MUL_MAT_ID_BACK: _mul_mat_id_back,
}
