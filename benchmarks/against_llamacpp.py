"""Both engines on the same files in one run, process by process in turn; medians and ratios, one JSON line at the end.

    python benchmarks/against_llamacpp.py --peer PYTHON MODEL [MODEL ...]

PYTHON is an interpreter that has llama-cpp-python, built with CMAKE_ARGS=-DGGML_NATIVE=ON. Results are appended to
`benchmarks/results/against_llamacpp.jsonl`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

from machine import describe

HERE = Path(__file__).resolve().parent


def measure(python: str, worker: str, model: str, options: argparse.Namespace) -> dict[str, list[float]]:
    """Run one worker in a process of its own."""
    command = [python, str(HERE / worker), model]
    command += [str(value) for value in (options.threads, options.prompt, options.generate, 1)]
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout
    result: dict[str, list[float]] = json.loads(output.splitlines()[-1])
    return result


def compare(model: str, options: argparse.Namespace) -> dict[str, object]:
    """Measure one model with both engines in turn."""
    ours: dict[str, list[float]] = {"prompt": [], "generation": []}
    peer: dict[str, list[float]] = {"prompt": [], "generation": []}
    for _ in range(options.runs):
        for python, worker, sums in (
            (sys.executable, "worker_prism.py", ours),
            (options.peer, "worker_llamacpp.py", peer),
        ):
            result = measure(python, worker, model, options)
            for kind, rates in sums.items():
                rates += result[kind]
    row: dict[str, object] = {"model": Path(model).name, "threads": options.threads}
    for kind, label in (("prompt", f"pp{options.prompt}"), ("generation", f"tg{options.generate}")):
        mine, theirs = statistics.median(ours[kind]), statistics.median(peer[kind])
        row[label] = {"prism": round(mine, 1), "llama.cpp": round(theirs, 1), "ratio": round(mine / theirs, 2)}
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--peer", required=True, help="interpreter with llama-cpp-python")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--generate", type=int, default=128)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    rows = []
    for model in options.models:
        row = compare(model, options)
        print(json.dumps(row), file=sys.stderr)
        rows.append(row)
    line = json.dumps({**describe(options.peer), "runs": options.runs, "rows": rows})
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    with (results / "against_llamacpp.jsonl").open("a") as file:
        file.write(line + "\n")
    print(line)


if __name__ == "__main__":
    main()
