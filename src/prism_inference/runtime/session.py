"""One sequence of a model: token ids in, logits out. Knows no text.

A session owns the cache of keys and values, which the system backs page by page as it fills, and the plan that runs its
batches. A call that fails or is cancelled leaves the position where it was; cells beyond it are never read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..engine.objects import Progress, library
from ..engine.run import Executable
from ..engine.team import Team
from ..errors import ContextError, MemoryBudgetError, ParameterError
from ..graph import Context, Dim, Graph, Storage, Tensor
from ..kernels.target import target
from ..limits import BATCH_TOKENS, LOGITS_BATCH_TOKENS
from ..models import Batch, Cache, Weights
from ..plan import make_plan
from .weights import ModelFile

Logits = npt.NDArray[np.float32]
NODES_PER_BLOCK = 64  # more than any architecture here has


@dataclass(frozen=True)
class SessionOptions:
    """Sizes of a session: cells of the cache, bytes that it and the weights may take, the type of the cache."""

    context: int
    memory: int | None = None
    cache_type: str = "F16"


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
        self._caches: list[tuple[Storage, Storage]] = []
        self._runners: dict[str, _Runner] = {}
        self._runner("last")

    @property
    def position(self) -> int:
        """Number of tokens evaluated so far."""
        return len(self._ids)

    @property
    def ids(self) -> tuple[int, ...]:
        """The tokens evaluated so far."""
        return tuple(self._ids)

    def rewind(self, position: int) -> None:
        """Go back to an earlier position; what follows is forgotten.

        Raises:
            ParameterError: the position lies ahead.
        """
        if not 0 <= position <= self.position:
            raise ParameterError("cannot rewind there", expected=f"0 to {self.position}", found=position)
        del self._ids[position:]

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
        runner = self._runner(logits)
        rows = []
        for start in range(0, len(ids), runner.batch):
            part = ids[start : start + runner.batch]
            result = runner.run(part, self.position + start)
            if logits == "all":
                rows.append(result.copy())
        self._ids.extend(int(token) for token in ids)
        return np.concatenate(rows) if logits == "all" else result[-1].copy()

    def cancel(self) -> None:
        """Stop a running `evaluate` at the next step; callable from any thread."""
        for runner in self._runners.values():
            runner.executable.cancel()

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

    def _runner(self, logits: str) -> _Runner:
        if logits not in self._runners:
            self._runners[logits] = self._build(logits)
        return self._runners[logits]

    def _build(self, logits: str) -> _Runner:
        """Build, plan and admit the graph for one choice of logits."""
        graph = _ModelGraph(self.model, self._options, logits)
        plan = make_plan(graph.graph, target().isa)
        cache = sum(leaf.nbytes for pair in graph.batch.caches for leaf in (pair.keys, pair.values))
        parts = {
            "weights": self.model.nbytes,
            "cache": cache,
            "activations": plan.arena + plan.scratch * self._threads.size,
        }
        parts["activations"] += sum(runner.executable.nbytes for runner in self._runners.values())
        budget = self._options.memory
        if budget is not None and sum(parts.values()) > budget:
            raise MemoryBudgetError(sum(parts.values()), budget, parts)
        if not self._caches:
            self._caches = [
                (Storage.allocate(pair.keys.nbytes), Storage.allocate(pair.values.nbytes))
                for pair in graph.batch.caches
            ]
        for pair, (keys, values) in zip(graph.batch.caches, self._caches, strict=True):
            pair.keys.storage, pair.values.storage = keys, values
        return _Runner(graph, Executable(plan, self._threads, library(), self._progress))


class _ModelGraph:
    """The graph of a model for one choice of logits, its inputs allocated."""

    def __init__(self, model: ModelFile, options: SessionOptions, logits: str) -> None:
        config = model.config
        largest = LOGITS_BATCH_TOKENS if logits == "all" else BATCH_TOKENS
        self.tokens = min(largest, options.context)
        self.window = config.window
        context = Context()
        tokens = Dim(self.tokens, "tokens")
        outputs = tokens if logits == "all" else 1

        def input_leaf(name: str, *ne: int) -> Tensor:
            leaf = context.tensor("I32", ne, name=name).mark_input()
            leaf.storage = Storage.allocate(leaf.nbytes)
            return leaf

        self.batch = Batch(
            input_leaf("tokens", tokens),
            input_leaf("positions", tokens),
            input_leaf("cells", tokens),
            input_leaf("ranges", 2, tokens),
            input_leaf("local_ranges", 2, tokens),
            input_leaf("outputs", outputs),
        )
        for block in range(config.blocks):
            keys = (config.key_size, options.context, config.key_heads)
            values = (config.value_size, options.context, config.key_heads)
            self.batch.caches.append(
                Cache(
                    context.tensor(options.cache_type, keys, name=f"keys {block}"),
                    context.tensor(options.cache_type, values, name=f"values {block}"),
                )
            )
        self.logits = model.architecture.build(
            config, Weights(context, model.leaves(context), model.rotation), self.batch
        ).mark_output()
        self.graph = Graph(context, capacity=NODES_PER_BLOCK * config.blocks + NODES_PER_BLOCK)
        self.graph.expand(self.logits)


class _Runner:
    """Feeds batches to an executable and reads the logits."""

    def __init__(self, graph: _ModelGraph, executable: Executable) -> None:
        self.executable = executable
        self.batch = graph.tokens
        self._all = isinstance(graph.batch.outputs.ne[0], Dim)
        self._window = graph.window
        b = graph.batch
        self._tokens, self._positions, self._cells, self._outputs = (
            _numbers(leaf) for leaf in (b.tokens, b.positions, b.cells, b.outputs)
        )
        self._ranges, self._local = (_numbers(leaf).reshape(-1, 2) for leaf in (b.ranges, b.local_ranges))
        storage = graph.logits.storage
        assert storage is not None
        self._logits = storage.array.view(np.float32).reshape(-1, int(graph.logits.ne[0]))

    def run(self, ids: Sequence[int], position: int) -> Logits:
        """Evaluate at most `batch` tokens from `position` on; return a view of the logits' rows."""
        n = len(ids)
        self._tokens[:n] = ids
        positions = np.arange(position, position + n, dtype=np.int32)
        self._positions[:n] = positions
        self._cells[:n] = positions
        self._ranges[:n, 1] = positions + 1
        self._local[:n, 0] = np.maximum(0, positions + 1 - self._window)
        self._local[:n, 1] = positions + 1
        if not self._all:
            self._outputs[0] = n - 1
        self.executable.bind(tokens=n)
        self.executable.run()
        return self._logits[: n if self._all else 1]


def _numbers(leaf: Tensor) -> npt.NDArray[np.int32]:
    assert leaf.storage is not None
    return leaf.storage.array.view(np.int32)
