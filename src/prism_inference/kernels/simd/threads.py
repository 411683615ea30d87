"""The memory system and other threads: prefetch, atomics, yielding, calls by address."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from .core import BYTE, I64, LONG, NONE, WORD, call, operation, pointer


@operation("prefetch", NONE, (I64,), lambda raw: None)
def prefetch(builder: Any, address: Any) -> Any:
    """Ask for the cache line at `address`; never faults."""
    values = [pointer(builder, address, BYTE), WORD(0), WORD(3), WORD(1)]
    call(builder, "llvm.prefetch.p0", ir.VoidType(), values)


@operation("atomic_add", I64, (I64, I64), lambda raw, value: int(raw.view(np.int64)[0]))
def atomic_add(builder: Any, address: Any, value: Any) -> Any:
    """Add to the int64 at `address` and return what was there before."""
    return builder.atomic_rmw("add", pointer(builder, address, LONG), value, "seq_cst")


@operation("atomic_load", I64, (I64,), lambda raw: int(raw.view(np.int64)[0]))
def atomic_load(builder: Any, address: Any) -> Any:
    return builder.load_atomic(pointer(builder, address, LONG), "acquire", 8)


@operation("atomic_store", NONE, (I64, I64), lambda value: np.int64(value).tobytes())
def atomic_store(builder: Any, address: Any, value: Any) -> Any:
    builder.store_atomic(value, pointer(builder, address, LONG), "release", 8)


@operation("yield_thread", NONE, (), lambda: None)
def yield_thread(builder: Any) -> Any:
    """Give the processor to another thread; the linker binds the symbol to the system's call."""
    call(builder, "prism_yield", ir.VoidType(), [])


@operation("clock", I64, (), lambda: 0)
def clock(builder: Any) -> Any:
    """Ticks of the processor's counter; only differences mean something, and their unit is the processor's own."""
    # On ARM the counter of cycles is not for programs to read, the steady one is.
    name = "llvm.readsteadycounter" if "aarch64" in builder.module.triple else "llvm.readcyclecounter"
    return call(builder, name, LONG, [])


@operation("call_kernel", NONE, (I64, I64, I64, I64), lambda *_: None)
def call_kernel(builder: Any, address: Any, descriptor: Any, ith: Any, nth: Any) -> Any:
    kind = ir.FunctionType(ir.VoidType(), [LONG, LONG, LONG])
    builder.call(builder.inttoptr(address, kind.as_pointer()), [descriptor, ith, nth])
