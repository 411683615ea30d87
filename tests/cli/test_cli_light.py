"""Help is light and fast; a download's bar comes only where a person may watch."""

from __future__ import annotations

import io
import subprocess
import sys
import time
from typing import Any

import pytest

from prism_inference.cli import COMMANDS
from prism_inference.runtime import progress
from prism_inference.settings import read

HEAVY = {"numpy", "numba", "llvmlite", "tokenizers", "jinja2", "starlette", "uvicorn", "rich", "llguidance", "psutil"}
CALL = "import sys; from prism_inference.cli import main; status = main({arguments}); "
REPORT = "print(' '.join(sorted({name.split('.')[0] for name in sys.modules}))); sys.exit(status)"


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], *([name, "--help"] for name in COMMANDS)], ids=" ".join
)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = CALL.format(arguments=arguments) + REPORT
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    loaded = set(result.stdout.splitlines()[-1].split())
    assert "argparse" in loaded
    assert loaded & HEAVY == set()


def test_help_is_fast() -> None:
    code = CALL.format(arguments=["--help"]) + "sys.exit(status)"
    times = []
    for _ in range(5):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=60)
        times.append(time.perf_counter() - started)
    assert min(times) < 0.15  # the promise; measured 0.03 s


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_follows_a_download_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "settings", lambda: read({}))
    with progress.byte_progress("Fetching the model") as show:
        assert show is not None
        assert terminal.getvalue() == "", "nothing before the first byte"
        show(500_000, 1_000_000)
        show(1_000_000, 1_000_000)
    assert "Fetching the model" in terminal.getvalue()
    assert "1.0/1.0 MB" in terminal.getvalue()


@pytest.mark.parametrize(("stream", "environment"), [(io.StringIO(), {}), (Terminal(), {"PRISM_PROGRESS": "0"})])
def test_no_bar_elsewhere(monkeypatch: pytest.MonkeyPatch, stream: Any, environment: dict[str, str]) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "settings", lambda: read(environment))
    with progress.byte_progress("Fetching the model") as show:
        assert show is None
