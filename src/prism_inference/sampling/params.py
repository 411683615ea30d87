"""The parameters of sampling, checked when they are made. Knows their ranges, not how they act."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import MetadataError, ParameterError

SEED_LIMIT = 1 << 64


@dataclass(frozen=True)
class _Range:
    """One row of the table of ranges: a wording for people and a test for the program."""

    kind: str
    wording: str
    holds: Callable[[Any], bool]


_RANGES: dict[str, _Range] = {
    "temperature": _Range("number", "a finite number, 0 (greedy) or above", lambda v: math.isfinite(v) and v >= 0),
    "top_k": _Range("integer", "an integer, 0 (off) or above", lambda v: v >= 0),
    "top_p": _Range("number", "a number above 0, at most 1 (off)", lambda v: 0 < v <= 1),
    "min_p": _Range("number", "a number from 0 (off) to below 1", lambda v: 0 <= v < 1),
    "seed": _Range("integer", f"none, or an integer from 0 to {SEED_LIMIT - 1}", lambda v: 0 <= v < SEED_LIMIT),
}

# Keys that a model file may carry. llama.cpp, which defines them, reads a top_k of 0 or below as "off".
_METADATA_KEYS = {name: f"general.sampling.{key}" for name, key in
                  {"temperature": "temp", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p"}.items()}  # fmt: skip


@dataclass(frozen=True)
class SamplingParams:
    """How the next token is chosen; the defaults take the likeliest one.

    Attributes:
        temperature: divides the logits before the draw; 0 takes the likeliest token and makes the others moot.
        top_k: only that many of the likeliest tokens; 0 is off.
        top_p: only the likeliest tokens that together reach this probability; 1 is off.
        min_p: only tokens with at least this share of the likeliest one's probability; 0 is off.
        seed: repeats a draw; None takes a new seed for each request.

    Raises:
        ParameterError: a value is out of its range; the message names field and range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None

    def __post_init__(self) -> None:
        """Check every field."""
        for name in _RANGES:
            value = getattr(self, name)
            if name == "seed" and value is None:
                continue
            if (reason := _fault(name, value)) is not None:
                raise ParameterError("wrong sampling parameter", where=name, expected=reason, found=repr(value))

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], **given: Any) -> SamplingParams:
        """Take what is not given (or None) from the `general.sampling.*` keys of a model file, else the defaults.

        Only temperature, top-k, top-p and min-p are read; other keys (penalties, mirostat) have no counterpart here.

        Raises:
            MetadataError: a key that is needed holds a value out of range.
            ParameterError: a given value is out of range.
        """
        values = {name: value for name, value in given.items() if value is not None}
        for name, key in _METADATA_KEYS.items():
            if name in values or key not in metadata:
                continue
            value = metadata[key]
            if name == "top_k" and _fault(name, value) is not None and isinstance(value, int) and value < 0:
                value = 0
            if (reason := _fault(name, value)) is not None:
                raise MetadataError(
                    "wrong sampling parameter in the file", where=key, expected=reason, found=repr(value)
                )
            values[name] = value
        return cls(**values)


def _fault(name: str, value: object) -> str | None:
    """Return the wording of the range that a value misses, or None."""
    row = _RANGES[name]
    kinds: tuple[type, ...] = (int,) if row.kind == "integer" else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not row.holds(value):
        return row.wording
    return None
