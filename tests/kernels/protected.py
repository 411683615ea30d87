"""Run by test_panels.py in a process of its own: products whose operands lie between protected pages, so that an access
beyond them ends the process. Scratch beyond `panel_scratch` must stay as it was."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

from helpers import random_rows
from prism_inference.engine.objects import library
from prism_inference.engine.run import Executable
from prism_inference.engine.team import team
from prism_inference.gguf import tensor_type
from prism_inference.graph import Storage
from prism_inference.kernels.target import target
from prism_inference.plan import Operand, Region, Step
from prism_inference.plan.layouts import PANEL_COLUMNS, panel_scratch
from prism_inference.plan.memory import lay_out

PAGE, BEYOND, MARK = mmap.PAGESIZE, 4096, 0xA5
# K (of whole blocks), M, N; the MANY columns of x lie side by side, their terms ALIAS bytes apart: such are copied.
ALIAS, MANY = 4096, 1021
SHAPES = [(1, 1, 1), (17, 33, 3), (65, 100, 13), (70, 17, 2 * PANEL_COLUMNS), (300, 140, MANY)]


def guarded(raw: np.ndarray, at_end: bool) -> Storage:
    """A copy of the bytes that ends where a protected page begins, or begins where one ends."""
    size = -(-raw.size // PAGE) * PAGE
    held = np.frombuffer(mmap.mmap(-1, size + 2 * PAGE), np.uint8)
    inner = held[PAGE : PAGE + size]
    part = inner[size - raw.size :] if at_end else inner[: raw.size]
    part[:] = raw
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    assert protect(held.ctypes.data, PAGE, 0) == 0
    assert protect(held.ctypes.data + PAGE + size, PAGE, 0) == 0
    return Storage(part)


def matrix(storage: Storage, ne: tuple[int, int], nb: tuple[int, int]) -> Operand:
    size = storage.nbytes
    return Operand(Region(size, "", storage=storage), 0, (*ne, 1, 1), (*nb, size, size), size)


def run(family: str, kind: str, isa: str, shape: tuple[int, int, int], at_end: bool, add: int) -> None:
    rng = np.random.default_rng(1)
    row = tensor_type(kind)
    k, m, n = (row.block * -(-shape[0] // row.block), *shape[1:])
    lanes, terms = (m, k) if family == "mul_mat" else (k, m)
    w = matrix(guarded(random_rows(kind, k, m, rng), at_end), (k, m), (row.nbytes, row.size(k)))
    step_c, step_p = (ALIAS, 4) if n == MANY else (4, 4 * terms)
    size = 1 + (step_c * (terms - 1) + step_p * (n - 1)) // 4
    x = guarded(rng.standard_normal(size).astype(np.float32).view(np.uint8), at_end)
    rows, columns = matrix(x, (terms, n), (step_c, step_p)), matrix(x, (n, terms), (step_p, step_c))
    y = matrix(guarded(np.zeros(4 * n * lanes, np.uint8), at_end), (lanes, n), (4, 4 * lanes))
    operands = (y, w, rows if family == "mul_mat" else columns)
    step = Step(f"panels.{family}.{kind.lower()}@{isa}", operands, (add,), panel_scratch(isa) + BEYOND)
    executable = Executable(lay_out([step]), team(2), library())
    scratch = executable._scratch.array.reshape(2, -1)
    scratch[:] = MARK
    executable.run()
    assert (scratch[:, panel_scratch(isa) :] == MARK).all(), "wrote beyond its scratch"


if __name__ == "__main__":
    for family in ("mul_mat", "out_prod"):
        for kind in ("F32", "F16", "BF16", "Q4_1", "Q8_0", "Q6_K", "PTQ1_0"):
            for isa in dict.fromkeys((target().isa, "generic")):
                for number, shape in enumerate(SHAPES):
                    for at_end in (True, False):
                        run(family, kind, isa, shape, at_end, number % 2)
    print("stayed within its operands")
