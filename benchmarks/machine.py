"""What a figure was measured on: processor, memory, versions."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path


def processor() -> str:
    """The processor's name, as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def describe(peer: str | None = None, package: str = "llama-cpp-python") -> dict[str, object]:
    """A record of machine and versions; `peer` is an interpreter that has the package compared with."""
    record: dict[str, object] = {
        "date": datetime.date.today().isoformat(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "prism-inference": version("prism-inference"),
        "numba": version("numba"),
        "numpy": version("numpy"),
    }
    if peer:
        code = f"import importlib.metadata as m; print(m.version({package!r}))"
        record[package] = subprocess.run([peer, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
    return record
