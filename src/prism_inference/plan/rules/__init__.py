"""Lowering rules, by family of operations: which kernel does a node, and with which operands."""

from . import elements, layout, learning, products, rows, sequence, spatial

FAMILIES = (elements, rows, products, layout, spatial, sequence, learning)
