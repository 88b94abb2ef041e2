"""The watcher on Linux: watchdog's observer with one emitter for all targets."""

from __future__ import annotations

from watchdog.events import FileSystemEventHandler
from watchdog.observers.api import BaseObserver, EventQueue

from headwatch.hints import Target
from headwatch.linux_emitter import LinuxEmitter
from headwatch.outside import Outside

QUEUE_MAX = 8192  # events between emitter and handler; more are lost events


class LinuxBackend(BaseObserver):
    """watchdog's observer with one `LinuxEmitter` for all targets.

    One descriptor for all keeps the kernel's order between a root and its git dir, which is what makes a
    cookie a proof; and a user has only 128 of them (fs.inotify.max_user_instances).
    """

    def __init__(self, handler: FileSystemEventHandler, outside: Outside) -> None:
        super().__init__(emitter_class=LinuxEmitter)
        self._event_queue = EventQueue(maxsize=QUEUE_MAX)
        self.schedule(handler, "/", recursive=True)
        (emitter,) = self.emitters
        assert isinstance(emitter, LinuxEmitter)
        emitter.open(outside)
        self._emitter = emitter
        self._upkeep = emitter.upkeep

    @property
    def lost(self) -> int:
        return self._upkeep.lost

    @property
    def watches(self) -> int:
        return len(self._upkeep.watches.by_wd)

    def add(self, target: Target) -> None:
        """Watch a target; returns when it is armed. Only later changes are told."""
        with self._emitter.locked():
            self._upkeep.add(target)

    def remove(self, target: Target) -> None:
        """Stop watching a target."""
        with self._emitter.locked():
            self._upkeep.remove(target)
            self._emitter.noise.forget(target)

    def poll(self, target: Target, every_s: float) -> None:
        """Hint at a rescan now and then, as changes can go unseen. It is watched all the same."""
        with self._emitter.locked():
            self._upkeep.poll(target, every_s)

    def shortage(self, target: Target) -> int | None:
        """Why are not all directories watched: 0 for the budget, else an errno; None when all are."""
        with self._emitter.locked():
            return self._upkeep.shortage(target)

    def stop(self) -> None:
        """End both threads and give the descriptors back."""
        super().stop()
        if self.is_alive():
            self.join()
        self._emitter.close()
