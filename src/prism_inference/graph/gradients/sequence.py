"""Derivatives."""

from __future__ import annotations

from ..derivative import Rule
from ..ops import Op

GRADIENTS: dict[Op, Rule | str] = {}
IGNORED: dict[Op, frozenset[int]] = {}
