"""Trainings beside PyTorch: same weights and batches, process by process in turn; medians and ratios, one JSON line.

    python benchmarks/against_torch.py --peer PYTHON --model SMOLLM2.gguf [--runs N]

PYTHON is an interpreter that has torch, transformers and peft. `mkl` is PyTorch as everybody runs it; `onednn` is the
same with its products sent to oneDNN, which is faster on some processors (see `worker_torch.py`). Results are appended
to `benchmarks/results/against_torch.jsonl`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from machine import describe

HERE = Path(__file__).resolve().parent
JOBS = (("full", 1, ()), ("full", 8, ()), ("lora", 1, ("--steps", "20")), ("lora", 4, ("--steps", "20")))


def run(command: list[str]) -> dict[str, Any]:
    """Run one worker in a process of its own and return what it printed."""
    environment = os.environ | {"PYTHONPATH": str(HERE.parent / "src")}
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=1200, env=environment).stdout
    result: dict[str, Any] = json.loads(output.splitlines()[-1])
    return result


def compare(job: str, batch: int, extra: tuple[str, ...], options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure one training with each engine in turn."""
    inputs = str(folder / f"{job}_{batch}")
    model = [options.model] if job == "lora" else []
    make = [sys.executable, str(HERE / "training_inputs.py"), job, inputs, "--batch", str(batch), *extra]
    subprocess.run([*make, *(("--model", *model) if model else ())], check=True)
    threads = str(options.threads)
    commands = {
        "prism": [sys.executable, str(HERE / "worker_prism_train.py"), job, inputs, threads, *model],
        "mkl": [options.peer, str(HERE / "worker_torch.py"), job, inputs, threads, "mkl", *model],
        "onednn": [options.peer, str(HERE / "worker_torch.py"), job, inputs, threads, "onednn", *model],
    }
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in commands}
    for _ in range(options.runs):
        for name, command in commands.items():
            found[name].append(run(command))
    row: dict[str, Any] = {"job": job, "batch": batch, "threads": options.threads}
    speed = {name: statistics.median(r["steps_per_second"] for r in runs) for name, runs in found.items()}
    memory = {name: statistics.median(r["peak_rss_bytes"] for r in runs) for name, runs in found.items()}
    ours, theirs = (np.array(found[name][0]["losses"][:20]) for name in ("prism", "mkl"))
    row |= {f"{name} steps/s": round(value, 3) for name, value in speed.items()}
    row |= {f"{name} peak MiB": round(value / 2**20) for name, value in memory.items()}
    row |= {f"speed against {name}": round(speed["prism"] / speed[name], 2) for name in ("mkl", "onednn")}
    row |= {f"memory against {name}": round(memory["prism"] / memory[name], 2) for name in ("mkl", "onednn")}
    row["largest relative difference of 20 losses"] = float(np.abs(ours / theirs - 1).max())
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, help="interpreter with torch, transformers and peft")
    parser.add_argument("--model", required=True, help="SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for job, batch, extra in JOBS:
            rows.append(compare(job, batch, extra, options, Path(folder)))
            print(json.dumps(rows[-1]), file=sys.stderr)
    line = json.dumps({**describe(options.peer, "torch"), "runs": options.runs, "rows": rows})
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    with (results / "against_torch.jsonl").open("a") as file:
        file.write(line + "\n")
    print(line)


if __name__ == "__main__":
    main()
