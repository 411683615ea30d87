"""The system calls that kernels may name, bound once for every linker in the process. Imports no compiler but
llvmlite."""

from __future__ import annotations

import ctypes
import sys
from functools import cache


@cache
def bind() -> None:
    """Bind `prism_yield` to the system's way of giving up the rest of a time slice."""
    import llvmlite.binding as llvm

    if sys.platform == "win32":
        function = ctypes.WinDLL("kernel32").SwitchToThread
    else:
        function = ctypes.CDLL(None).sched_yield
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address
    llvm.add_symbol("prism_yield", address)
