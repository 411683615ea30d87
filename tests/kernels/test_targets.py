"""The same suites with the target forced to plainer processors, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from prism_inference.kernels.target import NAMED_TARGETS, host_features

HERE = Path(__file__).resolve().parent
SUITES = ("test_simd.py", "test_tiles.py", "test_groups.py", "test_byte_tiles.py", "test_functions.py")
FORCED = ["generic", "x86-64-v3"]


def lacks(name: str) -> list[str]:
    return [feature for feature in NAMED_TARGETS[name] if not host_features().get(feature, False)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[subprocess.Popen[bytes], Path]]]:
    """All processes at once: most of their time goes into compiling every kernel, which one core does."""
    files = [str(HERE / name) for name in SUITES]
    files.append(str(HERE.parent / "engine" / "test_kernels.py"))
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *files]
    started = {}
    for name in FORCED:
        if not lacks(name):
            log = tmp_path_factory.mktemp(name) / "log"
            with log.open("wb") as out:
                process = subprocess.Popen(
                    command, env={**os.environ, "PRISM_CPU": name}, stdout=out, stderr=subprocess.STDOUT
                )
            started[name] = process, log
    yield started
    for process, _ in started.values():
        process.kill()
        process.wait()


@pytest.mark.timeout(1300)  # compiles every kernel for another target
@pytest.mark.parametrize("name", FORCED)
def test_suites_pass_on_a_forced_target(name: str, runs: dict[str, tuple[subprocess.Popen[bytes], Path]]) -> None:
    if lacks(name):
        pytest.skip(f"this machine lacks {', '.join(lacks(name))}")
    process, log = runs[name]
    status = process.wait(timeout=1200)
    output = log.read_text()
    assert status == 0, output[-3000:]
    assert " passed" in output
