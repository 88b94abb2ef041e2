"""The indexer child as main sees it: started when it is needed, started again when it dies."""

from __future__ import annotations

import threading
from typing import Any

import structlog

from headwatch.child import Child, ChildDied, RequestFailed

log = structlog.get_logger()
Message = dict[str, Any]

_AGAIN = ("Moving", "Unavailable", "ChildDied")  # the same pass may work in a moment
_JOB_TIMEOUT_S = 24 * 3600.0  # a first index of a huge repository


class IndexerHandle:
    """Sends jobs to the indexer process; safe from several threads."""

    def __init__(self, dsn: str, host: str) -> None:
        self._open = {"op": "open", "dsn": dsn, "host": host}
        self._child: Child | None = None
        self._lock = threading.Lock()
        self._stopped = False

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child is not None and self._child.alive else None

    def start(self) -> None:
        self._running()

    def reconcile(self, worktree: int, *, full: bool, degraded: str | None) -> Message:
        """Run one pass; its error, and the child's death, come back under "error".

        "again": the same may work in a moment; "away": the database is out of reach.
        """
        job = {"op": "reconcile", "worktree": worktree, "full": full, "degraded": degraded}
        try:
            return self._running().request(job, timeout_s=_JOB_TIMEOUT_S)
        except ChildDied as exc:
            return {"error": exc.message, "again": True}
        except RequestFailed as exc:
            away = exc.kind == "Unavailable"
            return {"error": exc.message, "kind": exc.kind, "again": exc.kind in _AGAIN, "away": away}

    def interrupt(self) -> None:
        """Cut the pass under way off, as nobody wants its rows any more."""
        if self._child is not None:
            self._child.kill()

    def stop(self, grace_s: float = 1.0) -> None:
        """End the process; a pass that still runs is cut off, and its transaction rolls back."""
        with self._lock:
            self._stopped = True
            if self._child is not None:
                self._child.stop(grace_s)

    def _running(self) -> Child:
        with self._lock:
            if self._child is None or not self._child.alive:
                if self._stopped:
                    raise ChildDied("the indexer was stopped")
                if self._child is not None:
                    log.warning("indexer started again")
                self._child = Child("headwatch.worker")
                self._child.start()
                self._child.request(self._open, timeout_s=60.0)
            return self._child
