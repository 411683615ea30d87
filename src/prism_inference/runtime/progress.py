"""A progress bar on stderr while kernels are compiled; shown only where something takes long and a person may watch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..engine.objects import Progress
from ..settings import settings


@contextmanager
def kernel_progress() -> Iterator[Progress | None]:
    """Give a callback for `Library.addresses`; the bar appears with the first kernel that must be compiled."""
    if not settings().progress:
        yield None
        return
    bar: list[Any] = []

    def show(done: int, total: int, key: str) -> None:
        if not bar:
            bar.append(_new_bar(total))
        progress, task = bar[0]
        progress.update(task, completed=done, description=f"Compiling kernels (once per machine): {key}")

    try:
        yield show
    finally:
        for progress, _ in bar:
            progress.stop()


def _new_bar(total: int) -> tuple[Any, Any]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    progress.start()
    return progress, progress.add_task("Compiling kernels", total=total)
