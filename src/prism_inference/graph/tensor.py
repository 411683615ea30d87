"""Tensors and the context that owns them: type, extents, strides, sources, storage. Computes nothing.

Order: `ne` and `nb` count as ggml does, `ne[0]` is the contiguous extent. A NumPy array of the same data has the
shape of the extents reversed: ne (2, 3) ↔ shape (3, 2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ..codecs import decode, encode
from ..errors import GraphError
from ..gguf import TensorType, tensor_type
from ..limits import GRAPH_MAX_SOURCES
from . import operations
from .extents import Extents, contiguous_strides, full_extents
from .ops import Op

NUMPY_TYPES: dict[str, type[np.generic]] = {
    "F32": np.float32,
    "F16": np.float16,
    "F64": np.float64,
    "I8": np.int8,
    "I16": np.int16,
    "I32": np.int32,
    "I64": np.int64,
}


class Storage:
    """Bytes that tensors live in: a NumPy array that is kept alive, and its address."""

    def __init__(self, array: npt.NDArray[np.uint8]) -> None:
        self.array = array
        self.address: int = array.ctypes.data
        self.nbytes: int = array.nbytes

    @classmethod
    def allocate(cls, nbytes: int, *, zero: bool = True) -> Storage:
        """Reserve bytes, aligned to 64; the system backs them when they are first touched."""
        raw = (np.zeros if zero else np.empty)(nbytes + 64, np.uint8)
        start = -raw.ctypes.data % 64
        return cls(raw[start : start + nbytes])


@dataclass(eq=False)
class Tensor:
    """A node of the graph. Made by a `Context` or by an operation on other tensors, never directly.

    `params` holds the operation's own numbers; `view_of` and `view_offset` say whose bytes a view shares.
    """

    context: Context
    type: TensorType
    ne: Extents
    nb: Extents
    op: Op = Op.NONE
    params: tuple[Any, ...] = ()
    sources: tuple[Tensor | None, ...] = ()
    view_of: Tensor | None = None
    view_offset: int = 0
    name: str = ""
    storage: Storage | None = None
    is_input: bool = False
    is_output: bool = False
    is_parameter: bool = False
    is_loss: bool = False
    index: int = field(default=-1, init=False)

    def __repr__(self) -> str:
        dims = ", ".join(repr(extent) for extent in self.ne)
        return f"{self.name or f'node {self.index}'}: {self.op.name} {self.type.name} [{dims}]"

    @property
    def elements(self) -> int:
        """Number of elements."""
        return int(self.ne[0]) * int(self.ne[1]) * int(self.ne[2]) * int(self.ne[3])

    @property
    def contiguous(self) -> bool:
        """Whether the elements follow each other without gaps (extents of 1 have no stride that matters)."""
        wanted = contiguous_strides(self.type, self.ne)
        return all(self.ne[d] == 1 or self.nb[d] == wanted[d] for d in range(1, 4)) and self.nb[0] == wanted[0]

    @property
    def nbytes(self) -> int:
        """Bytes from the first element to the end of the last."""
        rows = sum((int(self.ne[d]) - 1) * self.nb[d] for d in range(1, 4))
        if self.type.block > 1:
            return rows + self.type.nbytes * (int(self.ne[0]) // self.type.block)
        return rows + (int(self.ne[0]) - 1) * self.nb[0] + self.type.nbytes

    @property
    def shape(self) -> tuple[int, ...]:
        """The NumPy shape: the extents reversed, without trailing extents of 1 (those beyond ne[0])."""
        last = max((d for d in range(4) if self.ne[d] != 1), default=0)
        return tuple(int(extent) for extent in reversed(self.ne[: last + 1]))

    # --- Operations: what each does, checks and refuses is said in `operations` -------------------------

    add = operations.add
    mul = operations.mul
    scale = operations.scale
    swiglu = operations.swiglu
    geglu = operations.geglu
    rms_norm = operations.rms_norm
    get_rows = operations.get_rows
    set_rows = operations.set_rows
    mul_mat = operations.mul_mat
    rope = operations.rope
    flash_attn_ext = operations.flash_attn_ext
    hadamard = operations.hadamard
    div = operations.div
    soft_max = operations.soft_max
    sum_rows = operations.sum_rows
    top_k = operations.top_k
    mul_mat_id = operations.mul_mat_id
    sigmoid = operations.sigmoid
    silu = operations.silu
    tanh = operations.tanh
    softplus = operations.softplus
    causal_conv = operations.causal_conv
    gated_delta_net = operations.gated_delta_net
    cpy = operations.cpy
    cont = operations.cont
    reshape = operations.reshape
    view = operations.view
    permute = operations.permute
    transpose = operations.transpose

    def root(self) -> tuple[Tensor, int]:
        """Return the tensor whose bytes this one uses, and the byte offset into it."""
        tensor, offset = self, 0
        while tensor.view_of is not None:
            offset += tensor.view_offset
            tensor = tensor.view_of
        return tensor, offset

    # --- Data -------------------------------------------------------------------------------------

    def set(self, values: npt.ArrayLike) -> Tensor:
        """Write all values, given in NumPy order (shape = extents reversed), in this tensor's type; return the tensor.

        Raises:
            GraphError: the shape differs, the tensor is a view or is not contiguous.
        """
        if self.view_of is not None or not self.contiguous:
            raise GraphError("cannot set a view", where=repr(self), hint="Set the tensor that it looks at.")
        array = np.asarray(values)
        if array.size != self.elements or (array.ndim > 1 and tuple(array.shape) != self._full_shape(array.ndim)):
            raise GraphError("wrong shape", where=repr(self), expected=self.shape, found=array.shape)
        if self.storage is None:
            self.storage = Storage.allocate(self.nbytes)
        kind = NUMPY_TYPES.get(self.type.name)
        raw = (
            np.ascontiguousarray(array, kind).tobytes()
            if kind
            else encode(self.type, array.reshape(-1, int(self.ne[0])))
        )
        self.storage.array[:] = np.frombuffer(raw, np.uint8)
        return self

    def _full_shape(self, ndim: int) -> tuple[int, ...]:
        return tuple(int(extent) for extent in reversed(self.ne[:ndim]))

    def numpy(self) -> npt.NDArray[Any]:
        """Return a copy of the values in NumPy order; quantized types are decoded to float32.

        Raises:
            GraphError: nothing has been set or computed.
        """
        root, offset = self.root()
        if root.storage is None:
            raise GraphError("has no data", where=repr(self), hint="Set it, or compute a graph that keeps it.")
        kind = NUMPY_TYPES.get(self.type.name)
        raw = root.storage.array[offset : offset + self.nbytes]
        if kind is None:
            return decode(self.type, raw, self.elements).reshape(self.shape)
        array = np.ndarray(
            tuple(int(e) for e in reversed(self.ne)), kind, raw.tobytes(), strides=tuple(reversed(self.nb))
        )
        return array.reshape(self.shape).copy()

    def mark_input(self) -> Tensor:
        """Keep this tensor's bytes through a whole run; return the tensor."""
        self.is_input = True
        return self

    def mark_output(self) -> Tensor:
        """Keep this tensor's result after a run; return the tensor."""
        self.is_output = True
        return self


class Context:
    """Owns tensors; makes leaves, and nodes by operation."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []

    def tensor(self, kind: str | int, ne: Sequence[int], *, name: str = "", storage: Storage | None = None) -> Tensor:
        """Make a leaf of a type (name or number) and extents in ggml order.

        Raises:
            GraphError: extents that do not fit the type's blocks, or storage of another size.
        """
        row = tensor_type(kind)
        full = full_extents(ne)
        if full[0] % row.block:
            raise GraphError(
                "does not fill whole blocks", where=name, expected=f"a multiple of {row.block}", found=full[0]
            )
        leaf = self.add(Tensor(self, row, full, contiguous_strides(row, full), name=name, storage=storage))
        if storage is not None and storage.nbytes < leaf.nbytes:
            raise GraphError("storage too small", where=repr(leaf), expected=leaf.nbytes, found=storage.nbytes)
        return leaf

    def parameter(self, kind: str | int, ne: Sequence[int], *, name: str = "") -> Tensor:
        """Make a leaf that is trained: gradients flow to it."""
        leaf = self.tensor(kind, ne, name=name)
        leaf.is_parameter = True
        return leaf

    def node(
        self,
        op: Op,
        kind: TensorType,
        ne: Sequence[int],
        sources: Sequence[Tensor | None],
        params: tuple[Any, ...] = (),
    ) -> Tensor:
        """Make a node that computes a new contiguous tensor."""
        self._check(op, sources)
        full = full_extents(ne)
        return self.add(Tensor(self, kind, full, contiguous_strides(kind, full), op, params, tuple(sources)))

    def view(
        self, op: Op, source: Tensor, ne: Sequence[int], nb: Sequence[int], offset: int, params: tuple[Any, ...] = ()
    ) -> Tensor:
        """Make a node that looks at a part of its source's bytes."""
        self._check(op, [source])
        full = full_extents(ne)
        strides = (nb[0], nb[1], nb[2], nb[3])
        made = Tensor(self, source.type, full, strides, op, params, (source,), view_of=source, view_offset=offset)
        root, start = made.root()
        if start < 0 or start + made.nbytes > root.nbytes:
            raise GraphError(
                "view outside its tensor", where=repr(root), expected=root.nbytes, found=start + made.nbytes
            )
        return self.add(made)

    def add(self, tensor: Tensor) -> Tensor:
        """Register a tensor and number it."""
        tensor.index = len(self.tensors)
        self.tensors.append(tensor)
        return tensor

    def _check(self, op: Op, sources: Sequence[Tensor | None]) -> None:
        if len(sources) > GRAPH_MAX_SOURCES:
            raise GraphError("too many sources", where=op.name, expected=GRAPH_MAX_SOURCES, found=len(sources))
        for source in sources:
            if source is not None and source.context is not self:
                raise GraphError("source of another context", where=op.name, found=repr(source))
