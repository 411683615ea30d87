"""Graphs of ours run by torch in float64, and differentiated by its autograd.

A graph is walked generically; what each operation is there is said in `torch_rows`, `torch_sequence` and
`torch_images`. Tensors are kept flat by the storage they live in, so that views read it through strides and see what
others write.
"""

from __future__ import annotations

import torch
import torch_images
import torch_rows
import torch_sequence
from torch_rows import Row, Value

from prism_inference.codecs import decode
from prism_inference.graph import Graph, Op, Tensor
from prism_inference.graph.ops import VIEWS

ROWS: dict[Op, Row] = torch_rows.ROWS | torch_sequence.ROWS | torch_images.ROWS
KINDS = {"F32": torch.float32, "F16": torch.float16, "I32": torch.int32, "I64": torch.int64}


def has(graph: Graph) -> bool:
    """Whether torch can run a graph: it has all operations, and nothing is rounded to blocks."""
    return all(node.op in VIEWS or (node.op in ROWS and node.type.block == 1) for node in graph.nodes)


class Run:
    """One run of a graph: values of tensors in NumPy order with four dimensions."""

    def __init__(self, graph: Graph) -> None:
        self._flat = {leaf.index: _values(leaf) for leaf in graph.leafs}
        self.parameters = {leaf.index: self._flat[leaf.index] for leaf in graph.leafs if leaf.is_parameter}
        for value in self.parameters.values():
            value.requires_grad_()
        for node in graph.nodes:
            if node.op not in VIEWS:
                self._compute(node)

    def _compute(self, node: Tensor) -> None:
        sources = [None if source is None else self.read(source) for source in node.sources]
        made = ROWS[node.op](node, *sources)
        result, written = made if isinstance(made, tuple) else (made, {})
        self._write(node, result)
        for number, value in written.items():
            source = node.sources[number]
            assert source is not None
            self._write(source, value)

    def read(self, tensor: Tensor) -> Value:
        """Return a tensor's values."""
        root, offset = tensor.root()
        return self._flat[root.index].as_strided(*_geometry(tensor, offset))

    def _write(self, tensor: Tensor, value: Value) -> None:
        if tensor.type.name == "F16":
            value = value + (value.detach().half().double() - value.detach())
        root, offset = tensor.root()
        if root is tensor and tensor.op is not Op.NONE:
            # A copy: a slice would keep the strides and the start of what it was cut from.
            self._flat[tensor.index] = value.reshape(-1).clone(memory_format=torch.contiguous_format)
            return
        places = torch.arange(self._flat[root.index].numel()).as_strided(*_geometry(tensor, offset)).reshape(-1)
        self._flat[root.index] = self._flat[root.index].index_copy(0, places, value.reshape(-1))

    def gradients(self, loss: Tensor) -> dict[int, Value]:
        """Return the derivative of one value by each parameter, flat, by the parameters' indices."""
        found = torch.autograd.grad(self.read(loss).sum(), list(self.parameters.values()), materialize_grads=True)
        return dict(zip(self.parameters, found, strict=True))


def _values(leaf: Tensor) -> Value:
    """A leaf's values, flat; floating-point ones as float64."""
    assert leaf.storage is not None, leaf
    raw = leaf.storage.array[: leaf.nbytes]
    if leaf.type.name not in KINDS:
        return torch.from_numpy(decode(leaf.type, raw, leaf.elements).copy()).double()
    value = torch.from_numpy(raw.copy()).view(KINDS[leaf.type.name])
    return value.double() if value.is_floating_point() else value.long()


def _geometry(tensor: Tensor, offset: int) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Shape, strides and start in elements, in NumPy order."""
    block, nbytes = tensor.type.block, tensor.type.nbytes
    first = tensor.nb[0] // nbytes
    strides = (*(step * block // nbytes for step in reversed(tensor.nb[1:])), first)
    return tuple(reversed([int(extent) for extent in tensor.ne])), strides, offset * block // nbytes
