"""Writes what a training benchmark starts from, so that both engines train the same thing: PATH.npz and PATH.json.

    python benchmarks/training_inputs.py full PATH [--batch B] [--steps N] [...]        also PATH.gguf
    python benchmarks/training_inputs.py lora PATH --model FILE.gguf [--batch B] [--steps N] [...]

`tokens` is int32 [steps, B, T + 1]: windows of one stream, each starting where the one before it ends, the last token
of a window being the first of the next. `full` has the F32 weights by their names in a GGUF file, in NumPy order, and
the same as a file; `lora` has `blk.N.NAME.weight.lora_a` [rank, in] and `.lora_b` [out, rank]. The JSON file has the
hyper-parameters. All of it follows from the seed and, for `lora`, from the model and the texts of this repository.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
DEVIATION = 0.02  # of the weights
ZIPF_RESTART = 0.1  # how often the chain of tokens forgets what it followed
SUCCESSORS = (0.6, 0.2, 0.15, 0.05)  # chances of a token's successors
ADAPTED = r"blk\.\d+\.(attn_(q|k|v|output)|ffn_(gate|up|down))\.weight"
ADAM = {"beta1": 0.9, "beta2": 0.999, "adam_eps": 1e-8}


def weights(options: argparse.Namespace, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """The weights of a llama: normal matrices, norms of ones. Not tied, a key head for each head."""
    d, ff = options.width, options.feed_forward
    shapes: dict[str, tuple[int, ...]] = {"token_embd": (options.vocabulary, d)}
    for block in range(options.blocks):
        shapes |= {f"blk.{block}.attn_norm": (d,), f"blk.{block}.ffn_norm": (d,)}
        shapes |= {f"blk.{block}.attn_{name}": (d, d) for name in ("q", "k", "v", "output")}
        shapes |= {f"blk.{block}.ffn_gate": (ff, d), f"blk.{block}.ffn_up": (ff, d), f"blk.{block}.ffn_down": (d, ff)}
    shapes |= {"output_norm": (d,), "output": (options.vocabulary, d)}
    return {
        f"{name}.weight": np.ones(shape, np.float32)
        if len(shape) == 1
        else rng.standard_normal(shape, np.float32) * np.float32(DEVIATION)
        for name, shape in shapes.items()
    }


def chain(vocabulary: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """A chain of tokens that can be learned: few successors for each, frequencies by Zipf's law. int32 [count]."""
    chances = 1.0 / np.arange(1, vocabulary + 1)
    chances /= chances.sum()
    successors = rng.choice(vocabulary, (vocabulary, len(SUCCESSORS)), p=chances)
    picks = rng.choice(len(SUCCESSORS), count, p=SUCCESSORS)
    fresh = rng.choice(vocabulary, count, p=chances)
    restarts = rng.random(count) < ZIPF_RESTART
    stream = np.empty(count, np.int32)
    token = 0
    for index in range(count):
        token = fresh[index] if restarts[index] else successors[token, picks[index]]
        stream[index] = token
    return stream


def text() -> str:
    """The texts of this repository."""
    paths = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return "\n\n".join(path.read_text(encoding="utf-8") for path in paths)


def windows(stream: np.ndarray, options: argparse.Namespace) -> np.ndarray:
    """Cut a stream into int32 [steps, batch, length + 1]."""
    count, length = options.steps * options.batch, options.length
    if len(stream) <= count * length:
        raise SystemExit(f"{count * length + 1} tokens are needed, the texts have {len(stream)}: fewer steps")
    rows = [stream[start : start + length + 1] for start in range(0, count * length, length)]
    return np.stack(rows).astype(np.int32).reshape(options.steps, options.batch, length + 1)


def write_gguf(path: Path, arrays: dict[str, np.ndarray], options: argparse.Namespace, hyper: dict[str, float]) -> None:
    """Write the weights as a model file without a tokenizer."""
    from prism_inference.gguf import GGUFWriter

    writer = GGUFWriter(path)
    keys = {
        "block_count": options.blocks,
        "context_length": options.length,
        "embedding_length": options.width,
        "feed_forward_length": options.feed_forward,
        "attention.head_count": options.heads,
        "attention.head_count_kv": options.heads,
        "attention.layer_norm_rms_epsilon": hyper["eps"],
        "rope.freq_base": hyper["rope_base"],
        "vocab_size": options.vocabulary,
    }
    writer.add("general.architecture", "llama")
    for key, value in keys.items():
        writer.add(f"llama.{key}", value)
    writer.add("tokenizer.ggml.model", "none")
    for name, array in arrays.items():
        writer.add_tensor(name, "F32", tuple(reversed(array.shape)), array)
    writer.write()


def make_full(options: argparse.Namespace) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    rng = np.random.default_rng(options.seed)
    hyper = {"heads": options.heads, "eps": 1e-5, "rope_base": 10_000.0, **ADAM, "weight_decay": 0.1}
    arrays = weights(options, rng)
    write_gguf(options.path.with_suffix(".gguf"), arrays, options, hyper)
    stream = chain(options.vocabulary, options.steps * options.batch * options.length + 1, rng)
    return arrays | {"tokens": windows(stream, options)}, hyper


def make_lora(options: argparse.Namespace) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    import prism_inference as prism

    rng = np.random.default_rng(options.seed)
    stream = np.array(prism.load_tokenizer(options.model).encode(text()), np.int32)
    arrays = {"tokens": windows(stream, options)}
    with prism.gguf.open(options.model) as file:
        for name, info in file.tensors.items():
            if re.fullmatch(ADAPTED, name):
                inputs, outputs = (int(extent) for extent in info.ne)
                # torch's kaiming_uniform_(a=sqrt(5)), with which PEFT fills A, is uniform within ±1/sqrt(inputs).
                bound = 1.0 / math.sqrt(inputs)
                arrays[f"{name}.lora_a"] = rng.uniform(-bound, bound, (options.rank, inputs)).astype(np.float32)
                arrays[f"{name}.lora_b"] = np.zeros((outputs, options.rank), np.float32)
    return arrays, {"rank": options.rank, "alpha": 2.0 * options.rank, **ADAM, "weight_decay": 0.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    jobs = parser.add_subparsers(required=True)
    for name, make in (("full", make_full), ("lora", make_lora)):
        job = jobs.add_parser(name)
        job.set_defaults(make=make)
        job.add_argument("path", type=Path, help="of what is written, without a suffix")
        job.add_argument("--rate", type=float, default=1e-3, help="learning rate")
        for option, default in (("batch", 1), ("length", 128), ("steps", 30), ("seed", 0)):
            job.add_argument(f"--{option}", type=int, default=default)
    full, lora = (jobs.choices[name] for name in ("full", "lora"))
    sizes = {"vocabulary": 4096, "width": 256, "blocks": 6, "heads": 8, "feed-forward": 768}
    for option, default in sizes.items():
        full.add_argument(f"--{option}", type=int, default=default)
    lora.add_argument("--model", required=True, help="a llama file, tied")
    lora.add_argument("--rank", type=int, default=8)
    options = parser.parse_args()
    arrays, hyper = options.make(options)
    np.savez(options.path.with_suffix(".npz"), **arrays)
    options.path.with_suffix(".json").write_text(json.dumps({**hyper, "lr": options.rate}, indent=1) + "\n")


if __name__ == "__main__":
    main()
