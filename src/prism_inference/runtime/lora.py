"""Which adapters a model is loaded with: entries of a caller, each read in its layout and held against the model."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

from ..errors import LimitError, ParameterError
from ..limits import ADAPTER_MAX_COUNT
from .adapters import AdapterFile, Applied, check_adapter, read_adapter
from .weights import ModelFile

Source = str | os.PathLike[str]
Entry = Source | tuple[Source, float]  # a path, or a path and what the adapter's scale is multiplied by


def open_adapter(path: Source, model: ModelFile) -> AdapterFile:
    """Read an adapter, a GGUF file or a folder of PEFT's, and hold it against the model.

    Raises:
        FormatError, LimitError: a broken file, or one beyond a named limit.
        ModelError, UnsupportedError: it does not fit the model, or cannot be applied.
    """
    if Path(path).is_dir():
        from .peft import from_folder, read_folder

        adapter = from_folder(read_folder(path), model)
    else:
        adapter = read_adapter(path)
    check_adapter(adapter, model)
    return adapter


def open_adapters(entries: Sequence[Entry], model: ModelFile) -> tuple[Applied, ...]:
    """Read adapters and their factors; their additions add up.

    Raises:
        ParameterError: not a list of paths, or pairs of a path and a finite number.
        LimitError: more than `ADAPTER_MAX_COUNT`.
    """
    if isinstance(entries, str | os.PathLike):
        raise ParameterError(
            "not a list", where="lora", expected="paths, or pairs of a path and a number", found=entries
        )
    if len(entries) > ADAPTER_MAX_COUNT:
        raise LimitError("too many adapters", where="lora", expected=f"at most {ADAPTER_MAX_COUNT}", found=len(entries))
    pairs = [entry if isinstance(entry, tuple) else (entry, 1.0) for entry in entries]
    for path, factor in pairs:
        if isinstance(factor, bool) or not isinstance(factor, int | float) or not math.isfinite(factor):
            raise ParameterError("not a scale", where=f"lora, {path}", expected="a finite number", found=repr(factor))
    return tuple((open_adapter(path, model), float(factor)) for path, factor in pairs)
