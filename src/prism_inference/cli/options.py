"""Options that several commands share, spelled the same everywhere, and what they turn into. Imports nothing heavy."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ParameterError
from ..runtime.defaults import DEFAULT

if TYPE_CHECKING:
    from ..runtime.generation import Generation
    from ..runtime.model import Model

# Option, type, metavar, help; the defaults are those of the library, so an option that is not given is not passed on.
_MODEL_OPTIONS: tuple[tuple[str, Any, str, str], ...] = (
    ("--threads", int, "N", "processor threads (default: the physical cores)"),
    ("--context", int, "N", "tokens that a conversation may hold (default: as trained, if the memory allows)"),
    ("--memory", str, "SIZE", "most memory to use, such as 2GiB (default: no bound)"),
    ("--cache-type", str, "TYPE", "keep keys and values in F16 (default), F32, Q8_0 or Q4_0"),
)
_SAMPLING_OPTIONS: tuple[tuple[str, Any, str, str], ...] = (
    ("--max-tokens", int, "N", "most tokens to write (default: until the model ends or the context is full)"),
    ("--temperature", float, "T", "0 takes the likeliest token; higher is more varied"),
    ("--top-k", int, "K", "draw among the K likeliest tokens; 0 is off"),
    ("--top-p", float, "P", "draw among the likeliest tokens that together reach P; 1 is off"),
    ("--min-p", float, "P", "draw among tokens with at least P times the likeliest one's probability; 0 is off"),
    ("--seed", int, "N", "repeat a draw (default: a new seed each time)"),
)
_MODEL_HELP = "a GGUF file, OWNER/NAME:FILE.gguf on the Hugging Face hub, or a known name"


def add_model(parser: argparse.ArgumentParser, optional: bool = False) -> None:
    """Add the positional MODEL."""
    if optional:
        parser.add_argument(
            "model",
            metavar="MODEL",
            nargs="?",
            default=DEFAULT,
            help=f"{_MODEL_HELP} (default: what `prism pull` fetches)",
        )
    else:
        parser.add_argument("model", metavar="MODEL", help=_MODEL_HELP)


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of loading a model."""
    group = parser.add_argument_group("model")
    for flag, kind, metavar, text in _MODEL_OPTIONS:
        group.add_argument(flag, type=kind, metavar=metavar, help=text)
    group.add_argument(
        "--lora",
        action="append",
        type=adapter_entry,
        metavar="FILE[=SCALE]",
        help="add a low-rank adapter, a GGUF file or a folder of PEFT's; may be given several times",
    )
    group.add_argument("--deterministic", action="store_true", help="same logits for every batch size and cache state")
    group.add_argument(
        "--template", metavar="FILE", type=Path, help="use this chat template instead of the model's own"
    )


def add_sampling_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of choosing tokens."""
    group = parser.add_argument_group("generation")
    for flag, kind, metavar, text in _SAMPLING_OPTIONS:
        group.add_argument(flag, type=kind, metavar=metavar, help=text)
    group.add_argument(
        "--stop", action="append", metavar="TEXT", help="end before this text; may be given several times"
    )
    group.add_argument("--stats", action="store_true", help="write tokens and speed to stderr (default on a terminal)")


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add --json."""
    parser.add_argument("--json", action="store_true", help="write JSON, for programs")


def load_model(args: argparse.Namespace, name: str) -> Model:
    """Load the named model as the options say, fetching it first if need be."""
    import prism_inference

    from ..runtime.progress import byte_progress
    from ..runtime.pull import resolve

    with byte_progress("Fetching the model") as progress:
        path = resolve(name, progress)
    options = _given(args, (*_MODEL_OPTIONS, ("--lora",)))
    model = prism_inference.load(path, deterministic=args.deterministic, **options)
    if args.template is not None:
        from ..chat import ChatTemplate

        model.template = ChatTemplate(read_file(args.template))
    return model


def adapter_entry(text: str) -> tuple[Path, float]:
    """Return path and scale of `FILE[=SCALE]`; the name of something that exists is taken as it is."""
    name, sign, scale = text.rpartition("=")
    if not sign or Path(text).exists():
        return Path(text), 1.0
    try:
        return Path(name), float(scale)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"not a scale: {scale!r} (write FILE=SCALE, such as adapter.gguf=0.5)"
        ) from None


def generation_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the given options of choosing tokens, as keyword arguments of the model's methods."""
    return _given(args, (*_SAMPLING_OPTIONS, ("--stop",)))


def _given(args: argparse.Namespace, options: Iterable[tuple[Any, ...]]) -> dict[str, Any]:
    """Return the options of a table that were given, by the names of the library's arguments."""
    names = [flag.removeprefix("--").replace("-", "_") for flag, *_ in options]
    return {name: value for name in names if (value := getattr(args, name)) is not None}


def print_stats(args: argparse.Namespace, result: Generation, context: int) -> None:
    """Write one line about a generation to stderr, if asked for or on a terminal."""
    if not args.stats and not sys.stderr.isatty():
        return
    usage, timings = result.usage, result.timings
    # The first token comes with the prompt's evaluation, so its time is not the decoding's.
    parts = [
        _speed("prompt", usage.prompt_tokens, usage.prompt_tokens, timings.prompt_seconds),
        _speed("answer", usage.completion_tokens, usage.completion_tokens - 1, timings.decode_seconds),
        f"context {context}",
        f"seed {result.seed}",
        f"end: {result.finish_reason}",
    ]
    print("; ".join(parts), file=sys.stderr)


def read_text(text: str) -> str:
    """Return the text, or all of stdin for `-`.

    Raises:
        ParameterError: stdin is not UTF-8.
    """
    if text != "-":
        return text
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise ParameterError("not text", where="stdin", expected="UTF-8", found=error.reason) from error


def read_file(path: Path) -> str:
    """Return a text file's content.

    Raises:
        ParameterError: it cannot be read, or is not UTF-8.
    """
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ParameterError("cannot read the file", where=str(path), found=str(error)) from error


def print_json(value: Any) -> None:
    """Write one line of JSON to stdout."""
    print(json.dumps(value, ensure_ascii=False))


def print_table(rows: Sequence[tuple[str, str]]) -> None:
    """Write names and texts to stdout, side by side."""
    width = max((len(name) for name, _ in rows), default=0)
    for name, text in rows:
        print(f"{name:{width}}  {text}")


def _speed(name: str, tokens: int, timed: int, seconds: float) -> str:
    rate = f", {timed / seconds:.1f} tokens/s" if timed > 0 and seconds > 0 else ""
    return f"{name} {tokens} tokens{rate}"
