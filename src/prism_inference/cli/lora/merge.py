"""`prism lora merge`: a model with adapters added to its weights, as a file of its own."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..options import adapter_entry, add_json, add_model, print_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_model(parser)
    parser.add_argument(
        "adapters",
        metavar="ADAPTER[=SCALE]",
        nargs="+",
        type=adapter_entry,
        help="a GGUF file or a folder of PEFT's, and what its scale is multiplied by",
    )
    parser.add_argument("-o", "--output", metavar="PATH", type=Path, required=True, help="the model to write")
    parser.add_argument(
        "--type",
        metavar="TYPE",
        default="keep",
        help="tensor type of the changed weights, such as F16 or Q8_0 (default: the one that each has)",
    )
    add_json(parser)


def execute(args: argparse.Namespace) -> int:
    """Write the model, and say how large the rounding error is beside the change."""
    from ...runtime.progress import byte_progress
    from ...runtime.pull import resolve
    from ...tools.lora import merge

    with byte_progress("Fetching the model") as progress:
        path = resolve(args.model, progress)
    with byte_progress("Merging") as progress:
        report = merge(path, args.adapters, args.output, args.type, progress)
    if args.json:
        print_json({"path": str(args.output), "weights": report.weights, "rounding": report.rounding})
    else:
        print(args.output)
    note = f"{report.weights} weights changed; error of rounding them: {report.rounding:.3g} of the change"
    if report.rounding > 1:
        note += ". Write a finer --type, or run the model with --lora: the change is smaller than its error here."
    print(note, file=sys.stderr)
    return 0
