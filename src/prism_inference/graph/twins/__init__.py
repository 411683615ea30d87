"""NumPy twins, by family of operations: what each operation means."""

from . import elements, layout, learning, products, rows, sequence, spatial

FAMILIES = (elements, rows, products, layout, spatial, sequence, learning)
