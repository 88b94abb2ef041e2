"""A watchdog emitter for Linux that loses nothing silently.

watchdog's own emitter arms every directory, pairs moves, keeps an overflow to itself and answers it by arming
everything anew, which overflows again. This one arms what is in scope, lists what it has armed, and turns
an overflow into a rescan.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from watchdog.events import (
    DirDeletedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileSystemEvent,
)
from watchdog.observers.api import EventEmitter

from headwatch import inotify
from headwatch.hints import COOKIE_PREFIX, Target
from headwatch.noise import Noise
from headwatch.outside import Outside
from headwatch.routes import SCOPE_FILES, git_folder, git_scope, own_name
from headwatch.trees import Seed
from headwatch.upkeep import Upkeep
from headwatch.watches import Folder, Found

_APPEARED = inotify.IN_CREATE | inotify.IN_MOVED_TO
_VANISHED = inotify.IN_DELETE | inotify.IN_MOVED_FROM
_SELF = inotify.IN_DELETE_SELF | inotify.IN_MOVE_SELF | inotify.IN_UNMOUNT
_RULE_FILES = frozenset({b"config", b"config.worktree", b"info/exclude"})


class LinuxEmitter(EventEmitter):
    """Reads inotify, keeps the watches in step with the directories, queues watchdog's events."""

    def open(self, outside: Outside) -> None:
        """Get the descriptor; what is needed beyond watchdog's constructor."""
        self._failed = outside.failed
        self._lock = threading.RLock()  # around every use of `upkeep`
        self._kernel = inotify.Inotify()
        self.upkeep = Upkeep(self._kernel, outside, self._tell)
        self.noise = Noise(outside.ignored_files)
        self._presence, self._trees = self.upkeep.presence, self.upkeep.trees
        # What one read brought that is worked on together, as a question to git costs 3 ms
        self._seeds: defaultdict[Target, list[Seed]] = defaultdict(list)
        self._git_seeds: list[Seed] = []
        self._rejudge: set[Target] = set()
        self._late: list[FileSystemEvent] = []  # told after the work, as their reader may look at once
        self._suspicious = False
        self._seen: set[bytes] = set()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Use `upkeep` from another thread; timers it sets are minded."""
        with self._lock:
            yield
        self._kernel.wake()

    def run(self) -> None:
        """Read until stopped; an error is told, not swallowed with the thread."""
        try:
            super().run()
        except BaseException as error:
            if self._failed is not None:
                self._failed(error)
            raise

    def queue_events(self, timeout: float) -> None:
        """Wait for events or a timer, and handle what came."""
        with self._lock:
            next_at = self.upkeep.next_at()
        self._kernel.wait(None if next_at is None else next_at - time.monotonic())
        if not self.should_keep_running():
            return
        with self._lock:
            for event in self._kernel.read():
                self._take(event)
            self._work()
            self.upkeep.run_timers()

    def on_thread_stop(self) -> None:
        """Wake the reader, so that it sees that it is to stop."""
        self._kernel.wake()

    def close(self) -> None:
        """Give the descriptors back; the thread must have ended."""
        self._kernel.close()

    # -- one event ----------------------------------------------------------------------------------------

    def _take(self, event: inotify.RawEvent) -> None:
        if event.mask & inotify.IN_Q_OVERFLOW:
            self.upkeep.lose_events()
            return
        if event.mask & inotify.IN_IGNORED:
            expired = self.upkeep.watches.expired(event.wd)
            self._suspicious |= any(folder.parent is None for folder in expired)
            return
        for folder in tuple(self.upkeep.watches.by_wd.get(event.wd, ())):
            if event.mask & _SELF:
                self._suspicious |= folder.parent is None
            elif isinstance(folder.owner, Target):
                self._take_tree(folder, folder.owner, event)
            elif folder.owner is not None:
                self._take_git(folder, folder.owner, event)

    def _take_tree(self, folder: Folder, target: Target, event: inotify.RawEvent) -> None:
        if event.name == b".git":
            if folder.parent is None:
                self._suspicious = True
            elif event.mask & _APPEARED:
                self._trees.prune(target, folder)
        elif not event.mask & inotify.IN_ISDIR:
            if event.name == b".gitignore":
                self._rejudge.add(target)
            path = folder / event.name
            if path not in self._seen and not self.noise.mutes(target, path):
                self._tell_file(path, event.mask, late=event.name in SCOPE_FILES)
        elif event.mask & _APPEARED:
            self._seeds[target].append((folder, event.name))
        elif event.mask & _VANISHED and self._trees.vanished(target, folder, event.name):
            self._tell(DirDeletedEvent(folder / event.name))

    def _take_git(self, folder: Folder, base: bytes, event: inotify.RawEvent) -> None:
        path = folder / event.name
        name = path[len(base) + 1 :]
        if event.mask & inotify.IN_ISDIR and git_folder(name):
            if event.mask & _APPEARED:
                self._git_seeds.append((folder, event.name))
            elif event.mask & _VANISHED:
                self.upkeep.git_dirs.vanished(folder, event.name)
                self._suspicious = True  # perhaps a linked worktree's git dir
            if not name.startswith(b"worktrees"):
                return
        if event.name.startswith(COOKIE_PREFIX):
            if event.mask & _APPEARED:
                self._work()  # all that came before is told before
                self.upkeep.answer_loss(at_once=True)
                self._tell(FileCreatedEvent(path))
        elif git_scope(own_name(name)) is not None or git_scope(name) is not None:
            rules = own_name(name) in _RULE_FILES
            for target in self._presence.sharing(base):
                self.noise.forget(target)  # an ignored file may be tracked by now
                if rules:
                    self._rejudge.add(target)
            self._tell_file(path, event.mask, late=rules)

    # -- the work after a read ----------------------------------------------------------------------------

    def _work(self) -> None:
        """Bring the watches in step with what was read, then tell what had to wait for that."""
        if self._suspicious:
            self._suspicious = False
            self.upkeep.look_for_roots()
        git_seeds, self._git_seeds = self._git_seeds, []
        for parent, name in git_seeds:
            self._work_on_git(parent, name)
        seeds, self._seeds = self._seeds, defaultdict(list)
        for target, new in seeds.items():
            self._tell_found(self._trees.grow(target, new), [target])
        rejudge, self._rejudge = self._rejudge, set()
        for target in rejudge.intersection(self._presence.here()):
            self.noise.forget(target)
            self._tell_found(self._trees.rejudge(target), [target])
        late, self._late = self._late, []
        for event in late:
            self._tell(event)
        self.noise.judge()
        self._seen.clear()
        self.upkeep.plan()
        self.upkeep.answer_loss()

    def _work_on_git(self, parent: Folder, name: bytes) -> None:
        found = self.upkeep.git_dirs.grow(parent, name)
        if isinstance(parent.owner, bytes):
            sharing = self._presence.sharing(parent.owner)
            self._tell_found(found, sharing)
            if parent.owner + b"/info/exclude" in found.paths:
                self._rejudge.update(sharing)

    # -- watchdog's events --------------------------------------------------------------------------------

    def _tell_found(self, found: Found, targets: list[Target]) -> None:
        """Tell what a listing met; more than a few are a rescan."""
        if found.overflow:
            self.upkeep.rescan(targets)
            return
        for path in found.paths:
            self._tell_file(path, inotify.IN_CREATE, late=False)

    def _tell_file(self, path: bytes, mask: int, *, late: bool) -> None:
        event: FileSystemEvent
        if mask & _VANISHED:
            event = FileDeletedEvent(path)
        elif mask & _APPEARED:
            event = FileCreatedEvent(path)
        else:
            event = FileModifiedEvent(path)
        if late:
            self._late.append(event)
        elif path not in self._seen:  # a save makes three events; one tells all
            self._seen.add(path)
            self._tell(event)

    def _tell(self, event: FileSystemEvent) -> bool:
        if self._event_queue.full():
            self.upkeep.lose_events()
            return False
        self.queue_event(event)
        return True
