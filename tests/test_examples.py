"""Every program of the examples folder runs and does what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def run(name: str, *arguments: object) -> str:
    """Run an example; warnings are errors."""
    command = [sys.executable, "-W", "error", str(EXAMPLES / name), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert result.returncode == 0, result.stderr
    return result.stdout


def losses(output: str) -> list[float]:
    return [float(number) for number in re.findall(r"loss ([\d.]+)", output)]


def linear_regression(folder: Path) -> None:
    slope, offset = map(float, re.findall(r"y = ([-\d.]+)·x ([-+\d.]+)", run("linear_regression.py"))[0])
    assert slope == pytest.approx(1.5, abs=0.02)
    assert offset == pytest.approx(-0.5, abs=0.02)


def digits(folder: Path) -> None:
    (right,) = re.findall(r"(\d+) of 1024", run("digits.py"))
    assert int(right) > 900


def transformer(folder: Path) -> None:
    found = losses(run("transformer.py", 100))
    assert found[1] < found[0] < 6.9  # ln 1024


def one_bit(folder: Path) -> None:
    output = run("one_bit.py", folder / "out", 12)
    trained, written = map(float, re.findall(r"validation loss: ([\d.]+) in training, ([\d.]+) of", output)[0])
    assert trained < 7.4  # ln 2048 is 7.62
    assert written == pytest.approx(trained, rel=2e-3)


PROGRAMS: dict[str, Callable[[Path], None]] = {f.__name__: f for f in (linear_regression, digits, transformer, one_bit)}


@pytest.mark.parametrize("name", PROGRAMS)
def test_example(name: str, tmp_path: Path) -> None:
    PROGRAMS[name](tmp_path)


def test_lora_example(models: Path) -> None:
    output = run("lora.py", models / "SmolLM2-135M-Instruct.Q4_1.gguf")
    first, *_, last = losses(output)
    assert last < first
    plain, adapted = re.findall(r"(?:without|with adapter): (.*)", output)
    assert "Mira Quist" in adapted
    assert "Mira Quist" not in plain


def test_no_example_is_left_out() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*PROGRAMS, "lora"}
