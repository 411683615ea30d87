"""Adapters in PEFT's layout: a folder with `adapter_config.json` and `adapter_model.safetensors`, read and written.

Names and orders of rows are transformers', so that a model says which weights are meant. What makes a result differ
from W + scale·B·A of the plain model (DoRA, whole modules, changed base weights …) is refused.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..errors import FormatError, LimitError, ModelError, ParameterError, UnsupportedError
from ..limits import ADAPTER_MAX_CONFIG_BYTES
from ..models import column_order, module_of, place, row_order
from ..models.adapters import Order, reordered
from .adapters import AdapterFile, Matrix, Pair, check_pairs
from .safetensors import Raw, parse_json, read_tensors, write_tensors

if TYPE_CHECKING:
    from .weights import ModelFile

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
_KEY = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?P<part>[AB])\.weight")
_PLAIN_PATTERN = re.compile(r"\^?[\w.]+")
_CHANGED_BASE = ("pissa", "olora", "loftq", "corda", "lora_ga")

# Settings that must be unset, and what they would do.
_REFUSED = {
    "use_dora": "DoRA scales the adapted weights' columns",
    "use_qalora": "QALoRA pools the inputs",
    "use_bdlora": "the matrices are of blocks",
    "fan_in_fan_out": "the matrices are transposed",
    "lora_bias": "biases are trained too",
    "modules_to_save": "whole modules are replaced",
    "trainable_token_indices": "rows of the embedding are replaced",
    "target_parameters": "adapters on the fused matrices of all experts do not say which of them they belong to",
    "layer_replication": "blocks are repeated",
    "alora_invocation_tokens": "the adapter works only after certain tokens",
    "arrow_config": "several adapters are mixed token by token",
    "velora_config": "an unknown kind",
    "kasa_config": "an unknown kind",
    "monteclora_config": "an unknown kind",
}


@dataclass(frozen=True, eq=False)
class PeftFolder:
    """A folder that was read: its settings, and A [rank, in] and B [out, rank] of each module."""

    path: Path
    config: Mapping[str, Any]
    modules: Mapping[str, tuple[Raw, Raw]]

    @property
    def base(self) -> str:
        """The model that the adapter was trained on, as the settings name it."""
        return str(self.config.get("base_model_name_or_path") or "")

    def scale(self, module: str) -> float:
        """Return alpha / rank of a module, alpha / √rank with `use_rslora`.

        Raises:
            FormatError: the settings give another rank than the matrices have, or no usable alpha.
        """
        where = f"{self.path}, {module[:120]}"
        alpha, rank = self._setting("lora_alpha", "alpha_pattern", module), self._setting("r", "rank_pattern", module)
        found = self.modules[module][0].shape[0]
        if type(rank) is not int or rank != found:
            raise FormatError("the settings give another rank", where=where, expected=found, found=repr(rank)[:80])
        if type(alpha) not in (int, float) or not math.isfinite(alpha) or alpha == 0:
            raise FormatError("no usable alpha", where=where, expected="a number that is not 0", found=repr(alpha)[:80])
        return float(alpha / math.sqrt(rank) if self.config.get("use_rslora") else alpha / rank)

    def _setting(self, name: str, patterns: str, module: str) -> Any:
        """Return a setting of a module: that of the first pattern that its name ends with, else the common one."""
        for key, value in (self.config.get(patterns) or {}).items():
            start = key.removeprefix("^")
            if module == start or (key == start and module.endswith(f".{start}")):
                return value
        return self.config.get(name)


def read_folder(path: str | os.PathLike[str]) -> PeftFolder:
    """Read a folder; matrices stay mapped.

    Raises:
        FormatError, LimitError: its files are missing, broken or too large.
        UnsupportedError: another kind of adapter than plain LoRA, or tensors beside its matrices.
    """
    folder = Path(path)
    config = _read_config(folder / CONFIG)
    where = str(folder / TENSORS)
    found: dict[str, dict[str, Raw]] = {}
    for name, raw in read_tensors(folder / TENSORS).items():
        if name.endswith(".base_layer.weight"):  # a copy of the model's own weight
            continue
        match = _KEY.fullmatch(name)
        if match is None:
            raise UnsupportedError("a tensor that plain LoRA does not have", where=f"{where}, {name[:120]!r}")
        found.setdefault(match["module"], {})[match["part"]] = raw
    for module, parts in found.items():
        shapes = [parts[part].shape for part in "AB" if part in parts]
        if len(parts) < 2 or any(len(shape) != 2 for shape in shapes) or shapes[0][0] != shapes[1][1]:
            expected = "A [rank, in] and B [out, rank]"
            raise FormatError("not a pair", where=f"{where}, {module[:120]!r}", expected=expected, found=shapes)
    if not found:
        raise FormatError("an adapter without matrices", where=where)
    return PeftFolder(folder, config, {module: (parts["A"], parts["B"]) for module, parts in found.items()})


def _read_config(path: Path) -> dict[str, Any]:
    """Return the settings, after refusing those that ask for more than W + scale·B·A."""
    where = str(path)
    try:
        size = path.stat().st_size
        if size > ADAPTER_MAX_CONFIG_BYTES:
            raise LimitError("too long", where=where, expected=f"at most {ADAPTER_MAX_CONFIG_BYTES}", found=size)
        config = parse_json(path.read_bytes(), where)
    except OSError as error:
        raise FormatError("not an adapter's folder", where=where, found=str(error)) from error
    if config.get("peft_type") != "LORA":
        raise UnsupportedError(
            "another kind of adapter", where=f"{where}, peft_type", expected="LORA", found=repr(config.get("peft_type"))
        )
    for key, why in _REFUSED.items():
        if config.get(key):
            raise UnsupportedError("not applied here", where=f"{where}, {key}", hint=f"Reason: {why}.")
    if config.get("bias", "none") != "none":
        raise UnsupportedError("not applied here", where=f"{where}, bias", hint="Reason: biases are trained too.")
    start = str(config.get("init_lora_weights")).lower()
    if start.startswith(_CHANGED_BASE):
        hint = "Reason: the model's own weights were changed at the start; save the adapter converted to plain LoRA."
        raise UnsupportedError("not applied here", where=f"{where}, init_lora_weights", found=start[:80], hint=hint)
    for name in ("rank_pattern", "alpha_pattern"):
        patterns = config.get(name) or {}
        bad = (
            [key for key in patterns if not _PLAIN_PATTERN.fullmatch(key)] if isinstance(patterns, dict) else [patterns]
        )
        if bad:
            expected = "names of modules, or their ends"
            raise UnsupportedError("a pattern", where=f"{where}, {name}", expected=expected, found=repr(bad[0])[:120])
    return config


# --- To the names and orders of a file ----------------------------------------------------------------------------


def from_folder(folder: PeftFolder, model: ModelFile) -> AdapterFile:
    """Return the adapter with the names, orders and stacked experts of a model's file.

    Raises:
        UnsupportedError: a module without known place in such files, or experts that differ in rank, type or scale.
        ModelError: experts that the model does not have.
    """
    architecture = model.config.architecture
    pairs: dict[str, Pair] = {}
    experts: dict[str, dict[int, Pair]] = {}
    for module, (a, b) in folder.modules.items():
        where = place(architecture, module)
        pair = Pair(_matrix(a), _matrix(b), folder.scale(module))
        if where.expert is None:
            pairs[where.weight] = _ordered(pair, where.weight, model)
        else:
            experts.setdefault(where.weight, {})[where.expert] = pair
    for weight, parts in experts.items():
        pairs[weight] = _stacked(parts, weight, model, str(folder.path))
    order = {name: number for number, name in enumerate(model.tensors)}
    pairs = dict(sorted(pairs.items(), key=lambda item: order.get(item[0], len(order))))  # as files have them
    return check_pairs(AdapterFile(folder.path, architecture, pairs, folder.base))


def _matrix(raw: Raw) -> Matrix:
    return Matrix(raw.dtype, (raw.shape[1], raw.shape[0]), raw.data)


def _ordered(pair: Pair, weight: str, model: ModelFile) -> Pair:
    """Put B's rows and A's columns into the file's order."""
    rows, columns = _orders(weight, model)
    if rows is not None and len(rows) == pair.b.ne[1]:  # otherwise it is refused later
        pair = Pair(pair.a, _rearranged(pair.b, rows=rows), pair.scale)
    if columns is not None and len(columns) == pair.a.ne[0]:
        pair = Pair(_rearranged(pair.a, columns=columns), pair.b, pair.scale)
    return pair


def _orders(weight: str, model: ModelFile) -> tuple[Order | None, Order | None]:
    grouped = model.rotation is not None and model.rotation.grouped
    return row_order(model.config, weight), column_order(model.config, weight, grouped)


def _rearranged(matrix: Matrix, rows: Order | slice = slice(None), columns: Order | slice = slice(None)) -> Matrix:
    """Row i becomes what row rows[i] was; the same for columns. No number is touched."""
    values = matrix.data.reshape(matrix.ne[1], matrix.ne[0], -1)
    return Matrix(matrix.type, matrix.ne, np.ascontiguousarray(values[rows][:, columns]).reshape(-1))


def _stacked(parts: Mapping[int, Pair], weight: str, model: ModelFile, where: str) -> Pair:
    """Put the experts' matrices into one; experts without adapter get zeros."""
    info = model.tensors.get(weight)
    count = info.ne[2] if info is not None and len(info.ne) == 3 else 0
    if max(parts) >= count:
        raise ModelError("the model has no such expert", where=f"{where}, {weight}", expected=count, found=max(parts))
    first = next(iter(parts.values()))
    kinds = {(p.a.type, p.b.type, p.a.ne, p.b.ne, p.scale) for p in parts.values()}
    if len(kinds) > 1:
        raise UnsupportedError("experts with adapters of different ranks, types or scales", where=f"{where}, {weight}")

    def stack(kind: Matrix, found: Mapping[int, Matrix]) -> Matrix:
        data = np.zeros((count, kind.nbytes), np.uint8)
        for number, matrix in found.items():
            data[number] = matrix.data
        return Matrix(kind.type, (*kind.ne, count), data.reshape(-1))

    a, b = ({n: p.a for n, p in parts.items()}, {n: p.b for n, p in parts.items()})
    return Pair(stack(first.a, a), stack(first.b, b), first.scale)


# --- To the names and orders of transformers -----------------------------------------------------------------------


def write_folder(path: str | os.PathLike[str], adapter: AdapterFile, model: ModelFile | None = None) -> None:
    """Write an adapter as a folder, which is whole, or not there. Numbers keep their type; Q8_0 becomes F32.

    Args:
        path: a new folder, or an empty one.
        model: what the adapter belongs to; needed where files order rows in another way than transformers.

    Raises:
        ParameterError: the folder has something in it, or the model is needed.
        UnsupportedError: a weight that no module of transformers is known for.
    """
    target = Path(path)
    check_new_folder(target)
    if model is None and reordered(adapter.architecture):
        hint = f"{adapter.architecture} files order rows by the model's heads: name the model."
        raise ParameterError("the model is needed", where=str(adapter.path), hint=hint)
    modules: dict[str, Pair] = {}
    for weight, pair in adapter.pairs.items():
        modules |= _modules(weight, pair, adapter.architecture, model)
    tensors = {
        f"base_model.model.{module}.lora_{part}.weight": Raw(matrix.type, tuple(reversed(matrix.ne)), matrix.data)
        for module, pair in modules.items()
        for part, matrix in (("A", pair.a), ("B", pair.b))
    }
    temporary = target.with_name(f".prism-{os.urandom(8).hex()}.part")
    temporary.mkdir()
    try:
        (temporary / CONFIG).write_text(json.dumps(_settings(modules, adapter.base), indent=2) + "\n", "utf-8")
        write_tensors(temporary / TENSORS, tensors)
        if target.exists():
            target.rmdir()
        temporary.rename(target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def check_new_folder(target: Path) -> None:
    """Make sure that a folder can be written.

    Raises:
        ParameterError: the path has something in it.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ParameterError("this exists already", where=str(target), expected="a new folder, or an empty one")


def _modules(weight: str, pair: Pair, architecture: str, model: ModelFile | None) -> dict[str, Pair]:
    """Return the pairs of a weight's module, or of its experts' modules, in transformers' order."""
    if len(pair.a.ne) == 3:
        parts = zip(_experts(_float(pair.a)), _experts(_float(pair.b)), strict=True)
        return {module_of(architecture, weight, n): Pair(a, b, pair.scale) for n, (a, b) in enumerate(parts)}
    a, b = _float(pair.a), _float(pair.b)
    rows, columns = _orders(weight, model) if model is not None else (None, None)
    if rows is not None:
        b = _rearranged(b, rows=np.argsort(rows))
    if columns is not None:
        a = _rearranged(a, columns=np.argsort(columns))
    return {module_of(architecture, weight): Pair(a, b, pair.scale)}


def _float(matrix: Matrix) -> Matrix:
    return Matrix.encode("F32", matrix.values()) if matrix.type == "Q8_0" else matrix


def _experts(matrix: Matrix) -> list[Matrix]:
    parts: list[npt.NDArray[np.uint8]] = np.split(matrix.data, matrix.ne[2])
    return [Matrix(matrix.type, matrix.ne[:2], part) for part in parts]


def _settings(modules: Mapping[str, Pair], base: str) -> dict[str, Any]:
    """Return PEFT's settings: the commonest rank and alpha, and patterns for the modules that differ."""
    ranks = {module: pair.rank for module, pair in modules.items()}
    alphas = {module: _plain(pair.alpha) for module, pair in modules.items()}
    ((rank, _),), ((alpha, _),) = (Counter(found.values()).most_common(1) for found in (ranks, alphas))
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base or None,
        "r": rank,
        "lora_alpha": alpha,
        "rank_pattern": {module: found for module, found in ranks.items() if found != rank},
        "alpha_pattern": {module: found for module, found in alphas.items() if found != alpha},
        "target_modules": sorted({module.rsplit(".", 1)[-1] for module in modules}),
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "use_rslora": False,
        "use_dora": False,
        "modules_to_save": None,
        "init_lora_weights": True,
        "inference_mode": True,
    }


def _plain(value: float) -> int | float:
    """Return a number as an integer where it is one."""
    return int(value) if value.is_integer() else value
