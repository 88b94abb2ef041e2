"""The stock watchdog observer where it is sound (macOS): one recursive stream a root, filtered by scope."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver, ObservedWatch

from headwatch.hints import Target
from headwatch.outside import Ignored, Outside
from headwatch.presence import bases_of
from headwatch.root_events import GoneEvent, RescanEvent

LOOK_S = 2.0  # for a root that is gone
_CACHE_MAX = 20_000


class RecursiveBackend:
    """Schedules every root, and the git dirs that lie outside of one."""

    lost = 0  # the system tells nobody

    def __init__(self, handler: FileSystemEventHandler, outside: Outside) -> None:
        self._handler = handler
        self._ignored = outside.ignored
        self._observer: BaseObserver = Observer()
        self._lock = threading.RLock()
        self._filters: dict[Target, ScopeFilter] = {}
        self._streams: defaultdict[bytes, set[Target]] = defaultdict(set)  # path → who needs it
        self._scheduled: dict[bytes, ObservedWatch] = {}
        self._gone: set[Target] = set()
        self._timer: threading.Timer | None = None
        self._stopped = False

    @property
    def watches(self) -> int:
        """Streams, not directories."""
        return len(self._scheduled)

    def add(self, target: Target) -> None:
        """Follow a target, or wait for it to be there."""
        with self._lock:
            root = os.fsencode(target.root)
            self._filters[target] = ScopeFilter(self._handler, self._ignored, target, self._lose)
            outside = {base for base in bases_of(target) if not base.startswith(root + b"/")}
            for path in {root} | outside:
                self._streams[path].add(target)
            self._open(target)

    def remove(self, target: Target) -> None:
        """Follow a target no more."""
        with self._lock:
            self._gone.discard(target)
            self._close(target)
            for path, users in list(self._streams.items()):
                users.discard(target)
                if not users:
                    del self._streams[path]
            self._filters.pop(target, None)

    def poll(self, target: Target, every_s: float) -> None:
        """The safety net's own reconcile is all there is here."""

    def shortage(self, target: Target) -> int | None:
        """Nothing is counted here."""
        return None

    def start(self) -> None:
        """Begin to deliver."""
        self._observer.start()

    def stop(self) -> None:
        """End all threads."""
        with self._lock:
            self._stopped = True
            if self._timer is not None:
                self._timer.cancel()
        self._observer.stop()
        if self._observer.is_alive():
            self._observer.join()

    def _open(self, target: Target) -> None:
        try:
            for path, users in self._streams.items():
                if target in users:
                    known = self._scheduled.get(path)
                    if known is None:
                        known = self._observer.schedule(
                            self._filters[target], os.fsdecode(path), recursive=True
                        )
                        self._scheduled[path] = known
                    else:
                        self._observer.add_handler_for_watch(self._filters[target], known)
        except OSError:
            self._lose(target)

    def _close(self, target: Target) -> None:
        root = os.fsencode(target.root)
        for path, users in self._streams.items():
            if target in users and (path == root or users == {target}) and path in self._scheduled:
                self._observer.unschedule(self._scheduled.pop(path))

    def _lose(self, target: Target) -> None:
        with self._lock:
            if target not in self._gone and target in self._filters:
                self._gone.add(target)
                self._handler.dispatch(GoneEvent(os.fsencode(target.root)))
                self._look_later()

    def _look_later(self) -> None:
        if not self._stopped:
            self._timer = threading.Timer(LOOK_S, self._look)
            self._timer.daemon = True
            self._timer.start()

    def _look(self) -> None:
        with self._lock:
            for target in list(self._gone):
                if os.path.isdir(target.root) and os.path.isdir(target.git_dir):
                    self._gone.discard(target)
                    self._close(target)
                    self._open(target)
                    self._handler.dispatch(RescanEvent(os.fsencode(target.root)))
            if self._gone:
                self._look_later()


class ScopeFilter(FileSystemEventHandler):
    """Lets through what is in scope, as a recursive stream tells everything."""

    def __init__(
        self,
        handler: FileSystemEventHandler,
        ignored: Ignored,
        target: Target,
        lose: Callable[[Target], None],
    ) -> None:
        self._handler = handler
        self._ignored = ignored
        self._target = target
        self._lose = lose
        self._root = os.fsencode(target.root)
        self._verdicts: dict[bytes, bool] = {}  # directory, relative → left alone

    def dispatch(self, event: FileSystemEvent) -> None:
        """Pass an event on, unless it lies in an ignored directory or a repository of its own."""
        if event.event_type in ("opened", "closed_no_write", "attrib"):
            return
        path = os.fsencode(event.src_path)
        if path == self._root:
            if event.event_type in ("deleted", "moved"):
                self._lose(self._target)
            return
        relative = path.removeprefix(self._root + b"/")
        name = relative.rpartition(b"/")[2]
        if name == b".gitignore" or relative in (b".git/config", b".git/info/exclude"):
            self._verdicts.clear()
        if relative == path or relative.startswith(b".git/") or not self._left_alone(relative, event):
            self._handler.dispatch(event)

    def _left_alone(self, relative: bytes, event: FileSystemEvent) -> bool:
        parts = relative.split(b"/")
        if not event.is_directory:
            parts.pop()
        above = [b"/".join(parts[:n]) for n in range(1, len(parts) + 1)]
        unknown = [path for path in above if path not in self._verdicts]
        if unknown:
            ignored = self._ignored(self._target, unknown)
            if len(self._verdicts) >= _CACHE_MAX:
                self._verdicts.clear()
            for path in unknown:
                nested = os.path.lexists(self._root + b"/" + path + b"/.git")
                self._verdicts[path] = path in ignored or nested
        return any(self._verdicts.get(path, False) for path in above)
