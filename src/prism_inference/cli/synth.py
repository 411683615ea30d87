"""`prism synth`: a model file with random weights in the shapes of a published one."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..runtime.progress import byte_progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    from ..tools.shapes import SHAPES, TYPES

    parser.add_argument("name", metavar="NAME", choices=SHAPES, help=f"the model to imitate: {', '.join(SHAPES)}")
    parser.add_argument("output", metavar="OUTPUT", type=Path, help="the file to write")
    parser.add_argument(
        "--type", default="Q1_0", metavar="TYPE", help=f"tensor type: {', '.join(TYPES)} (default: Q1_0)"
    )
    parser.add_argument("--vocabulary", type=Path, metavar="FILE", help="a GGUF file whose tokenizer is copied")
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="the same weights for the same seed (default: 0)"
    )


def execute(args: argparse.Namespace) -> int:
    """Write the file."""
    from ..tools.synth import write

    with byte_progress("Writing") as progress:
        write(args.name, args.output, args.type, args.vocabulary, args.seed, progress=progress)
    print(args.output)
    return 0
