"""Lowering rules: losses and optimizer steps."""

from __future__ import annotations

from ...graph import Op
from ..lowering import Rule

RULES: dict[Op, Rule] = {}
