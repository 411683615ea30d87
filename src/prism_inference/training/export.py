"""What a training gives, as files: a whole model, or adapters."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .. import codecs
from ..errors import ParameterError, UnsupportedError
from ..gguf import GGUFWriter
from ..runtime.adapters import write_adapter
from ..runtime.peft import check_new_folder, write_folder
from .methods import Full, LoRA, Method


def save(method: Method, path: str | os.PathLike[str], kind: str = "F32") -> None:
    """Write the result of a training.

    Args:
        method: `Full` gives a model file with the metadata of the one it started from. `LoRA` gives an adapter: in
            llama.cpp's layout where the path ends with `.gguf`, else a folder in PEFT's.
        path: the file or folder; it is whole, or not there.
        kind: tensor type of a model's matrices, but for those that were trained as a type of fewer bits.

    Raises:
        ParameterError: the file is the model that is in use, or the folder has something in it.
        UnsupportedError: a type without encoder.
    """
    check_output(method, path, kind)
    writers: dict[type, Callable[[Any, Path, str], None]] = {Full: _save_full, LoRA: _save_lora}
    writers[type(method)](method, Path(path), kind)


def check_output(method: Method, path: str | os.PathLike[str], kind: str = "F32") -> None:
    """Make sure, before a training has taken its time, that its result can be written.

    Raises:
        ParameterError: as `save`, or there is no folder to write into.
        UnsupportedError: as `save`.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise ParameterError("no such folder", where=str(path.parent))
    if path.exists() and path.samefile(method.model.file.path):
        raise ParameterError("the result would overwrite the model that is in use", where=str(path))
    if codecs.get(kind).encode is None:
        raise UnsupportedError("no encoder for this type", where="kind", found=kind)
    if isinstance(method, LoRA) and path.suffix == ".safetensors":
        raise ParameterError("PEFT's layout is a folder", where=str(path), hint="Leave .safetensors out.")
    if isinstance(method, LoRA) and path.suffix != ".gguf":
        check_new_folder(path)
    elif path.is_dir():
        raise ParameterError("this is a folder", where=str(path), expected="a file")


def _save_full(method: Full, path: Path, kind: str) -> None:
    writer = GGUFWriter(path)
    writer.add_metadata(method.model.file)
    for parameter in method.parameters:
        stored = method.rounding.get(parameter.name, kind if len(parameter.ne) > 1 else "F32")
        writer.add_tensor(parameter.name, stored, parameter.ne, codecs.encode(stored, parameter.array))
    writer.write()


def _save_lora(method: LoRA, path: Path, kind: str) -> None:
    adapter = method.adapter()
    if path.suffix == ".gguf":
        write_adapter(path, adapter)
    else:
        write_folder(path, adapter, method.model)
