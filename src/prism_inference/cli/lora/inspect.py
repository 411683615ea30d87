"""`prism lora inspect`: what an adapter holds, from its own files alone."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..options import add_json, print_json, print_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("adapter", metavar="FILE", type=Path, help="a GGUF file, or a folder of PEFT's")
    add_json(parser)


def execute(args: argparse.Namespace) -> int:
    """Write the description."""
    from ...tools.lora import inspect

    found = inspect(args.adapter)
    if args.json:
        print_json(asdict(found))
        return 0
    counts: dict[str, dict[Any, int]] = {"ranks": found.ranks, "types": found.types, "targets": found.targets}
    print_table(
        [
            ("adapter", found.path),
            ("layout", found.layout),
            ("architecture", found.architecture or "(a folder does not say)"),
            ("trained on", found.base or "(not said)"),
            ("alpha", "(differs)" if found.alpha is None else f"{found.alpha:g}"),
            ("parameters", f"{found.parameters:,}"),
            ("size", f"{found.bytes:,} bytes"),
            *((name, ", ".join(f"{key} ({n})" for key, n in part.items())) for name, part in counts.items()),
        ]
    )
    return 0
