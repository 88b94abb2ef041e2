"""Watch worktrees and their git dirs with watchdog, and tell where to look."""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Callable
from typing import Protocol

from watchdog.events import FileSystemEvent, FileSystemEventHandler

from headwatch.hints import COOKIE_PREFIX, Hint, Target
from headwatch.mounts import (
    BUDGET_MAX,
    MAX_INSTANCES_SYSCTL,
    MAX_WATCHES_SYSCTL,
    far_mount,
    read_mounts,
    read_sysctl,
    watch_budget,
)
from headwatch.outside import Ignored, Outside
from headwatch.root_events import GoneEvent, RescanEvent
from headwatch.routes import Routes

__all__ = ["COOKIE_PREFIX", "Hint", "Target", "Watcher"]

POLL_S = 2.0  # while not every change can be seen


class Backend(Protocol):
    """What follows the targets: the emitter on Linux, the stock observer elsewhere."""

    @property
    def lost(self) -> int: ...
    @property
    def watches(self) -> int: ...
    def add(self, target: Target) -> None: ...
    def remove(self, target: Target) -> None: ...
    def poll(self, target: Target, every_s: float) -> None: ...
    def shortage(self, target: Target) -> int | None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...


class Watcher:
    """Follows targets and delivers hints, from one thread and in order.

    `ignored(target, directories)` tells which of these repository-relative directories git ignores, and
    `ignored_files` the same of files, so that a log that is always written does not keep the daemon busy. Both
    may raise HeadwatchError: they are asked again later. `failed` is told of an error that ended the watching.
    `deliver` must be quick and must not call back into the watcher.
    """

    def __init__(
        self,
        deliver: Callable[[Hint], None],
        ignored: Ignored,
        budget: int | None = None,
        *,
        ignored_files: Ignored | None = None,
        polling: bool = False,
        failed: Callable[[BaseException], None] | None = None,
    ) -> None:
        self._lock = threading.Lock()
        self._targets: dict[int, Target] = {}
        self._reasons: dict[int, str] = {}  # why a target is polled, whatever the watches
        self._handler = HintHandler(deliver, failed)
        self._polling = polling
        self._budget: Callable[[], int] = watch_budget if budget is None else lambda: budget
        self._backend = _backend(
            self._handler, Outside(ignored, ignored_files, self._budget, failed), polling
        )

    def add(self, target: Target) -> None:
        """Watch a target; returns when it is armed. Look at it after that: only later changes are told.

        A target with a known number replaces the one before.
        """
        with self._lock:
            old = self._targets.get(target.worktree)
        if old == target:
            return
        if old is not None:  # it was moved
            self.remove(target.worktree)
        with self._lock:
            self._targets[target.worktree] = target
            self._handler.routes = Routes(self._targets.values())
        self._backend.add(target)
        reason = self._reason(target)
        if reason is not None:
            self._reasons[target.worktree] = reason
            self._backend.poll(target, POLL_S)

    def remove(self, worktree: int) -> None:
        """Stop watching; no hint of this worktree comes any more."""
        with self._lock:
            target = self._targets.pop(worktree, None)
            self._reasons.pop(worktree, None)
            self._handler.routes = Routes(self._targets.values())
        if target is not None:
            self._backend.remove(target)

    def start(self) -> None:
        """Begin to deliver."""
        self._backend.start()

    def stop(self) -> None:
        """Deliver no more, and give everything back."""
        self._backend.stop()

    def degraded(self, worktree: int) -> str | None:
        """Why a worktree's changes may come late, and what to do; None when all are seen at once."""
        target = self._targets.get(worktree)
        if target is None:
            return None
        shortage = self._backend.shortage(target)
        if shortage is not None:
            return _explain(shortage, self._budget())
        return self._reasons.get(worktree)

    @property
    def lost(self) -> int:
        """How often events were lost; each time everything was looked at instead."""
        return self._backend.lost

    @property
    def watches(self) -> int:
        """How many directories are watched."""
        return self._backend.watches

    def _reason(self, target: Target) -> str | None:
        if self._polling:
            return f"polled every {POLL_S:g} s, as watch.polling is set"
        mounts = read_mounts()
        for path in (target.root, target.git_dir, target.common_dir):
            mount = far_mount(os.fsencode(path), mounts)
            if mount is not None:
                return (
                    f"{path} is on {mount.fstype} ({mount.source}, mounted at {os.fsdecode(mount.point)}), where "
                    f"changes from the other side make no event: polled every {POLL_S:g} s; a checkout on a "
                    "local disk (in WSL: below ~) is followed at once"
                )
        return None


class HintHandler(FileSystemEventHandler):
    """Turns watchdog's events into hints."""

    def __init__(
        self, deliver: Callable[[Hint], None], failed: Callable[[BaseException], None] | None = None
    ) -> None:
        self.routes = Routes()
        self._deliver = deliver
        self._failed = failed

    def dispatch(self, event: FileSystemEvent) -> None:
        """Handle one event; an error is told, not swallowed with watchdog's thread."""
        try:
            super().dispatch(event)
        except BaseException as error:
            if self._failed is not None:
                self._failed(error)
            raise

    def on_created(self, event: FileSystemEvent) -> None:
        self._tell(event.src_path, created=True)

    def on_modified(self, event: FileSystemEvent) -> None:
        if not event.is_directory:  # what changed in a directory has an event of its own
            self._tell(event.src_path)

    def on_deleted(self, event: FileSystemEvent) -> None:
        self._tell(event.src_path)

    def on_moved(self, event: FileSystemEvent) -> None:
        self._tell(event.src_path)
        self._tell(event.dest_path, created=True)

    def on_rescan(self, event: RescanEvent) -> None:
        """Anything may have changed."""
        for worktree in self.routes.rooted(os.fsencode(event.src_path)):
            self._deliver(Hint(worktree, "rescan"))

    def on_gone(self, event: GoneEvent) -> None:
        """A root is not there any more, or not the same."""
        for worktree in self.routes.rooted(os.fsencode(event.src_path)):
            self._deliver(Hint(worktree, "gone"))

    def _tell(self, path: bytes | str, *, created: bool = False) -> None:
        for hint in self.routes.hints(os.fsencode(path), created=created):
            self._deliver(hint)


def _backend(handler: HintHandler, outside: Outside, polling: bool) -> Backend:
    if polling:
        from headwatch.polling import PollingBackend

        return PollingBackend(handler, POLL_S)
    if sys.platform != "linux":
        from headwatch.recursive import RecursiveBackend

        return RecursiveBackend(handler, outside)
    from headwatch.linux_backend import LinuxBackend

    return LinuxBackend(handler, outside)


def _explain(shortage: int, budget: int) -> str:
    """Say why not every directory is watched, with the setting that would change it."""
    rest = f"the rest is polled every {POLL_S:g} s"
    if shortage in (errno.EMFILE, errno.ENFILE):
        limit = read_sysctl(MAX_INSTANCES_SYSCTL) or 128
        return f"no inotify instance is left, {rest}; try: sudo sysctl {MAX_INSTANCES_SYSCTL}={max(512, limit * 2)}"
    if shortage == errno.EAGAIN:
        return f"git did not say which directories it ignores: it is asked again, and {rest}; see its error in the log"
    if shortage == errno.ENOSYS:
        return f"this kernel has no inotify, {rest}"
    limit = read_sysctl(MAX_WATCHES_SYSCTL) or 8192
    remedy = f"try: sudo sysctl {MAX_WATCHES_SYSCTL}={max(524_288, limit * 2)} (now {limit})"
    if shortage:
        return f"the user's watches are used up, also by other programs, {rest}; {remedy}"
    if budget >= BUDGET_MAX:
        remedy = f"directories that git ignores are not counted; beyond it {MAX_WATCHES_SYSCTL} is of no help"
    return f"more directories than the budget of {budget} watches, {rest}; {remedy}"
