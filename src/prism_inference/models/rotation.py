"""`prism.hadamard`: which weights of a file are folded with a rotation, read and checked. Knows no graph.

A folded weight W' belongs to the input x' = H(s·x), the embedding row z to h = s·H(z), with H the normalized
Walsh-Hadamard matrix on blocks of the row and s a vector of signs per width. Without it such a file gives noise, so
whatever is not understood is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import ModelError, UnsupportedError
from ..gguf import Metadata

PREFIX = "prism.hadamard."
TRANSFORM = "normalized-sylvester-walsh-hadamard"
AXIS = "input-last-dimension"
EMBEDDING = "token_embd.weight"
ARCHITECTURES = frozenset({"llama", "qwen3", "qwen3moe", "qwen35", "qwen35moe", "qwen3next"})
KEYS = frozenset(
    PREFIX + name
    for name in (
        "version",
        "block_size",
        "transform",
        "axis",
        "sign_mode",
        "sign_widths",
        "sign_values",
        "weight_names",
        "inverse_weight_names",
        "gdn_v_grouped",
    )
)
_FOLDABLE = re.compile(
    r"output\.weight|blk\.\d+\.(attn_(q|k|v|qkv|gate|output)|ffn_(gate|up|down)(_exps|_shexp)?|ssm_out)\.weight"
)


@dataclass(frozen=True)
class Rotation:
    """What is folded: names of the weights, whether the embedding is, signs by width, order of the ssm_out input."""

    block: int
    weights: frozenset[str]
    embedding: bool
    signs: Mapping[int, npt.NDArray[np.float32]]
    grouped: bool

    def turn(self, rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return H(s·row) of rows [..., width]: what a folded weight must have added where rows are added to the plain
        one, since H is symmetric and its own inverse. Float64 within."""
        width = rows.shape[-1]
        values = rows.astype(np.float64) * self.signs.get(width, np.float32(1))
        size = 1
        while size < self.block:  # Sylvester's order: H(2n) is made of H(n), H(n), H(n) and -H(n)
            pairs = values.reshape(*rows.shape[:-1], -1, 2, size)
            values = np.stack([pairs[..., 0, :] + pairs[..., 1, :], pairs[..., 0, :] - pairs[..., 1, :]], -2)
            size *= 2
        return np.asarray(values.reshape(rows.shape) / np.sqrt(self.block), np.float32)


def read_rotation(metadata: Metadata, widths: Mapping[str, int]) -> Rotation | None:
    """Return the rotation of a file, None where it has none.

    Args:
        metadata: the file's.
        widths: ne[0] of each tensor by name.

    Raises:
        UnsupportedError: keys, versions or transforms that are not known here.
        ModelError: names or signs that do not fit the tensors.
    """
    unknown = sorted(key for key in metadata if key.startswith("prism.") and key not in KEYS)
    if unknown:
        raise UnsupportedError(
            "the file has Prism keys that are not known here",
            found=", ".join(unknown),
            hint="A newer version may know them.",
        )
    if not any(key in metadata for key in KEYS):
        return None
    _known(metadata, "version", 1)
    _known(metadata, "transform", TRANSFORM)
    _known(metadata, "axis", AXIS)
    architecture = metadata.string("general.architecture")
    if architecture not in ARCHITECTURES:
        raise UnsupportedError(
            "rotated weights in this architecture", expected=sorted(ARCHITECTURES), found=architecture
        )
    block = metadata.integer(PREFIX + "block_size", low=1, high=1 << 20)
    if block & (block - 1):
        raise ModelError("not a power of two", where=PREFIX + "block_size", found=block)
    weights = _names(metadata, "weight_names", widths)
    if not weights:
        raise ModelError("no weights are named", where=PREFIX + "weight_names")
    for name in weights:
        if not _FOLDABLE.fullmatch(name):
            raise ModelError("a weight that cannot be folded", where=PREFIX + "weight_names", found=name)
    inverse = _names(metadata, "inverse_weight_names", widths)
    for name in inverse:
        if name != EMBEDDING:
            raise ModelError(
                "only the embedding is undone", where=PREFIX + "inverse_weight_names", expected=EMBEDDING, found=name
            )
    signs = _signs(metadata, block)
    for name in (*weights, *inverse):
        width = widths[name]
        if width % block or (signs and width not in signs):
            expected = f"a multiple of {block}" + (f" among {sorted(signs)}" if signs else "")
            raise ModelError("the width of a folded weight has no rotation", where=name, expected=expected, found=width)
    grouped = metadata.boolean(PREFIX + "gdn_v_grouped", False)
    return Rotation(block, frozenset(weights), bool(inverse), signs, grouped)


def _known(metadata: Metadata, name: str, value: object) -> None:
    found = metadata[PREFIX + name]
    if found != value:
        raise UnsupportedError("not known here", where=PREFIX + name, expected=value, found=repr(found))


def _names(metadata: Metadata, key: str, widths: Mapping[str, int]) -> Sequence[str]:
    names = list(metadata.strings(PREFIX + key, ()))
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ModelError("a name occurs twice", where=PREFIX + key, found=name)
        seen.add(name)
        if name not in widths:
            raise ModelError("a named tensor is missing", where=PREFIX + key, found=name)
    return names


def _signs(metadata: Metadata, block: int) -> dict[int, npt.NDArray[np.float32]]:
    """Return the sign vector of each width; none in the mode `identity`."""
    mode = metadata.string(PREFIX + "sign_mode")
    if mode == "identity":
        return {}
    if mode != "explicit":
        raise UnsupportedError(
            "not known here", where=PREFIX + "sign_mode", expected="identity or explicit", found=repr(mode)
        )
    sizes = [int(width) for width in metadata.integers(PREFIX + "sign_widths")]
    values = metadata.integers(PREFIX + "sign_values")
    if not sizes:
        raise ModelError("no widths are named", where=PREFIX + "sign_widths")
    if len(set(sizes)) != len(sizes):
        raise ModelError("a width occurs twice", where=PREFIX + "sign_widths", found=sizes)
    for width in sizes:
        if width <= 0 or width % block:
            raise ModelError("wrong width", where=PREFIX + "sign_widths", expected=f"multiples of {block}", found=width)
    if len(values) != sum(sizes):
        raise ModelError("wrong number of signs", where=PREFIX + "sign_values", expected=sum(sizes), found=len(values))
    if not np.isin(values, (-1, 1)).all():
        bad = int(values[~np.isin(values, (-1, 1))][0])
        raise ModelError("not a sign", where=PREFIX + "sign_values", expected="1 or -1", found=bad)
    parts = np.split(values.astype(np.float32), np.cumsum(sizes)[:-1])
    return dict(zip(sizes, parts, strict=True))
