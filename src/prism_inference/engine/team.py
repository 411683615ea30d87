"""The threads that run plans: they wait without using the processor, and run one plan at a time together.

The caller's thread is thread 0. Runs leave the GIL (ctypes calls do), so other Python threads go on. Knows no plan.
"""

from __future__ import annotations

import ctypes
import os
import threading
from functools import cache

from ..errors import ParameterError
from ..limits import MAX_THREADS
from ..settings import settings

KERNEL_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


class Team:
    """`size` threads, this caller's among them. One run at a time; a second caller waits for its turn."""

    def __init__(self, size: int) -> None:
        if not 1 <= size <= MAX_THREADS:
            raise ParameterError("wrong number of threads", expected=f"1 to {MAX_THREADS}", found=size)
        self.size = size
        self._turn = threading.Lock()
        self._process = os.getpid()
        self._work: tuple[int, int] = (0, 0)
        self._start = [threading.Semaphore(0) for _ in range(size - 1)]
        self._finished = threading.Semaphore(0)
        self._threads = [
            threading.Thread(target=self._serve, args=(number + 1,), name=f"prism-{number + 1}", daemon=True)
            for number in range(size - 1)
        ]
        for thread in self._threads:
            thread.start()

    def run(self, executor: int, control: int) -> None:
        """Call the executor at address `executor` in every thread with the control block at `control`.

        Raises:
            ParameterError: the process was forked after the team was made; its threads do not exist in the child.
        """
        if os.getpid() != self._process:
            raise ParameterError(
                "threads do not survive a fork", hint="Start worker processes by spawn, or load the model in the child."
            )
        with self._turn:
            self._work = (executor, control)
            for start in self._start:
                start.release()
            KERNEL_TYPE(executor)(control, 0, self.size)
            for _ in self._start:
                self._finished.acquire()

    def _serve(self, number: int) -> None:
        while True:
            self._start[number - 1].acquire()
            executor, control = self._work
            KERNEL_TYPE(executor)(control, number, self.size)
            self._finished.release()


def default_threads() -> int:
    """Return `PRISM_THREADS`, or the number of physical cores that this process may use (affinity and cgroup quota)."""
    if settings().threads is not None:
        return settings().threads or 1
    import psutil

    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    physical = psutil.cpu_count(logical=False) or allowed
    return max(1, min(allowed, physical, _quota(), MAX_THREADS))


def _quota() -> int:
    """Return the processors that the cgroup's quota amounts to, rounded up; MAX_THREADS where there is none."""
    try:
        with open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:
            limit, period = file.read().split()
    except (OSError, ValueError):
        return MAX_THREADS
    return MAX_THREADS if limit == "max" else max(1, -(-int(limit) // int(period)))


@cache
def team(size: int) -> Team:
    """Return the process's team of this size: plans share it."""
    return Team(size)
