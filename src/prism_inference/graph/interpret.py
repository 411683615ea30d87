"""The NumPy interpreter of a graph: slow, obvious, in float64. It is the oracle of every kernel.

Each operation has one function here that says what it means; quantized products round the activations as the reference
does, so that only the order of additions differs from a kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from .. import codecs
from ..errors import GraphError
from .graph import Graph
from .operations import RopeParameters
from .ops import VIEWS, Glu, Op, RopeMode, Unary
from .rope import channels, frequencies, magnitude
from .rounding import round_activations
from .tensor import NUMPY_TYPES, Tensor

Array = npt.NDArray[Any]


def interpret(graph: Graph) -> dict[int, Array]:
    """Run a graph; return the values of its nodes by tensor index, in NumPy order with four dimensions.

    Leaves are read from their storage; nodes that write into a leaf (SET_ROWS, CPY) write into a copy of it.
    """
    memory = Memory()
    results: dict[int, Array] = {}
    for node in graph.nodes:
        if node.op not in VIEWS:
            rule = RULES.get(node.op)
            if rule is None:
                raise GraphError("the interpreter does not know this operation", where=repr(node))
            rule(memory, node)
        results[node.index] = memory.read(node).copy()
    return results


class Memory:
    """The bytes of every tensor that is not a view; views read and write through their strides."""

    def __init__(self) -> None:
        self._bytes: dict[int, npt.NDArray[np.uint8]] = {}

    def raw(self, root: Tensor) -> npt.NDArray[np.uint8]:
        """Return the bytes of a tensor, made on first use: a copy of a leaf's data, zeros for a node."""
        if root.index not in self._bytes:
            data = np.zeros(root.nbytes, np.uint8)
            if root.op is Op.NONE:
                if root.storage is None:
                    raise GraphError("a leaf has no data", where=repr(root))
                data[:] = root.storage.array[: root.nbytes]
            self._bytes[root.index] = data
        return self._bytes[root.index]

    def place(self, tensor: Tensor) -> Array:
        """Return a writable strided view of a tensor of a NumPy type (BF16 as uint16)."""
        root, offset = tensor.root()
        kind = np.dtype(NUMPY_TYPES.get(tensor.type.name, np.uint16))
        flat = self.raw(root)[offset : offset + tensor.nbytes]
        whole = np.ndarray((tensor.nbytes // kind.itemsize,), kind, flat.data)
        shape = tuple(int(extent) for extent in reversed(tensor.ne))
        return as_strided(whole, shape, tuple(reversed(tensor.nb)))

    def blocks(self, tensor: Tensor) -> Array:
        """Return a writable view of the bytes of a tensor's rows: uint8, the last dimension a whole row."""
        root, offset = tensor.root()
        width = tensor.type.size(int(tensor.ne[0]))
        shape = (*(int(extent) for extent in reversed(tensor.ne[1:])), width)
        return as_strided(self.raw(root)[offset:], shape, (*reversed(tensor.nb[1:]), 1))

    def read(self, tensor: Tensor) -> Array:
        """Return a tensor's values, decoded to float32 where its type is quantized."""
        if tensor.type.name in NUMPY_TYPES:
            return self.place(tensor)
        if tensor.type.name == "BF16":
            return (self.place(tensor).astype(np.uint32) << 16).view(np.float32)
        root, offset = tensor.root()
        raw = self.raw(root)[offset : offset + tensor.nbytes]
        return codecs.decode(tensor.type, raw, tensor.elements).reshape(tuple(int(e) for e in reversed(tensor.ne)))

    def write(self, tensor: Tensor, values: Array) -> None:
        """Write values in a tensor's type."""
        self.place(tensor)[...] = values


def _inputs(memory: Memory, node: Tensor) -> list[Array]:
    return [memory.read(source) for source in node.sources if source is not None]


def _repeated(small: Array, large: Array) -> Array:
    return np.tile(small, [big // little for big, little in zip(large.shape, small.shape, strict=True)])


def _add(memory: Memory, node: Tensor) -> None:
    a, b = _inputs(memory, node)
    memory.write(node, a + _repeated(b, a))


def _mul(memory: Memory, node: Tensor) -> None:
    a, b = _inputs(memory, node)
    memory.write(node, a * _repeated(b, a))


def _div(memory: Memory, node: Tensor) -> None:
    a, b = _inputs(memory, node)
    memory.write(node, a.astype(np.float64) / _repeated(b, a))


def _soft_max(memory: Memory, node: Tensor) -> None:
    a = _inputs(memory, node)[0].astype(np.float64)
    weights = np.exp(a - a.max(-1, keepdims=True))
    memory.write(node, weights / weights.sum(-1, keepdims=True))


def _sum_rows(memory: Memory, node: Tensor) -> None:
    memory.write(node, _inputs(memory, node)[0].sum(-1, dtype=np.float64, keepdims=True))


def _top_k(memory: Memory, node: Tensor) -> None:
    order = np.argsort(-_inputs(memory, node)[0], axis=-1, kind="stable")
    memory.write(node, order[..., : int(node.ne[0])])


def _scale(memory: Memory, node: Tensor) -> None:
    factor, offset = node.params
    memory.write(node, _inputs(memory, node)[0] * np.float64(factor) + offset)


def _rms_norm(memory: Memory, node: Tensor) -> None:
    a = _inputs(memory, node)[0].astype(np.float64)
    memory.write(node, a / np.sqrt((a * a).mean(-1, keepdims=True) + node.params[0]))


def _silu(a: Array) -> Array:
    return np.asarray(a / (1.0 + np.exp(-a)))


def _gelu(a: Array) -> Array:
    return np.asarray(0.5 * a * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (a + 0.044715 * a**3))))


_GATES: dict[Glu, Callable[[Array], Array]] = {Glu.SWIGLU: _silu, Glu.GEGLU: _gelu}


def _glu(memory: Memory, node: Tensor) -> None:
    a, b = (value.astype(np.float64) for value in _inputs(memory, node))
    memory.write(node, _GATES[node.params[0]](a) * b)


def _get_rows(memory: Memory, node: Tensor) -> None:
    table, index = _inputs(memory, node)
    n3, n2 = table.shape[:2]
    i3, i2 = np.ix_(range(n3), range(n2))
    memory.write(node, table[i3[..., None], i2[..., None], index[0]])


def _set_rows(memory: Memory, node: Tensor) -> None:
    rows, index, _ = _inputs(memory, node)
    place = memory.blocks(node) if node.type.block > 1 else memory.place(node)
    if node.type.block > 1:
        raw = np.frombuffer(codecs.encode(node.type, np.ascontiguousarray(rows)), np.uint8)
        rows = raw.reshape(*rows.shape[:3], -1)
    for i3 in range(rows.shape[0]):
        for i2 in range(rows.shape[1]):
            place[i3, i2, index[0, i3 % index.shape[1], i2 % index.shape[2]]] = rows[i3, i2]


def _copy(memory: Memory, node: Tensor) -> None:
    source = node.sources[0]
    assert source is not None
    memory.write(node, memory.read(source).reshape(memory.place(node).shape))


def _mul_mat(memory: Memory, node: Tensor) -> None:
    w, x = _inputs(memory, node)
    x = _activations(node, x)
    w = w.repeat(x.shape[1] // w.shape[1], 1).repeat(x.shape[0] // w.shape[0], 0)
    memory.write(node, np.einsum("abmk,abnk->abnm", w.astype(np.float64), x.astype(np.float64), optimize=True))


def _mul_mat_id(memory: Memory, node: Tensor) -> None:
    w, x, index = _inputs(memory, node)
    x = _activations(node, x)[0].astype(np.float64)
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


def _rope(memory: Memory, node: Tensor) -> None:
    x, positions = _inputs(memory, node)[:2]
    p: RopeParameters = node.params[0]
    pairs = p.rotated // 2
    turn = frequencies(p)
    factors = node.sources[2]
    if factors is not None:
        turn = turn / memory.read(factors).reshape(-1)[:pairs]
    by_channel = positions[0, 0].T  # [tokens, channels]
    axes = channels(p) if by_channel.shape[1] > 1 else np.zeros(pairs, int)
    angle = by_channel[:, axes][None, :, None, :] * turn
    cosine, sine = np.cos(angle) * magnitude(p), np.sin(angle) * magnitude(p)
    first, second = {
        RopeMode.NORM: (slice(0, p.rotated, 2), slice(1, p.rotated, 2)),
        RopeMode.NEOX: (slice(0, pairs), slice(pairs, p.rotated)),
    }[p.mode]
    y = x.astype(np.float64)
    y[..., first] = x[..., first] * cosine - x[..., second] * sine
    y[..., second] = x[..., first] * sine + x[..., second] * cosine
    memory.write(node, y)


def _attention(memory: Memory, node: Tensor) -> None:
    q, k, v, ranges = (value.astype(np.float64)[0] for value in _inputs(memory, node))
    group = q.shape[0] // k.shape[0]
    k, v = k.repeat(group, 0), v.repeat(group, 0)
    scores = np.einsum("htd,hcd->htc", q, k, optimize=True) * node.params[0]
    if cap := node.params[1]:
        scores = cap * np.tanh(scores / cap)
    cells = np.arange(k.shape[1])
    first, last = ranges[0, :, 0], ranges[0, :, 1]
    visible = (cells >= first[:, None]) & (cells < last[:, None])
    scores = np.where(visible, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    # Cells that nobody sees may hold anything.
    v = np.where(visible.any(0)[None, :, None], v, 0.0)
    out = np.einsum("htc,hcd->thd", weights / weights.sum(-1, keepdims=True), v, optimize=True)
    memory.write(node, out[None])


def walsh_hadamard(size: int) -> Array:
    """The normalized matrix of Sylvester's order, float64 [size, size]."""
    index = np.arange(size)
    bits = index[:, None] & index
    odd = np.zeros_like(bits)
    while bits.any():
        odd ^= bits & 1
        bits >>= 1
    return np.asarray(np.where(odd == 1, -1.0, 1.0) / np.sqrt(size))


def _hadamard(memory: Memory, node: Tensor) -> None:
    x = _inputs(memory, node)[0].astype(np.float64)
    block, inverse = node.params
    signs = memory.read(node.sources[1]).reshape(-1) if node.sources[1] is not None else 1.0
    matrix = walsh_hadamard(block)

    def turned(values: Array) -> Array:
        return np.asarray(values.reshape(*values.shape[:-1], -1, block) @ matrix).reshape(values.shape)

    memory.write(node, signs * turned(x) if inverse else turned(signs * x))


def _sigmoid(a: Array) -> Array:
    return np.asarray(1.0 / (1.0 + np.exp(-a)))


_UNARY: dict[Unary, Callable[[Array], Array]] = {
    Unary.SIGMOID: _sigmoid,
    Unary.SILU: _silu,
    Unary.TANH: lambda a: np.tanh(a),
    Unary.SOFTPLUS: lambda a: np.logaddexp(0.0, a),
}


def _unary(memory: Memory, node: Tensor) -> None:
    memory.write(node, _UNARY[node.params[0]](_inputs(memory, node)[0].astype(np.float64)))


def _causal_conv(memory: Memory, node: Tensor) -> None:
    x, weight, state = _inputs(memory, node)
    whole = np.concatenate([state[0, 0], x[0, 0]]).astype(np.float64)
    taps, tokens = weight.shape[-1], x.shape[2]
    total = sum(weight[0, 0, :, i] * whole[i : i + tokens] for i in range(taps))
    memory.write(node, _silu(np.asarray(total)))
    target = node.sources[2]
    assert target is not None
    memory.write(target, whole[tokens:].astype(np.float32))


def _gated_delta_net(memory: Memory, node: Tensor) -> None:
    q, k, v, gate, beta, state = (value.astype(np.float64) for value in _inputs(memory, node))
    heads, size = v.shape[2], q.shape[3]
    matrix = state[0].copy()  # [H, V, S]
    out = np.zeros(v.shape)
    shared = np.arange(heads) % q.shape[2]
    for t in range(v.shape[1]):
        key, query = k[0, t, shared], q[0, t, shared]
        matrix *= np.exp(gate[0, 0, t])[:, None, None]
        delta = beta[0, 0, t][:, None] * (v[0, t] - np.einsum("hvs,hs->hv", matrix, key))
        matrix += delta[..., None] * key[:, None, :]
        out[0, t] = np.einsum("hvs,hs->hv", matrix, query) / np.sqrt(size)
    memory.write(node, out)
    target = node.sources[5]
    assert target is not None
    memory.write(target, matrix[None])


RULES: dict[Op, Callable[[Memory, Tensor], None]] = {
    Op.ADD: _add,
    Op.MUL: _mul,
    Op.SCALE: _scale,
    Op.RMS_NORM: _rms_norm,
    Op.GLU: _glu,
    Op.GET_ROWS: _get_rows,
    Op.SET_ROWS: _set_rows,
    Op.CPY: _copy,
    Op.CONT: _copy,
    Op.MUL_MAT: _mul_mat,
    Op.MUL_MAT_ID: _mul_mat_id,
    Op.DIV: _div,
    Op.SOFT_MAX: _soft_max,
    Op.SUM_ROWS: _sum_rows,
    Op.TOP_K: _top_k,
    Op.ROPE: _rope,
    Op.FLASH_ATTN_EXT: _attention,
    Op.HADAMARD: _hadamard,
    Op.UNARY: _unary,
    Op.CAUSAL_CONV: _causal_conv,
    Op.GATED_DELTA_NET: _gated_delta_net,
}
