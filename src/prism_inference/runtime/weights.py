"""A file's tensors against what its architecture asks for: names, shapes, types; nothing is read or decoded here."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import ModelError, PrismWarning
from ..gguf import GGUFFile, TensorInfo
from ..graph import Context, Storage, Tensor
from ..models import Architecture, Config, Rotation, architecture, read_rotation
from .adapters import Applied


@dataclass(frozen=True)
class ModelFile:
    """A checked file: its hyper-parameters, the tensors that the graph uses, and the names of those that it does
    not; and the adapters that change its products."""

    file: GGUFFile
    config: Config
    architecture: Architecture
    tensors: Mapping[str, TensorInfo]
    surplus: tuple[str, ...]
    rotation: Rotation | None = None
    adapters: tuple[Applied, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors in use."""
        return sum(info.nbytes for info in self.tensors.values())

    @property
    def adapter_bytes(self) -> int:
        """Bytes of the adapters."""
        return sum(adapter.nbytes for adapter, _ in self.adapters)

    def leaves(self, context: Context) -> dict[str, Tensor]:
        """Make a leaf over the mapped bytes of each tensor."""
        return {
            name: context.tensor(info.type.name, info.ne, name=name, storage=Storage(info.data))
            for name, info in self.tensors.items()
        }


def check(file: GGUFFile) -> ModelFile:
    """Read the architecture of a file and hold its tensors against it.

    Raises:
        ModelError: tensors are missing or of the wrong shape; all of them are listed.
        UnsupportedError, MetadataError: unknown architecture, bad hyper-parameters.
    """
    where = str(file.path)
    name = file.metadata.string("general.architecture")
    module = architecture(name)
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.ne) != 2:
        found = "nothing" if embedding is None else f"extents {embedding.ne}"
        raise ModelError("no embedding table", where=where, expected="token_embd.weight with two extents", found=found)
    config = module.read(file.metadata, int(embedding.ne[1]), "output.weight" not in file.tensors)
    expected = module.tensors(config)
    problems = []
    used: dict[str, TensorInfo] = {}
    for tensor, row in expected.items():
        info = file.tensors.get(tensor)
        if info is None:
            if not row.optional:
                problems.append(f"{tensor} is missing{_nearest(tensor, file.tensors)}")
        elif _trimmed(info.ne) != _trimmed(row.ne):
            problems.append(f"{tensor} has extents {info.ne} instead of {row.ne}")
        else:
            used[tensor] = info
    if problems:
        shown = "; ".join(problems[:8]) + (f"; and {len(problems) - 8} more" if len(problems) > 8 else "")
        raise ModelError(f"the tensors do not make a {name} model", where=where, found=shown)
    surplus = tuple(tensor for tensor in file.tensors if tensor not in expected)
    rotation = read_rotation(file.metadata, {tensor: int(info.ne[0]) for tensor, info in used.items()})
    _warn_of_unrotated(file, used, rotation)
    return ModelFile(file, config, module, used, surplus, rotation)


def _warn_of_unrotated(file: GGUFFile, used: Mapping[str, TensorInfo], rotation: Rotation | None) -> None:
    """Warn of Prism's ternary types in a file that is neither rotated nor called a Bonsai model: ordinary models that
    were forced into these types load well and write noise."""
    prism = sorted({info.type.name for info in used.values()} & {"PQ2_0", "PTQ1_0"})
    names = [file.metadata.string(key, "") for key in ("general.name", "general.basename")]
    if prism and rotation is None and not any("bonsai" in name.lower() for name in names):
        warnings.warn(
            f"{file.path}: {', '.join(prism)} weights without prism.hadamard keys, in a model not named Bonsai: "
            "unless it was trained for these types, its answers will be noise",
            PrismWarning,
            stacklevel=4,
        )


def _trimmed(ne: tuple[int, ...]) -> tuple[int, ...]:
    """Extents without trailing ones."""
    last = max((d for d, extent in enumerate(ne) if extent != 1), default=-1)
    return tuple(ne[: last + 1])


def _nearest(name: str, tensors: Mapping[str, TensorInfo]) -> str:
    close = difflib.get_close_matches(name, tensors, 1, 0.85)
    return f" (the file has {close[0]})" if close else ""
