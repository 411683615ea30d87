"""Low-rank adapters as data: pairs of matrices by weight, held against a model, made leaves, read from and written to
llama.cpp's adapter files. Knows no other layout and no graph but its leaves.
"""

from __future__ import annotations

import math
import os
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

from .. import codecs, gguf
from ..errors import FormatError, LimitError, ModelError, PrismWarning, UnsupportedError
from ..gguf import GGUFWriter, TensorInfo
from ..graph import Context, Storage
from ..limits import ADAPTER_MAX_RANK
from ..models import Adapter, refusal

if TYPE_CHECKING:
    from .weights import ModelFile

Floats = npt.NDArray[np.float32]

TYPES = ("F32", "F16", "BF16", "Q8_0")  # what converters write
_SUFFIXES = (".lora_a", ".lora_b")
_SHOWN = 8  # problems that an error lists
_CHUNK = 1 << 20  # values that are looked at at a time


@dataclass(frozen=True, eq=False)
class Matrix:
    """Numbers as a file has them: tensor type, extents in ggml order [in, out] or [in, out, experts], bytes."""

    type: str
    ne: tuple[int, ...]
    data: npt.NDArray[np.uint8]

    @property
    def nbytes(self) -> int:
        """Number of bytes."""
        return self.data.nbytes

    def values(self) -> Floats:
        """Return the numbers, float32 in NumPy order."""
        return codecs.decode(self.type, self.data, math.prod(self.ne)).reshape(tuple(reversed(self.ne)))

    @classmethod
    def encode(cls, kind: str, values: npt.NDArray[np.floating]) -> Matrix:
        """Make one of values in NumPy order."""
        data = np.frombuffer(codecs.encode(kind, values), np.uint8)
        return cls(kind, tuple(int(extent) for extent in reversed(values.shape)), data)

    def finite(self) -> bool:
        """Whether every value is a finite number."""
        row = gguf.tensor_type(self.type)
        step = _CHUNK // row.block * row.nbytes
        return all(
            bool(np.isfinite(codecs.decode(row, part, part.nbytes // row.nbytes * row.block)).all())
            for part in (self.data[start : start + step] for start in range(0, self.nbytes, step))
        )


@dataclass(frozen=True, eq=False)
class Pair:
    """What is added to one weight: scale·B·A, a [in, rank(, experts)] and b [rank, out(, experts)]."""

    a: Matrix
    b: Matrix
    scale: float

    @property
    def rank(self) -> int:
        """Rank of the product."""
        return self.b.ne[0]

    @property
    def alpha(self) -> float:
        """The number, in float32, whose quotient by the rank is the scale."""
        return float(np.float32(self.scale * self.rank))


@dataclass(frozen=True, eq=False)
class AdapterFile:
    """An adapter that was read: where from, the architecture it is made for, its pairs by weight, and what it says of
    the model it was trained on."""

    path: Path
    architecture: str
    pairs: Mapping[str, Pair]
    base: str = ""

    @property
    def nbytes(self) -> int:
        """Bytes of all matrices."""
        return sum(pair.a.nbytes + pair.b.nbytes for pair in self.pairs.values())

    @property
    def alpha(self) -> float | None:
        """The alpha of all pairs; None where they have several."""
        found = {pair.alpha for pair in self.pairs.values()}
        return found.pop() if len(found) == 1 else None


Applied = tuple[AdapterFile, float]  # an adapter, and what its scales are multiplied by


def check_pairs(adapter: AdapterFile) -> AdapterFile:
    """Return an adapter after holding the matrices of each pair against each other.

    Raises:
        FormatError: there are none, or two do not make a product.
        LimitError: a rank beyond `ADAPTER_MAX_RANK`.
        UnsupportedError: a type that is not known here.
    """
    if not adapter.pairs:
        raise FormatError("an adapter without matrices", where=str(adapter.path))
    for name, pair in adapter.pairs.items():
        where = f"{adapter.path}, {name}"
        (_, rank, *experts), (same, _, *others) = pair.a.ne, pair.b.ne
        if rank != same or experts != others or len(experts) > 1 or 0 in pair.a.ne + pair.b.ne:
            expected = "A [in, rank] and B [rank, out], both with a third extent of experts or without"
            raise FormatError("not a pair", where=where, expected=expected, found=f"{pair.a.ne} and {pair.b.ne}")
        if rank > ADAPTER_MAX_RANK:
            raise LimitError("the rank is too large", where=where, expected=f"at most {ADAPTER_MAX_RANK}", found=rank)
        for matrix in (pair.a, pair.b):
            if matrix.type not in TYPES:
                expected = ", ".join(TYPES)
                raise UnsupportedError("an adapter in this type", where=where, expected=expected, found=matrix.type)
    return adapter


def check_adapter(adapter: AdapterFile, model: ModelFile) -> None:
    """Hold an adapter against the model that it is to change.

    Raises:
        ModelError: another architecture; weights that the model does not have or use; shapes that do not fit; values
            that are not finite. All are listed.
        UnsupportedError: an adapter on what is no matrix of a product.
    """
    where, architecture = str(adapter.path), model.config.architecture
    if adapter.architecture != architecture:
        raise ModelError(
            "an adapter for another architecture", where=where, expected=architecture, found=adapter.architecture
        )
    problems = []
    for name, pair in adapter.pairs.items():
        info = model.tensors.get(name)
        why = None if info is None else refusal(architecture, name, len(info.ne))
        if why is not None:
            raise UnsupportedError(
                "this weight cannot have an adapter", where=f"{where}, {name}", hint=f"Reason: {why}."
            )
        problems += [_missing(name, model)] if info is None else _misfits(name, pair, info)
    if problems:
        shown = "; ".join(problems[:_SHOWN]) + (
            f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        )
        raise ModelError(
            "the adapter does not fit the model", where=where, found=shown, hint="It may belong to another model."
        )


def _missing(name: str, model: ModelFile) -> str:
    tied = " (its head is the embedding's table)" if name == "output.weight" and model.config.tied else ""
    return f"the model has no {name[:80]}{tied}"


def _misfits(name: str, pair: Pair, info: TensorInfo) -> list[str]:
    """Return what is wrong with a pair's shapes or values."""
    inputs, outputs, *experts = info.ne
    wanted = {
        "lora_a": (pair.a, _of_matrix((inputs, pair.rank, *experts))),
        "lora_b": (pair.b, _of_matrix((pair.rank, outputs, *experts))),
    }
    problems = [
        f"{name}.{part} has extents {matrix.ne} instead of {ne}"
        for part, (matrix, ne) in wanted.items()
        if matrix.ne != ne
    ]
    return problems or [
        f"{name}.{part} has values that are not finite" for part, (m, _) in wanted.items() if not m.finite()
    ]


def _of_matrix(ne: Sequence[int]) -> tuple[int, ...]:
    """Extents, two at least, without further trailing ones: files leave some out."""
    kept = [*ne, 1] if len(ne) == 1 else list(ne)
    while len(kept) > 2 and kept[-1] == 1:
        kept.pop()
    return tuple(kept)


def leaves(context: Context, applied: Sequence[Applied]) -> dict[str, list[Adapter]]:
    """Make leaves over the bytes of every pair, by weight."""
    made: dict[str, list[Adapter]] = {}
    for number, (adapter, factor) in enumerate(applied):
        for name, pair in adapter.pairs.items():
            a, b = (
                context.tensor(m.type, m.ne, name=f"{name}.{part} {number}", storage=Storage(m.data))
                for part, m in (("lora_a", pair.a), ("lora_b", pair.b))
            )
            made.setdefault(name, []).append(Adapter(a, b, factor * pair.scale))
    return made


def read_adapter(path: str | os.PathLike[str]) -> AdapterFile:
    """Read an adapter in llama.cpp's layout; the bytes stay mapped.

    Each pair's scale is `adapter.lora.alpha` / rank, or 1 where alpha is 0 or missing, as llama.cpp has it. Norms that
    lie beside the pairs are left out with a warning, as there.

    Raises:
        FormatError, LimitError: not a GGUF file, or not a sound adapter.
        UnsupportedError: another kind of adapter, one that works on some tokens only, or in a type not known here.
    """
    with gguf.open(path) as file:
        metadata, where = file.metadata, str(file.path)
        kind = metadata.string("general.type", "model")
        if kind != "adapter":
            raise FormatError("not an adapter", where=f"{where}, general.type", expected="adapter", found=repr(kind))
        if metadata.string("adapter.type") != "lora":
            found = repr(metadata["adapter.type"])
            raise UnsupportedError(
                "another kind of adapter", where=f"{where}, adapter.type", expected="lora", found=found
            )
        if "adapter.alora.invocation_tokens" in metadata:
            raise UnsupportedError("an adapter that works only after certain tokens", where=where)
        alpha = metadata.number("adapter.lora.alpha", 0.0)
        base = metadata.string("general.base_model.0.repo_url", metadata.string("general.base_model.0.name", ""))
        base = urlsplit(base).path.strip("/") if "://" in base else base
        pairs = {
            name: Pair(_matrix(parts[0]), _matrix(parts[1]), alpha / max(1, parts[1].ne[0]) if alpha else 1.0)
            for name, parts in _pairs(file.tensors, where).items()
        }
        return check_pairs(AdapterFile(Path(file.path), metadata.string("general.architecture"), pairs, base))


def _matrix(info: TensorInfo) -> Matrix:
    return Matrix(info.type.name, _of_matrix(info.ne), info.data)


def _pairs(tensors: Mapping[str, TensorInfo], where: str) -> dict[str, list[TensorInfo]]:
    """Return both matrices of each weight."""
    found: dict[str, dict[str, TensorInfo]] = {}
    norms = []
    for name, info in tensors.items():
        suffix = name[-len(_SUFFIXES[0]) :]
        if suffix in _SUFFIXES:
            found.setdefault(name.removesuffix(suffix), {})[suffix] = info
        elif name.endswith("_norm.weight"):
            norms.append(name)
        else:
            raise FormatError("a tensor that no adapter has", where=f"{where}, {name}", expected="*.lora_a, *.lora_b")
    for name, parts in found.items():
        if len(parts) < len(_SUFFIXES):
            raise FormatError("a matrix without its partner", where=f"{where}, {name}", found=", ".join(parts))
    if norms:
        warnings.warn(
            f"{where}: {len(norms)} norms ({norms[0]} …) are not low-rank and are not applied",
            PrismWarning,
            stacklevel=4,
        )
    return {name: [parts[suffix] for suffix in _SUFFIXES] for name, parts in found.items()}


def write_adapter(path: str | os.PathLike[str], adapter: AdapterFile) -> None:
    """Write an adapter in llama.cpp's layout; the file is whole, or not there.

    One alpha serves all pairs: the commonest. The B of the others are multiplied by what is left, in float32.
    """
    writer = GGUFWriter(path)
    writer.add("general.type", "adapter")
    writer.add("general.architecture", adapter.architecture)
    writer.add("adapter.type", "lora")
    ((alpha, _),) = Counter(pair.alpha for pair in adapter.pairs.values()).most_common(1)
    writer.add("adapter.lora.alpha", alpha)
    if adapter.base:
        writer.add("general.base_model.count", 1)
        writer.add("general.base_model.0.name", adapter.base)
    for name, pair in adapter.pairs.items():
        b = pair.b
        if pair.alpha != alpha:
            b = Matrix.encode("F32", b.values() * np.float32(pair.alpha / alpha))
        writer.add_tensor(f"{name}.lora_a", pair.a.type, pair.a.ne, pair.a.data)
        writer.add_tensor(f"{name}.lora_b", b.type, b.ne, b.data)
    writer.write()
