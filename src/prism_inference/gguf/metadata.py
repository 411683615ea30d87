"""Typed look-ups of metadata: errors name the key, what was expected and what the file holds. Knows no models."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import islice
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..errors import MetadataError
from .values import StringArray, shown

_COMPARED_KEYS = 1_000  # among which the nearest are sought: comparing takes some 12 us a key
_NAMED_KEYS = 3
_NEAR = 0.7  # of 1, by difflib's measure: below, names have little in common


class Missing(Enum):
    """The type of `MISSING`, which says that a key has no default."""

    MISSING = 0


MISSING: Final = Missing.MISSING


class Metadata(Mapping[str, Any]):
    """The key-values of a file. Values are int, float, bool, str, NumPy arrays and string arrays.

    The typed look-ups take a default for a missing key; without one a missing key is an error.
    """

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self._values = dict(values)
        self._where = where

    def __getitem__(self, key: str) -> Any:
        return self._lookup(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value, or the default for a missing key."""
        return self._values.get(key, default)

    def __repr__(self) -> str:
        return f"<{len(self)} keys of {self._where}>"

    def integer(self, key: str, default: int | Missing = MISSING, *, low: int = -(2**63), high: int = 2**64 - 1) -> int:
        """Return an integer of any stored width in low … high."""
        value = self._typed(
            key, default, f"an integer from {low} to {high}", lambda v: type(v) is int and low <= v <= high
        )
        return int(value)

    def number(self, key: str, default: float | Missing = MISSING) -> float:
        """Return a finite number; integers are taken too."""
        value = self._typed(key, default, "a finite number", lambda v: type(v) in (int, float) and math.isfinite(v))
        return float(value)

    def boolean(self, key: str, default: bool | Missing = MISSING) -> bool:
        """Return true or false."""
        return bool(self._typed(key, default, "true or false", lambda v: type(v) is bool))

    def string(self, key: str, default: str | Missing = MISSING) -> str:
        """Return a text."""
        return str(self._typed(key, default, "a text", lambda v: isinstance(v, str)))

    def strings(self, key: str, default: Sequence[str] | Missing = MISSING) -> Sequence[str]:
        """Return an array of texts."""
        value: Sequence[str] = self._typed(key, default, "an array of texts", lambda v: isinstance(v, StringArray))
        return value

    def byte_strings(self, key: str, default: Sequence[bytes] | Missing = MISSING) -> Sequence[bytes]:
        """Return an array of texts as the bytes in the file."""
        value = self._typed(key, default, "an array of texts", lambda v: isinstance(v, StringArray))
        return value.raw() if isinstance(value, StringArray) else value

    def integers(self, key: str, default: npt.ArrayLike | Missing = MISSING) -> npt.NDArray[Any]:
        """Return an array [n] of integers of any stored width; a single integer counts as an array of one."""
        value = self._typed(key, default, "an array of integers", lambda v: type(v) is int or _is_array(v, "iu"))
        return np.atleast_1d(np.asarray(value))

    def numbers(self, key: str, default: npt.ArrayLike | Missing = MISSING) -> npt.NDArray[Any]:
        """Return an array [n] of numbers; a single number counts as an array of one.

        Items may be infinite or NaN: the caller knows which one to name.
        """
        value = self._typed(
            key, default, "an array of numbers", lambda v: type(v) in (int, float) or _is_array(v, "iuf")
        )
        return np.atleast_1d(np.asarray(value))

    def booleans(self, key: str, default: npt.ArrayLike | Missing = MISSING) -> npt.NDArray[np.bool_]:
        """Return an array [n] of true and false; a single one counts as an array of one."""
        value = self._typed(key, default, "an array of true and false", lambda v: type(v) is bool or _is_array(v, "b"))
        return np.atleast_1d(np.asarray(value, np.bool_))

    def _lookup(self, key: str) -> Any:
        if key not in self._values:
            near = _nearest(key, self._values)
            raise MetadataError(
                "the file has no such key",
                where=f"{self._where}: {key}",
                hint=f"The nearest keys that it has: {', '.join(near)}" if near else None,
            )
        return self._values[key]

    def _typed(self, key: str, default: Any, expected: str, fits: Callable[[Any], bool]) -> Any:
        if default is not MISSING and key not in self._values:
            return default
        value = self._lookup(key)
        if not fits(value):
            where = f"{self._where}: {key}"
            raise MetadataError("wrong kind of value", where=where, expected=expected, found=shown(value))
        return value


def _nearest(key: str, keys: Mapping[str, Any]) -> list[str]:
    """Return the keys that differ least from one that is missing."""
    import difflib  # needed for errors only

    compared = [other for other in islice(keys, _COMPARED_KEYS) if other.isprintable()]
    return difflib.get_close_matches(key, compared, _NAMED_KEYS, _NEAR)


def _is_array(value: object, kinds: str) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in kinds
