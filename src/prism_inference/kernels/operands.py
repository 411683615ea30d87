"""Reading descriptors inside kernels: operands, parameters and this thread's share of the work.

The layout is `plan.descriptor`'s. Everything is int64; parameters that are floats arrive as bits.
"""

from __future__ import annotations

from ..plan import descriptor as layout
from .jit import helper
from .simd import float_of_bits, load_i32, load_i64

_PARAMETERS = layout.PARAMETERS
_OPERANDS = layout.OPERANDS
_WORDS = layout.OPERAND_WORDS
_EXTENT = layout.EXTENT
_STRIDE = layout.STRIDE
_SCRATCH = layout.SCRATCH
_SCRATCH_STRIDE = layout.SCRATCH_STRIDE


@helper
def parameter(desc, i):
    """Integer parameter i."""
    return load_i64(desc + 8 * (_PARAMETERS + i))


@helper
def parameter_f32(desc, i):
    """Float32 parameter i."""
    return float_of_bits(load_i64(desc + 8 * (_PARAMETERS + i)))


@helper
def address(desc, k):
    """Address of operand k (0 is the result)."""
    return load_i64(desc + 8 * (_OPERANDS + _WORDS * k))


@helper
def extent(desc, k, d):
    """ne[d] of operand k."""
    return load_i64(desc + 8 * (_OPERANDS + _WORDS * k + _EXTENT + d))


@helper
def stride(desc, k, d):
    """nb[d] of operand k, in bytes."""
    return load_i64(desc + 8 * (_OPERANDS + _WORDS * k + _STRIDE + d))


@helper
def rows(desc, k):
    """ne1 · ne2 · ne3 of operand k."""
    return extent(desc, k, 1) * extent(desc, k, 2) * extent(desc, k, 3)


@helper
def row_address(desc, k, row):
    """Address of row `row` of operand k, rows counted over ne1, ne2, ne3 of that operand."""
    n1 = extent(desc, k, 1)
    n2 = extent(desc, k, 2)
    i1 = row % n1
    rest = row // n1
    return (
        address(desc, k)
        + i1 * stride(desc, k, 1)
        + (rest % n2) * stride(desc, k, 2)
        + (rest // n2) * stride(desc, k, 3)
    )


@helper
def target_address(desc, row):
    """Address of the row of operand 0 to which row `row` of operand 1 goes: the int32 operand 2 names it, repeated over
    the batches."""
    n1, n2 = extent(desc, 1, 1), extent(desc, 1, 2)
    i1, i2, i3 = row % n1, (row // n1) % n2, row // (n1 * n2)
    index = address(desc, 2) + i1 * stride(desc, 2, 0)
    index += (i2 % extent(desc, 2, 1)) * stride(desc, 2, 1) + (i3 % extent(desc, 2, 2)) * stride(desc, 2, 2)
    return address(desc, 0) + load_i32(index) * stride(desc, 0, 1) + i2 * stride(desc, 0, 2) + i3 * stride(desc, 0, 3)


@helper
def scratch(desc, ith):
    """Address of this thread's own scratch bytes."""
    return load_i64(desc + 8 * _SCRATCH) + ith * load_i64(desc + 8 * _SCRATCH_STRIDE)


@helper
def share(count, ith, nth):
    """First and last + 1 of the items of thread ith: contiguous, sizes differing by at most one."""
    return count * ith // nth, count * (ith + 1) // nth
