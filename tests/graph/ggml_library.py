"""libggml by ctypes: its functions called by name on one ggml context, leaves filled and results read with NumPy.

Load it in a process of its own: other copies of ggml clash with it, and it ends the process where it refuses something.
Knows no graph of ours.
"""

from __future__ import annotations

import ctypes
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

ARENA_BYTES = 64 << 20  # a context's memory: tensors of small cases, their gradients and work buffers
NUMPY_KINDS: dict[int, type[np.generic]] = {0: np.float32, 1: np.float16, 26: np.int32, 27: np.int64}
PRECISE = 10  # GGML_PREC_F32


class GgmlTensor(ctypes.Structure):
    """`struct ggml_tensor` of ggml.h."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("buffer", ctypes.c_void_p),
        ("ne", ctypes.c_int64 * 4),
        ("nb", ctypes.c_size_t * 4),
        ("op", ctypes.c_int),
        ("op_params", ctypes.c_int32 * 16),
        ("flags", ctypes.c_int32),
        ("src", ctypes.c_void_p * 10),
        ("view_src", ctypes.c_void_p),
        ("view_offs", ctypes.c_size_t),
        ("data", ctypes.c_void_p),
        ("name", ctypes.c_char * 64),
        ("extra", ctypes.c_void_p),
        ("padding", ctypes.c_char * 8),
    )


Pointer = Any  # ctypes.POINTER(GgmlTensor), which is made at run time


class _InitParameters(ctypes.Structure):
    _fields_ = (("size", ctypes.c_size_t), ("buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool))


def folder() -> Path | None:
    """Where the package `libggml-python` keeps the shared libraries; None where it is not installed."""
    spec = find_spec("libggml")
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(spec.submodule_search_locations[0]) / "lib64"
    return path if (path / "libggml-cpu.so").exists() else None


class Ggml:
    """The two shared libraries, and one ggml context at a time."""

    def __init__(self, path: Path) -> None:
        self._base = ctypes.CDLL(str(path / "libggml-base.so"), mode=ctypes.RTLD_GLOBAL)
        self._cpu = ctypes.CDLL(str(path / "libggml-cpu.so"))
        self._base.ggml_init.restype = ctypes.c_void_p
        self._base.ggml_init.argtypes = [_InitParameters]
        self._cpu.ggml_cpu_init()
        self._context = ctypes.c_void_p()
        self.aside: list[Pointer] = []  # nodes that only change leaves: a graph has to be told of them
        self.begin()
        # The structure above is right if the library and it agree where a tensor ends.
        first, second = self.leaf(0, (1,)), self.leaf(0, (1,))
        assert first.contents.ne[:] == [1, 1, 1, 1]
        assert second.contents.data == self._pointer("ggml_get_data", second), "another struct ggml_tensor"

    def begin(self) -> None:
        """Forget all tensors and start a new context."""
        if self._context:
            self._base.ggml_free(self._context)
        self._context = ctypes.c_void_p(self._base.ggml_init(_InitParameters(ARENA_BYTES, None, False)))
        self.aside = []

    def __call__(self, name: str, *arguments: Any) -> Pointer:
        """Call ggml_<name>(context, …), which returns a tensor."""
        return self._typed(f"ggml_{name}", ctypes.POINTER(GgmlTensor), self._context, *arguments)

    def plain(self, name: str, *arguments: Any) -> Pointer:
        """Call ggml_<name>(…) of a tensor or a graph; what it returns is taken for a tensor."""
        return self._typed(f"ggml_{name}", ctypes.POINTER(GgmlTensor), *arguments)

    def _pointer(self, name: str, *arguments: Any) -> int:
        return int(self._typed(name, ctypes.c_void_p, *arguments) or 0)

    def _typed(self, name: str, result: Any, *arguments: Any) -> Any:
        function = getattr(self._base, name, None) or getattr(self._cpu, name)
        function.restype = result
        return function(*(_argument(value) for value in arguments))

    # --- Leaves and values ------------------------------------------------------------------------------

    def leaf(self, kind: int, ne: tuple[int, ...], raw: npt.NDArray[np.uint8] | None = None) -> Pointer:
        """Make a tensor of a type's number and extents, with given bytes."""
        made = self("new_tensor", kind, len(ne), (ctypes.c_int64 * len(ne))(*(int(extent) for extent in ne)))
        if raw is not None:
            ctypes.memmove(made.contents.data, np.ascontiguousarray(raw).ctypes.data, raw.nbytes)
        return made

    def numbers(self, values: npt.NDArray[Any]) -> Pointer:
        """Make a tensor of the values of an array, its extents reversed."""
        kind = next(number for number, dtype in NUMPY_KINDS.items() if dtype is values.dtype.type)
        return self.leaf(kind, tuple(reversed(values.shape)), np.ascontiguousarray(values).reshape(-1).view(np.uint8))

    def values(self, tensor: Pointer) -> npt.NDArray[Any]:
        """Return a tensor's values in NumPy order with four dimensions; quantized types as raw bytes."""
        t = tensor.contents
        self._base.ggml_nbytes.restype = ctypes.c_size_t
        raw = ctypes.string_at(t.data, self._base.ggml_nbytes(tensor))
        kind = NUMPY_KINDS.get(t.type)
        if kind is None:
            return np.frombuffer(raw, np.uint8)
        return np.ndarray(tuple(reversed(t.ne[:])), kind, raw, strides=tuple(reversed(t.nb[:]))).copy()

    def dense(self, tensor: Pointer) -> Pointer:
        """Return the tensor, or a contiguous copy: many kernels of ggml take no strides."""
        self._base.ggml_is_contiguous.restype = ctypes.c_bool
        return tensor if self._base.ggml_is_contiguous(tensor) else self("cont", tensor)

    # --- Graphs -----------------------------------------------------------------------------------------

    def graph(self, results: list[Pointer], *, gradients: bool = False) -> ctypes.c_void_p:
        """Make a graph that computes the results, and with `gradients` those of its parameters by its loss."""
        graph = ctypes.c_void_p(
            self._typed("ggml_new_graph_custom", ctypes.c_void_p, self._context, 4096, int(gradients))
        )
        for result in results:
            self._base.ggml_build_forward_expand(graph, result)
        if gradients:
            self._base.ggml_build_backward_expand(self._context, graph, None)
            self._base.ggml_graph_reset(graph)
        return graph

    def compute(self, graph: ctypes.c_void_p) -> None:
        """Run a graph with one thread."""
        status = self._cpu.ggml_graph_compute_with_ctx(self._context, graph, 1)
        assert status == 0, f"ggml_graph_compute gave {status}"


def _argument(value: Any) -> Any:
    """A Python value as the C calling convention passes it: integers of every width fill a 64-bit register."""
    if isinstance(value, float):
        return ctypes.c_float(value)
    if isinstance(value, int):
        return ctypes.c_int64(value)
    return value
