"""What a training gives, as files: a whole model, or adapters."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .. import codecs
from ..errors import ParameterError
from ..gguf import GGUFWriter
from .methods import Full, LoRA, Method


def save(method: Method, path: str | os.PathLike[str], kind: str = "F32") -> None:
    """Write the result of a training.

    Args:
        method: `Full` gives a model file with the metadata of the one it started from, `LoRA` an adapter in the layout
            of llama.cpp's.
        path: the file; it is whole, or not there.
        kind: tensor type of a model's matrices, but for those that were trained as a type of fewer bits.

    Raises:
        ParameterError: the file is the model that is in use.
        UnsupportedError: a type without encoder.
    """
    writers: dict[type, Callable[[Any, Path, str], None]] = {Full: _save_full, LoRA: _save_lora}
    writers[type(method)](method, Path(path), kind)


def _save_full(method: Full, path: Path, kind: str) -> None:
    file = method.model.file
    if path.exists() and path.samefile(file.path):
        raise ParameterError("the result would overwrite the model that is in use", where=str(path))
    writer = GGUFWriter(path)
    writer.add_metadata(file)
    for parameter in method.parameters:
        stored = method.rounding.get(parameter.name, kind if len(parameter.ne) > 1 else "F32")
        writer.add_tensor(parameter.name, stored, parameter.ne, codecs.encode(stored, parameter.array))
    writer.write()


def _save_lora(method: LoRA, path: Path, kind: str) -> None:
    writer = GGUFWriter(path)
    writer.add("general.type", "adapter")
    writer.add("general.architecture", method.model.config.architecture)
    writer.add("adapter.type", "lora")
    writer.add("adapter.lora.alpha", method.alpha)
    for parameter in method.parameters:
        writer.add_tensor(parameter.name, "F32", parameter.ne, parameter.array)
    writer.write()
