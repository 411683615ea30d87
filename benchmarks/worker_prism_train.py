"""Measures this package at the trainings that `training_inputs.py` writes. Prints one JSON line.

python benchmarks/worker_prism_train.py full INPUTS THREADS
python benchmarks/worker_prism_train.py lora INPUTS THREADS MODEL
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np

WARM_UP = 3  # steps that are not measured


class Given:
    """A dataset of the rows [steps·batch, T + 1] as they come."""

    def __init__(self, batches: np.ndarray) -> None:
        self._rows = batches.reshape(-1, batches.shape[-1])
        self.length = batches.shape[-1] - 1

    def rows(self, epoch: int) -> int:
        return len(self._rows)

    def row(self, epoch: int, number: int) -> Any:
        from prism_inference.training.data import Row

        ids = self._rows[number]
        return Row(ids[:-1], ids[1:], np.zeros(self.length, np.int32))


def main(job: str, inputs: str, threads: str, model: str = "") -> None:
    from prism_inference import gguf
    from prism_inference.runtime.weights import check
    from prism_inference.training.methods import Full, LoRA
    from prism_inference.training.step import OptimizerOptions
    from prism_inference.training.trainer import Options, Trainer

    hyper = json.loads(Path(f"{inputs}.json").read_text())
    with np.load(f"{inputs}.npz") as archive:
        arrays = dict(archive)
    batches = arrays.pop("tokens")
    with gguf.open(model or f"{inputs}.gguf") as file:
        method: Any
        if job == "full":
            method = Full(check(file))
        else:
            method = LoRA(check(file), hyper["rank"], hyper["alpha"], r"(attn_(q|k|v|output)|ffn_(gate|up|down))")
            for parameter in method.parameters:
                parameter.array[...] = arrays.pop(parameter.name)
            assert not arrays, sorted(arrays)
        optimizer = OptimizerOptions(
            "adamw", hyper["beta1"], hyper["beta2"], hyper["adam_eps"], hyper["weight_decay"], clip=0.0
        )
        options = Options(
            len(batches),
            batches.shape[1],
            rate=hyper["lr"],
            schedule="constant",
            optimizer=optimizer,
            threads=int(threads),
        )
        arrays.clear()
        trainer = Trainer(method, Given(batches), options)
        reports = list(trainer.steps())
    median = statistics.median(report.seconds for report in reports[WARM_UP:])
    result = {
        "losses": [report.loss for report in reports],
        "seconds_per_step": median,
        "steps_per_second": 1.0 / median,
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "planned_bytes": trainer.memory,
        "threads": int(threads),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
