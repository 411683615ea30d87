"""Rules of differentiation, by family of operations. Each builds nodes from a node's gradient and forward values."""

from . import elements, layout, learning, products, rows, sequence, spatial

FAMILIES = (elements, rows, products, layout, spatial, sequence, learning)
