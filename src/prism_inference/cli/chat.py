"""`prism chat`: a conversation, a line at a time. Answers go to stdout; the prompt sign and notes go to stderr."""

from __future__ import annotations

import argparse
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

from ..errors import ParameterError, PrismError
from .options import (
    add_model,
    add_model_options,
    add_sampling_options,
    generation_options,
    load_model,
    print_stats,
)

if TYPE_CHECKING:
    from ..runtime.model import Model

HELP = "/reset forgets the conversation, /quit (or the end of input) ends it."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = f"In the conversation: {HELP}"
    add_model(parser, optional=True)
    parser.add_argument("--system", metavar="TEXT", help="instructions that stand before the conversation")
    add_model_options(parser)
    add_sampling_options(parser)


def execute(args: argparse.Namespace) -> int:
    """Talk until the input ends."""
    with load_model(args, args.model) as model:
        model.require_template()
        conversation = Conversation(model, args)
        if conversation.interactive:
            print(HELP, file=sys.stderr)
        while (line := conversation.next_line()) is not None:
            if line == "/quit":
                break
            if line == "/reset":
                conversation.reset()
            elif line:
                conversation.take(line)
    return 0


class Conversation:
    """The messages so far, and how the next one comes about."""

    def __init__(self, model: Model, args: argparse.Namespace) -> None:
        self.interactive = sys.stdin.isatty()
        self._model = model
        self._args = args
        self._options = generation_options(args)
        self._messages: list[dict[str, Any]] = []
        self.reset()

    def reset(self) -> None:
        """Forget everything but the instructions."""
        system = self._args.system
        self._messages = [] if system is None else [{"role": "system", "content": system}]

    def next_line(self) -> str | None:
        """Return the next line of input, or None at its end."""
        if self.interactive:
            print("> ", end="", file=sys.stderr, flush=True)
        try:
            line = sys.stdin.readline()
        except UnicodeDecodeError as error:
            raise ParameterError("not text", where="stdin", expected="UTF-8", found=error.reason) from error
        return line.strip() if line else None

    def take(self, text: str) -> None:
        """Answer a message. On a terminal, what fails or is interrupted is forgotten, and the conversation goes on."""
        asked = [*self._messages, {"role": "user", "content": text}]
        try:
            answer = self._answer(asked)
        except PrismError as error:
            if not self.interactive:
                raise
            print(f"\n{error}", file=sys.stderr)
        except KeyboardInterrupt:
            if not self.interactive:
                raise
            print("\n(interrupted; the last message is forgotten)", file=sys.stderr)
        else:
            self._messages = [*asked, {"role": "assistant", "content": answer}]

    def _answer(self, messages: list[dict[str, Any]]) -> str:
        stream = self._model.chat_stream(messages, **self._options)
        with closing(stream):
            for piece in stream:
                print(piece, end="", flush=True)
        print()
        print_stats(self._args, stream.result, self._model.context)
        return stream.result.text
