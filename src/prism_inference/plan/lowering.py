"""The state of a lowering: steps so far, regions of tensors, and the intermediate results that nodes share.

Rounded activations and rotation tables are made once and shared by all nodes that need the same. Kernels are named by
key and not known here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import UnsupportedError
from ..graph import Graph, Op, RopeParameters, Storage, Tensor
from ..graph.extents import Extents, contiguous_strides
from ..graph.rope import channels, frequencies, magnitude
from .layouts import CHUNK_BYTES, CHUNK_VALUES, FLOATS, QUANTIZED
from .steps import Operand, Region, Step


class Lowering:
    """The state of one lowering: steps so far, regions of tensors, shared intermediate results."""

    def __init__(self, graph: Graph, isa: str) -> None:
        self.isa = isa
        self.steps: list[Step] = []
        self._regions: dict[int, Region] = {}
        self._shared: dict[tuple[Any, ...], Operand] = {}
        self.done: set[int] = set()  # nodes whose work another node's step does
        self._readers = Counter(source.index for node in graph.nodes for source in node.sources if source is not None)
        self._reader = {source.index: node for node in graph.nodes for source in node.sources if source is not None}
        self._last = graph.nodes[-1] if graph.nodes else None
        self.absorbed = self._absorbed_norms(graph)
        self.rotated = self._rounded_rotations(graph)

    # --- Operands ---------------------------------------------------------------------------------

    def operand(self, tensor: Tensor) -> Operand:
        """Return a tensor's operand; its region is that of the tensor whose bytes it uses."""
        root, offset = tensor.root()
        region = self._regions.get(root.index)
        if region is None:
            region = Region(root.nbytes, root.name or root.op.name, tensor=root)
            self._regions[root.index] = region
        region.pinned |= tensor.is_output or tensor.is_input or tensor is self._last
        return Operand(region, offset, tensor.ne, tensor.nb, tensor.nbytes)

    def temporary(self, ne: Extents, nb: Extents, nbytes: int, name: str) -> Operand:
        """Return an operand in a new region of the arena."""
        return Operand(Region(nbytes, name), 0, ne, nb, nbytes)

    def parts(self, node: Tensor, *tensors: Tensor) -> list[Operand]:
        """Return operands for the parts of a flat F32 result that follow one another, one of each tensor's shape."""
        flat, parts, offset = self.operand(node), [], 0
        for tensor in tensors:
            nb = contiguous_strides(node.type, tensor.ne)
            size = nb[3] * int(tensor.ne[3])
            parts.append(Operand(flat.region, flat.offset + offset, tensor.ne, nb, size))
            offset += size
        return parts

    def constant(self, array: np.ndarray[Any, Any], name: str) -> Operand:
        """Return an operand over numbers that are known now (raw bytes; only the address matters to the kernel)."""
        storage = Storage(np.frombuffer(array.tobytes(), np.uint8))
        size = storage.nbytes
        return Operand(Region(size, name, storage=storage), 0, (size, 1, 1, 1), (1, size, size, size), size)

    def once(self, key: tuple[Any, ...], make: Callable[[], Operand]) -> Operand:
        """Return an intermediate result that several nodes share, made on first use."""
        if key not in self._shared:
            self._shared[key] = make()
        return self._shared[key]

    def emit(
        self,
        kernel: str,
        result: Operand,
        *sources: Operand,
        params: tuple[int | float, ...] = (),
        scratch: int = 0,
        written: int = 1,
    ) -> None:
        """Append a step; of its operands the first `written` are written."""
        self.steps.append(Step(kernel, (result, *sources), params, scratch, result.region.name, written=written))

    def dense(self, tensor: Tensor) -> Operand:
        """Return the operand of an F32 tensor whose rows have no gaps between values; copies it if they have."""
        operand = self.operand(tensor)
        if tensor.nb[0] == tensor.type.nbytes:
            return operand
        width = 4 * int(tensor.ne[0])
        nb = (4, width, width * int(tensor.ne[1]), width * int(tensor.ne[1]) * int(tensor.ne[2]))
        copy = self.temporary(tensor.ne, nb, nb[3] * int(tensor.ne[3]), "dense copy")
        self.copy(copy, operand, f"{tensor.type.name.lower()}.f32")
        return copy

    def contiguous(self, tensor: Tensor) -> Operand:
        """Return the operand of a tensor without any gaps; copies it if it has them."""
        operand = self.operand(tensor)
        if tensor.contiguous:
            return operand
        copy = self.temporary(tensor.ne, contiguous_strides(tensor.type, tensor.ne), 0, "contiguous copy")
        copy.region.nbytes = copy.nb[3] * int(tensor.ne[3])
        copy = replace(copy, nbytes=copy.region.nbytes)
        self.copy(copy, operand, f"{moved_type(tensor)}.{moved_type(tensor)}")
        return copy

    def copy(self, result: Operand, source: Operand, types: str) -> None:
        """Append the step that copies all elements; `types` names those of the source and the result (`f16.f32`)."""
        across = next((d for d in (1, 2, 3) if source.nb[d] == 4 and source.ne[d] > 1), 0)
        turned = types == "f32.f32" and across and result.nb[0] == 4 and source.nb[0] != 4 and source.ne[0] > 1
        if turned and result.ne == source.ne:
            self.emit("copies.turn", *(_exchanged(operand, across) for operand in (result, source)))
        else:
            self.emit(f"copies.copy.{types}", result, source)

    def activations(self, tensor: Tensor) -> Operand:
        """Return the rounded activations of a tensor, shared by all products that read it."""
        key = ("activations", tensor.index)
        if key not in self._shared:
            rotation = tensor if tensor.index in self.rotated else None
            source = self.dense(source_of(tensor, 0) if rotation else tensor)
            ne = tensor.ne
            row = CHUNK_BYTES * -(-int(ne[0]) // CHUNK_VALUES)
            nb = (1, row, row * int(ne[1]), row * int(ne[1]) * int(ne[2]))
            result = self.temporary(ne, nb, nb[3] * int(ne[3]), "rounded activations")
            if rotation:
                self.emit_rotation("hadamard.rotate_round", rotation, result, source)
            else:
                self.emit("activations.round", result, source)
            self._shared[key] = result
        return self._shared[key]

    def emit_rotation(self, kernel: str, node: Tensor, result: Operand, source: Operand) -> None:
        """Append the step of a rotation."""
        block, inverse = node.params
        signs = node.sources[1]
        params = (block, int(signs is not None), int(inverse))
        sources = [source] + ([self.operand(signs)] if signs is not None else [])
        self.emit(kernel, result, *sources, params=params, scratch=4 * max(block, 16))

    def rope_table(self, positions: Tensor, parameters: RopeParameters, factors: Tensor | None) -> Operand:
        """Return the table of cosines and sines, shared by all rotations alike."""
        key = ("rope", positions.index, parameters, factors.index if factors else None)
        if key not in self._shared:
            pairs, tokens = parameters.rotated // 2, positions.ne[0]
            nb = (4, 8, 8 * pairs, 8 * pairs * int(tokens))
            table = self.temporary((2, pairs, tokens, 1), nb, nb[3], "rope table")
            axes = channels(parameters) if positions.ne[1] > 1 else np.zeros(pairs, np.int64)
            numbers = np.concatenate([frequencies(parameters).view(np.int64), axes])
            constants = self.constant(numbers, "rope frequencies")
            sources = [self.operand(positions), constants] + ([self.operand(factors)] if factors else [])
            self.emit("rope.table", table, *sources, params=(float(magnitude(parameters)), int(factors is not None)))
            self._shared[key] = table
        return self._shared[key]

    def only_reader(self, node: Tensor) -> Tensor | None:
        """Return the one node that reads this one, None where there are more or its result is kept."""
        alone = self._readers[node.index] == 1 and not node.is_output and node is not self._last
        return self._reader[node.index] if alone else None

    def _absorbed_norms(self, graph: Graph) -> set[int]:
        """Return the norms whose only reader multiplies them with a weight: that product does the norm too."""
        found = set()
        for node in graph.nodes:
            norm = node.sources[0] if node.op is Op.MUL else None
            if norm is None or norm.op is not Op.RMS_NORM or self._readers[norm.index] != 1:
                continue
            weight = node.sources[1]
            if not norm.is_output and weight is not None and weight.ne[0] == norm.ne[0]:
                found.add(norm.index)
        return found

    def _rounded_rotations(self, graph: Graph) -> set[int]:
        """Return the rotations that only products with quantized weights read: their rounding rotates too."""
        found = {
            node.index
            for node in graph.nodes
            if node.op is Op.HADAMARD and node.params[0] >= CHUNK_VALUES and not node.params[1] and not node.is_output
        }
        for node in graph.nodes:
            for number, source in enumerate(node.sources):
                if source is None or source.index not in found:
                    continue
                weights = node.sources[0]
                rounding = (
                    node.op in (Op.MUL_MAT, Op.MUL_MAT_ID)
                    and number == 1
                    and weights is not None
                    and weights.type.block > 1
                    and not node.params[0]  # exact products round nothing
                )
                if not rounding:
                    found.discard(source.index)
        return found


def _exchanged(operand: Operand, d: int) -> Operand:
    """Return an operand with its second dimension and dimension d exchanged."""
    ne, nb = list(operand.ne), list(operand.nb)
    ne[1], ne[d], nb[1], nb[d] = ne[d], ne[1], nb[d], nb[1]
    return replace(operand, ne=(ne[0], ne[1], ne[2], ne[3]), nb=(nb[0], nb[1], nb[2], nb[3]))


Rule = Callable[[Lowering, Tensor], None]


def source_of(node: Tensor, number: int) -> Tensor:
    """Return a source that the operation always has."""
    source = node.sources[number]
    assert source is not None, node
    return source


def elementwise(kernel: str) -> Rule:
    """Rule of an operation on two tensors, the second repeated to the first."""

    def rule(low: Lowering, node: Tensor) -> None:
        low.emit(kernel, low.operand(node), low.operand(source_of(node, 0)), low.operand(source_of(node, 1)))

    return rule


def row_kernel(kernel: str) -> Rule:
    """Rule of an operation on dense rows without parameters."""

    def rule(low: Lowering, node: Tensor) -> None:
        low.emit(kernel, low.operand(node), low.dense(source_of(node, 0)))

    return rule


def moved_type(tensor: Tensor) -> str:
    """Return how copies name a tensor's type: int32 is moved as float32 is, bit by bit."""
    return "f32" if tensor.type.name == "I32" else tensor.type.name.lower()


def kernel_type(tensor: Tensor, node: Tensor) -> str:
    """Return how kernels name a tensor's type."""
    name = tensor.type.name
    if name not in QUANTIZED and name not in FLOATS:
        raise UnsupportedError(
            "no kernel for this tensor type", where=repr(node), expected=", ".join((*QUANTIZED, *FLOATS)), found=name
        )
    return name.lower()
