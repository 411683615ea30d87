"""A file's tensors against what its architecture asks for: names, shapes, types; nothing is read or decoded here."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import ModelError
from ..gguf import GGUFFile, TensorInfo
from ..graph import Context, Storage, Tensor
from ..models import Architecture, Config, architecture


@dataclass(frozen=True)
class ModelFile:
    """A checked file: its hyper-parameters, the tensors that the graph uses, and the names of those that it does
    not."""

    file: GGUFFile
    config: Config
    architecture: Architecture
    tensors: Mapping[str, TensorInfo]
    surplus: tuple[str, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors in use."""
        return sum(info.nbytes for info in self.tensors.values())

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
    return ModelFile(file, config, module, used, surplus)


def _trimmed(ne: tuple[int, ...]) -> tuple[int, ...]:
    """Extents without trailing ones."""
    last = max((d for d, extent in enumerate(ne) if extent != 1), default=-1)
    return tuple(ne[: last + 1])


def _nearest(name: str, tensors: Mapping[str, TensorInfo]) -> str:
    close = difflib.get_close_matches(name, tensors, 1, 0.85)
    return f" (the file has {close[0]})" if close else ""
