"""One sequence of a model: token ids in, logits out. Knows no text.

A session owns the cache of keys and values, which the system backs page by page as it fills, and the plan that runs its
batches. A call that fails or is cancelled leaves the position where it was; cells beyond it are never read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from ..engine.objects import Progress, library
from ..engine.run import Executable
from ..engine.team import Team
from ..errors import CancelledError, ContextError, MemoryBudgetError, ParameterError
from ..kernels.target import target
from ..plan import make_plan
from .runner import Logits, ModelGraph, Runner, SessionOptions
from .states import States
from .weights import ModelFile


class Session:
    """A sequence that grows. Not for use by two threads at once; sessions of one model may run side by side."""

    def __init__(
        self, model: ModelFile, options: SessionOptions, threads: Team, progress: Progress | None = None
    ) -> None:
        """Plan and admit the memory, then take it.

        Raises:
            MemoryBudgetError: the weights, the cache and the activations exceed the budget.
        """
        self.model = model
        self.context = options.context
        self._options = options
        self._threads = threads
        self._progress = progress
        self._ids: list[int] = []
        self._states: States | None = None
        self._stale = False  # a failed run has changed a recurrent state
        self._cancelled = False
        self._runners: dict[str, Runner] = {}
        self._runner("last")

    @property
    def position(self) -> int:
        """Number of tokens evaluated so far."""
        return len(self._ids)

    @property
    def ids(self) -> tuple[int, ...]:
        """The tokens evaluated so far."""
        return tuple(self._ids)

    def rewind(self, position: int) -> int:
        """Go back to `position`, or to the last one before it from which a recurrent state is kept; return where it
        went.

        States are kept at 0, where each call of `evaluate` with several tokens ended, and where `checkpoint` was
        called, as far as the memory budget allows.

        Raises:
            ParameterError: the position lies ahead.
        """
        if not 0 <= position <= self.position:
            raise ParameterError("cannot rewind there", expected=f"0 to {self.position}", found=position)
        assert self._states is not None
        if position < self.position or self._stale:
            position = self._states.restore(position)
            self._stale = False
            del self._ids[position:]
        return position

    def checkpoint(self) -> None:
        """Keep the state of this position, so that `rewind` can return to it."""
        assert self._states is not None
        if not self._stale:
            self._states.save(self.position)

    def evaluate(self, ids: Sequence[int], logits: Literal["last", "all"] = "last") -> Logits:
        """Append tokens and return the logits behind the last one, or behind each.

        Args:
            ids: token ids, at least one.
            logits: `last` gives float32 [vocabulary], `all` float32 [len(ids), vocabulary].

        Raises:
            ParameterError: no ids, or an id outside the vocabulary.
            ContextError: the context has no room for them.
            CancelledError: `cancel` was called.
        """
        self._check(ids)
        if logits not in ("last", "all"):
            raise ParameterError("unknown choice", where="logits", expected="'last' or 'all'", found=repr(logits))
        self._cancelled = False
        for runner in self._runners.values():
            runner.executable.resume()
        runner = self._runner(logits)
        self._repair()
        return self._evaluate(ids, runner)

    def _evaluate(self, ids: Sequence[int], runner: Runner) -> Logits:
        """Run the batches; the position moves when all are done."""
        rows = []
        assert self._states is not None
        self._stale = self._states.recurrent
        for start in range(0, len(ids), runner.batch):
            if self._cancelled:
                raise CancelledError("the evaluation was cancelled")
            rows.append(runner.run(ids[start : start + runner.batch], self.position + start).copy())
        self._stale = False
        self._ids.extend(int(token) for token in ids)
        if len(ids) > 1:
            self.checkpoint()
        return np.concatenate(rows) if runner.all else rows[-1][0]

    def cancel(self) -> None:
        """Stop a running `evaluate` at the next step; callable from any thread."""
        self._cancelled = True
        for runner in list(self._runners.values()):
            runner.executable.cancel()

    def _repair(self) -> None:
        """After a failed run of a recurrent model: go back to a kept state and come forward again."""
        if not self._stale:
            return
        ids = self._ids[:]
        try:
            start = self.rewind(self.position)
            if start < len(ids):
                self._evaluate(ids[start:], self._runners["last"])
        except BaseException:
            self._ids, self._stale = ids, True
            raise

    def _check(self, ids: Sequence[int]) -> None:
        if len(ids) == 0:
            raise ParameterError("no tokens to evaluate", where="ids", expected="at least one")
        vocabulary = self.model.config.vocabulary
        array = np.asarray(ids)
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise ParameterError(
                "not token ids", where="ids", expected="a flat sequence of integers", found=array.dtype
            )
        if array.min() < 0 or array.max() >= vocabulary:
            bad = next(int(token) for token in ids if not 0 <= token < vocabulary)
            raise ParameterError("no such token", where="ids", expected=f"0 to {vocabulary - 1}", found=bad)
        if self.position + len(ids) > self.context:
            raise ContextError(self.position + len(ids), self.context)

    def _runner(self, logits: str) -> Runner:
        if logits not in self._runners:
            self._runners[logits] = self._build(logits)
        return self._runners[logits]

    def _build(self, logits: str) -> Runner:
        """Build, plan and admit the graph for one choice of logits."""
        graph = ModelGraph(self.model, self._options, logits)
        plan = make_plan(graph.graph, target().isa)
        parts = {
            "weights": self.model.nbytes,
            "state": States.needed(graph.batch),
            "activations": plan.arena + plan.scratch * self._threads.size,
        }
        if self.model.adapters:
            parts["adapters"] = self.model.adapter_bytes
        parts["activations"] += sum(runner.executable.nbytes for runner in self._runners.values())
        budget = self._options.memory
        if budget is not None and sum(parts.values()) > budget:
            raise MemoryBudgetError(sum(parts.values()), budget, parts)
        if self._states is None:
            self._states = States(graph.batch)
        if budget is not None:
            self._states.bound_copies(budget - sum(parts.values()))
        self._states.attach(graph.batch)
        return Runner(graph, Executable(plan, self._threads, library(), self._progress))
