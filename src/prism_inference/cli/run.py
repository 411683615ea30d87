"""`prism run`: one prompt in, one answer out, to stdout as it comes."""

from __future__ import annotations

import argparse
from contextlib import closing
from dataclasses import asdict

from ..errors import UsageError
from ..runtime.defaults import DEFAULT
from .options import (
    add_json,
    add_model_options,
    add_sampling_options,
    generation_options,
    load_model,
    print_json,
    print_stats,
    read_text,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.usage = f"{parser.prog} [options] [MODEL] PROMPT"
    parser.add_argument(
        "words",
        nargs="+",
        metavar="[MODEL] PROMPT",
        help="the model (default: the one that `prism pull` fetches) and the prompt; - reads stdin",
    )
    parser.add_argument("--raw", action="store_true", help="continue the prompt as it is, without the chat template")
    add_json(parser)
    add_model_options(parser)
    add_sampling_options(parser)


def execute(args: argparse.Namespace) -> int:
    """Answer the prompt."""
    *models, prompt = args.words
    if len(models) > 1:
        raise UsageError("too many arguments", expected="[MODEL] PROMPT", found=args.words, hint="Quote the prompt.")
    prompt = read_text(prompt)
    with load_model(args, models[0] if models else DEFAULT) as model:
        options = generation_options(args)
        if args.raw or model.template is None:
            stream = model.generate(prompt, **options)
        else:
            stream = model.chat_stream([{"role": "user", "content": prompt}], **options)
        with closing(stream):
            for piece in stream:
                if not args.json:
                    print(piece, end="", flush=True)
        if args.json:
            print_json(asdict(stream.result))
        else:
            print()
        print_stats(args, stream.result, model.context)
    return 0
