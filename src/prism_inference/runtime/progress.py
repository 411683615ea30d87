"""Progress bars on stderr, for what takes long: shown only where a person may watch."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Protocol

from ..settings import settings


class Show(Protocol):
    """Takes what is done, what there is in all, and what comes next."""

    def __call__(self, done: int, total: int, note: str = "", /) -> None:
        """Move the bar."""


def byte_progress(label: str) -> AbstractContextManager[Show | None]:
    """Give a callback of bytes done and bytes in all."""
    return _bar(label, in_bytes=True)


def kernel_progress() -> AbstractContextManager[Show | None]:
    """Give a callback for `Library.addresses`: kernels done, kernels in all, key of the next."""
    return _bar("Compiling kernels (once per machine)", in_bytes=False)


def step_progress(label: str) -> AbstractContextManager[Show | None]:
    """Give a callback of steps done, steps in all and a note."""
    return _bar(label, in_bytes=False)


@contextmanager
def _bar(label: str, in_bytes: bool) -> Iterator[Show | None]:
    """The bar appears with the first call of the callback, so that what is at hand already shows none."""
    if not settings().progress or not sys.stderr.isatty():
        yield None
        return
    with ExitStack() as stack:
        move: Show | None = None

        def show(done: int, total: int, note: str = "", /) -> None:
            nonlocal move
            move = move or stack.enter_context(_started(label, in_bytes))
            move(done, total, note)

        yield show


@contextmanager
def _started(label: str, in_bytes: bool) -> Iterator[Show]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    count = DownloadColumn() if in_bytes else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), count, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)

        def move(done: int, total: int, note: str = "", /) -> None:
            bar.update(task, completed=done, total=total, description=f"{label}: {note}" if note else label)

        yield move
