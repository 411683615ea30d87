"""The only door to numba: house defaults, and kernels as relocatable object code.

numba types and optimizes a kernel; LLVM emits an object for the target, which the engine links by llvmlite alone. Knows
nothing of what a kernel computes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numba
from llvmlite import ir
from numba import types
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, models, register_model

from ..errors import KernelError
from .symbols import bind
from .target import Target

__all__ = [
    "AbstractTemplate",
    "compile_object",
    "helper",
    "infer_global",
    "intrinsic",
    "ir",
    "lower_builtin",
    "models",
    "register_model",
    "signature",
    "types",
]

KERNEL_SIGNATURE = types.void(types.int64, types.int64, types.int64)

# Symbols that an object may leave to the linker; anything else (numba's error paths above all) is a kernel that can
# raise.
ALLOWED_SYMBOLS = frozenset({"memcpy", "memset", "memmove", "prism_yield"})


def helper(function: Callable[..., Any]) -> Any:
    """Compile `function` into the kernels that call it: no fast-math, no exceptions for divisions."""
    options: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}  # callers are kernels only
    return numba.njit(nogil=True, error_model="numpy", **options)(function)


def compile_object(function: Callable[..., Any], symbol: str, target: Target) -> bytes:
    """Compile a kernel `(descriptor: int64, ith: int64, nth: int64) -> None` to an object that exports `symbol`.

    Raises:
        KernelError: the function does not compile, or its code could raise an exception.
    """
    bind()
    config: Any = numba.config
    config.CPU_NAME, config.CPU_FEATURES = target.cpu, target.features
    try:
        compiled = numba.cfunc(KERNEL_SIGNATURE, error_model="numpy")(function)
    except numba.core.errors.NumbaError as error:
        raise KernelError("does not compile", where=f"kernel {symbol}", found=str(error)) from error
    module = llvm.parse_assembly(compiled.inspect_llvm())
    exported = compiled.native_name
    for value in module.functions:
        if value.is_declaration:
            continue
        if value.name == exported:
            value.name = symbol
        else:
            value.linkage = "internal"
            value.add_function_attribute("alwaysinline")
    for value in module.global_variables:
        if not value.is_declaration:
            value.linkage = "internal"
    machine = llvm.Target.from_triple(module.triple or llvm.get_process_triple()).create_target_machine(
        cpu=target.cpu, features=target.features, opt=3, reloc="default", codemodel="jitdefault", jit=True
    )
    _optimize(module, machine)
    foreign = {value.name for value in module.functions if value.is_declaration and not value.name.startswith("llvm.")}
    if unexpected := foreign - ALLOWED_SYMBOLS:
        raise KernelError("can raise or calls out of the kernel", where=f"kernel {symbol}", found=sorted(unexpected))
    code: bytes = machine.emit_object(module)
    return code


def _optimize(module: Any, machine: Any) -> None:
    """Inline all helpers and optimize the whole: what cannot happen (numba's error paths) is then seen to be dead."""
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    first = llvm.create_new_module_pass_manager()
    first.add_always_inliner_pass()
    first.run(module, builder)
    builder.getModulePassManager().run(module, builder)
