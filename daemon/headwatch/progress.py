"""Shows how far a long job has come: a bar at a terminal, plain lines elsewhere. On stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from headwatch.protocol import Progress

_LINE_INTERVAL_S = 2.0


@contextmanager
def shown(stream: TextIO | None = None) -> Iterator[Progress]:
    """Give the progress display that fits the stream, and clear it afterwards."""
    out = stream or sys.stderr
    if not out.isatty():
        yield _Lines(out)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=out), transient=True) as bar:
        yield _Bar(bar)


class _Lines:
    """One line when a part begins, and one every few seconds while it goes on."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._name = ""
        self._total: int | None = None
        self._done = 0
        self._said_at = 0.0

    def task(self, name: str, total: int | None) -> None:
        self._name, self._total, self._done = name, total, 0
        self._say()

    def advance(self, n: int = 1) -> None:
        self._done += n
        if n and time.monotonic() - self._said_at >= _LINE_INTERVAL_S:
            self._say()

    def note(self, text: str) -> None:
        print(text, file=self._out, flush=True)

    def _say(self) -> None:
        self._said_at = time.monotonic()
        of = "" if self._total is None else f" {self._done}/{self._total}"
        print(f"{self._name}{of}", file=self._out, flush=True)


class _Bar:
    """A bar a part."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar
        self._task: TaskID | None = None

    def task(self, name: str, total: int | None) -> None:
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(name, total=total)

    def advance(self, n: int = 1) -> None:
        if self._task is not None:
            self._bar.advance(self._task, n)

    def note(self, text: str) -> None:
        self._bar.console.print(text, markup=False, highlight=False)
