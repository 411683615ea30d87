"""The command line: a table of commands, each imported on use, and the one place where errors become exit statuses.

Data go to stdout, everything else to stderr. Status 0 is done, 1 failed, 2 wrong use, 130 interrupted.
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final, NamedTuple, TextIO

import prism_inference

from ..errors import ParameterError, PrismError, UsageError

PROGRAM: Final = "prism"
FAILED: Final = 1
WRONG_USE: Final = 2
INTERRUPTED: Final = 130  # 128 + SIGINT, as shells say
READER_GONE: Final = 141  # 128 + SIGPIPE


class Command(NamedTuple):
    """A command: a module with `add_arguments(parser)` and `execute(args) -> int`, and a line of help."""

    module: str
    help: str


COMMANDS: Final[dict[str, Command]] = {
    "run": Command("run", "answer one prompt"),
    "chat": Command("chat", "talk with a model"),
    "inspect": Command("inspect", "show what a model file holds"),
    "tokenize": Command("tokenize", "turn text into token ids"),
    "pull": Command("pull", "fetch a model"),
    "train": Command("train", "train adapters on a model, or all of its weights"),
    "synth": Command("synth", "write a model with random weights in a published one's shapes"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status; `argv` is without the program's name."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        _never_fail_to_encode(stream)
    try:
        status = _dispatch(arguments)
        sys.stdout.flush()
        return status
    except PrismError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return WRONG_USE if isinstance(error, UsageError | ParameterError) else FAILED
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        _silence(sys.stdout)
        return READER_GONE
    except OSError as error:  # a folder that is not there, a full disk
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return FAILED


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0].startswith("-"):
        parser = _top_parser()
        try:
            parser.parse_args(arguments)
        except SystemExit as end:
            return _parsing_status(end)
        parser.print_usage(sys.stderr)
        return WRONG_USE
    name = arguments[0]
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"Did you mean `{PROGRAM} {near[0]}`?" if near else f"`{PROGRAM} --help` lists the commands."
        raise UsageError("no such command", where=name, hint=hint)
    command = COMMANDS[name]
    module = import_module(f".{command.module}", __package__)
    parser = argparse.ArgumentParser(prog=f"{PROGRAM} {name}", description=command.help.capitalize() + ".")
    module.add_arguments(parser)
    try:
        parsed = parser.parse_intermixed_args(arguments[1:])
    except SystemExit as end:
        return _parsing_status(end)
    status: int = module.execute(parsed)
    return status


def _parsing_status(end: SystemExit) -> int:
    """Turn argparse's way of ending, after help or a wrong argument, into a status."""
    return end.code if isinstance(end.code, int) else FAILED


def _top_parser() -> argparse.ArgumentParser:
    width = max(map(len, COMMANDS))
    listing = "\n".join(f"  {name:{width}}  {command.help}" for name, command in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        usage=f"{PROGRAM} COMMAND ...",
        description="Run GGUF language models on ordinary CPUs.",
        epilog=f"commands:\n{listing}\n\n`{PROGRAM} COMMAND --help` shows a command's options.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {prism_inference.__version__}")
    return parser


def _never_fail_to_encode(stream: TextIO) -> None:
    """Write an escape for a character that the terminal's encoding lacks, rather than end with a traceback."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def _silence(stream: TextIO) -> None:
    """Point a stream whose reader has gone at nothing, so that flushing it at exit does not complain."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):  # not backed by a file
        return
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, descriptor)
    os.close(nothing)
