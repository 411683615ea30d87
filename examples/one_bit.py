"""Train a model with one-bit weights from nothing, on the sources of Python's standard library, and let it write.

What is trained are float32 values; every product sees them as Q1_0 stores them, one bit each and a scale for 128. The
file that comes out holds just that, runs here and in every engine that reads Q1_0, and has the loss of the training.
"""

from __future__ import annotations

import sys
import sysconfig
import time
from pathlib import Path

import numpy as np

import prism_inference as prism
from prism_inference import gguf
from prism_inference.runtime.weights import check
from prism_inference.training.create import Sizes, create
from prism_inference.training.data import Windows, take, tokenize_text
from prism_inference.training.export import save
from prism_inference.training.methods import Full
from prism_inference.training.step import OptimizerOptions
from prism_inference.training.trainer import Options, Trainer
from prism_inference.training.vocabulary import train_vocabulary

LENGTH, SEQUENCES, VOCABULARY = 256, 8, 2048
SIZES = Sizes(width=256, blocks=4, heads=4, key_heads=2, head_size=64, feed_forward=768, context=512)


def corpus(most: int = 12_000_000) -> str:
    """Return sources of the standard library, without its tests."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    paths = [p for p in sorted(folder.rglob("*.py")) if not {"test", "tests", "site-packages"} & set(p.parts)]
    return "\n".join(path.read_text("utf-8", errors="ignore") for path in paths)[:most]


def loss_of(path: Path, data: Windows, rows: int) -> float:
    """Return the mean loss of a model file over rows of a dataset, by its logits."""
    total, count = 0.0, 0
    with prism.load(path, context=LENGTH) as model:
        session = model.session()
        for row in take(data, 0, rows):
            session.rewind(0)
            logits = session.evaluate(row.tokens.tolist(), logits="all").astype(np.float64)
            logits -= logits.max(-1, keepdims=True)
            chances = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
            total -= float(chances[np.arange(LENGTH), row.labels].sum())
            count += LENGTH
    return total / count


def main(folder: str = "one_bit", steps: int = 2000) -> None:
    """Train, write `FOLDER/one_bit.gguf`, and compare its loss with the training's."""
    began = time.perf_counter()
    place = Path(folder)
    place.mkdir(exist_ok=True)
    text = corpus()
    create(place / "start.gguf", SIZES, train_vocabulary([text[:4_000_000]], VOCABULARY), name="one bit")
    tokens = tokenize_text(text, prism.load_tokenizer(place / "start.gguf"))
    cut = len(tokens) - 64 * LENGTH - 1
    data, held = Windows(tokens[:cut], LENGTH, VOCABULARY), Windows(tokens[cut:], LENGTH, VOCABULARY, seed=None)
    with gguf.open(place / "start.gguf") as file:
        method = Full(check(file), rounding="Q1_0")
        weights = sum(parameter.array.size for parameter in method.parameters)
        bits = sum(p.array.size for p in method.parameters if p.name in method.rounding)
        print(f"{len(tokens)} tokens; {weights / 1e6:.2f} million weights, {bits / 1e6:.2f} million of one bit")
        options = Options(
            int(steps),
            SEQUENCES,
            rate=3e-3,
            warmup=min(100, int(steps) // 4),
            optimizer=OptimizerOptions(beta2=0.95, decay=0.01),
            validate_every=max(1, int(steps) // 4),
        )
        trainer = Trainer(method, data, options, held)
        for report in trainer.steps():
            if report.step % 100 == 0 or report.validation is not None:
                aside = "" if report.validation is None else f", validation {report.validation:.4f}"
                speed = report.labels / report.seconds
                print(f"step {report.step}: loss {report.loss:.4f}{aside}, {speed:.0f} tokens/s")
        validation = trainer.validate()
        save(method, place / "one_bit.gguf")
    found = loss_of(place / "one_bit.gguf", held, held.rows(0))
    print(f"{(time.perf_counter() - began) / 60:.1f} minutes")
    print(f"validation loss: {validation:.4f} in training, {found:.4f} of the file")
    with prism.load(place / "one_bit.gguf") as model:
        print("".join(model.generate("def ", max_tokens=60, temperature=0.0)))


if __name__ == "__main__":
    main(*sys.argv[1:])
