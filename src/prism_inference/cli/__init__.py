"""The command line: a table of commands, each imported on use, and the one place where errors become exit statuses.

Data go to stdout, everything else to stderr. Status 0 is done, 1 failed, 2 wrong use, 130 interrupted.
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Mapping, Sequence
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
    """A command: a module with `add_arguments(parser)` and `execute(args) -> int`, and a line of help; or a group of
    commands, whose module says what they have in common."""

    module: str
    help: str
    parts: Mapping[str, Command] | None = None


LORA: Final[dict[str, Command]] = {
    "merge": Command("lora.merge", "write a model with adapters added to its weights"),
    "convert": Command("lora.convert", "turn an adapter of PEFT's layout into a GGUF file, or the reverse"),
    "inspect": Command("lora.inspect", "show what an adapter holds"),
}
COMMANDS: Final[dict[str, Command]] = {
    "run": Command("run", "answer one prompt"),
    "chat": Command("chat", "talk with a model"),
    "inspect": Command("inspect", "show what a model file holds"),
    "tokenize": Command("tokenize", "turn text into token ids"),
    "pull": Command("pull", "fetch a model"),
    "train": Command("train", "train adapters on a model, or all of its weights"),
    "lora": Command("lora", "merge, convert and show low-rank adapters", LORA),
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


def _dispatch(arguments: list[str], group: Command | None = None, program: str = PROGRAM) -> int:
    """Run a command of the program, or of a group."""
    commands = COMMANDS if group is None else group.parts or {}
    if not arguments or arguments[0].startswith("-"):
        parser = _listing_parser(program, commands, group)
        try:
            parser.parse_args(arguments)
        except SystemExit as end:
            return _parsing_status(end)
        parser.print_usage(sys.stderr)
        return WRONG_USE
    name = arguments[0]
    if name not in commands:
        near = difflib.get_close_matches(name, commands, n=1)
        hint = f"Did you mean `{program} {near[0]}`?" if near else f"`{program} --help` lists the commands."
        raise UsageError("no such command", where=name, hint=hint)
    command = commands[name]
    if command.parts is not None:
        return _dispatch(arguments[1:], command, f"{program} {name}")
    module = import_module(f".{command.module}", __package__)
    parser = argparse.ArgumentParser(prog=f"{program} {name}", description=_sentence(command.help))
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


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _listing_parser(program: str, commands: Mapping[str, Command], group: Command | None) -> argparse.ArgumentParser:
    width = max(map(len, commands))
    listing = "\n".join(f"  {name:{width}}  {command.help}" for name, command in commands.items())
    parser = argparse.ArgumentParser(
        prog=program,
        usage=f"{program} COMMAND ...",
        description="Run GGUF language models on ordinary CPUs." if group is None else _sentence(group.help),
        epilog=f"commands:\n{listing}\n\n`{program} COMMAND --help` shows a command's options.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if group is None:
        parser.add_argument("--version", action="version", version=f"{program} {prism_inference.__version__}")
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
