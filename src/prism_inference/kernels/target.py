"""The processor that kernels are compiled for, and the instruction set that the plan lowers to.

Asks LLVM (llvmlite) what the host is; `PRISM_CPU` forces another target. Knows nothing of kernels and does not import
numba.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import cache

from ..errors import ParameterError
from ..settings import settings

AVX2_FEATURES = ("avx2", "fma", "f16c")
VNNI_FEATURES = ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni", "f16c", "fma")

# What each forced target needs of the host: running code beyond the host's features would kill the process.
NAMED_TARGETS: dict[str, tuple[str, ...]] = {
    "generic": (),
    "x86-64": (),
    "x86-64-v2": ("sse4.2", "ssse3", "popcnt"),
    "x86-64-v3": ("avx2", "fma", "f16c", "bmi", "bmi2"),
    "x86-64-v4": ("avx2", "fma", "f16c", "bmi", "bmi2", "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
}
X86_MACHINES = ("x86_64", "amd64")


@dataclass(frozen=True)
class Target:
    """One processor: `cpu` and `features` as LLVM spells them, `isa` as the plan's kernel keys do, `half` if it
    converts float16 in hardware."""

    cpu: str
    features: str
    isa: str
    half: bool

    @property
    def wide(self) -> bool:
        """Whether a register holds 16 float32 values."""
        return "+avx512f" in self.features.split(",") or "avx512f" in NAMED_TARGETS.get(self.cpu, ())


def host_features() -> dict[str, bool]:
    """Return what LLVM reports for this machine."""
    import llvmlite.binding as llvm

    return dict(llvm.get_host_cpu_features())


@cache
def target() -> Target:
    """Return the target of this process, from `PRISM_CPU`.

    Raises:
        ParameterError: the name is unknown, or the host lacks what it needs.
    """
    return choose(settings().cpu)


def choose(name: str) -> Target:
    """Return the target called `name`: `native`, or one of `NAMED_TARGETS`."""
    import llvmlite.binding as llvm

    host = host_features()
    if name == "native":
        flags = ",".join(f"{'+' if on else '-'}{feature}" for feature, on in sorted(host.items()))
        isas = {"avx512vnni": VNNI_FEATURES, "avx2": AVX2_FEATURES, "generic": ()}
        isa = next(isa for isa, needed in isas.items() if all(host.get(feature, False) for feature in needed))
        half = host.get("f16c", False) or platform.machine().lower() in ("aarch64", "arm64")
        return Target(llvm.get_host_cpu_name(), flags, isa, half)
    if name not in NAMED_TARGETS:
        raise ParameterError(
            "unknown processor", where="PRISM_CPU", expected=", ".join(["native", *NAMED_TARGETS]), found=repr(name)
        )
    x86 = platform.machine().lower() in X86_MACHINES
    missing = [feature for feature in NAMED_TARGETS[name] if not host.get(feature, False)]
    if missing or (name != "generic" and not x86):
        raise ParameterError(
            "this machine cannot run code for that processor",
            where="PRISM_CPU",
            expected="one of its own features",
            found=f"{name}, which needs {', '.join(missing) or 'an x86-64 machine'}",
        )
    cpu = "x86-64" if name == "generic" and x86 else name
    isa = "avx2" if "avx2" in NAMED_TARGETS[name] else "generic"
    return Target(cpu, "", isa, "f16c" in NAMED_TARGETS[name])
