"""What watchdog has no event for: a look at everything, and a root that is gone."""

from __future__ import annotations

from watchdog.events import FileSystemEvent


class RescanEvent(FileSystemEvent):
    """Anything below `src_path`, a root, may have changed."""

    event_type = "rescan"


class GoneEvent(FileSystemEvent):
    """The root at `src_path`, or its git dir, was deleted, moved or replaced."""

    event_type = "gone"
