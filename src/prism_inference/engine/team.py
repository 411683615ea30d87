"""The threads that run plans: they wait without using the processor, and run one plan at a time together.

The caller only waits. An interrupt (Ctrl-C) reaches the caller's thread alone, so it can neither split the team nor
leave one thread waiting for another. Runs leave the GIL (ctypes calls do), so other Python threads go on. Knows no
plan.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from functools import cache
from queue import SimpleQueue

from ..errors import ParameterError
from ..limits import MAX_THREADS
from ..settings import settings

KERNEL_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


class _Job:
    """One run: the executor's address, the control block's, and how to make it end early.

    The last is a method of what owns the memory in use, which so lives as long as the job.
    """

    def __init__(self, executor: int, control: int, cancel: Callable[[], None]) -> None:
        self.executor = executor
        self.control = control
        self.cancel = cancel
        self.running = True
        self.done = threading.Lock()
        self.done.acquire()


class Team:
    """`size` threads. They do one run at a time; further callers wait for their turn."""

    def __init__(self, size: int) -> None:
        if not 1 <= size <= MAX_THREADS:
            raise ParameterError("wrong number of threads", expected=f"1 to {MAX_THREADS}", found=size)
        self.size = size
        self._process = os.getpid()
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._starts: list[SimpleQueue[_Job]] = [SimpleQueue() for _ in range(size - 1)]
        self._finished: SimpleQueue[None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._lead, name="prism-0", daemon=True),
            *(
                threading.Thread(target=self._follow, args=(number,), name=f"prism-{number}", daemon=True)
                for number in range(1, size)
            ),
        ]
        for thread in self._threads:
            thread.start()

    def run(self, executor: int, control: int, cancel: Callable[[], None]) -> None:
        """Have every thread call the executor at address `executor` with the control block at `control`.

        An exception that reaches the caller meanwhile (KeyboardInterrupt) calls `cancel` and is raised when the run has
        ended.

        Raises:
            ParameterError: the process was forked after the team was made; its threads do not exist in the child.
        """
        if os.getpid() != self._process:
            raise ParameterError(
                "threads do not survive a fork", hint="Start worker processes by spawn, or load the model in the child."
            )
        job = _Job(executor, control, cancel)
        self._jobs.put(job)
        interrupt: BaseException | None = None
        while job.running:
            try:
                job.done.acquire()
            except BaseException as error:  # only ever raised by a signal's handler
                interrupt = error
                cancel()
        if interrupt is not None:
            raise interrupt

    def _lead(self) -> None:
        """Thread 0: take the jobs in turn and share each with the others."""
        while True:
            job = self._jobs.get()
            for start in self._starts:
                start.put(job)
            KERNEL_TYPE(job.executor)(job.control, 0, self.size)
            for _ in self._starts:
                self._finished.get()
            job.running = False
            job.done.release()
            del job  # what it keeps alive must not wait for the next one

    def _follow(self, number: int) -> None:
        while True:
            job = self._starts[number - 1].get()
            KERNEL_TYPE(job.executor)(job.control, number, self.size)
            del job
            self._finished.put(None)


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
