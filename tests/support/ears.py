"""A watcher that is listened to: its hints in a queue, and a way to know that all there are have come."""

from __future__ import annotations

import os
import queue
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headwatch.hints import COOKIE_PREFIX, Hint, Target
from headwatch.outside import Ignored
from headwatch.watch import Watcher
from support.worktree import Worktree

LIMIT_S = 20.0


def ignored(target: Target, directories: Sequence[bytes]) -> set[bytes]:
    """Ask git which directories it ignores."""
    feed = b"".join(path + b"/\0" for path in directories)
    git = ["git", "-C", target.root, "check-ignore", "-z", "--stdin"]
    out = subprocess.run(git, input=feed, capture_output=True).stdout
    return {path.rstrip(b"/") for path in out.split(b"\0")[:-1]}


def target_of(worktree: Worktree, number: int) -> Target:
    paths = worktree.git("rev-parse", "--path-format=absolute", "--git-dir", "--git-common-dir").split("\n")
    return Target(number, os.path.realpath(worktree.root), *(os.path.realpath(path) for path in paths))


class Ears:
    """Watches worktrees, numbered from 1, and starts at once."""

    def __init__(self, *worktrees: Worktree, ignored_directories: Ignored = ignored, **options: Any) -> None:
        self.heard: queue.Queue[Hint] = queue.Queue()
        self.questions = 0
        self._git = ignored_directories
        self.watcher = Watcher(self.heard.put, self._ignored, **options)
        self.targets = {n: target_of(worktree, n) for n, worktree in enumerate(worktrees, 1)}
        for target in self.targets.values():
            self.watcher.add(target)
        self.watcher.start()
        self.cookies = 0

    def _ignored(self, target: Target, directories: Sequence[bytes]) -> set[bytes]:
        self.questions += 1
        return self._git(target, directories)

    def cookie(self, number: int = 1) -> bytes:
        """Drop a cookie, as a sync point does; return its name. It lies there until it was heard."""
        self.cookies += 1
        name = COOKIE_PREFIX + b"%d" % self.cookies
        Path(self.targets[number].git_dir, os.fsdecode(name)).touch()
        return name

    def until(self, wanted: Callable[[Hint], bool]) -> list[Hint]:
        """Collect hints up to and with the first wanted one."""
        hints: list[Hint] = []
        end = time.monotonic() + LIMIT_S
        while True:
            try:
                hint = self.heard.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"not heard within {LIMIT_S:g} s; heard {hints[-20:]}") from None
            hints.append(hint)
            if wanted(hint):
                return hints

    def synced(self, number: int = 1) -> list[Hint]:
        """Every hint of what happened before this call."""
        name = self.cookie(number)
        hints = self.until(lambda hint: hint.kind == "cookie" and hint.path == name)[:-1]
        Path(self.targets[number].git_dir, os.fsdecode(name)).unlink()
        return hints

    def paths(self, number: int = 1) -> set[bytes]:
        return {h.path for h in self.synced(number) if h.kind == "path" and h.path and h.worktree == number}
