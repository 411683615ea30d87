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
from .extents import Extents, contiguous_strides, full_extents
from .operations import elements as on_elements
from .operations import layout as on_layout
from .operations import learning as on_learning
from .operations import products as on_products
from .operations import rows as on_rows
from .operations import sequence as on_sequence
from .operations import spatial as on_spatial
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

    # --- Operations: what each does, checks and refuses is said in `operations/` -----------------------

    add = on_elements.add
    add_inplace = on_elements.add_inplace
    add1 = on_elements.add1
    add_id = on_elements.add_id
    sub = on_elements.sub
    mul = on_elements.mul
    div = on_elements.div
    scale = on_elements.scale
    sqr = on_elements.sqr
    sqrt = on_elements.sqrt
    log = on_elements.log
    sin = on_elements.sin
    cos = on_elements.cos
    clamp = on_elements.clamp
    leaky_relu = on_elements.leaky_relu
    fill = on_elements.fill
    round_to = on_elements.round_to
    unary = on_elements.unary
    unary_back = on_elements.unary_back
    silu_back = on_elements.silu_back
    abs = on_elements.abs
    sgn = on_elements.sgn
    neg = on_elements.neg
    step = on_elements.step
    tanh = on_elements.tanh
    elu = on_elements.elu
    relu = on_elements.relu
    sigmoid = on_elements.sigmoid
    gelu = on_elements.gelu
    gelu_erf = on_elements.gelu_erf
    gelu_quick = on_elements.gelu_quick
    silu = on_elements.silu
    hardswish = on_elements.hardswish
    hardsigmoid = on_elements.hardsigmoid
    exp = on_elements.exp
    expm1 = on_elements.expm1
    softplus = on_elements.softplus
    xielu = on_elements.xielu
    floor = on_elements.floor
    ceil = on_elements.ceil
    round = on_elements.round
    trunc = on_elements.trunc
    glu = on_elements.glu
    reglu = on_elements.reglu
    geglu = on_elements.geglu
    geglu_erf = on_elements.geglu_erf
    geglu_quick = on_elements.geglu_quick
    swiglu = on_elements.swiglu
    swiglu_oai = on_elements.swiglu_oai

    rms_norm = on_rows.rms_norm
    norm = on_rows.norm
    l2_norm = on_rows.l2_norm
    group_norm = on_rows.group_norm
    rms_norm_back = on_rows.rms_norm_back
    norm_back = on_rows.norm_back
    l2_norm_back = on_rows.l2_norm_back
    soft_max = on_rows.soft_max
    soft_max_back = on_rows.soft_max_back
    diag_mask_inf = on_rows.diag_mask_inf
    diag_mask_zero = on_rows.diag_mask_zero
    sum = on_rows.sum
    sum_rows = on_rows.sum_rows
    mean = on_rows.mean
    cumsum = on_rows.cumsum
    argmax = on_rows.argmax
    count_equal = on_rows.count_equal
    argsort = on_rows.argsort
    top_k = on_rows.top_k
    get_rows = on_rows.get_rows
    get_rows_back = on_rows.get_rows_back
    set_rows = on_rows.set_rows

    mul_mat = on_products.mul_mat
    mul_mat_id = on_products.mul_mat_id
    out_prod = on_products.out_prod
    out_prod_id = on_products.out_prod_id
    mul_mat_id_back = on_products.mul_mat_id_back

    cpy = on_layout.cpy
    dup = on_layout.dup
    cont = on_layout.cont
    reshape = on_layout.reshape
    view = on_layout.view
    permute = on_layout.permute
    transpose = on_layout.transpose
    repeat = on_layout.repeat
    repeat_back = on_layout.repeat_back
    concat = on_layout.concat
    acc = on_layout.acc
    acc_inplace = on_layout.acc_inplace
    set_part = on_layout.set_part
    diag = on_layout.diag
    tri = on_layout.tri
    pad = on_layout.pad
    roll = on_layout.roll

    rope = on_sequence.rope
    rope_back = on_sequence.rope_back
    flash_attn_ext = on_sequence.flash_attn_ext
    flash_attn_back = on_sequence.flash_attn_back
    hadamard = on_sequence.hadamard
    causal_conv = on_sequence.causal_conv
    causal_conv_back = on_sequence.causal_conv_back
    ssm_conv = on_sequence.ssm_conv
    ssm_conv_back = on_sequence.ssm_conv_back
    gated_delta_net = on_sequence.gated_delta_net
    gated_delta_net_back = on_sequence.gated_delta_net_back

    cross_entropy_loss = on_learning.cross_entropy_loss
    cross_entropy_loss_back = on_learning.cross_entropy_loss_back
    token_loss = on_learning.token_loss
    token_loss_back = on_learning.token_loss_back
    im2col = on_spatial.im2col
    im2col_back = on_spatial.im2col_back
    conv_2d = on_spatial.conv_2d
    pool_1d = on_spatial.pool_1d
    pool_2d = on_spatial.pool_2d
    pool_2d_back = on_spatial.pool_2d_back
    upscale = on_spatial.upscale
    upscale_back = on_spatial.upscale_back

    sum_squares = on_learning.sum_squares
    opt_step_adamw = on_learning.opt_step_adamw
    opt_step_sgd = on_learning.opt_step_sgd

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

    def mark_parameter(self) -> Tensor:
        """Let gradients flow to this tensor; return the tensor."""
        self.is_parameter = True
        return self

    def mark_loss(self) -> Tensor:
        """Make this one F32 number something to be made small: `Graph.build_backward` starts there; return the
        tensor."""
        self.is_loss = True
        return self.mark_output()

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

    def call(self, name: str, *args: Any) -> Any:
        """Call an operation by its name in ggml's C interface, with that function's arguments after the context.

        Raises:
            UnsupportedError: there is none of that name here.
        """
        from .upstream import find

        return find(name)(self, *args)

    def arange(self, start: float, stop: float, step: float = 1.0) -> Tensor:
        """Make start, start + step, … below stop, F32."""
        return on_elements.arange(self, start, stop, step)

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
