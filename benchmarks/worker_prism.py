"""Measures this package on one model: tokens per second of a prompt and of generation, as one JSON line."""

from __future__ import annotations

import json
import sys
import time


def main(path: str, threads: int, prompt: int, generated: int, repetitions: int) -> None:
    import numpy as np

    import prism_inference as prism

    start = time.perf_counter()
    model = prism.load(path, threads=threads, context=max(prompt, generated) + 8)
    session = model.session()
    ids = [int(token) for token in np.random.default_rng(1).integers(10, 30_000, prompt)]
    session.evaluate(ids[:8])
    loaded = time.perf_counter() - start
    prompts, generations = [], []
    for _ in range(repetitions):
        session.rewind(0)
        start = time.perf_counter()
        session.evaluate(ids)
        prompts.append(prompt / (time.perf_counter() - start))
        session.rewind(0)
        start = time.perf_counter()
        for token in ids[:generated]:
            session.evaluate([token])
        generations.append(generated / (time.perf_counter() - start))
    print(json.dumps({"prompt": prompts, "generation": generations, "load_seconds": loaded}))


if __name__ == "__main__":
    main(sys.argv[1], *(int(value) for value in sys.argv[2:6]))
