"""Time of choosing one token by the whole default chain with penalties and DRY, beside llama.cpp's in the same run.

    python benchmarks/sampling.py [--peer INTERPRETER] [--model FILE]

INTERPRETER has llama-cpp-python; without it only this package is measured. With FILE, whole tokens of that model are
timed too, greedy behind a prompt of 4,096 tokens, with penalties and DRY and without them in turn. Logits are of a
peaked distribution (normal with deviation 3), the history of 4,096 tokens repeats itself in part. Prints one JSON line:
microseconds, medians of several rounds in turn.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import time
from pathlib import Path

import numpy as np
from machine import describe

HERE = Path(__file__).resolve().parent
VOCABULARIES = (49_152, 151_936, 262_144)
WINDOW, ROUNDS, STEPS = 4_096, 5, 200
CHAINS: dict[str, dict[str, float]] = {
    "default": {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05},
    "default, penalties and DRY": {
        "temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "repeat_penalty": 1.1,
        "frequency_penalty": 0.1, "presence_penalty": 0.1, "repeat_last_n": WINDOW, "dry_multiplier": 0.8,
        "dry_penalty_last_n": WINDOW,
    },
    "penalties and DRY, greedy": {
        "repeat_penalty": 1.1, "frequency_penalty": 0.1, "presence_penalty": 0.1, "repeat_last_n": WINDOW,
        "dry_multiplier": 0.8, "dry_penalty_last_n": WINDOW,
    },
}  # fmt: skip


def inputs(vocabulary: int) -> tuple[np.ndarray, list[int]]:
    """Logits [8, vocabulary] and a history: the same in both processes."""
    rng = np.random.default_rng(vocabulary)
    history = rng.integers(0, vocabulary, WINDOW)
    for _ in range(40):  # passages that come again
        start, again = rng.integers(0, WINDOW - 64, 2)
        history[again : again + 48] = history[start : start + 48]
    return (rng.standard_normal((8, vocabulary)) * 3).astype(np.float32), history.tolist()


def measure(vocabulary: int, chain: dict[str, float]) -> float:
    """Return the microseconds of one token."""
    from prism_inference.sampling import Sampler, SamplingParams

    logits, history = inputs(vocabulary)
    sampler = Sampler(SamplingParams(**chain, seed=1))  # type: ignore[arg-type]
    sampler.accept(history)
    sampler.sample(logits[0])
    started = time.perf_counter()
    for step in range(STEPS):
        sampler.sample(logits[step % len(logits)])
    return (time.perf_counter() - started) / STEPS * 1e6


def measure_model(path: str) -> dict[str, object]:
    """Return the microseconds of a whole token, without and with penalties and DRY."""
    import prism_inference as prism

    chain, tokens = CHAINS["penalties and DRY, greedy"], 48
    times: dict[bool, list[float]] = {False: [], True: []}
    with prism.load(path, threads=2, context=WINDOW + tokens) as model:
        prompt = inputs(len(model.tokenizer))[1]
        for _ in range(ROUNDS):
            for bent, values in times.items():
                options = chain if bent else {}
                stream = model.generate(prompt, max_tokens=tokens, ignore_eos=True, **options)  # type: ignore[arg-type]
                for _ in stream:
                    pass
                values.append(stream.result.timings.decode_seconds / (tokens - 1) * 1e6)
    plain, bent = (statistics.median(values) for values in times.values())
    return {"model": Path(path).name, "us": round(plain), "us with both": round(bent), "ratio": round(bent / plain, 3)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer")
    parser.add_argument("--model", action="append", default=[])
    args = parser.parse_args()
    peer = args.peer
    rows = []
    for vocabulary in VOCABULARIES:
        for name, chain in CHAINS.items():
            ours, theirs = [], []
            for _ in range(ROUNDS):
                ours.append(measure(vocabulary, chain))
                if peer:
                    command = [peer, str(HERE / "worker_sampling_llamacpp.py"), str(vocabulary), json.dumps(chain)]
                    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
                    theirs.append(float(output.splitlines()[-1]))
            row: dict[str, object] = {"vocabulary": vocabulary, "chain": name}
            row["us"] = round(statistics.median(ours), 1)
            if theirs:
                row["llama.cpp us"] = round(statistics.median(theirs), 1)
                row["ratio"] = round(statistics.median(theirs) / statistics.median(ours), 2)
            rows.append(row)
    models = [measure_model(path) for path in args.model]
    print(json.dumps({**describe(peer), "window": WINDOW, "rounds": ROUNDS, "rows": rows, "models": models}))


if __name__ == "__main__":
    main()
