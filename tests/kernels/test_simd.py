"""Every intrinsic against its NumPy twin, bit for bit, on random operands; here for the process's own target.

`test_targets.py` runs this file again with the target forced to the plainest one.
"""

from __future__ import annotations

import numpy as np
import pytest

from prism_inference.engine.objects import _new_engine
from prism_inference.engine.team import KERNEL_TYPE
from prism_inference.kernels import symbols
from prism_inference.kernels.jit import compile_object, types
from prism_inference.kernels.simd import OPERATIONS, load_i64, store_f32, store_i64
from prism_inference.kernels.simd.core import (
    F32,
    I64,
    NONE,
    F32x16,
    F64x16,
    I8x16,
    I8x32,
    I8x64,
    I32x16,
    Vector,
    operation,
    pointer,
)
from prism_inference.kernels.target import target

# Read and write memory as they go: test_tiles.py, test_groups.py, test_byte_tiles.py.
BLOCKS = ("tile", "transpose16", "group_hal", "group_bytes", "group_pair", "gather_", "bytes ")
NAMES = [
    name
    for name in OPERATIONS
    if name not in ("call_kernel", "yield_thread", "prefetch", "clock") and not name.startswith(BLOCKS)
]
assert len(NAMES) > 50
BYTES = 256  # per operand slot


def _loader(vector):
    @operation(f"test_load_{vector.name}", vector, (I64,), None)
    def load(builder, address):
        return builder.load(pointer(builder, address, vector.llvm), align=1)

    return load


def _storer(vector):
    @operation(f"test_store_{vector.name}", NONE, (I64, vector), None)
    def store(builder, address, value):
        builder.store(value, pointer(builder, address, vector.llvm), align=1)

    return store


@operation("test_store_f64", NONE, (I64, types.float64), None)
def store_f64(builder, address, value):
    builder.store(value, pointer(builder, address, value.type), align=1)


VECTORS = (F32x16, F64x16, I32x16, I8x16, I8x32, I8x64)
LOAD = {vector: _loader(vector) for vector in VECTORS} | {
    I64: load_i64,
    F32: OPERATIONS["load_f32"][0],
    types.float64: OPERATIONS["load_f64"][0],
}
STORE = {vector: _storer(vector) for vector in VECTORS} | {I64: store_i64, F32: store_f32, types.float64: store_f64}


def kernel_of(name):
    """A kernel that reads the operands from slots at `desc`, applies the operation and stores to slot 0."""
    function, result, parameters, _ = OPERATIONS[name]
    loads = [LOAD[kind] for kind in parameters]
    if name.startswith(("load", "atomic_load", "atomic_add")):
        store = STORE[result]
        if len(parameters) == 1:
            return lambda desc, ith, nth: store(desc, function(desc + BYTES))
        second = loads[1]
        return lambda desc, ith, nth: store(desc, function(desc + BYTES, second(desc + 2 * BYTES)))
    if name.startswith(("store", "atomic_store")):
        if len(parameters) == 2:
            first = loads[1]
            return lambda desc, ith, nth: function(desc, first(desc + 2 * BYTES))
        first, second = loads[1:]
        return lambda desc, ith, nth: function(desc, first(desc + 2 * BYTES), second(desc + 3 * BYTES))
    store = STORE[result]
    if len(loads) == 0:
        return lambda desc, ith, nth: store(desc, function())
    if len(loads) == 1:
        a = loads[0]
        return lambda desc, ith, nth: store(desc, function(a(desc + BYTES)))
    if len(loads) == 2:
        a, b = loads
        return lambda desc, ith, nth: store(desc, function(a(desc + BYTES), b(desc + 2 * BYTES)))
    if len(loads) == 3:
        a, b, c = loads
        return lambda desc, ith, nth: store(desc, function(a(desc + BYTES), b(desc + 2 * BYTES), c(desc + 3 * BYTES)))
    a, b, c, d = loads
    return lambda desc, ith, nth: store(
        desc, function(a(desc + BYTES), b(desc + 2 * BYTES), c(desc + 3 * BYTES), d(desc + 4 * BYTES))
    )


def link(function):
    """Compile and link a kernel; return it as a callable with the engine that owns its code."""
    import llvmlite.binding as llvm

    symbols.bind()
    engine = _new_engine(llvm)
    engine.add_object_file(llvm.ObjectFileRef.from_data(compile_object(function, "tested", target())))
    engine.finalize_object()
    return KERNEL_TYPE(engine.get_function_address("tested")), engine


SCALARS = {I64: np.int64, F32: np.float32, types.float64: np.float64}
SPECIALS = np.array([0.0, -0.0, 1.0, -1.0, 65504.0, 65520.0, 6e-8, 2.9e-8, 1e-5, 3.4e38, np.inf, -np.inf], np.float32)


def random_operand(kind, name, rng):
    """Values of a parameter's type that the operation is defined for."""
    if kind is I64:
        if name in ("load_first", "load_first_f16", "load_first_bf16", "store_first"):
            return np.int64(rng.integers(-3, 20))
        return np.int64(rng.integers(-(2**62), 2**62))
    if isinstance(kind, Vector) and kind.element == "i8":
        return rng.integers(-128, 128, kind.lanes).astype(np.int8)
    if kind is I32x16:
        return rng.integers(-126, 127, 16).astype(np.int32)
    if kind is F64x16:
        return rng.standard_normal(16)
    if kind is types.float64:
        return np.float64(rng.standard_normal())
    if name == "round_even":
        return (rng.standard_normal(16) * 1000).round(1).astype(np.float32)
    values = (rng.standard_normal(16) * 10.0 ** rng.integers(-6, 6, 16)).astype(np.float32)
    if name in ("round_f16", "store_f16", "store_f16x16", "maximum", "minimum", "absolute"):
        values[3:9] = rng.choice(SPECIALS, 6)
    if name == "square_root":
        values = np.abs(values)
    return values if kind is F32x16 else values[rng.integers(16)]


@pytest.mark.parametrize("name", NAMES)
def test_operation_equals_twin(name, rng):
    if name in ("dot_avx2", "dot_signed_avx2") and target().isa == "generic":
        pytest.skip(f"the target {target().cpu} has no AVX2")
    if name == "dot_vnni" and target().isa != "avx512vnni":
        pytest.skip(f"the target {target().cpu} has no AVX-512 VNNI")
    _, result, parameters, twin = OPERATIONS[name]
    call, engine = link(kernel_of(name))
    for _ in range(40):
        slots = np.zeros((5, BYTES), np.uint8)
        loads, stores = (
            name.startswith(("load", "atomic_load", "atomic_add")),
            name.startswith(("store", "atomic_store")),
        )
        if loads:
            slots[1] = random_bytes(name, rng)
            raw = slots[1].copy()
            rest = [random_operand(kind, name, rng) for kind in parameters[1:]]
            operands = [raw, *rest]
            fill(slots, 2, rest)
        elif stores:
            rest = [random_operand(kind, name, rng) for kind in parameters[1:]]
            operands = rest
            fill(slots, 2, rest)
        else:
            operands = [random_operand(kind, name, rng) for kind in parameters]
            fill(slots, 1, operands)
        with np.errstate(all="ignore"):
            expected = twin(*operands)
        call(slots.ctypes.data, 0, 1)
        if stores:
            assert slots[0, : len(expected)].tobytes() == expected
            assert not slots[0, len(expected) :].any(), "wrote beyond its bytes"
        elif name == "fma":
            # The twin rounds once in float64 and once to float32; the machine may fuse or not.
            got = slots[0].view(np.float32)[:16]
            scale = np.abs(operands[0].astype(np.float64) * operands[1]) + np.abs(operands[2])
            assert (np.abs(got - expected) <= 2.0**-23 * scale).all()
        else:
            dtype = result.dtype if isinstance(result, Vector) else SCALARS[result]
            wanted = np.atleast_1d(np.asarray(expected, dtype))
            got = slots[0].view(dtype)[: wanted.size]
            np.testing.assert_array_equal(got, wanted)
    del engine


def fill(slots, start, operands):
    for number, value in enumerate(operands):
        raw = np.atleast_1d(value).view(np.uint8)
        slots[start + number, : raw.size] = raw


def random_bytes(name, rng):
    """Bytes for a load; float16 and bfloat16 patterns include every special value but signalling NaN."""
    raw = rng.integers(0, 256, BYTES, dtype=np.uint8)
    if "f64" in name:
        raw.view(np.float64)[:] = rng.standard_normal(BYTES // 8)
    if "f32" in name or "first" in name:
        raw.view(np.float32)[:] = rng.standard_normal(BYTES // 4)
    if "bf16" in name:
        raw.view(np.uint16)[:] = rng.integers(0, 0x7F80, BYTES // 2)
    elif "f16" in name:
        raw.view(np.uint16)[:] = rng.integers(0, 0x7C01, BYTES // 2)
    return raw


def test_half_precision_is_exact_for_every_value(rng):
    """All 65,536 float16 patterns decode as NumPy decodes them (NaN stays NaN), and encode back to themselves."""
    load, engine_1 = link(kernel_of("load_f16x16"))
    store, engine_2 = link(kernel_of("store_f16x16"))
    slots = np.zeros((5, BYTES), np.uint8)
    for start in range(0, 65536, 16):
        bits = np.arange(start, start + 16, dtype=np.uint16)
        slots[1].view(np.uint16)[:16] = bits
        load(slots.ctypes.data, 0, 1)
        decoded = slots[0].view(np.float32)[:16].copy()
        np.testing.assert_array_equal(decoded, bits.view(np.float16).astype(np.float32))
        slots[2].view(np.float32)[:16] = decoded
        store(slots.ctypes.data, 0, 1)
        number = ~np.isnan(decoded)
        encoded = slots[0].view(np.uint16)[:16]
        np.testing.assert_array_equal(encoded[number], bits[number])
        assert np.isnan(encoded[~number].view(np.float16)).all()
    del engine_1, engine_2
