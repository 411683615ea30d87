"""Guards of what a template may call: each looks at the operands before a call, and charges what the call would make.

One row for each method, operator or filter whose result can be much larger than its operands. Knows the budget, not the
template engine.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from .budget import CONTAINERS, SIZED, Budget, exceeded
from .messages import Arguments

INTEGER_BITS: Final = 4_096  # of a product or a power; no template needs more than a counter
PADDING: Final = 999  # widest column of a format, and widest indentation
LIST_ITEM_BYTES: Final = 64  # a short string and its place in a list, for lists that a split is about to make

# A width or precision of four digits or more, or one taken from an argument.
_WIDE_PERCENT: Final = re.compile(r"%[^a-zA-Z%]*(\d{4}|\*)")
_WIDE_BRACES: Final = re.compile(r"\{[^{}]*(:[^{}]*\d{4}|\{)")


def replaced(budget: Budget, text: Any, args: Sequence[Any]) -> None:
    """`text.replace(old, new)`: every occurrence grows."""
    if len(args) >= 2 and isinstance(args[0], str) and isinstance(args[1], str):
        budget.charge(text.count(args[0]) * sys.getsizeof(args[1]))


def joined(budget: Budget, text: Any, args: Sequence[Any]) -> None:
    """`text.join(items)`: the same long item may come many times."""
    for items in args:
        budget.weigh(items)
        if isinstance(items, SIZED):
            budget.charge(len(items) * sys.getsizeof(text))


def split(budget: Budget, text: Any, args: Sequence[Any]) -> None:
    """`text.split(separator)`: many short strings take far more room than one long one."""
    separator = args[0] if args else None
    pieces = text.count(separator) if isinstance(separator, str) and separator else len(text) // 2
    budget.charge(pieces * LIST_ITEM_BYTES)


def formatted(budget: Budget, text: Any, args: Sequence[Any]) -> None:
    """`text.format(...)`: wide columns, and the same long argument in many places."""
    _refuse_width(_WIDE_BRACES, text)
    _charge_fields(budget, text.count("{"), args)


def compared(budget: Budget, items: Any, args: Sequence[Any]) -> None:
    """`items.index(value)`: equality of nested lists visits all of both, and so does the message of a failure."""
    if isinstance(items, CONTAINERS):
        budget.weigh(items)
        budget.weigh(args)


def looked_up(budget: Budget, items: Any, args: Sequence[Any]) -> None:
    """`items.get(key)`: the hash of a tuple visits all of it."""
    if isinstance(items, dict):
        budget.weigh(args)


# By name alone: the kinds share names, and each guard looks at the kind where it matters.
METHODS: Final[dict[str, Callable[[Budget, Any, Sequence[Any]], None]]] = {
    "replace": replaced,
    "join": joined,
    "split": split,
    "rsplit": split,
    "splitlines": split,
    "format": formatted,
    "count": compared,
    "index": compared,
    "remove": compared,
    "get": looked_up,
    "pop": looked_up,
    "setdefault": looked_up,
    "update": looked_up,
}

Operands = tuple[Any, Any]


def added(budget: Budget, left: Any, right: Any) -> Operands:
    """Two texts or lists. Arguments of a tool call are written out as JSON where they are added to text."""
    if isinstance(left, str) and isinstance(right, Arguments):
        right = str(right)
    elif isinstance(left, Arguments) and isinstance(right, str):
        left = str(left)
    if isinstance(left, str | list | tuple) and isinstance(right, str | list | tuple):
        budget.charge(sys.getsizeof(left) + sys.getsizeof(right))
    return left, right


def multiplied(budget: Budget, left: Any, right: Any) -> Operands:
    """Text or list times a number, or two numbers."""
    for items, count in ((left, right), (right, left)):
        if isinstance(items, str | list | tuple) and isinstance(count, int):
            budget.charge(sys.getsizeof(items) * max(count, 0))
    if isinstance(left, int) and isinstance(right, int):
        _refuse_integer(left.bit_length() + right.bit_length())
    return left, right


def raised(budget: Budget, left: Any, right: Any) -> Operands:
    """A power."""
    if isinstance(left, int) and isinstance(right, int):
        _refuse_integer(left.bit_length() * abs(right))
    return left, right


def percent(budget: Budget, left: Any, right: Any) -> Operands:
    """`text % arguments`."""
    if isinstance(left, str):
        _refuse_width(_WIDE_PERCENT, left)
        _charge_fields(budget, left.count("%"), [right])
    return left, right


OPERATORS: Final[dict[str, Callable[[Budget, Any, Any], Operands]]] = {
    "+": added,
    "*": multiplied,
    "**": raised,
    "%": percent,
}


def refuse_padding(*widths: Any) -> None:
    """Refuse an indentation or separator that is out of all proportion."""
    for width in widths:
        if (len(width) if isinstance(width, str) else width) > PADDING:
            raise exceeded("PADDING", f"{PADDING} columns of padding")


def _refuse_width(pattern: re.Pattern[str], text: str) -> None:
    if pattern.search(text):
        raise exceeded("PADDING", f"{PADDING} columns of padding")


def _refuse_integer(bits: int) -> None:
    if bits > INTEGER_BITS:
        raise exceeded("INTEGER_BITS", f"{INTEGER_BITS} bits for an integer")


def _charge_fields(budget: Budget, fields: int, arguments: Iterable[Any]) -> None:
    """Charge as if every argument were written into every field."""
    values = list(arguments)
    for _ in range(fields):
        budget.step()
        for value in values:
            budget.weigh(value)
            budget.made(value)
