"""How far a rehearsal is: a bar on a terminal, a line now and then elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

_LINE_EVERY_S = 15.0


class Told(Protocol):
    """Takes how far the work is."""

    def __call__(self, done: int, total: int, what: str) -> None:
        """Take that `done` of `total` pieces are done, and what is being worked on; `total` 0: not known."""
        ...


@contextmanager
def progress(*, quiet: bool = False, out: TextIO | None = None) -> Iterator[Told]:
    """Yield a function that shows how far the work is, on stderr; results on stdout stay clean.

    Args:
        quiet: Show nothing.
        out: Where to; None: stderr.
    """
    stream = sys.stderr if out is None else out
    if quiet:
        yield lambda done, total, what: None  # noqa: ARG005  (the signature of Told)
    elif stream.isatty():
        with _bar(stream) as bar:
            yield bar
    else:
        yield _Lines(stream)


@contextmanager
def _bar(stream: TextIO) -> Iterator[Told]:
    columns = (
        TextColumn("{task.description}", justify="left"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(file=stream), transient=True) as bar:
        task = bar.add_task("", total=None)

        def told(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total or None, description=what)

        yield told


class _Lines:
    """A line for each new piece of work, and one now and then within a piece."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._what = ""
        self._at_s = 0.0

    def __call__(self, done: int, total: int, what: str) -> None:
        now_s = time.monotonic()
        stage = what.partition(":")[0]
        if stage == self._what and now_s - self._at_s < _LINE_EVERY_S:
            return
        self._what, self._at_s = stage, now_s
        of = f"{done}/{total} " if total else f"{done} " if done else ""
        self._stream.write(f"tidegate: {of}{what}\n")
        self._stream.flush()
