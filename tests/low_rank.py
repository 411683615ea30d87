"""Random adapters for tiny models, and the weights that they stand for: W + scale·B·A, written out."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from prism_inference.runtime.adapters import AdapterFile, Matrix, Pair

PLAIN = ("token_embd.weight", "ssm_conv1d.weight")  # matrices that no product reads


def adapted_names(weights: dict[str, np.ndarray]) -> list[str]:
    """All matrices of products."""
    return [name for name, values in weights.items() if values.ndim > 1 and not name.endswith(PLAIN)]


def random_pairs(
    weights: dict[str, np.ndarray],
    rng: np.random.Generator,
    *,
    names: list[str] | None = None,
    rank: int = 3,
    kind: str = "F32",
    scale: float = 0.5,
) -> dict[str, Pair]:
    """A pair for every matrix (or those named), as large as a tenth or so of the weight."""
    pairs = {}
    for name in adapted_names(weights) if names is None else names:
        *experts, outputs, inputs = weights[name].shape
        a = rng.standard_normal((*experts, rank, inputs)) / np.sqrt(inputs)
        b = rng.standard_normal((*experts, outputs, rank)) * 0.3
        pairs[name] = Pair(Matrix.encode(kind, a.astype(np.float32)), Matrix.encode(kind, b.astype(np.float32)), scale)
    return pairs


def adapter(pairs: dict[str, Pair], architecture: str = "llama", path: str = "made") -> AdapterFile:
    return AdapterFile(Path(path), architecture, pairs)


def with_added(weights: dict[str, np.ndarray], pairs: dict[str, Pair], factor: float = 1.0) -> dict[str, np.ndarray]:
    """W + factor·scale·B·A in float64, expert by expert."""
    out = dict(weights)
    for name, pair in pairs.items():
        a, b = pair.a.values().astype(np.float64), pair.b.values().astype(np.float64)
        delta = np.stack([b[e] @ a[e] for e in range(len(a))]) if a.ndim == 3 else b @ a
        out[name] = weights[name] + factor * pair.scale * delta
    return out
