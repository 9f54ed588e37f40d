"""Shows on a terminal how far an analysis is."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from instrumentation.analyze.analysis import nobody
from instrumentation.analyze.file_summaries import Told


@contextmanager
def bar(out: TextIO) -> Iterator[Told]:
    """A bar of bytes done, which is gone at the end; none where nobody is looking.

    It is drawn whenever something is told, and not by a thread of its own, as processes are forked meanwhile.
    """
    if not out.isatty():
        yield nobody
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    progress = Progress(*columns, console=Console(file=out), auto_refresh=False, transient=True)
    task = progress.add_task("reading logs", total=None)

    def told(done: int, size: int) -> None:
        progress.update(task, completed=done, total=size)
        progress.refresh()

    with progress:
        yield told
