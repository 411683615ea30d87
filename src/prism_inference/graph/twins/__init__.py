"""NumPy twins, by family of operations: what each operation means."""

from . import elements, layout, learning, products, rows, sequence

FAMILIES = (elements, rows, products, layout, sequence, learning)
