"""A model's graph for one choice of logits, and what feeds it batch by batch. Knows no sequence and no text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..engine.run import Executable
from ..graph import Context, Dim, Graph, Storage, Tensor
from ..limits import BATCH_TOKENS, LOGITS_BATCH_TOKENS
from ..models import Batch, Cache, Config, State, Weights
from .adapters import leaves
from .weights import ModelFile

Logits = npt.NDArray[np.float32]


@dataclass(frozen=True)
class SessionOptions:
    """Sizes of a session: cells of the cache, bytes that it and the weights may take, the type of the cache."""

    context: int
    memory: int | None = None
    cache_type: str = "F16"


class ModelGraph:
    """The graph of a model for one choice of logits, its inputs allocated."""

    def __init__(self, model: ModelFile, options: SessionOptions, logits: str) -> None:
        config = model.config
        largest = LOGITS_BATCH_TOKENS if logits == "all" else BATCH_TOKENS
        self.tokens = min(largest, options.context)
        self.window = config.window
        context = Context()
        tokens = Dim(self.tokens, "tokens")

        def input_leaf(name: str, *ne: int) -> Tensor:
            leaf = context.tensor("I32", ne, name=name).mark_input()
            leaf.storage = Storage.allocate(leaf.nbytes)
            return leaf

        self.batch = Batch(
            input_leaf("tokens", tokens),
            input_leaf("positions", tokens),
            input_leaf("ranges", 2, tokens),
            input_leaf("local_ranges", 2, tokens),
            input_leaf("cells", tokens),
            None if logits == "all" else input_leaf("outputs", 1),
        )
        for block in range(config.blocks):
            self.batch.caches.append(_state(context, config, options, block))
        weights = Weights(context, model.leaves(context), model.rotation, leaves(context, model.adapters))
        self.logits = model.architecture.build(config, weights, self.batch).mark_output()
        self.graph = Graph(context, capacity=len(context.tensors))  # no node is made in vain
        self.graph.expand(self.logits)


class Runner:
    """Feeds batches to an executable and reads the logits."""

    def __init__(self, graph: ModelGraph, executable: Executable) -> None:
        self.executable = executable
        self.batch = graph.tokens
        self.all = graph.batch.outputs is None  # logits of every token
        self._window = graph.window
        b = graph.batch
        assert b.cells is not None
        self._tokens, self._positions, self._cells = (_numbers(leaf) for leaf in (b.tokens, b.positions, b.cells))
        self._outputs = None if b.outputs is None else _numbers(b.outputs)
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
        if self._outputs is not None:
            self._outputs[0] = n - 1
        self.executable.bind(tokens=n)
        self.executable.run()
        return self._logits[: n if self.all else 1]


def _state(context: Context, config: Config, options: SessionOptions, block: int) -> Cache | State:
    """Make the leaves of a block's state, without storage."""
    if config.is_recurrent(block):
        rec = config.recurrent
        assert rec is not None
        inputs, matrices = (rec.channels, rec.taps - 1), (rec.key_size, rec.value_size, rec.value_heads)
        return State(
            context.tensor("F32", inputs, name=f"inputs {block}"),
            context.tensor("F32", matrices, name=f"matrices {block}"),
        )
    keys = (config.key_size, options.context, config.key_heads)
    values = (config.value_size, options.context, config.key_heads)
    return Cache(
        context.tensor(options.cache_type, keys, name=f"keys {block}"),
        context.tensor(options.cache_type, values, name=f"values {block}"),
    )


def _numbers(leaf: Tensor) -> npt.NDArray[np.int32]:
    assert leaf.storage is not None
    return leaf.storage.array.view(np.int32)
