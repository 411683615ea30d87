"""`prism train`: trains adapters on a model, or all of a model's weights, on a file of texts, samples or tokens."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ParameterError
from .options import add_json, add_model, print_json

if TYPE_CHECKING:
    from ..training.methods import Method
    from ..training.trainer import Options, Report, Trainer

# Option, type, metavar, default, help.
_TRAINING: tuple[tuple[str, Any, str, Any, str], ...] = (
    ("--steps", int, "N", None, "optimizer steps (default: one pass over the data)"),
    ("--length", int, "N", 512, "tokens of a row"),
    ("--sequences", int, "N", 1, "rows computed at once"),
    ("--accumulate", int, "N", 1, "times so many rows to a step, for a larger batch in the same memory"),
    ("--rate", float, "R", None, "highest learning rate (default: 2e-4 for adapters, 1e-3 for all weights)"),
    ("--schedule", str, "NAME", "cosine", "constant, linear or cosine"),
    ("--warmup", int, "N", 0, "steps in which the learning rate rises"),
    ("--optimizer", str, "NAME", "adamw", "adamw or sgd"),
    ("--weight-decay", float, "D", 0.0, "decoupled decay of matrices"),
    ("--clip", float, "L", 1.0, "longest gradient; longer ones are scaled down (0: never)"),
    ("--seed", int, "N", 0, "of the order of the data and of new adapters"),
    ("--validation", str, "FILE", None, "a file to validate on, or a fraction of the data, such as 0.05"),
    ("--validate-every", int, "N", 0, "steps between validations (default: at the end)"),
    ("--checkpoint", Path, "FILE", None, "keep the state here: written at the end, and when interrupted"),
    ("--checkpoint-every", int, "N", 0, "also every N steps"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_model(parser)
    parser.add_argument("data", metavar="DATA", help="a text, samples (.jsonl), or tokens (.npy)")
    parser.add_argument(
        "-o",
        "--output",
        metavar="PATH",
        type=Path,
        required=True,
        help="where the result is written: a GGUF file, or, of adapters, also a folder in PEFT's layout",
    )
    what = parser.add_argument_group("what is trained")
    what.add_argument(
        "--method", choices=("lora", "full"), default="lora", help="adapters, or all weights (default: %(default)s)"
    )
    what.add_argument("--rank", type=int, metavar="N", default=8, help="of adapters (default: %(default)s)")
    what.add_argument("--alpha", type=float, metavar="A", default=16.0, help="adapters are scaled by alpha / rank")
    what.add_argument("--targets", metavar="PATTERN", help="names of adapted matrices within a block")
    what.add_argument("--rounding", metavar="TYPE", help="train all weights as Q1_0 or Q2_0 stores them")
    group = parser.add_argument_group("training")
    for flag, kind, metavar, default, text in _TRAINING:
        shown = text if default in (None, 0) or "default" in text else f"{text} (default: {default})"
        group.add_argument(flag, type=kind, metavar=metavar, default=default, help=shown)
    group.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    group.add_argument("--recompute", action="store_true", help="save memory: compute some values twice")
    group.add_argument("--threads", type=int, metavar="N", help="processor threads (default: the physical cores)")
    group.add_argument("--memory", metavar="SIZE", help="most memory to use, such as 8GiB (default: what is free)")
    add_json(parser)


def execute(args: argparse.Namespace) -> int:
    """Train, write the result, and say what was done."""
    from .. import gguf
    from ..runtime.progress import byte_progress
    from ..runtime.pull import resolve
    from ..runtime.weights import check
    from ..training.checkpoint import load_checkpoint
    from ..training.export import check_output, save
    from ..training.files import Shape, open_datasets
    from ..training.trainer import Trainer

    if args.resume and args.checkpoint is None:
        raise ParameterError("nothing to resume", where="--resume", hint="Name the file by --checkpoint.")
    if args.checkpoint is not None and args.checkpoint.exists() and not args.resume:
        hint = "Go on from it by --resume, or name another file."
        raise ParameterError("a training's state is kept here already", where=str(args.checkpoint), hint=hint)
    with byte_progress("Fetching the model") as progress:
        path = resolve(args.model, progress)
    with gguf.open(path) as file:
        model = check(file)
        shape = Shape(args.length, model.config.vocabulary, model.config.recurrent is None, args.seed)
        data, validation = open_datasets(args.data, file.metadata, shape, args.validation)
        method = _method(args, model)
        check_output(method, args.output)
        rows = data.rows(0)
        trainer = Trainer(method, data, _options(args, rows), validation)
        if args.resume:
            load_checkpoint(trainer, args.checkpoint)
        last = _run(args, trainer)
        save(method, args.output)
        _summary(args, trainer, last)
    return 0


def _method(args: argparse.Namespace, model: Any) -> Method:
    from ..training.methods import TARGETS, Full, LoRA

    if args.method == "full":
        return Full(model, args.rounding)
    if args.rounding is not None:
        raise ParameterError("adapters are not rounded", where="--rounding", hint="Use --method full.")
    return LoRA(model, args.rank, args.alpha, args.targets or TARGETS, args.seed)


def _options(args: argparse.Namespace, rows: int) -> Options:
    from ..runtime.model import parse_memory
    from ..training.step import OptimizerOptions
    from ..training.trainer import Options

    per_step = args.sequences * args.accumulate
    rate = args.rate if args.rate is not None else {"lora": 2e-4, "full": 1e-3}[args.method]
    return Options(
        steps=args.steps if args.steps is not None else max(1, rows // max(1, per_step)),
        sequences=args.sequences,
        accumulate=args.accumulate,
        rate=rate,
        schedule=args.schedule,
        warmup=args.warmup,
        optimizer=OptimizerOptions(args.optimizer, decay=args.weight_decay, clip=args.clip),
        recompute=args.recompute,
        validate_every=args.validate_every,
        threads=args.threads,
        memory=parse_memory(args.memory),
    )


def _run(args: argparse.Namespace, trainer: Trainer) -> Report | None:
    """Do the steps; keep the state at the end, on the way, and when interrupted."""
    from ..runtime.progress import step_progress
    from ..training.checkpoint import save_checkpoint

    report = None
    try:
        with step_progress("Training") as show:
            for report in trainer.steps():
                if args.json:
                    print_json(asdict(report))
                if show is not None:
                    note = f"loss {report.loss:.4f}, {report.labels / report.seconds:.0f} tokens/s"
                    show(report.step, trainer.options.steps, note)
                if args.checkpoint is not None and args.checkpoint_every and report.step % args.checkpoint_every == 0:
                    save_checkpoint(trainer, args.checkpoint)
    finally:
        if args.checkpoint is not None:
            save_checkpoint(trainer, args.checkpoint)
    return report


def _summary(args: argparse.Namespace, trainer: Trainer, last: Report | None) -> None:
    import sys

    parts = [f"{trainer.step} steps"]
    if last is not None:
        parts.append(f"loss {last.loss:.4f}")
        if last.validation is not None:
            parts.append(f"validation {last.validation:.4f}")
    memory = sum(trainer.memory.values()) / 2**20
    print(f"{', '.join(parts)}, {memory:.0f} MiB planned: {args.output}", file=sys.stderr)
