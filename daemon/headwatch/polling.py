"""No watches at all: every worktree is looked at every two seconds."""

from __future__ import annotations

import os

from watchdog.events import FileSystemEventHandler
from watchdog.observers.api import BaseObserver, EventEmitter, ObservedWatch

from headwatch.hints import Target
from headwatch.root_events import RescanEvent


class PollingEmitter(EventEmitter):
    """Queues one rescan of a root a time-out."""

    def queue_events(self, timeout: float) -> None:
        """Wait, then have the root looked at."""
        if not self.stopped_event.wait(timeout):
            self.queue_event(RescanEvent(os.fsencode(self.watch.path)))


class PollingBackend(BaseObserver):
    """watchdog's observer with one `PollingEmitter` a target."""

    lost = 0

    def __init__(self, handler: FileSystemEventHandler, every_s: float = 2.0) -> None:
        super().__init__(emitter_class=PollingEmitter, timeout=every_s)
        self._handler = handler
        self._scheduled: dict[Target, ObservedWatch] = {}

    @property
    def watches(self) -> int:
        """None."""
        return 0

    def add(self, target: Target) -> None:
        """Poll a target."""
        self._scheduled[target] = self.schedule(self._handler, target.root)

    def remove(self, target: Target) -> None:
        """Poll a target no more."""
        scheduled = self._scheduled.pop(target, None)
        if scheduled is not None:
            self.unschedule(scheduled)

    def poll(self, target: Target, every_s: float) -> None:
        """It is polled already."""

    def shortage(self, target: Target) -> int | None:
        """Nothing is missing, as nothing is watched."""
        return None

    def stop(self) -> None:
        """End all threads."""
        super().stop()
        if self.is_alive():
            self.join()
