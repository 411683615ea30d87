"""Options that several commands share, spelled the same everywhere, and what they turn into. Imports nothing heavy."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ParameterError
from ..runtime.defaults import DEFAULT

if TYPE_CHECKING:
    from ..runtime.answer import Generation
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
    ("--typical-p", float, "P", "draw among tokens of typical surprise that together exceed P; 1 is off"),
    ("--top-n-sigma", float, "N", "draw among tokens within N standard deviations of the highest logit; 0 is off"),
    ("--xtc-probability", float, "P", "how often to exclude the likeliest tokens; 0 is off"),
    ("--xtc-threshold", float, "P", "those that reach P, but for the least likely of them"),
    ("--dynatemp-range", float, "T", "let the temperature follow the entropy, by T up and down; 0 is off"),
    ("--dynatemp-exponent", float, "E", "how it follows"),
    ("--repeat-penalty", float, "R", "divide the logits of tokens seen lately by R; 1 is off"),
    ("--frequency-penalty", float, "F", "take off F for each time that a token was seen lately; 0 is off"),
    ("--presence-penalty", float, "F", "take off F once; 0 is off"),
    ("--repeat-last-n", int, "N", "how many tokens are lately; 0 is off, -1 the whole context"),
    ("--dry-multiplier", float, "F", "penalize tokens that lengthen a repetition; 0 is off"),
    ("--dry-base", float, "B", "how the penalty grows with the repetition's length"),
    ("--dry-allowed-length", int, "N", "penalize repetitions from N tokens on"),
    ("--dry-penalty-last-n", int, "N", "where to look for them; 0 is off, -1 the whole context"),
    ("--mirostat", int, "1|2", "steer by the surprise of what was drawn, instead of all filters; 0 is off"),
    ("--mirostat-tau", float, "BITS", "the surprise aimed at"),
    ("--mirostat-eta", float, "E", "how fast it is corrected"),
    ("--adaptive-target", float, "P", "draw tokens whose own probability is near P"),
    ("--adaptive-decay", float, "D", "how slowly the average of those before fades"),
    ("--min-tokens", int, "N", "do not end by itself before N tokens"),
    ("--samplers", str, "NAMES", "the chain's steps in their order, such as 'penalties;top_k;temperature'"),
)
# Options that may be given several times: flag, the library's name, metavar, help. `_LIST_ITEMS` reads single values.
_LIST_OPTIONS: tuple[tuple[str, str, str, str], ...] = (
    ("--stop", "stop", "TEXT", "end before this text"),
    ("--dry-sequence-breaker", "dry_sequence_breakers", "TEXT", "look for no repetition across this text"),
    ("--logit-bias", "logit_bias", "ID+BIAS", "add to a token's logit, such as 15043+1.5 or 15043-inf (never)"),
    ("--bad-words", "bad_words", "ID,ID", "never write these tokens in a row"),
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
    for flag, name, metavar, text in _LIST_OPTIONS:
        group.add_argument(
            flag, dest=name, action="append", type=_LIST_ITEMS.get(name, str), metavar=metavar,
            help=f"{text}; may be given several times",
        )  # fmt: skip
    group.add_argument("--ignore-eos", action="store_true", default=None, help="do not end by itself at all")
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
    options = given(args, (*_MODEL_OPTIONS, ("--lora",)))
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


def bias_entry(text: str) -> tuple[int, float]:
    """Return id and number of `ID+NUMBER` or `ID-NUMBER`."""
    match = re.fullmatch(r"(\d+)([+-].+)", text)
    try:
        if match is not None:
            return int(match[1]), float(match[2])
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"not an id and a bias: {text!r} (write 15043+1.5 or 15043-inf)") from None


def id_list(text: str) -> tuple[int, ...]:
    """Return the ids of `ID,ID`."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"not ids: {text!r} (write 15043 or 15043,1917)") from None


_LIST_ITEMS: dict[str, Callable[[str], Any]] = {"logit_bias": bias_entry, "bad_words": id_list}


def generation_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the given options of choosing tokens, as keyword arguments of the model's methods."""
    options = given(args, (*_SAMPLING_OPTIONS, ("--ignore-eos",)))
    lists = {name: value for _, name, *_ in _LIST_OPTIONS if (value := getattr(args, name)) is not None}
    if "logit_bias" in lists:
        lists["logit_bias"] = dict(lists["logit_bias"])
    return options | lists


def given(args: argparse.Namespace, options: Iterable[tuple[Any, ...]]) -> dict[str, Any]:
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
