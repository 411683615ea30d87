"""What a plan consists of: regions of memory, operands that point into them, steps that a kernel does. Computes
nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..graph import Storage, Tensor
from ..graph.extents import Extents


@dataclass(eq=False)
class Region:
    """Bytes that live from the step that first writes them to the last that reads them.

    A region with `tensor` or `storage` is fixed: it belongs to a leaf or a constant. Others get an `offset` in the
    arena. `pinned` regions are kept to the end of the run.
    """

    nbytes: int
    name: str
    tensor: Tensor | None = None
    storage: Storage | None = None
    pinned: bool = False
    first: int = -1
    last: int = -1
    offset: int = -1

    @property
    def fixed(self) -> bool:
        """Whether the bytes exist outside the arena."""
        return self.storage is not None or (self.tensor is not None and self.tensor.op == 0)

    def address(self, arena: int) -> int:
        """Return where the bytes are, given the arena's address."""
        if self.storage is not None:
            return self.storage.address
        if self.tensor is not None and self.tensor.op == 0:
            storage = self.tensor.storage
            return storage.address if storage is not None else 0
        return arena + self.offset


@dataclass(frozen=True)
class Operand:
    """A tensor as a kernel sees it: region, byte offset, extents and strides."""

    region: Region
    offset: int
    ne: Extents
    nb: Extents
    nbytes: int


@dataclass
class Step:
    """One call of a kernel. The first `written` operands are written (and may be read), the others only read;
    parameters of type float are passed as float32 bits."""

    kernel: str
    operands: tuple[Operand, ...]
    parameters: tuple[int | float, ...] = ()
    scratch: int = 0  # bytes per thread
    name: str = ""
    barrier: bool = True
    written: int = 1


@dataclass
class Plan:
    """Steps in order with their memory laid out: `arena` bytes, `scratch` bytes per thread."""

    steps: list[Step]
    regions: list[Region] = field(default_factory=list)
    arena: int = 0
    scratch: int = 0

    def kernels(self) -> list[str]:
        """Return the keys of the kernels that the plan needs, each once, in order of first use."""
        return list(dict.fromkeys(step.kernel for step in self.steps))
