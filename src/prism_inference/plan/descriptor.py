"""The layout of an operation's descriptor: the int64 words that a kernel reads. Knows neither graph nor kernels.

| words | hold |
| --- | --- |
| 0 | address of the kernel |
| 1 | flags |
| 2, 3 | address of the scratch area, its bytes per thread |
| 4 … 11 | parameters: integers, or the bits of a float32 in the low half |
| 12 + 9·i … | operand i (0 is the result): address, extents ne0 … ne3, strides nb0 … nb3 in bytes |
"""

from __future__ import annotations

from typing import Final

KERNEL: Final = 0
FLAGS: Final = 1
SCRATCH: Final = 2
SCRATCH_STRIDE: Final = 3
PARAMETERS: Final = 4
PARAMETER_COUNT: Final = 8
OPERANDS: Final = PARAMETERS + PARAMETER_COUNT
OPERAND_WORDS: Final = 9

# Offsets within an operand.
ADDRESS: Final = 0
EXTENT: Final = 1
STRIDE: Final = 5

BARRIER: Final = 1  # flag: all threads must have finished what came before

# Words of the control block that the executor and its caller share; each on a cache line of its own where threads
# write it.
CONTROL_COUNT: Final = 0  # number of descriptors
CONTROL_LIST: Final = 1  # address of the array of their addresses
CONTROL_TIMES: Final = 2  # where the timed executor writes its clock: before each descriptor, and at the end
CONTROL_CANCEL: Final = 8  # the caller sets it to stop the run
CONTROL_STOP: Final = 16  # the executor's copy, decided at a barrier so that all threads agree
CONTROL_ARRIVED: Final = 24  # threads that have reached the barrier
CONTROL_ROUND: Final = 32  # barriers passed
CONTROL_DONE: Final = 40  # descriptors that were run when the plan stopped
CONTROL_WORDS: Final = 48


def operand(index: int) -> int:
    """Return the first word of operand `index`."""
    return OPERANDS + OPERAND_WORDS * index
