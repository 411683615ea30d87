"""The same suites with the target forced to plainer processors, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from prism_inference.kernels.target import NAMED_TARGETS, host_features

HERE = Path(__file__).resolve().parent
SUITES = ("test_simd.py", "test_tiles.py", "test_groups.py", "test_byte_tiles.py", "test_functions.py")
FORCED = ["generic", "x86-64-v3"]


@pytest.mark.timeout(1300)  # compiles every kernel for another target
@pytest.mark.parametrize("name", FORCED)
def test_suites_pass_on_a_forced_target(name: str) -> None:
    missing = [feature for feature in NAMED_TARGETS[name] if not host_features().get(feature, False)]
    if missing:
        pytest.skip(f"this machine lacks {', '.join(missing)}")
    files = [str(HERE / name) for name in SUITES]
    files.append(str(HERE.parent / "engine" / "test_kernels.py"))
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *files]
    result = subprocess.run(
        command, env={**os.environ, "PRISM_CPU": name}, capture_output=True, text=True, timeout=1200
    )
    assert result.returncode == 0, result.stdout[-3000:]
    assert " passed" in result.stdout
