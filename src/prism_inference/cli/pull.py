"""`prism pull`: fetch a model, and write where it is."""

from __future__ import annotations

import argparse

from ..runtime.defaults import DEFAULT, DEFAULT_MODEL, KNOWN_MODELS
from .options import add_json, print_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    known = ", ".join(f"{name} ({model.description})" for name, model in KNOWN_MODELS.items())
    parser.add_argument(
        "name",
        metavar="NAME",
        nargs="?",
        default=DEFAULT,
        help=f"OWNER/NAME:FILE.gguf on the Hugging Face hub, or a known name: {known} (default: {DEFAULT_MODEL})",
    )
    add_json(parser)


def execute(args: argparse.Namespace) -> int:
    """Fetch the model unless it is here."""
    from ..runtime.progress import byte_progress
    from ..runtime.pull import pull

    with byte_progress("Fetching the model") as progress:
        path = pull(args.name, progress)
    if args.json:
        print_json({"path": str(path), "bytes": path.stat().st_size})
    else:
        print(path)
    return 0
