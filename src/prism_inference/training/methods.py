"""What of a model is trained, and how its graph sees it: all weights, weights rounded to few bits, low-rank adapters.

A method owns the parameters' float32 arrays; every graph of a training makes leaves over the same bytes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .. import codecs
from ..errors import ParameterError, UnsupportedError
from ..gguf import tensor_type
from ..graph import Context, Storage, Tensor
from ..graph.operations.elements import ROUNDED
from ..models import Adapter, Weights, refusal
from ..runtime.adapters import AdapterFile, Matrix, Pair
from ..runtime.weights import ModelFile

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Parameter:
    """One trained tensor: name, extents in ggml order, its float32 bytes, whether weight decay applies."""

    name: str
    ne: tuple[int, ...]
    storage: Storage
    decay: bool

    @property
    def array(self) -> Floats:
        """The values, in NumPy order; writable."""
        return self.storage.array[: self.nbytes].view(np.float32).reshape(tuple(reversed(self.ne)))

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return 4 * math.prod(self.ne)

    @classmethod
    def make(cls, name: str, values: npt.NDArray[Any], decay: bool) -> Parameter:
        """Make a parameter with a copy of values in NumPy order."""
        made = cls(name, tuple(reversed(values.shape)), Storage.allocate(4 * values.size, zero=False), decay)
        made.array[...] = values
        return made


class Method(Protocol):
    """What a training changes."""

    model: ModelFile

    @property
    def parameters(self) -> Sequence[Parameter]:
        """What is trained."""

    def weights(self, context: Context, leaves: Mapping[str, Tensor]) -> Weights:
        """Return the model's weights for a graph, with the parameters' leaves in their places."""

    def describe(self) -> dict[str, Any]:
        """Return what a checkpoint must agree with."""


class Full:
    """Every weight is trained, in float32.

    Args:
        model: the file whose weights are the start.
        rounding: a tensor type (`Q1_0`, `Q2_0`) as which the matrices of the blocks are used in every product; what is
            trained are the float32 values behind them, their gradients passed straight through the rounding.
        rounded: a pattern of the names that are rounded.

    Raises:
        UnsupportedError: the file's weights are folded with a rotation.
        ParameterError: nothing matches the pattern, or a matrix has rows that are no multiple of the type's block.
    """

    def __init__(
        self, model: ModelFile, rounding: str | None = None, rounded: str = r"blk\.\d+\.(attn|ffn)_\w+\.weight"
    ) -> None:
        if model.rotation is not None:
            raise UnsupportedError(
                "training all weights of a rotated model", hint="Train adapters, or start from a file without rotation."
            )
        self.model = model
        self.parameters: Sequence[Parameter] = [
            Parameter.make(
                name, codecs.decode(info.type, info.data, info.elements).reshape(_shape(info.ne)), len(info.ne) > 1
            )
            for name, info in model.tensors.items()
        ]
        self.rounding: dict[str, str] = {}
        if rounding is not None:
            self.rounding = self._rounded(rounding, re.compile(rounded))

    def _rounded(self, kind: str, pattern: re.Pattern[str]) -> dict[str, str]:
        if kind not in ROUNDED:
            raise ParameterError("cannot train in this type", expected=", ".join(ROUNDED), found=kind)
        block = tensor_type(kind).block
        names = [p.name for p in self.parameters if len(p.ne) > 1 and pattern.fullmatch(p.name)]
        if not names:
            raise ParameterError("no tensor has such a name", where="rounded", found=pattern.pattern)
        for parameter in self.parameters:
            if parameter.name in names and parameter.ne[0] % block:
                raise ParameterError(
                    "rows do not fill blocks",
                    where=parameter.name,
                    expected=f"a multiple of {block}",
                    found=parameter.ne[0],
                )
        return dict.fromkeys(names, kind)

    def weights(self, context: Context, leaves: Mapping[str, Tensor]) -> Weights:
        """Return the leaves, rounded where they are to be."""
        tensors = {
            name: leaf.round_to(self.rounding[name]) if name in self.rounding else leaf for name, leaf in leaves.items()
        }
        return Weights(context, tensors, exact=True)

    def describe(self) -> dict[str, Any]:
        """Return the kind and the types of rounded tensors."""
        return {"method": "full", "rounding": sorted(set(self.rounding.values()))}


# What adapters are put on where nothing else is said: the matrices of attention, of recurrent layers and of the
# feed-forward part; not the experts of a mixture, nor what chooses among them.
TARGETS = r"(attn_(q|k|v|qkv|output|gate)|ffn_(gate|up|down)|ssm_out)"


class LoRA:
    """Low-rank adapters (arXiv 2106.09685) are trained; the model's own weights stay as the file has them.

    Args:
        model: the file, of any tensor types that have kernels.
        rank: of the adapters.
        alpha: their outputs are multiplied by alpha / rank.
        targets: a pattern of names within a block, without `.weight`.
        seed: of A, uniform within ±1/sqrt(inputs); B starts at zero.

    Raises:
        ParameterError: rank or alpha out of range, or no matrix matches.
    """

    def __init__(
        self, model: ModelFile, rank: int = 8, alpha: float = 16.0, targets: str = TARGETS, seed: int = 0
    ) -> None:
        if not 1 <= rank <= 4096:
            raise ParameterError("wrong rank", where="rank", expected="1 to 4096", found=rank)
        if not alpha > 0:
            raise ParameterError("wrong alpha", where="alpha", expected="a positive number", found=alpha)
        pattern = re.compile(rf"blk\.\d+\.{targets}\.weight")
        self.model = model
        self.rank, self.alpha = rank, float(alpha)
        self.names = [
            name
            for name, info in model.tensors.items()
            if pattern.fullmatch(name) and refusal(model.config.architecture, name, len(info.ne)) is None
        ]
        if not self.names:
            raise ParameterError("no matrix of a product has such a name", where="targets", found=targets)
        rng = np.random.default_rng(seed)
        parameters: list[Parameter] = []
        for name in self.names:
            inputs, outputs, *experts = model.tensors[name].ne
            bound = 1.0 / math.sqrt(inputs)
            a = rng.uniform(-bound, bound, (*reversed(experts), rank, inputs))
            parameters.append(Parameter.make(f"{name}.lora_a", a, True))
            parameters.append(Parameter.make(f"{name}.lora_b", np.zeros((*reversed(experts), outputs, rank)), True))
        self.parameters: Sequence[Parameter] = parameters

    def weights(self, context: Context, leaves: Mapping[str, Tensor]) -> Weights:
        """Return the file's weights with the adapters added."""
        scale = self.alpha / self.rank
        adapters = {name: [Adapter(leaves[f"{name}.lora_a"], leaves[f"{name}.lora_b"], scale)] for name in self.names}
        return Weights(context, self.model.leaves(context), self.model.rotation, adapters, exact=True)

    def adapter(self) -> AdapterFile:
        """Return what was trained, as an adapter of the model."""
        file = self.model.file
        found = {p.name: Matrix.encode("F32", p.array) for p in self.parameters}
        scale = self.alpha / self.rank
        pairs = {name: Pair(found[f"{name}.lora_a"], found[f"{name}.lora_b"], scale) for name in self.names}
        base = file.metadata.string("general.name", "")
        return AdapterFile(Path(file.path), self.model.config.architecture, pairs, base)

    def describe(self) -> dict[str, Any]:
        """Return the kind, rank, alpha and the weights that are adapted."""
        return {"method": "lora", "rank": self.rank, "alpha": self.alpha, "names": len(self.names)}


def _shape(ne: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(extent) for extent in reversed(ne))
