"""The graphs of a training step: loss and gradients of a micro-batch, and the optimizer's step on all parameters.

Everything is planned before anything is allocated. Knows no files and no schedule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import GraphError
from ..graph import Context, Graph, Storage, Tensor
from ..graph.operations.learning import ADAMW_PARAMETERS, SGD_PARAMETERS
from ..limits import TRAINING_MAX_NODES
from ..models import Batch
from .data import IGNORED, Row
from .methods import Method, Parameter


class LossGraph:
    """The loss of a micro-batch, summed over its labels; with `backward`, the gradients of all parameters.

    Args:
        method: what is trained.
        sequences, length: rows of a micro-batch and their tokens.
        backward: build gradients.
        accumulators: leaves' storage by parameter name to which gradients are added; None keeps each run's own.
        recompute: keep only what passes from block to block, and compute the rest again on the way back.
    """

    def __init__(
        self,
        method: Method,
        sequences: int,
        length: int,
        *,
        backward: bool,
        accumulators: Mapping[str, Storage] | None = None,
        recompute: bool = False,
    ) -> None:
        model = method.model
        self._window = model.config.window
        self._sequences, self._length = sequences, length
        context = Context()
        tokens = sequences * length
        self.batch = Batch(
            _input(context, "tokens", tokens),
            _input(context, "positions", tokens),
            _input(context, "ranges", 2, tokens),
            _input(context, "local ranges", 2, tokens),
            sequences=sequences,
        )
        self._labels = _input(context, "labels", tokens)
        self.leaves = {p.name: context.tensor("F32", p.ne, name=p.name, storage=p.storage) for p in method.parameters}
        for leaf in self.leaves.values():
            leaf.mark_parameter()
        weights = method.weights(context, self.leaves)
        logits = model.architecture.build(model.config, weights, self.batch)
        self.loss = logits.token_loss(self._labels).mark_loss()
        self.graph = Graph(context, TRAINING_MAX_NODES, gradients=backward)
        self.graph.expand(self.loss)
        if backward:
            given = {
                leaf: context.tensor("F32", leaf.ne, name=f"gradient of {name}", storage=accumulators[name])
                for name, leaf in self.leaves.items()
                if accumulators is not None
            }
            keep = _kept(self.graph, weights.boundaries) if recompute else None
            self.graph.build_backward(given, keep)
            self._check_paths()

    def _check_paths(self) -> None:
        """Every parameter must have a gradient: one that has none would stay as it is, unnoticed."""
        missing = [name for name, leaf in self.leaves.items() if self.graph.gradient(leaf) is None]
        if missing:
            raise GraphError("parameters that the loss does not depend on", found=", ".join(missing[:8]))

    def feed(self, rows: Sequence[Row]) -> int:
        """Write a micro-batch; return how many labels it has."""
        tokens = np.stack([row.tokens for row in rows])
        labels = np.stack([row.labels for row in rows])
        starts = np.stack([row.starts for row in rows])
        places = np.arange(self._length, dtype=np.int32)
        offset = (np.arange(len(rows), dtype=np.int32) * self._length)[:, None]
        ranges = np.stack([starts + offset, places + 1 + offset], -1)
        local = ranges.copy()
        if self._window:
            local[..., 0] = np.maximum(local[..., 0], local[..., 1] - self._window)
        b = self.batch
        for leaf, values in (
            (b.tokens, tokens),
            (b.positions, places - starts),
            (b.ranges, ranges),
            (b.local_ranges, local),
            (self._labels, labels),
        ):
            leaf.set(values.reshape(tuple(int(e) for e in reversed(leaf.ne[:2] if leaf.ne[1] > 1 else leaf.ne[:1]))))
        return int((labels != IGNORED).sum())


def _input(context: Context, name: str, *ne: int) -> Tensor:
    leaf = context.tensor("I32", ne, name=name).mark_input()
    leaf.storage = Storage.allocate(leaf.nbytes)
    return leaf


def _kept(graph: Graph, boundaries: Sequence[int]) -> list[Tensor]:
    """Return the nodes to keep: those that something made after a boundary reads and that were made before it, and all
    that come after the last boundary."""
    kept = [node for node in graph.nodes if node.index >= boundaries[-1]]
    cuts = np.asarray(boundaries)
    for node in graph.nodes:
        for source in node.sources:
            if (
                source is not None
                and source.op
                and np.searchsorted(cuts, source.index, "right") < np.searchsorted(cuts, node.index, "right")
            ):
                kept.append(source)
    return kept


@dataclass(frozen=True)
class OptimizerOptions:
    """An optimizer: `adamw` (arXiv 1711.05101) or `sgd`.

    `decay` is decoupled and leaves one-dimensional tensors (norms, biases) alone; `eps` is added to the square root of
    the corrected second moment; gradients are scaled down to a common length of `clip` where they exceed it (0: never).
    """

    name: str = "adamw"
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    decay: float = 0.0
    clip: float = 1.0


class UpdateGraph:
    """One step of the optimizer on every parameter, in place.

    The gradients, sums over the labels of a batch, are multiplied by one number: one over the count of labels, and what
    scales them down to the longest length allowed. `norm_graph` computes their length, `graph` does the step.
    """

    def __init__(self, parameters: Sequence[Parameter], options: OptimizerOptions) -> None:
        self._options = options
        self._norm_leaves, self.norm_graph = _norm(parameters)
        context = Context()
        self._leaves = {p.name: context.tensor("F32", p.ne, name=f"gradient of {p.name}") for p in parameters}
        self.moments: dict[str, tuple[Tensor, Tensor]] = {}
        self._factor = _number(context, "factor", 1)
        width = ADAMW_PARAMETERS if options.name == "adamw" else SGD_PARAMETERS
        self._numbers = {decay: _number(context, f"parameters {decay}", width) for decay in (False, True)}
        self.graph = Graph(context, TRAINING_MAX_NODES)
        for parameter in parameters:
            leaf = context.tensor("F32", parameter.ne, name=parameter.name, storage=parameter.storage)
            self.graph.expand(self._step(leaf, parameter))

    def _step(self, leaf: Tensor, parameter: Parameter) -> Tensor:
        gradient, numbers = self._leaves[parameter.name], self._numbers[parameter.decay]
        if self._options.name == "sgd":
            return leaf.opt_step_sgd(gradient, numbers, self._factor)
        m, v = (leaf.context.tensor("F32", parameter.ne, name=f"{name} of {parameter.name}") for name in "mv")
        self.moments[parameter.name] = m, v
        return leaf.opt_step_adamw(gradient, m, v, numbers, self._factor)

    @property
    def moment_bytes(self) -> int:
        """Bytes of the optimizer's own state."""
        return sum(m.nbytes + v.nbytes for m, v in self.moments.values())

    def allocate(self, gradients: Mapping[str, Storage]) -> None:
        """Give the gradients their places, and the moments zeros."""
        for name, storage in gradients.items():
            self._leaves[name].storage = self._norm_leaves[name].storage = storage
        for pair in self.moments.values():
            for moment in pair:
                moment.storage = Storage.allocate(moment.nbytes)

    def norm(self, labels: int) -> float:
        """Return the length of the mean gradient, after a run of `norm_graph`."""
        return math.sqrt(math.fsum(float(node.numpy().reshape(())) for node in self.norm_graph.nodes)) / labels

    def feed(self, step: int, rate: float, labels: int, norm: float) -> None:
        """Set the numbers of a step, counted from 1."""
        o = self._options
        clip = min(1.0, o.clip / norm) if o.clip > 0 and norm > 0 else 1.0
        self._factor.set([clip / labels])
        for decay, leaf in self._numbers.items():
            weight = o.decay if decay else 0.0
            if o.name == "sgd":
                leaf.set([rate, weight])
            else:
                betas = [float(np.float32(beta)) for beta in (o.beta1, o.beta2)]  # as the kernel has them
                leaf.set([rate, *betas, o.eps, weight, *(1.0 / (1.0 - beta**step) for beta in betas)])


def _norm(parameters: Sequence[Parameter]) -> tuple[dict[str, Tensor], Graph]:
    """Make the graph of the sums of each gradient's squares: leaves by name, graph."""
    context = Context()
    leaves = {p.name: context.tensor("F32", p.ne, name=f"gradient of {p.name}") for p in parameters}
    graph = Graph(context, TRAINING_MAX_NODES)
    for leaf in leaves.values():
        graph.expand(leaf.sum_squares().mark_output())
    return leaves, graph


def _number(context: Context, name: str, count: int) -> Tensor:
    leaf = context.tensor("F32", (count,), name=name)
    leaf.storage = Storage.allocate(leaf.nbytes)
    return leaf
