"""Measures how much resident memory a piece of work takes: its peak where the system tells it, else what stays."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # as the kernel's manual of the proc file system says


@dataclass
class Memory:
    """Bytes of growth; known when the work has ended."""

    growth: int = 0


@contextmanager
def peak_memory() -> Iterator[Memory]:
    """Measure the work of a with-block."""
    memory = Memory()
    gc.collect()
    process = psutil.Process()
    resettable = sys.platform == "linux" and _reset_peak()
    before = process.memory_info().rss
    yield memory
    after = process.memory_info().rss
    memory.growth = max(after, _peak() if resettable else 0) - before


def _reset_peak() -> bool:
    try:
        _CLEAR.write_text(_RESET_PEAK)
    except OSError:
        return False
    return True


def _peak() -> int:
    """The greatest resident size since the last reset."""
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024
