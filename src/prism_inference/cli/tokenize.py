"""`prism tokenize`: text in, token ids out. Reads a model file's metadata only."""

from __future__ import annotations

import argparse

from .options import add_json, add_model, print_json, read_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_model(parser)
    parser.add_argument(
        "text", metavar="TEXT", help="the text, taken exactly; - reads stdin, its last line end included"
    )
    parser.add_argument(
        "--special",
        choices=("literal", "parse"),
        default="literal",
        help="take special tokens' spellings as text, or as the tokens (default: %(default)s)",
    )
    parser.add_argument(
        "--insert",
        choices=("none", "model"),
        default="none",
        help="add nothing, or the tokens that the model expects at the ends (default: %(default)s)",
    )
    add_json(parser)


def execute(args: argparse.Namespace) -> int:
    """Write the ids: one a line with its bytes, or one JSON object."""
    import prism_inference

    from ..runtime.progress import byte_progress
    from ..runtime.pull import resolve

    text = read_text(args.text)
    with byte_progress("Fetching the model") as progress:
        path = resolve(args.model, progress)
    tokenizer = prism_inference.load_tokenizer(path)
    ids = tokenizer.encode(text, special=args.special, insert=args.insert)
    pieces = [tokenizer.token_bytes(token).decode("utf-8", "backslashreplace") for token in ids]
    if args.json:
        print_json({"count": len(ids), "ids": ids, "pieces": pieces})
    else:
        for token, piece in zip(ids, pieces, strict=True):
            print(f"{token}\t{piece!r}")
    return 0
