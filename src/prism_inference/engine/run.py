"""A plan made runnable: descriptors with addresses, an arena, a team. Knows nothing of what the graph means."""

from __future__ import annotations

import struct
import time
from collections import defaultdict
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ..errors import CancelledError, GraphError, ParameterError
from ..graph import Dim, Graph, Storage
from ..kernels.target import target
from ..plan import Plan, Step, make_plan
from ..plan import descriptor as layout
from .objects import Library, Progress, library
from .team import Team, default_threads, team

EXECUTOR, TIMED_EXECUTOR = "executor.run", "executor.timed"


class Executable:
    """A plan bound to memory and threads; run it as often as wanted.

    `bind` sets extents that vary from run to run, in place: nothing is rebuilt.
    """

    def __init__(
        self,
        plan: Plan,
        threads: Team,
        kernels: Library,
        progress: Progress | None = None,
        arena: Storage | None = None,
    ) -> None:
        """Link the plan's kernels and take its memory; a given `arena` must hold it, and may be used by turns."""
        self.plan = plan
        self.threads = threads
        self._kernels = kernels
        addresses = kernels.addresses([EXECUTOR, *plan.kernels()], progress)
        self._executor = addresses[EXECUTOR]
        self._arena = arena or Storage.allocate(plan.arena, zero=False)
        self._scratch = Storage.allocate(plan.scratch * threads.size, zero=False)
        self.keep_outputs()
        places: dict[str, list[int]] = defaultdict(list)
        words: list[int] = []
        starts = []
        for step in plan.steps:
            starts.append(len(words))
            words += self._describe(step, addresses[step.kernel], len(words), places)
        self._words = np.array(words, np.int64)
        self._places = {name: np.array(indices) for name, indices in places.items()}
        self._largest = {name: int(self._words[indices[0]]) for name, indices in places.items()}
        self._list = self._words.ctypes.data + 8 * np.array(starts, np.int64)
        self._control = Storage.allocate(8 * layout.CONTROL_WORDS)
        self._flags = self._control.array.view(np.int64)
        self._flags[layout.CONTROL_COUNT] = len(starts)
        self._flags[layout.CONTROL_LIST] = self._list.ctypes.data

    @property
    def nbytes(self) -> int:
        """Bytes of memory that this executable holds."""
        return self._arena.nbytes + self._scratch.nbytes + self._words.nbytes

    def bind(self, **extents: int) -> None:
        """Set varying extents by name.

        Raises:
            ParameterError: a name that the plan does not have, or a value below 1 or above the largest.
        """
        for name, value in extents.items():
            if name not in self._places:
                raise ParameterError("no such extent", where=name, expected=", ".join(sorted(self._places)))
            if not 1 <= value <= self._largest[name]:
                raise ParameterError(
                    "extent out of range", where=name, expected=f"1 to {self._largest[name]}", found=value
                )
            self._words[self._places[name]] = value

    def run(self, whole: bool = False) -> None:
        """Run all steps; with `whole`, an interrupt that comes meanwhile is raised only when all are done.

        Raises:
            CancelledError: `cancel` was called; results are undefined, what lies outside the arena may be half written.
        """
        self.threads.run(self._executor, self._control.address, _ignore if whole else self.cancel)
        self._check_done()

    def _check_done(self) -> None:
        if self._flags[layout.CONTROL_DONE] != len(self.plan.steps):
            raise CancelledError(
                "the run was cancelled",
                expected=f"{len(self.plan.steps)} steps",
                found=f"{self._flags[layout.CONTROL_DONE]} done",
            )

    def time_steps(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Run all steps once and return the seconds that each took, waiting for the slowest thread included.

        Raises:
            CancelledError: as `run` does.
        """
        executor = self._kernels.addresses([TIMED_EXECUTOR])[TIMED_EXECUTOR]
        ticks = np.zeros(len(self.plan.steps) + 1, np.int64)
        self._flags[layout.CONTROL_TIMES] = ticks.ctypes.data
        start = time.perf_counter()
        self.threads.run(executor, self._control.address, self.cancel)
        seconds = time.perf_counter() - start
        self._check_done()
        return np.diff(ticks).astype(np.float64) * (seconds / float(ticks[-1] - ticks[0]))

    def cancel(self) -> None:
        """Make the current run stop at its next barrier, and later ones at once; callable from any thread."""
        self._flags[layout.CONTROL_CANCEL] = 1

    def resume(self) -> None:
        """Take `cancel` back."""
        self._flags[layout.CONTROL_CANCEL] = 0

    def keep_outputs(self) -> None:
        """Give the tensors whose results are kept their bytes in the arena, so that they can be read; where several
        executables compute one tensor, the last that was asked has it."""
        for region in self.plan.regions:
            if region.pinned and not region.fixed and region.tensor is not None:
                end = region.offset + region.nbytes
                region.tensor.storage = Storage(self._arena.array[region.offset : end])

    def _describe(self, step: Step, address: int, start: int, places: dict[str, list[int]]) -> list[int]:
        """Return a descriptor's words; record where varying extents stand (counted from `start`)."""
        words = [0] * (layout.OPERANDS + layout.OPERAND_WORDS * len(step.operands))
        words[layout.KERNEL] = address
        words[layout.FLAGS] = layout.BARRIER if step.barrier else 0
        words[layout.SCRATCH] = self._scratch.address
        words[layout.SCRATCH_STRIDE] = self.plan.scratch
        for number, value in enumerate(step.parameters):
            words[layout.PARAMETERS + number] = float_bits(value) if isinstance(value, float) else value
        for number, operand in enumerate(step.operands):
            place = layout.operand(number)
            base = operand.region.address(self._arena.address)
            if base == 0:
                raise GraphError(
                    "a leaf has no data", where=operand.region.name, hint="Set it before the graph is computed."
                )
            words[place + layout.ADDRESS] = base + operand.offset
            for d in range(4):
                extent = operand.ne[d]
                words[place + layout.EXTENT + d] = int(extent)
                words[place + layout.STRIDE + d] = operand.nb[d]
                if isinstance(extent, Dim):
                    places[extent.name].append(start + place + layout.EXTENT + d)
        return words


def _ignore() -> None:
    """In place of `Executable.cancel`, for what must not end half-way."""


def float_bits(value: float) -> int:
    """Return the bits of a number as float32."""
    bits: int = struct.unpack("<I", struct.pack("<f", value))[0]
    return bits


def prepare(graph: Graph, threads: int | None = None, progress: Progress | None = None) -> Executable:
    """Plan a graph, link its kernels and give it memory."""
    return Executable(make_plan(graph, target().isa), team(threads or default_threads()), library(), progress)


_prepared: WeakKeyDictionary[Graph, tuple[object, Executable]] = WeakKeyDictionary()


def compute(graph: Graph, threads: int | None = None) -> None:
    """Run a graph once. This is what `Graph.compute` calls.

    The plan is kept for the next call, as long as the graph, the storage of its leaves and the threads stay the same.
    """
    for leaf in graph.leafs:
        if leaf.storage is None:
            raise GraphError("a leaf has no data", where=repr(leaf), hint="Set it before the graph is computed.")
    count = threads or default_threads()
    outputs = tuple(node.index for node in graph.nodes if node.is_output)
    state = (len(graph.nodes), count, outputs, tuple(id(leaf.storage) for leaf in graph.leafs))
    known = _prepared.get(graph)
    if known is None or known[0] != state:
        known = (state, prepare(graph, count))
        _prepared[graph] = known
    executable = known[1]
    executable.keep_outputs()
    executable.run()
