"""`prism run`: one prompt in, one answer out, to stdout as it comes."""

from __future__ import annotations

import argparse
from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..runtime.defaults import DEFAULT
from .options import (
    add_json,
    add_model_options,
    add_sampling_options,
    generation_options,
    given,
    load_model,
    print_json,
    print_stats,
    read_text,
)

if TYPE_CHECKING:
    from ..runtime.generation import GenerationStream


_ANSWERS = (
    ("--n", "N", "give N answers; the prompt is evaluated once"),
    ("--best-of", "N", "draw N answers and give the likeliest"),
    ("--logprobs", "N", "with --json, report log-probabilities: each token's own and the N likeliest"),
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
    group = parser.add_argument_group("answers")
    for flag, metavar, text in _ANSWERS:
        group.add_argument(flag, type=int, metavar=metavar, help=text)
    group.add_argument("--echo", action="store_true", default=None, help="begin with the prompt")


def execute(args: argparse.Namespace) -> int:
    """Answer the prompt."""
    *models, prompt = args.words
    if len(models) > 1:
        raise UsageError("too many arguments", expected="[MODEL] PROMPT", found=args.words, hint="Quote the prompt.")
    prompt = read_text(prompt)
    if args.logprobs is not None and not args.json:
        raise UsageError("nowhere to report to", where="--logprobs", hint="Give --json too.")
    with load_model(args, models[0] if models else DEFAULT) as model:
        options = generation_options(args) | given(args, (*_ANSWERS, ("--echo",)))
        if args.raw or model.template is None:
            stream = model.generate(prompt, **options)
        else:
            stream = model.chat_stream([{"role": "user", "content": prompt}], **options)
        with closing(stream):
            _print_pieces(stream, args)
        if args.json:
            print_json(asdict(stream.result))
        print_stats(args, stream.result, model.context)
    return 0


def _print_pieces(stream: GenerationStream, args: argparse.Namespace) -> None:
    """Print the pieces as they come, unless the whole is printed as JSON; several answers with a line above each."""
    count = args.n or 1
    begun = 0

    def begin(number: int) -> None:
        nonlocal begun
        while count > 1 and begun <= number:
            begun += 1
            print("\n" * (begun > 1) + f"--- answer {begun} of {count}")

    for piece in stream:
        if not args.json:
            begin(stream.number)
            print(piece, end="", flush=True)
    if not args.json:
        begin(len(stream.result.alternatives))  # those that are empty have no piece
        print()
