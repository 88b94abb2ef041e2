"""What the watcher asks of, and tells to, the rest of the daemon."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headwatch.hints import Target

Ignored = Callable[
    [Target, Sequence[bytes]], set[bytes]
]  # which of these repository-relative paths are ignored?


@dataclass(frozen=True, slots=True)
class Outside:
    """The callables that a backend is given. HeadwatchError and OSError of `ignored*` are met with a retry."""

    ignored: Ignored  # of directories
    ignored_files: Ignored | None  # of files; None: every file is taken for one that matters
    budget: Callable[[], int]  # watches
    failed: Callable[[BaseException], None] | None  # hears of an error that ended the watching
