"""The memory of the interpreter: the bytes of every tensor, read and written through strides as NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from ... import codecs
from ...errors import GraphError
from ..ops import Op
from ..tensor import NUMPY_TYPES, Tensor

Array = npt.NDArray[Any]


class Memory:
    """The bytes of every tensor that is not a view; views read and write through their strides.

    A wide memory keeps F32 tensors as float64, so that a graph can be differentiated numerically; `leaves` then gives
    values (NumPy order) in place of those of leaves, by tensor index.
    """

    def __init__(self, wide: bool = False, leaves: Mapping[int, Array] | None = None) -> None:
        self.wide = wide
        self._leaves = leaves or {}
        self._bytes: dict[int, npt.NDArray[np.uint8]] = {}

    def _factor(self, tensor: Tensor) -> int:
        """How many times the bytes of a tensor lie apart here."""
        return 2 if self.wide and tensor.type.name == "F32" else 1

    def raw(self, root: Tensor) -> npt.NDArray[np.uint8]:
        """Return the bytes of a tensor, made on first use: a copy of a leaf's data, zeros for a node."""
        if root.index not in self._bytes:
            self._bytes[root.index] = self._leaf(root) if root.op is Op.NONE else self._zeros(root)
        return self._bytes[root.index]

    def _zeros(self, root: Tensor) -> npt.NDArray[np.uint8]:
        return np.zeros(root.nbytes * self._factor(root), np.uint8)

    def _leaf(self, root: Tensor) -> npt.NDArray[np.uint8]:
        if root.index in self._leaves:
            kind = np.float64 if self.wide else NUMPY_TYPES[root.type.name]
            return np.frombuffer(np.ascontiguousarray(self._leaves[root.index], kind).tobytes(), np.uint8).copy()
        if root.storage is None:
            raise GraphError("a leaf has no data", where=repr(root))
        data = root.storage.array[: root.nbytes].copy()
        return data if self._factor(root) == 1 else data.view(np.float32).astype(np.float64).view(np.uint8)

    def place(self, tensor: Tensor) -> Array:
        """Return a writable strided view of a tensor of a NumPy type (BF16 as uint16)."""
        root, offset = tensor.root()
        factor = self._factor(tensor)
        kind = np.dtype(np.float64 if factor == 2 else NUMPY_TYPES.get(tensor.type.name, np.uint16))
        flat = self.raw(root)[factor * offset :]
        whole = np.ndarray((flat.size // kind.itemsize,), kind, flat.data)
        shape = tuple(int(extent) for extent in reversed(tensor.ne))
        return as_strided(whole, shape, tuple(factor * step for step in reversed(tensor.nb)))

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


Twin = Callable[[Memory, Tensor], None]


def inputs(memory: Memory, node: Tensor) -> list[Array]:
    """Return the values of a node's sources, in order, without those that are absent."""
    return [memory.read(source) for source in node.sources if source is not None]


def wide_inputs(memory: Memory, node: Tensor) -> list[Array]:
    """Return the same as float64 (integers as they are)."""
    return [a.astype(np.float64) if a.dtype.kind == "f" else a for a in inputs(memory, node)]


def repeated(small: Array, large: Array) -> Array:
    """Tile an array to another's shape."""
    return np.tile(small, [big // little for big, little in zip(large.shape, small.shape, strict=True)])
