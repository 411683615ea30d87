"""Finding kernels by key: `module.name`, for instance `matmul.q4_1@avx512vnni`. Importing this imports no compiler."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ..errors import KernelError
from .target import Target

MODULES = (
    "activations",
    "attention",
    "attention_back",
    "attention_tiles",
    "cache",
    "convolution",
    "copies",
    "elementwise",
    "executor",
    "experts",
    "experts_exact",
    "functions",
    "hadamard",
    "losses",
    "matmul",
    "moves",
    "norms",
    "order",
    "optimizers",
    "panels",
    "recurrent",
    "recurrent_back",
    "rope",
    "roundings",
    "rows",
    "soft_max",
    "spatial",
    "totals",
)


def find(key: str) -> Callable[..., Any]:
    """Return the Python function of a kernel; imports its module, and with it the compiler.

    Raises:
        KernelError: there is no such kernel.
    """
    module_name, _, name = key.partition(".")
    if module_name not in MODULES:
        raise KernelError("unknown kernel", where=key, expected=f"a module among {', '.join(MODULES)}")
    kernels: dict[str, Callable[..., Any]] = import_module(f"{__package__}.{module_name}").KERNELS
    if name not in kernels:
        raise KernelError("unknown kernel", where=key, expected=f"one of {', '.join(sorted(kernels))}")
    return kernels[name]


def all_keys() -> list[str]:
    """Return the keys of all kernels (imports the compiler)."""
    return [f"{module}.{name}" for module in MODULES for name in import_module(f"{__package__}.{module}").KERNELS]


@cache
def fingerprint(target: Target) -> str:
    """Return a hash of all that decides what a kernel compiles to: sources, compiler versions, processor.

    numba's own cache would miss edits of imported modules, changed globals and flags.
    """
    digest = hashlib.sha256()
    folder = Path(__file__).parent
    plan = folder.parent / "plan"
    for path in [*sorted(folder.rglob("*.py")), plan / "descriptor.py", plan / "layouts.py"]:
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    for package in ("numba", "llvmlite", "numpy"):
        digest.update(version(package).encode())
    digest.update(repr(target).encode())
    return digest.hexdigest()[:16]
