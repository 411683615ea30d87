"""Cases of elements."""

from __future__ import annotations

from . import OpCase

CASES: list[OpCase] = []
