"""Cases of layout."""

from __future__ import annotations

from . import OpCase

CASES: list[OpCase] = []
