"""Cases of learning."""

from __future__ import annotations

from . import OpCase

CASES: list[OpCase] = []
