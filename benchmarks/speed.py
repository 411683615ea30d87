"""Speed of this package on the default model, or on files that are named: one JSON line.

python benchmarks/speed.py [MODEL ...]
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path

from machine import describe

HERE = Path(__file__).resolve().parent
THREADS, PROMPT, GENERATE, RUNS = 2, 128, 64, 5


def main() -> None:
    rows = []
    for model in sys.argv[1:] or ["default"]:
        command = [sys.executable, str(HERE / "worker_prism.py"), model, *map(str, (THREADS, PROMPT, GENERATE, RUNS))]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=600).stdout
        result = json.loads(output.splitlines()[-1])
        rates = {f"pp{PROMPT}": result["prompt"], f"tg{GENERATE}": result["generation"]}
        rows.append(
            {"model": Path(model).name, **{label: round(statistics.median(r), 1) for label, r in rates.items()}}
        )
    print(json.dumps({**describe(), "threads": THREADS, "runs": RUNS, "rows": rows}))


if __name__ == "__main__":
    main()
