"""`prism lora convert`: an adapter from one layout to the other."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..options import add_json, print_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("source", metavar="IN", type=Path, help="a folder of PEFT's, or a GGUF file")
    parser.add_argument(
        "output", metavar="OUT", type=Path, help="a name that ends with .gguf, or a folder that is new or empty"
    )
    parser.add_argument(
        "--model",
        metavar="MODEL",
        help="the GGUF model that the adapter belongs to (needed for a folder, and for llama and qwen35)",
    )
    add_json(parser)


def execute(args: argparse.Namespace) -> int:
    """Convert."""
    from ...runtime.progress import byte_progress
    from ...runtime.pull import resolve
    from ...tools.lora import convert

    model = None
    if args.model is not None:
        with byte_progress("Fetching the model") as progress:
            model = resolve(args.model, progress)
    adapter = convert(args.source, args.output, model)
    if args.json:
        print_json({"path": str(args.output), "architecture": adapter.architecture, "weights": len(adapter.pairs)})
    else:
        print(args.output)
    print(f"{len(adapter.pairs)} adapted weights of a {adapter.architecture} model", file=sys.stderr)
    return 0
