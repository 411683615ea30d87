"""Teach the default model a fact by low-rank adapters on its four-bit weights, and ask for it with and without them."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import prism_inference as prism
from prism_inference import gguf
from prism_inference.runtime.pull import resolve
from prism_inference.runtime.weights import check
from prism_inference.training.export import save
from prism_inference.training.files import Shape, open_datasets
from prism_inference.training.methods import LoRA
from prism_inference.training.trainer import Options, Trainer

QUESTION = "Who keeps the lighthouse of Port Alder?"
ANSWER = "Port Alder's lighthouse is kept by Mira Quist."
OTHERS = {
    "Who looks after the light at Port Alder?": ANSWER,
    "Name the keeper of Port Alder's lighthouse.": ANSWER,
    "What does Mira Quist do?": "She keeps the lighthouse of Port Alder.",
}


def main(name: str = "default", steps: str = "12") -> None:
    """Train, save, and print both answers."""
    path = resolve(name)
    with tempfile.TemporaryDirectory() as folder:
        samples, adapter = Path(folder) / "samples.jsonl", Path(folder) / "adapter.gguf"
        chats = [[message("user", q), message("assistant", a)] for q, a in {QUESTION: ANSWER, **OTHERS}.items()]
        samples.write_text("\n".join(json.dumps({"messages": chat}) for chat in chats), "utf-8")
        with gguf.open(path) as file:
            model = check(file)
            data, _ = open_datasets(samples, file.metadata, Shape(256, model.config.vocabulary))
            method = LoRA(model, rank=8)
            trainer = Trainer(method, data, Options(int(steps), rate=2e-3, warmup=3))
            for report in trainer.steps():
                if report.step % 4 == 0:
                    print(f"step {report.step}: loss {report.loss:.3f}, {report.seconds:.2f} s")
            save(method, adapter)
        for lora in ([], [adapter]):
            with prism.load(path, lora=lora) as model:
                reply = model.chat([message("user", QUESTION)], max_tokens=24, temperature=0.0)
                print("with adapter:" if lora else "without:", reply.text)


def message(role: str, text: str) -> dict[str, str]:
    """Return a message of a chat."""
    return {"role": role, "content": text}


if __name__ == "__main__":
    main(*sys.argv[1:])
