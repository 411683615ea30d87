"""Cases of what runs along a sequence."""

from __future__ import annotations

from . import OpCase

CASES: list[OpCase] = []
