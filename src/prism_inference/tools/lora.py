"""Adapters as files: merged into a model, converted from one layout to the other, described.

Knows no command line, and runs no model.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import codecs, gguf
from ..errors import ParameterError, UnsupportedError
from ..gguf import GGUFWriter, TensorInfo, tensor_type
from ..models import Rotation
from ..runtime.adapters import AdapterFile, Applied, read_adapter, write_adapter
from ..runtime.lora import Entry, open_adapter, open_adapters
from ..runtime.peft import read_folder, write_folder
from ..runtime.weights import ModelFile, check

Floats = npt.NDArray[np.float32]
Progress = Callable[[int, int], None]  # bytes written, bytes in all

_CHUNK = 1 << 20  # weights that are decoded at a time
KEEP = "keep"
_BLOCK = re.compile(r"blk\.\d+\.|^(base_model\.model\.)?(model\.)?layers\.\d+\.")


@dataclass
class MergeReport:
    """What a merge did: weights changed, and how large the change was and what rounding to the written types lost of
    it, as sums of squares."""

    weights: int = 0
    change: float = 0.0
    lost: float = 0.0

    @property
    def rounding(self) -> float:
        """Length of the rounding error, in lengths of the change: above 1 the change is smaller than its error."""
        return math.sqrt(self.lost / self.change) if self.change else 0.0


def merge(
    model: str | os.PathLike[str],
    adapters: Sequence[Entry],
    output: str | os.PathLike[str],
    kind: str = KEEP,
    progress: Progress | None = None,
) -> MergeReport:
    """Write a model whose weights have adapters added: W + Σ scale·B·A, row by row in bounded memory.

    Other tensors and all metadata are copied byte for byte. Rows of A are rotated where the weight is folded with a
    rotation. Experts get their own parts.

    Args:
        model: a GGUF file, or any shard of a set.
        adapters: paths, or pairs of a path and what the adapter's scale is multiplied by.
        output: the file; it is whole, or not there.
        kind: tensor type of the changed weights, or `keep`: the one that each has.
        progress: called with bytes written and bytes in all.

    Raises:
        ParameterError: no adapters, or the output is one of the inputs.
        UnsupportedError: a type without encoder.
        FormatError, ModelError, LimitError: an adapter is broken or does not fit.
    """
    with gguf.open(model) as file:
        plain = check(file)
        applied = open_adapters(adapters, plain)
        if not applied:
            raise ParameterError("nothing to merge", where="adapters", expected="at least one")
        target = Path(output)
        _refuse_inputs(target, [*file.paths, *(adapter.path for adapter, _ in applied)])
        writer = GGUFWriter(target, version=file.version, alignment=file.alignment)
        writer.add_metadata(file)
        report = MergeReport()
        names = dict.fromkeys(name for adapter, _ in applied for name in adapter.pairs)
        kinds = {name: _written_type(file.tensors[name], kind) for name in names}
        total = sum(tensor_type(kinds.get(name, info.type)).size(info.elements) for name, info in file.tensors.items())
        count = _Counted(total, progress)
        for name, info in file.tensors.items():
            if name in kinds:
                chunks = _merged(info, plain, applied, kinds[name], report)
                writer.add_tensor(name, kinds[name], info.ne, count(chunks))
            else:
                writer.add_tensor(name, info.type, info.ne, count(_pieces(info)))
        writer.write()
        return report


def _refuse_inputs(target: Path, inputs: Sequence[Path]) -> None:
    for path in inputs:
        if target.exists() and path.exists() and target.samefile(path):
            raise ParameterError("the result would overwrite a file that it is made of", where=str(target))


def _written_type(info: TensorInfo, kind: str) -> str:
    """Return the type in which a changed weight is written, after making sure that this is possible."""
    name = info.type.name if kind == KEEP else tensor_type(kind, "type").name
    if codecs.get(name).encode is None:
        able = ", ".join(row for row, codec in codecs.CODECS.items() if codec.encode is not None)
        raise UnsupportedError(
            "no encoder for this type",
            where=info.name,
            expected=able,
            found=name,
            hint="Name another type for the changed weights, such as Q8_0." if kind == KEEP else None,
        )
    return name


@dataclass(frozen=True)
class _Change:
    """What is added to a weight: a [experts or 1, rank, in], b [experts or 1, out, rank], the scale in b."""

    a: Floats
    b: Floats


def _changes(name: str, applied: Sequence[Applied], rotation: Rotation | None) -> list[_Change]:
    made = []
    for adapter, factor in applied:
        pair = adapter.pairs.get(name)
        if pair is None:
            continue
        a, b = (values if values.ndim == 3 else values[None] for values in (pair.a.values(), pair.b.values()))
        if rotation is not None and name in rotation.weights:
            a = rotation.turn(a)
        made.append(_Change(a, b * np.float32(pair.scale * factor)))
    return made


def _merged(
    info: TensorInfo, model: ModelFile, applied: Sequence[Applied], kind: str, report: MergeReport
) -> Iterator[bytes]:
    """Give the bytes of a changed weight, some rows at a time."""
    changes = _changes(info.name, applied, model.rotation)
    report.weights += 1
    columns, rows = info.ne[0], info.ne[1]
    nbytes = info.type.size(columns)
    step = max(1, _CHUNK // columns)
    for expert in range(math.prod(info.ne[2:])):
        for start in range(0, rows, step):
            count = min(step, rows - start)
            place = (expert * rows + start) * nbytes
            plain = codecs.decode(info.type, info.data[place : place + count * nbytes], count * columns)
            change = np.zeros((count, columns), np.float32)
            for part in changes:
                change += part.b[expert, start : start + count] @ part.a[expert]
            wanted = plain.reshape(count, columns) + change
            raw = codecs.encode(kind, wanted)
            written = codecs.decode(kind, raw, wanted.size).reshape(wanted.shape)
            report.change += float(np.square(change, dtype=np.float64).sum())
            report.lost += float(np.square(written - wanted, dtype=np.float64).sum())
            yield raw


def _pieces(info: TensorInfo) -> Iterator[npt.NDArray[np.uint8]]:
    step = 4 * _CHUNK
    for start in range(0, info.nbytes, step):
        yield info.data[start : start + step]


class _Counted:
    """Hands chunks on and tells how many bytes have passed."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._done, self._total, self._progress = 0, total, progress

    def __call__(self, chunks: Iterator[Any]) -> Iterator[Any]:
        for chunk in chunks:
            yield chunk
            self._done += len(chunk)
            if self._progress is not None:
                self._progress(self._done, self._total)


# --- Layouts ----------------------------------------------------------------------------------------------------------


def convert(
    source: str | os.PathLike[str], output: str | os.PathLike[str], model: str | os.PathLike[str] | None = None
) -> AdapterFile:
    """Write an adapter in the other layout: a folder of PEFT's becomes a GGUF file, a GGUF file a folder.

    Args:
        source: a folder, or a GGUF file.
        output: a name that ends with `.gguf`, or else a folder that is new or empty.
        model: the GGUF model that the adapter belongs to: says the architecture and its sizes. Needed for a folder;
            for a GGUF file only where rows are ordered by heads (llama, qwen35).

    Raises:
        ParameterError: both are of one layout, or the model is needed.
        FormatError, ModelError, UnsupportedError, LimitError: the adapter is broken, does not fit the model, or cannot
            be expressed.
    """
    folder, file = Path(source).is_dir(), Path(output).suffix == ".gguf"
    if folder is not file:
        found = "two folders" if folder else "two GGUF files"
        raise ParameterError("nothing to convert", expected="a folder and a name that ends with .gguf", found=found)
    if model is None:
        if folder:
            hint = "A folder does not say which architecture it is for."
            raise ParameterError("the model is needed", where=str(source), hint=hint)
        adapter = read_adapter(source)
        write_folder(output, adapter)
        return adapter
    with gguf.open(model) as opened:
        checked = check(opened)
        adapter = open_adapter(source, checked)
        _refuse_inputs(Path(output), [*opened.paths, adapter.path])
        if file:
            write_adapter(output, adapter)
        else:
            write_folder(output, adapter, checked)
    return adapter


@dataclass(frozen=True)
class Description:
    """What an adapter holds, of either layout."""

    path: str
    layout: str
    architecture: str | None
    base: str | None
    alpha: float | None
    ranks: dict[int, int]
    targets: dict[str, int]
    types: dict[str, int]
    parameters: int
    bytes: int


def inspect(path: str | os.PathLike[str]) -> Description:
    """Describe an adapter from its own files: how many pairs there are of each rank, type and place in a block.

    `alpha` is None where the pairs' scales are of no single one; a folder does not say its architecture.
    """
    if Path(path).is_dir():
        return _describe_folder(path)
    adapter = read_adapter(path)
    rows = [(name, pair.rank, (pair.a.type, pair.b.type)) for name, pair in adapter.pairs.items()]
    sizes = [math.prod(m.ne) for pair in adapter.pairs.values() for m in (pair.a, pair.b)]
    blank = Description(str(path), "GGUF", adapter.architecture, adapter.base or None, adapter.alpha, {}, {}, {}, 0, 0)
    return replace(_counted(blank, rows), parameters=sum(sizes), bytes=adapter.nbytes)


def _describe_folder(path: str | os.PathLike[str]) -> Description:
    folder = read_folder(path)
    rows = [(name, a.shape[0], (a.dtype, b.dtype)) for name, (a, b) in folder.modules.items()]
    alphas = {float(np.float32(folder.scale(name) * a.shape[0])) for name, (a, _) in folder.modules.items()}
    alpha = alphas.pop() if len(alphas) == 1 else None
    raws = [raw for pair in folder.modules.values() for raw in pair]
    blank = Description(str(path), "PEFT", None, folder.base or None, alpha, {}, {}, {}, 0, 0)
    parameters, nbytes = sum(math.prod(raw.shape) for raw in raws), sum(raw.data.nbytes for raw in raws)
    return replace(_counted(blank, rows), parameters=parameters, bytes=nbytes)


def _counted(blank: Description, rows: Sequence[tuple[str, int, tuple[str, str]]]) -> Description:
    targets = Counter(_BLOCK.sub("", name) for name, *_ in rows)
    return replace(
        blank,
        ranks=dict(sorted(Counter(rank for _, rank, _ in rows).items())),
        targets=dict(sorted(targets.items())),
        types=dict(Counter(kind for *_, kinds in rows for kind in kinds)),
    )
