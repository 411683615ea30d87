"""The loop that runs a plan: each thread calls every kernel for its share and meets the others at barriers.

A barrier spins briefly and then yields, because the machine may have more threads than cores. Knows nothing of what the
kernels do. It has the signature of a kernel itself: (control block, thread, threads).
"""

from __future__ import annotations

from ..plan import descriptor as layout
from .jit import helper
from .simd import atomic_add, atomic_load, atomic_store, call_kernel, clock, load_i64, store_i64, yield_thread

_SPINS = 2_000  # some 2 µs: longer than a short kernel takes, shorter than a time slice

_KERNEL, _FLAGS, _BARRIER = 8 * layout.KERNEL, 8 * layout.FLAGS, layout.BARRIER
_COUNT, _LIST, _TIMES = 8 * layout.CONTROL_COUNT, 8 * layout.CONTROL_LIST, 8 * layout.CONTROL_TIMES
_CANCEL, _STOP, _DONE = 8 * layout.CONTROL_CANCEL, 8 * layout.CONTROL_STOP, 8 * layout.CONTROL_DONE
_ARRIVED, _ROUND = 8 * layout.CONTROL_ARRIVED, 8 * layout.CONTROL_ROUND


@helper
def _barrier(control, nth):
    """Wait for all threads; the last to arrive decides for all whether the run stops. True if it does."""
    if nth == 1:
        return atomic_load(control + _CANCEL) != 0
    passed = atomic_load(control + _ROUND)
    if atomic_add(control + _ARRIVED, 1) == nth - 1:
        atomic_store(control + _ARRIVED, 0)
        atomic_store(control + _STOP, atomic_load(control + _CANCEL))
        atomic_add(control + _ROUND, 1)
    else:
        spins = 0
        while atomic_load(control + _ROUND) == passed:
            spins += 1
            if spins > _SPINS:
                yield_thread()
    return atomic_load(control + _STOP) != 0


def _executor(timed):
    """The loop; if timed, thread 0 notes the clock before each descriptor and at the end."""

    def run(control, ith, nth):
        """Run the plan's descriptors; ends with a barrier, so that all results are there when any thread returns."""
        count, place = load_i64(control + _COUNT), load_i64(control + _LIST)
        done = 0
        stopped = False
        for i in range(count):
            desc = load_i64(place + 8 * i)
            if load_i64(desc + _FLAGS) & _BARRIER and _barrier(control, nth):
                stopped = True
                break
            if timed and ith == 0:
                store_i64(load_i64(control + _TIMES) + 8 * i, clock())
            call_kernel(load_i64(desc + _KERNEL), desc, ith, nth)
            done += 1
        if not stopped:
            _barrier(control, nth)
        if ith == 0:
            if timed:
                store_i64(load_i64(control + _TIMES) + 8 * done, clock())
            store_i64(control + _DONE, done)

    return run


KERNELS = {"run": _executor(False), "timed": _executor(True)}
