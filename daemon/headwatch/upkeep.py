"""What watches need besides events: roots that come back, polling, retries, an answer to lost events."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable

from watchdog.events import FileCreatedEvent, FileSystemEvent

from headwatch import inotify
from headwatch.git_dirs import GitDirs
from headwatch.hints import Target
from headwatch.outside import Outside
from headwatch.presence import Presence, bases_of
from headwatch.root_events import GoneEvent, RescanEvent
from headwatch.trees import Trees
from headwatch.watches import Owner, Watches

OVERFLOW_PAUSE_S = 5.0  # between two rescans for lost events
LAG_PAUSE_S = 0.2  # while the handler has no room for one
RETRY_S, RETRY_MAX_S = 30.0, 900.0  # to watch what could not be watched
LOOK_S, LOOK_MAX_S = 0.05, 5.0  # for a root that is gone


class Upkeep:
    """The watches of all targets over time. Not thread-safe: its owner holds a lock."""

    def __init__(
        self, kernel: inotify.Inotify, outside: Outside, tell: Callable[[FileSystemEvent], bool]
    ) -> None:
        self.lost = 0  # times that events were lost
        self.short_poll_s = 2.0  # how often a target with unwatched directories is polled
        self.poll_s: dict[Target, float] = {}  # targets whose changes can go unseen, and how often
        self.watches = Watches(kernel, outside.budget())
        self.trees = Trees(self.watches, outside.ignored)
        self.git_dirs = GitDirs(self.watches)
        self.presence = Presence()
        self.tell = tell  # False: there was no room
        self._kernel = kernel
        self._budget = outside.budget
        self._timers: dict[tuple[str, Target | None], float] = {}  # what to do, and for whom → when
        self._pauses: dict[tuple[str, Target | None], float] = {}
        self._lossy = False
        self._rescanned_at = float("-inf")

    # -- targets ------------------------------------------------------------------------------------------

    def add(self, target: Target) -> None:
        """Watch a target, or wait for it to be there."""
        self.presence.add(target)
        if not self._arm(target):
            self._lose(target)
        self.plan()

    def remove(self, target: Target) -> None:
        """Stop watching a target, and let others have its watches."""
        self.presence.remove(target)
        self.trees.remove(target)
        for base in bases_of(target) - self.presence.bases():
            self.git_dirs.remove(base)
        self.git_dirs.set_above(self.presence.above())
        self.poll_s.pop(target, None)
        for key in [key for key in self._timers if key[1] == target]:
            self._cancel(key)
        for key in self._timers:
            if key[0] == "retry":
                self._timers[key] = 0.0

    def poll(self, target: Target, every_s: float) -> None:
        """Tell a rescan of a target now and then."""
        self.poll_s[target] = every_s
        self.plan()

    def look_for_roots(self) -> None:
        """Something was deleted or moved that a target hangs on: is each still there?"""
        for target in self.presence.changed():
            self._lose(target)
            self._find(target)

    def shortage(self, target: Target) -> int | None:
        """Why are not all directories watched: 0 for the budget, else an errno; None when all are."""
        return next((self.watches.short[key] for key in _owners(target) if key in self.watches.short), None)

    def rescan(self, targets: Iterable[Target]) -> None:
        """Tell that anything may have changed."""
        for target in targets:
            self.tell(RescanEvent(os.fsencode(target.root)))

    def _arm(self, target: Target) -> bool:
        if not self.presence.find(target):
            return False
        self.git_dirs.set_above(self.presence.above())
        for base in sorted(bases_of(target)):
            self.git_dirs.add(base)
        if target.root != target.git_dir:  # a bare repository has no files
            self.trees.add(target)
        return True

    def _lose(self, target: Target) -> None:
        self.presence.lose(target)
        self.trees.remove(target)
        self.tell(GoneEvent(os.fsencode(target.root)))
        self._back_off("look", target, LOOK_S, LOOK_MAX_S)

    def _find(self, target: Target) -> None:
        if self._arm(target):
            self._cancel(("look", target))
            self.rescan([target])
        else:
            self._back_off("look", target, LOOK_S, LOOK_MAX_S)

    # -- lost events --------------------------------------------------------------------------------------

    def lose_events(self) -> None:
        """Events were dropped, by the kernel or for want of room: everything has to be looked at."""
        self.lost += not self._lossy
        self._lossy = True

    def answer_loss(self, *, at_once: bool = False) -> None:
        """Have everything looked at; in a storm every 5 s, or `at_once` when someone waits for it."""
        if not self._lossy:
            return
        now = time.monotonic()
        at = now if at_once else self._rescanned_at + OVERFLOW_PAUSE_S
        if at > now:
            self._timers["loss", None] = at
            return
        self._cancel(("loss", None))
        self._lossy, self._rescanned_at = False, now
        self._look_at_everything()
        if self._lossy:  # again, or no room to tell
            self._timers["loss", None] = time.monotonic() + LAG_PAUSE_S
            self._rescanned_at = float("-inf")

    def _look_at_everything(self) -> None:
        """Find the directories that the lost events would have told about; then tell that all may be new.

        In this order: a file in a directory that is armed only now may be younger than an earlier look.
        """
        self.look_for_roots()
        cookies = [cookie for base in self.presence.bases() for cookie in self.git_dirs.add(base)]
        here = self.presence.here()
        for target in here:
            self._look_at_tree(target)
        self.rescan(here)
        for cookie in cookies:
            self.tell(FileCreatedEvent(cookie))

    def _look_at_tree(self, target: Target) -> None:
        if target.root != target.git_dir:
            self.trees.relist(target)
            self.trees.rejudge(target)

    # -- timers -------------------------------------------------------------------------------------------

    def next_at(self) -> float | None:
        """When `run_timers` has something to do; None: never, as things are."""
        return min(self._timers.values(), default=None)

    def plan(self) -> None:
        """Poll and retry what is not wholly watched, and nothing else."""
        if not (self.watches.short or self.poll_s or self._timers):
            return
        for target in self.presence.here():
            short = self.shortage(target) is not None
            if short and ("retry", target) not in self._timers:
                self._back_off("retry", target, RETRY_S, RETRY_MAX_S)
            elif not short:
                self._cancel(("retry", target))
            if (short or target in self.poll_s) and ("poll", target) not in self._timers:
                self._timers["poll", target] = time.monotonic() + self.poll_s.get(target, self.short_poll_s)
            elif not short and target not in self.poll_s:
                self._timers.pop(("poll", target), None)

    def run_timers(self) -> None:
        """Do what is due."""
        now = time.monotonic()
        for key in [key for key, at in self._timers.items() if at <= now]:
            what, target = key
            self._timers.pop(key, None)
            if what == "loss" or target is None:
                self.answer_loss()
            elif what == "look":
                self._find(target)
            elif what == "poll":
                self.rescan([target])
            else:
                self._retry(target)
        self.plan()

    def _retry(self, target: Target) -> None:
        """Watch what could not be watched, if there is room by now and git answers."""
        self.watches.budget = self._budget()
        self._kernel.reopen()
        for base in bases_of(target):
            self.git_dirs.add(base)
        self._look_at_tree(target)
        self.rescan([target])

    def _back_off(self, what: str, target: Target, first_s: float, longest_s: float) -> None:
        pause = self._pauses.get((what, target), first_s)
        self._pauses[what, target] = min(pause * 2, longest_s)
        self._timers[what, target] = time.monotonic() + pause

    def _cancel(self, key: tuple[str, Target | None]) -> None:
        self._timers.pop(key, None)
        self._pauses.pop(key, None)


def _owners(target: Target) -> list[Owner]:
    return [target, *sorted(bases_of(target))]
