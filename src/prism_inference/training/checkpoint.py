"""Checkpoints of a training: parameters, moments and the number of the step, in a GGUF file, and back.

A training taken up from one goes on exactly as if it had not stopped: the order of the data follows from the step.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np

from .. import gguf
from ..errors import TrainingError
from ..gguf import GGUFFile, GGUFWriter
from ..graph import Storage
from .trainer import Trainer

KIND = "training checkpoint"


def save_checkpoint(trainer: Trainer, path: str | os.PathLike[str]) -> None:
    """Write a checkpoint; an older one of the same name is replaced when the new one is whole."""
    writer = GGUFWriter(path)
    writer.add("general.type", KIND)
    writer.add("training.step", trainer.step)
    writer.add("training.method", json.dumps(trainer.method.describe(), sort_keys=True))
    writer.add("training.optimizer", trainer.options.optimizer.name)
    for parameter in trainer.method.parameters:
        writer.add_tensor(parameter.name, "F32", parameter.ne, parameter.array)
    for number, (ne, storage) in enumerate(_moments(trainer)):
        writer.add_tensor(f"moment.{number}", "F32", ne, storage.array.view(np.float32))
    writer.write()


def load_checkpoint(trainer: Trainer, path: str | os.PathLike[str]) -> None:
    """Set a trainer to a checkpoint's step.

    Raises:
        FormatError: not a readable file.
        TrainingError: it belongs to another training; nothing was changed.
    """
    with gguf.open(path) as file:
        _check(trainer, file, Path(path))
        for parameter in trainer.method.parameters:
            parameter.storage.array[: parameter.nbytes] = file.tensors[parameter.name].data
        for number, (_, storage) in enumerate(_moments(trainer)):
            storage.array[:] = file.tensors[f"moment.{number}"].data
        trainer.step = file.metadata.integer("training.step")


def _moments(trainer: Trainer) -> list[tuple[tuple[int, ...], Storage]]:
    """Return extents and bytes of the optimizer's state, in the order of the parameters."""
    found: list[tuple[tuple[int, ...], Storage]] = []
    for pair in trainer.moments.values():
        for moment in pair:
            assert moment.storage is not None
            found.append((moment.ne, moment.storage))
    return found


def _check(trainer: Trainer, file: GGUFFile, path: Path) -> None:
    """Refuse a checkpoint of another training."""
    where = str(path)
    if file.metadata.string("general.type", "") != KIND:
        raise TrainingError("not a checkpoint", where=where, hint="Give a file that `prism train` wrote.")
    wanted = {
        "training.method": json.dumps(trainer.method.describe(), sort_keys=True),
        "training.optimizer": trainer.options.optimizer.name,
    }
    for key, value in wanted.items():
        found = file.metadata.string(key)
        if found != value:
            raise TrainingError(
                "a checkpoint of another training", where=f"{where}, {key}", expected=value, found=found
            )
    expected = {p.name: _trimmed(p.ne) for p in trainer.method.parameters}
    expected |= {f"moment.{number}": _trimmed(ne) for number, (ne, _) in enumerate(_moments(trainer))}
    found_shapes = {name: _trimmed(info.ne) for name, info in file.tensors.items()}
    if expected != found_shapes:
        different = sorted(
            name for name in expected.keys() | found_shapes.keys() if expected.get(name) != found_shapes.get(name)
        )
        raise TrainingError("a checkpoint of another model", where=where, found=", ".join(different[:8]))


def _trimmed(ne: tuple[int, ...]) -> tuple[int, ...]:
    last = max((d for d, extent in enumerate(ne) if extent != 1), default=0)
    return tuple(int(extent) for extent in ne[: last + 1])
