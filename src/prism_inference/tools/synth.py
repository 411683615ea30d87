"""Writes models with random weights in the exact shapes of PrismML's: for benchmarks, and for anyone without the
weights.

Weights are ternary (one-bit for Q1_0, any for Q4_K), the same for the same seed in every type that can hold them, and
scaled so that activations stay near one. The answers are noise. Knows nothing of running models.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .. import codecs, gguf
from ..errors import ParameterError
from ..gguf import GGUFWriter, tensor_type
from .shapes import SHAPES, TYPES, Shape

_CHUNK = 1 << 22  # weights made at a time

Progress = Callable[[int, int], None]  # bytes written, bytes in all


def write(
    name: str,
    path: Path,
    kind: str = "Q1_0",
    vocabulary: Path | None = None,
    seed: int = 0,
    blocks: int | None = None,
    progress: Progress | None = None,
) -> Path:
    """Write a model file.

    Args:
        name: a key of `shapes.SHAPES`.
        kind: tensor type of the matrices.
        vocabulary: a GGUF file whose tokenizer is copied; the embedding gets a row per token. Without it the file has
            no tokenizer.
        blocks: fewer blocks than the original, for tests.
        progress: called with bytes written and bytes in all.

    Raises:
        ParameterError: an unknown shape or type.
    """
    if name not in SHAPES:
        raise ParameterError("unknown model", where="name", expected=", ".join(SHAPES), found=repr(name))
    if kind.upper() not in TYPES:
        raise ParameterError("a type that cannot be made", where="kind", expected=", ".join(TYPES), found=repr(kind))
    shape, kind = SHAPES[name], kind.upper()
    writer = GGUFWriter(path)
    writer.add("general.architecture", shape.architecture)
    writer.add("general.name", f"Synthetic {name.replace('bonsai', 'Bonsai')}")
    keys = dict(shape.keys) | ({"block_count": blocks} if blocks else {})
    for key, value in keys.items():
        writer.add(f"{shape.architecture}.{key}", value)
    rows = _copy_tokenizer(writer, vocabulary, shape)
    extents = _extents(shape, keys, rows)
    types = {tensor: _type_of(shape, tensor, ne, kind) for tensor, ne in extents.items()}
    if shape.rotated:
        _add_rotation(writer, extents, seed)
    total = sum(tensor_type(types[tensor]).size(math.prod(ne)) for tensor, ne in extents.items())
    done = [0]
    for tensor, ne in extents.items():
        writer.add_tensor(
            tensor, types[tensor], ne, _counted(_rows(tensor, ne, types[tensor], seed), done, total, progress)
        )
    writer.write()
    return path


def _copy_tokenizer(writer: GGUFWriter, vocabulary: Path | None, shape: Shape) -> int:
    """Copy a vocabulary file's tokenizer; return the rows of the embedding."""
    if vocabulary is None:
        writer.add("tokenizer.ggml.model", "none")
        writer.add(f"{shape.architecture}.vocab_size", shape.vocabulary)
        return shape.vocabulary
    with gguf.open(vocabulary) as file:
        writer.add_metadata(file, [key for key in file.metadata if not key.startswith("tokenizer.")])
        return len(file.metadata.strings("tokenizer.ggml.tokens"))


def _extents(shape: Shape, keys: Mapping[str, Any], rows: int) -> dict[str, tuple[int, ...]]:
    """Return names and extents as the architecture expects them."""
    from ..gguf import Metadata
    from ..models import architecture

    module = architecture(shape.architecture)
    values = {"general.architecture": shape.architecture} | {f"{shape.architecture}.{k}": v for k, v in keys.items()}
    values = {k: np.array(v, np.int32) if isinstance(v, list) else v for k, v in values.items()}
    config = module.read(Metadata(values, "synthetic"), rows, shape.tied)
    expected = module.tensors(config)
    return {
        name: row.ne
        for name, row in expected.items()
        if not row.optional or (name == "output.weight" and not shape.tied)
    }


def _type_of(shape: Shape, name: str, ne: tuple[int, ...], kind: str) -> str:
    """Norms, biases and convolutions are F32; alpha and beta of Bonsai 2 BF16."""
    if len(ne) == 1 or "ssm_conv1d" in name:
        return "F32"
    if shape.rotated and ("ssm_alpha" in name or "ssm_beta" in name):
        return "BF16"
    return kind


def _rows(name: str, ne: tuple[int, ...], kind: str, seed: int) -> Iterator[bytes]:
    """Make a tensor's bytes in chunks of whole rows, from the seed and the name alone."""
    digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
    rng = np.random.Generator(np.random.SFC64(int.from_bytes(digest[:8], "little")))
    columns, rows = ne[0], math.prod(ne[1:])
    step = max(1, _CHUNK // columns)
    for start in range(0, rows, step):
        count = min(step, rows - start)
        if kind == "Q4_K":
            yield _random_q4_k(count, columns, rng)
        else:
            yield codecs.encode(kind, _values(name, kind, (count, columns), rng))


def _random_q4_k(rows: int, columns: int, rng: np.random.Generator) -> bytes:
    """Random blocks of 256 weights: this type has no encoder, and noise needs none.

    Scales and minima are random bits too, so only the two float16 before them decide how large weights are.
    """
    blocks = rng.integers(0, 256, (rows * columns // 256, tensor_type("Q4_K").nbytes), np.uint8)
    scale = 1.0 / (250 * math.sqrt(columns))  # 250: deviation of scale·code - 7.5·minimum for random bits
    blocks[:, :4] = np.array([scale, 7.5 * scale], np.float16).view(np.uint8)
    return blocks.tobytes()


def _values(name: str, kind: str, size: tuple[int, int], rng: np.random.Generator) -> Any:
    if name.endswith("ssm_a"):
        return -rng.uniform(0.1, 4.0, size).astype(np.float32)
    if "norm" in name:
        return rng.uniform(0.75, 1.25, size).astype(np.float32)
    if kind in ("F32", "BF16"):
        return (rng.standard_normal(size, np.float32) / math.sqrt(size[1])).astype(np.float32)
    if kind == "Q1_0":
        signs = rng.integers(0, 2, size, np.int8) * 2 - 1
        return signs.astype(np.float32) * np.float32(1.0 / math.sqrt(size[1]))
    digits = rng.integers(-1, 2, size, np.int8)
    return digits.astype(np.float32) * np.float32(math.sqrt(1.5 / size[1]))


def _counted(chunks: Iterator[bytes], done: list[int], total: int, progress: Progress | None) -> Iterator[bytes]:
    for chunk in chunks:
        yield chunk
        done[0] += len(chunk)
        if progress is not None:
            progress(done[0], total)


def _add_rotation(writer: GGUFWriter, extents: Mapping[str, tuple[int, ...]], seed: int) -> None:
    """Declare the matrices rotated, as Bonsai 2's files do."""
    from ..models import rotation

    plain = ("ssm_alpha", "ssm_beta", "ssm_conv1d", "token_embd")
    names = [name for name, ne in extents.items() if len(ne) > 1 and not any(part in name for part in plain)]
    widths = sorted({extents[name][0] for name in [*names, rotation.EMBEDDING]})
    values: dict[str, Any] = {
        "version": 1,
        "block_size": 1024,
        "transform": rotation.TRANSFORM,
        "axis": rotation.AXIS,
        "sign_mode": "explicit",
        "sign_widths": np.array(widths, np.int32),
        "sign_values": np.random.default_rng(seed).choice(np.array([-1, 1], np.int32), sum(widths)),
        "weight_names": names,
        "inverse_weight_names": [rotation.EMBEDDING],
        "gdn_v_grouped": True,
    }
    for key, value in values.items():
        writer.add(rotation.PREFIX + key, value)
