"""Train a small qwen3-shaped transformer on this package's own sources, from nothing, and let it write."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import prism_inference as prism
from prism_inference import gguf
from prism_inference.runtime.weights import check
from prism_inference.training.create import Sizes, create
from prism_inference.training.data import Windows, tokenize_text
from prism_inference.training.export import save
from prism_inference.training.methods import Full
from prism_inference.training.trainer import Options, Trainer
from prism_inference.training.vocabulary import train_vocabulary

LENGTH = 128


def main(steps: int = 200) -> None:
    """Train and print a continuation."""
    sources = Path(prism.__file__).parent
    text = "\n".join(path.read_text("utf-8") for path in sorted(sources.rglob("*.py")))
    sizes = Sizes(width=128, blocks=2, heads=4, key_heads=2, head_size=32, feed_forward=384, context=256)
    with tempfile.TemporaryDirectory() as folder:
        start, result = Path(folder) / "start.gguf", Path(folder) / "trained.gguf"
        create(start, sizes, train_vocabulary([text], 1024))
        tokens = tokenize_text(text, prism.load_tokenizer(start))
        with gguf.open(start) as file:
            data = Windows(tokens, LENGTH, 1024)
            method = Full(check(file))
            trainer = Trainer(method, data, Options(steps, sequences=8, rate=2e-3, warmup=20))
            for report in trainer.steps():
                if report.step % 50 == 0:
                    print(f"step {report.step}: loss {report.loss:.3f}, {report.labels / report.seconds:.0f} tokens/s")
            save(method, result)
        with prism.load(result) as model:
            print("".join(model.generate("def ", max_tokens=40, temperature=0.0)))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
