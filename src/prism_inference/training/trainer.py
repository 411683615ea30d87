"""The loop of a training: micro-batches, gradients added up over them, the optimizer's step, validation, checkpoints.

A step that fails or is interrupted leaves parameters and optimizer as they were before it. Knows no command line.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ..engine.objects import Progress, library
from ..engine.run import Executable
from ..engine.team import Team, default_threads, team
from ..errors import MemoryBudgetError, ParameterError, TrainingError
from ..graph import Storage, Tensor
from ..kernels.target import target
from ..plan import Plan, make_plan
from ..runtime.progress import kernel_progress
from .data import Dataset, take
from .methods import Method
from .schedule import SHAPES, learning_rate
from .step import LossGraph, OptimizerOptions, UpdateGraph


@dataclass(frozen=True)
class Options:
    """How to train.

    Args:
        steps: optimizer steps in all.
        sequences: rows of a micro-batch, computed at once.
        accumulate: micro-batches of a step; their gradients add up, weighted by their labels.
        rate: the highest learning rate.
        schedule, warmup, floor: see `schedule.learning_rate`.
        optimizer: see `OptimizerOptions`.
        recompute: keep less of the way forward in memory and compute it again: some 30 % slower.
        validate_every: steps between two validations; 0: only at the end.
        checkpoint_every: steps between two checkpoints; 0: only at the end.
        memory: most bytes for everything; None: what the machine has free.
    """

    steps: int
    sequences: int = 1
    accumulate: int = 1
    rate: float = 1e-4
    schedule: str = "cosine"
    warmup: int = 0
    floor: float = 0.0
    optimizer: OptimizerOptions = field(default_factory=OptimizerOptions)
    recompute: bool = False
    validate_every: int = 0
    checkpoint_every: int = 0
    threads: int | None = None
    memory: int | None = None

    def __post_init__(self) -> None:
        positive = {"steps": self.steps, "sequences": self.sequences, "accumulate": self.accumulate}
        for name, number in positive.items():
            if number < 1:
                raise ParameterError("too small", where=name, expected="at least 1", found=number)
        if not (math.isfinite(self.rate) and self.rate >= 0):
            raise ParameterError("wrong learning rate", where="rate", expected="a number from 0 on", found=self.rate)
        if self.schedule not in SHAPES:
            raise ParameterError("unknown schedule", expected=", ".join(SHAPES), found=repr(self.schedule))
        if self.optimizer.name not in ("adamw", "sgd"):
            raise ParameterError("unknown optimizer", expected="adamw or sgd", found=repr(self.optimizer.name))


@dataclass(frozen=True)
class Report:
    """One step: its number from 1, mean loss per label in nats, labels, seconds, learning rate, length of the gradient
    before clipping, and the validation's loss where there was one."""

    step: int
    loss: float
    labels: int
    seconds: float
    rate: float
    gradient_norm: float
    validation: float | None = None


class Trainer:
    """Trains what a method names on a dataset.

    Raises:
        MemoryBudgetError: the plan needs more than there is; nothing was taken.
        GraphError, UnsupportedError: the model has an operation without derivative, or a parameter without effect.
    """

    def __init__(self, method: Method, data: Dataset, options: Options, validation: Dataset | None = None) -> None:
        self.method = method
        self.options = options
        self.step = 0
        self._data, self._validation = data, validation
        threads = team(options.threads or default_threads())
        parameters = method.parameters
        self._accumulators: dict[str, Storage] = {}
        if options.accumulate > 1:
            self._accumulators = {p.name: Storage.allocate(p.nbytes) for p in parameters}
        self._train = self._loss_graph(data, backward=True)
        self._check = None if validation is None else self._loss_graph(validation, backward=False)
        self._update = UpdateGraph(parameters, options.optimizer)
        graphs = {"train": self._train.graph, "norm": self._update.norm_graph, "update": self._update.graph}
        if self._check is not None:
            graphs["check"] = self._check.graph
        plans = {name: make_plan(graph, target().isa) for name, graph in graphs.items()}
        self.memory = self._admit(plans, threads.size)
        with kernel_progress() as progress:
            self._runs = self._executables(plans, threads, progress)

    def _loss_graph(self, data: Dataset, backward: bool) -> LossGraph:
        return LossGraph(
            self.method,
            self.options.sequences,
            data.length,
            backward=backward,
            accumulators=self._accumulators or None,
            recompute=self.options.recompute,
        )

    def _admit(self, plans: dict[str, Plan], threads: int) -> dict[str, int]:
        """Return the bytes of each part; refuse more than the budget, or than the machine has free."""
        import psutil

        parameters = sum(p.nbytes for p in self.method.parameters)
        parts = {
            "weights": self.method.model.nbytes,
            "parameters": parameters,
            "gradients": parameters if self._accumulators else 0,
            "optimizer": self._update.moment_bytes,
            "activations": max(plan.arena for plan in plans.values())
            + sum(plan.scratch for plan in plans.values()) * threads,
        }
        budget = self.options.memory
        limit = budget if budget is not None else psutil.virtual_memory().available + parts["parameters"]
        if sum(parts.values()) > limit:
            hint = "Take fewer sequences and accumulate more, shorten the rows, or recompute."
            raise MemoryBudgetError(sum(parts.values()), limit, parts, hint=hint)
        return parts

    def _executables(self, plans: dict[str, Plan], threads: Team, progress: Progress | None) -> dict[str, Executable]:
        """Take the memory: training and validation use one arena by turns."""
        arena = Storage.allocate(max(plan.arena for plan in plans.values()), zero=False)
        runs: dict[str, Executable] = {}
        for name in ("check", "train"):
            if name in plans:
                runs[name] = Executable(plans[name], threads, library(), progress, arena)
        self._train.graph.reset()
        self._update.allocate(self._gradients())
        for name in ("norm", "update"):
            runs[name] = Executable(plans[name], threads, library(), progress)
        return runs

    def _gradients(self) -> dict[str, Storage]:
        """Return where each parameter's gradient lies after a run."""
        if self._accumulators:
            return self._accumulators
        found = {}
        for name, leaf in self._train.leaves.items():
            gradient = self._train.graph.gradient(leaf)
            assert gradient is not None
            root, offset = gradient.root()
            assert root.storage is not None
            found[name] = Storage(root.storage.array[offset : offset + gradient.nbytes])
        return found

    @property
    def moments(self) -> dict[str, tuple[Tensor, Tensor]]:
        """The optimizer's own state by parameter."""
        return self._update.moments

    def gradient(self, name: str) -> npt.NDArray[np.float32]:
        """Return a copy of a parameter's gradient, summed over the labels of the last step, in NumPy order."""
        parameter = next(p for p in self.method.parameters if p.name == name)
        values = self._gradients()[name].array[: parameter.nbytes].view(np.float32)
        return values.reshape(parameter.array.shape).copy()

    # --- Steps ----------------------------------------------------------------------------------------------

    def steps(self) -> Iterator[Report]:
        """Do the steps that are left; give a report of each."""
        while self.step < self.options.steps:
            yield self.one_step()

    def one_step(self) -> Report:
        """Do one step.

        Raises:
            TrainingError: the loss or a gradient is not a finite number; parameters and optimizer are untouched.
        """
        o, began = self.options, time.perf_counter()
        loss, labels = self._micro_batches()
        if labels == 0:
            raise TrainingError("nothing to learn in a whole batch", where=f"step {self.step + 1}")
        self._runs["norm"].run()
        norm = self._update.norm(labels)
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise TrainingError(
                "the loss or its gradient is no finite number",
                where=f"step {self.step + 1}",
                found=f"loss {loss / labels}, gradient {norm}",
                hint="Lower the learning rate, or warm up longer.",
            )
        rate = learning_rate(self.step, o.steps, o.rate, o.schedule, o.warmup, o.floor)
        self._update.feed(self.step + 1, rate, labels, norm)
        self._runs["update"].run(whole=True)
        self.step += 1
        seconds = time.perf_counter() - began
        validation = None
        if self._check is not None and self._due(o.validate_every):
            validation = self.validate()
        return Report(self.step, loss / labels, labels, seconds, rate, norm, validation)

    def _due(self, every: int) -> bool:
        return self.step == self.options.steps or (every > 0 and self.step % every == 0)

    def _micro_batches(self) -> tuple[float, int]:
        """Run the micro-batches of the coming step; return the summed loss and the number of labels."""
        o = self.options
        for storage in self._accumulators.values():
            storage.array.view(np.float32).fill(0.0)
        loss, labels = 0.0, 0
        for number in range(o.accumulate):
            position = (self.step * o.accumulate + number) * o.sequences
            labels += self._train.feed(take(self._data, position, o.sequences))
            self._runs["train"].keep_outputs()
            self._runs["train"].run()
            loss += float(self._train.loss.numpy().reshape(()))
        return loss, labels

    def validate(self) -> float:
        """Return the mean loss per label over the whole validation set (its last incomplete micro-batch left out, if it
        is not the only one)."""
        if self._check is None or self._validation is None:
            raise ParameterError("there is no validation set", where="validation")
        batches = max(1, self._validation.rows(0) // self.options.sequences)
        loss, labels = 0.0, 0
        self._runs["check"].keep_outputs()
        for number in range(batches):
            labels += self._check.feed(take(self._validation, number * self.options.sequences, self.options.sequences))
            self._runs["check"].run()
            loss += float(self._check.loss.numpy().reshape(()))
        return loss / max(1, labels)
