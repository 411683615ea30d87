"""The progress bar of bytes fetched or written, on stderr; shown only where a person may watch."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..settings import settings

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from ..runtime.pull import Progress


@contextmanager
def byte_progress(label: str) -> Iterator[Progress | None]:
    """Give a callback of bytes done and bytes in all; the bar appears with its first call."""
    if not settings().progress or not sys.stderr.isatty():
        yield None
        return
    shown: list[tuple[Bar, TaskID]] = []

    def show(done: int, total: int) -> None:
        if not shown:
            shown.append(_new_bar(label, total))
        bar, task = shown[0]
        bar.update(task, completed=done)

    try:
        yield show
    finally:
        for bar, _ in shown:
            bar.stop()


def _new_bar(label: str, total: int) -> tuple[Bar, TaskID]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    bar.start()
    return bar, bar.add_task(label, total=total)
