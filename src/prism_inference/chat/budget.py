"""What one rendering of a template may use up: steps, bytes that it makes, and time. Knows no template engine.

Every loop turn and call is a step; every string or list that comes into being is charged with its size. So a template
that would run for ever, or fill the memory, ends with an error and not with the process.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter
from typing import Any, Final

from ..errors import TemplateLimitError
from ..limits import (
    TEMPLATE_MAX_SECONDS,
    TEMPLATE_MAX_STEPS,
    TEMPLATE_MAX_WORK_BYTES,
    TEMPLATE_STEPS_PER_PAIR,
)

CONTAINERS: Final = (list, tuple, dict, set, frozenset)
SIZED: Final = (str, bytes, *CONTAINERS)


class Budget:
    """Counters of one rendering; they only go up."""

    def __init__(self, messages: int) -> None:
        """Start the clock; the steps allowed grow with the number of messages."""
        self._steps = 0
        self._most_steps = TEMPLATE_MAX_STEPS + TEMPLATE_STEPS_PER_PAIR * messages**2
        self._bytes = 0
        self._end = perf_counter() + TEMPLATE_MAX_SECONDS

    def step(self, count: int = 1) -> None:
        """Count steps, and look at the clock.

        Raises:
            TemplateLimitError: too many steps, or too late.
        """
        self._steps += count
        if self._steps > self._most_steps:
            raise exceeded("TEMPLATE_MAX_STEPS", f"{self._most_steps} loop turns and calls")
        if perf_counter() > self._end:
            raise exceeded("TEMPLATE_MAX_SECONDS", f"{TEMPLATE_MAX_SECONDS:g} seconds")

    def charge(self, size: int) -> None:
        """Count bytes that come, or are about to come, into being.

        Raises:
            TemplateLimitError: too many bytes.
        """
        self._bytes += size
        if self._bytes > TEMPLATE_MAX_WORK_BYTES:
            raise exceeded("TEMPLATE_MAX_WORK_BYTES", f"{TEMPLATE_MAX_WORK_BYTES} bytes of strings and lists")

    def made(self, value: Any) -> Any:
        """Charge a new value with its own size, not that of what it refers to; return it."""
        if isinstance(value, SIZED):
            self.charge(sys.getsizeof(value))
        return value

    def weigh(self, value: Any) -> Any:
        """Visit everything in a value as printing or comparing it would, and return it.

        A list that holds the same list twice, and so on thirty times, is small in memory and endless to visit: so each
        item visited counts.
        """
        if not isinstance(value, CONTAINERS):
            return value
        rest: list[Any] = [value]
        while rest:
            item = rest.pop()
            self.step()
            if isinstance(item, dict):
                rest.extend(item)
                rest.extend(item.values())
            elif isinstance(item, CONTAINERS):
                rest.extend(item)
            else:
                self.made(item)
        return value

    def turns(self, items: Iterable[Any], text: int = 0) -> Iterator[Any]:
        """Iterate, each item a step; `text` is the number of characters that a turn writes in any case."""
        for item in items:
            self.step()
            if text:
                self.charge(text)
            yield item


_CURRENT: ContextVar[Budget] = ContextVar("prism_template_budget")


def budget() -> Budget:
    """Return the budget of the rendering that goes on in this thread."""
    return _CURRENT.get()


@contextmanager
def new_budget(messages: int = 0) -> Iterator[Budget]:
    """Give what runs inside a fresh budget for a conversation of that many messages."""
    token = _CURRENT.set(Budget(messages))
    try:
        yield _CURRENT.get()
    finally:
        _CURRENT.reset(token)


def exceeded(limit: str, wording: str) -> TemplateLimitError:
    """Build the error for a limit that a template would pass."""
    return TemplateLimitError(
        "the chat template asks for too much work",
        where="chat template",
        expected=f"at most {wording} ({limit})",
        hint="The template is faulty or hostile. Use another one, or a prompt of your own.",
    )
