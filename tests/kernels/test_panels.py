"""Float32 products against NumPy in float64, by plans of one step: every type, strides, tails, batches, threads.

Results are held in larger arrays filled with NaN, which must stay where no result is; with `add` they hold numbers.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from helpers import random_rows
from prism_inference.codecs import decode
from prism_inference.engine.objects import library
from prism_inference.engine.run import Executable
from prism_inference.engine.team import team
from prism_inference.gguf import tensor_type
from prism_inference.graph import Storage
from prism_inference.kernels.target import target
from prism_inference.plan import Operand, Region, Step
from prism_inference.plan.layouts import FLOATS, PANEL_COLUMNS, PANEL_DEPTH, PANEL_STRIP, QUANTIZED, panel_scratch
from prism_inference.plan.memory import lay_out
from tolerances import SUMS, check

FAMILIES = ("mul_mat", "out_prod")
ISAS = list(dict.fromkeys((target().isa, "generic")))
TYPES = (*QUANTIZED, *FLOATS)
assert len(TYPES) == 18


def operand(view: np.ndarray) -> Operand:
    """The operand of a view of float32 with up to four axes, the last of which is ne[0]."""
    base = view
    while isinstance(base.base, np.ndarray):
        base = base.base
    storage = Storage(base.view(np.uint8).reshape(-1))
    view = view.reshape((1,) * (4 - view.ndim) + view.shape) if view.ndim < 4 else view
    assert np.shares_memory(view, base)
    ne, nb = tuple(reversed(view.shape)), tuple(reversed(view.strides))
    span = 4 + sum((n - 1) * step for n, step in zip(ne, nb, strict=True))
    return Operand(Region(storage.nbytes, "", storage=storage), view.ctypes.data - base.ctypes.data, ne, nb, span)


def weights(kind: str, shape: tuple[int, int, int, int], rng: np.random.Generator) -> tuple[Operand, np.ndarray]:
    """Random weights [b, a, M, K] of a type, with a gap after each row, and their values."""
    *_, k = shape
    row = tensor_type(kind)
    rows = int(np.prod(shape[:3]))
    size, gap = row.size(k), 2 * row.nbytes
    raw = random_rows(kind, k, rows, rng).reshape(rows, size)
    held = rng.integers(0, 256, (rows, size + gap), dtype=np.uint8)
    held[:, :size] = raw
    storage = Storage(held.reshape(-1))
    step = size + gap
    nb = (row.nbytes, step, step * shape[2], step * shape[2] * shape[1])
    values = decode(kind, raw.reshape(-1), rows * k).reshape(shape)
    return Operand(Region(held.size, "", storage=storage), 0, tuple(reversed(shape)), nb, held.size), values


def run(family: str, kind: str, isa: str, y: np.ndarray, w: Operand, x: np.ndarray, add: int, threads: int) -> None:
    key = f"panels.{family}.{kind.lower()}@{isa}"
    step = Step(key, (operand(y), w, operand(x)), (add,), panel_scratch(isa))
    Executable(lay_out([step]), team(threads), library()).run()


def product(family: str, w: np.ndarray, x: np.ndarray) -> np.ndarray:
    """w [b, a, M, K] with x [d, c, N, K] or, for out_prod, [d, c, M, N]."""
    w = w.astype(np.float64).repeat(x.shape[1] // w.shape[1], 1).repeat(x.shape[0] // w.shape[0], 0)
    return x.astype(np.float64) @ (w.swapaxes(2, 3) if family == "mul_mat" else w)


def framed(shape: tuple[int, ...], rng: np.random.Generator | None) -> tuple[np.ndarray, np.ndarray]:
    """An array of NaN and a view of `shape` in it with gaps on all sides, filled with random numbers if wanted."""
    whole = np.full((shape[0], shape[1] + 1, shape[2] + 2, shape[3] + 5), np.nan, np.float32)
    view = whole[:, : shape[1], 1 : 1 + shape[2], 2 : 2 + shape[3]]
    if rng is not None:
        view[:] = rng.standard_normal(shape)
    return whole, view


def verify(family, kind, isa, w_shape, x, rng, threads=(1, 2, 3)):
    """Run with each number of threads, overwriting and adding; compare values, bits and what surrounds the result.

    w_shape is [b, a, M, K]; x is [d, c, N, K] in the order of the mathematics for both families (for out_prod [d, c, N,
    M]), with any strides."""
    w, values = weights(kind, w_shape, rng)
    expected, magnitude = product(family, values, x), product(family, np.abs(values), np.abs(x))
    unit = (x.shape[3] + 1) * 2.0**-24  # of n additions and products, in any order: n·u·Σ|w·x| (Higham, 3.1)
    seen = x if family == "mul_mat" else x.swapaxes(2, 3)  # out_prod's operand has N along ne[0]
    for add in (0, 1):
        first = None
        for count in threads:
            whole, y = framed(expected.shape, np.random.default_rng(7) if add else None)
            wanted = expected + y if add else expected
            run(family, kind, isa, y, w, seen, add, count)
            assert (np.abs(y - wanted) <= unit * (magnitude + np.abs(wanted))).all()
            if y.size > 100:  # fewer may all have cancelled
                check(y, wanted, SUMS)
            y_bits = y.copy()
            y[:] = np.nan
            assert np.isnan(whole).all(), "wrote beside the result"
            first = y_bits if first is None else first
            np.testing.assert_array_equal(y_bits, first, "the number of threads changed a result")


def random_x(family: str, w_shape: tuple[int, ...], n: int, rng: np.random.Generator, d: int = 1, c: int = 1):
    terms = w_shape[3] if family == "mul_mat" else w_shape[2]
    return rng.standard_normal((d, c, n, terms)).astype(np.float32)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_type(family, kind, isa, rng):
    block = tensor_type(kind).block
    for k, m, n in ((block, 1, 1), (3 * max(block, 32), 37, 9), (5 * max(block, 16), 70, 30)):
        w_shape = (1, 1, m, k)
        verify(family, kind, isa, w_shape, random_x(family, w_shape, n, rng), rng, threads=(1, 2))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", ["F32", "F16", "Q4_1"])
@pytest.mark.parametrize("family", FAMILIES)
def test_tails(family, kind, isa, rng):
    """All sizes from 1 to 70 of each extent, the others changing with it; rows of blocks are whole blocks."""
    block = tensor_type(kind).block
    for size in range(1, 71):
        a, b, c = size, 1 + (7 * size) % 70, 1 + (31 * size) % 70
        for k, m, n in ((a, b, c), (c, a, b), (b, c, a)):
            w_shape = (1, 1, m, -(-k // block) * block)
            verify(family, kind, isa, w_shape, random_x(family, w_shape, n, rng), rng, threads=(1,))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("terms", [PANEL_DEPTH - 1, PANEL_DEPTH, PANEL_DEPTH + 1, 2 * PANEL_DEPTH + 70])
@pytest.mark.parametrize("family", FAMILIES)
def test_long_sums(family, terms, isa, rng):
    w_shape = (1, 1, 40, terms) if family == "mul_mat" else (1, 1, terms, 40)
    verify(family, "F32", isa, w_shape, random_x(family, w_shape, 13, rng), rng)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("lanes", "columns"), [(20 * PANEL_STRIP + 5, 7), (30, 2 * PANEL_COLUMNS + 11), (200, 300)])
@pytest.mark.parametrize("family", FAMILIES)
def test_many_strips_and_blocks(family, lanes, columns, isa, rng):
    w_shape = (1, 1, lanes, 300) if family == "mul_mat" else (1, 1, 300, lanes)
    verify(family, "F32", isa, w_shape, random_x(family, w_shape, columns, rng), rng, threads=(1, 2, 3, 5))


def scattered(x: np.ndarray, order: tuple[int, ...], gap: int) -> np.ndarray:
    """The same numbers with another order of axes in memory, and gaps after the last of them."""
    moved = x.transpose(order)
    held = np.zeros((*moved.shape[:-1], moved.shape[-1] + gap), np.float32)
    view = held[..., : moved.shape[-1]]
    view[:] = moved
    return view.transpose(np.argsort(order))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 1, 3, 2), (3, 2, 1, 0), (2, 0, 3, 1)])
@pytest.mark.parametrize("family", FAMILIES)
def test_strides_and_batches(family, order, isa, rng):
    """Every batch of x finds its weights: 2 and 1 matrices for 4 and 3 batches."""
    for kind in ("F32", "Q8_0"):
        w_shape = (1, 2, PANEL_DEPTH + 9, PANEL_DEPTH + 64)
        x = scattered(random_x(family, w_shape, 14, rng, d=3, c=4), order, gap=3)
        assert x.strides != np.ascontiguousarray(x).strides
        verify(family, kind, isa, w_shape, x, rng)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("columns", [37, 2 * PANEL_COLUMNS + 3])
@pytest.mark.parametrize("family", FAMILIES)
def test_adjacent_columns_on_lines_that_alias(family, columns, isa, rng):
    """Terms of x are 4,096 bytes apart: the kernel copies them."""
    w_shape = (1, 1, 150, PANEL_DEPTH + 30) if family == "mul_mat" else (1, 1, PANEL_DEPTH + 30, 150)
    x = scattered(random_x(family, w_shape, columns, rng), (0, 1, 3, 2), gap=1024 - columns)
    assert x.strides[2:] == (4, 4096)
    verify(family, "F32", isa, w_shape, x, rng)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_result_depends_on_its_own_row_and_column_only(family, isa, rng):
    """Any part of a product has the same bits when it is computed alone."""
    lanes, columns, terms = 75, 29, 290
    w = rng.standard_normal((1, 1, lanes, terms)).astype(np.float32)
    w = w if family == "mul_mat" else np.ascontiguousarray(w.swapaxes(2, 3))
    x = rng.standard_normal((1, 1, columns, terms)).astype(np.float32)

    def compute(first: int, last: int, start: int, end: int) -> np.ndarray:
        y = np.zeros((1, 1, end - start, last - first), np.float32)
        part = w[:, :, first:last] if family == "mul_mat" else w[..., first:last]
        seen = x[:, :, start:end]
        run(family, "F32", isa, y, operand(part), seen if family == "mul_mat" else seen.swapaxes(2, 3), 0, 1)
        return y

    whole = compute(0, lanes, 0, columns)
    for first, last, start, end in ((0, 1, 0, 1), (3, 20, 5, 9), (60, 75, 28, 29), (0, 64, 11, 23), (33, 75, 1, 29)):
        np.testing.assert_array_equal(compute(first, last, start, end), whole[:, :, start:end, first:last])


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_not_finite_stays_in_its_row_and_column(family, rng):
    """Lanes and columns that are packed beside it get nothing of an infinity or a NaN."""
    lanes, columns, terms = 37, 15, 21
    w = rng.standard_normal((1, 1, lanes, terms)).astype(np.float32)
    x = rng.standard_normal((1, 1, columns, terms)).astype(np.float32)
    w[0, 0, 4, 3], x[0, 0, 9, 20] = np.nan, np.inf
    expected = np.isfinite(x @ w.swapaxes(2, 3))
    assert expected.sum() == (lanes - 1) * (columns - 1)
    w = w if family == "mul_mat" else np.ascontiguousarray(w.swapaxes(2, 3))
    y = np.zeros(expected.shape, np.float32)
    run(family, "F32", ISAS[0], y, operand(w), x if family == "mul_mat" else x.swapaxes(2, 3), 0, 2)
    np.testing.assert_array_equal(np.isfinite(y), expected)


@pytest.mark.skipif(sys.platform == "win32", reason="protects pages by mprotect")
def test_nothing_beyond_operands_and_scratch_is_touched():
    here = Path(__file__).resolve().parent
    paths = os.pathsep.join([str(here.parent), *filter(None, sys.path)])
    command = [sys.executable, str(here / "protected.py")]
    result = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=250
    )
    assert result.returncode == 0, (result.returncode, result.stderr[-2000:])
    assert "stayed within" in result.stdout
