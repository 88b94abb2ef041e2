"""The jobs that run by the clock, so that a lost event costs time and never correctness."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import structlog
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

log = structlog.get_logger()


@dataclass(slots=True)
class _Ran:
    at: float | None = None
    duration_s: float | None = None


class Schedule:
    """Named jobs at fixed intervals, one run at a time each; a sleeping machine drops none."""

    def __init__(self) -> None:
        self._scheduler = BackgroundScheduler(
            timezone=UTC,
            executors={"default": ThreadPoolExecutor(2)},
            job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 1},
        )
        self._ran: dict[str, _Ran] = {}

    def every(self, seconds: float, name: str, job: Callable[[], None]) -> None:
        """Run a job at an interval; one that raises is logged and runs again next time."""
        ran = self._ran[name] = _Ran()

        def timed() -> None:
            ran.at, began = time.time(), time.monotonic()
            try:
                job()
            except Exception as exc:
                log.warning("job failed", job=name, error=str(exc))
            ran.duration_s = time.monotonic() - began

        self._scheduler.add_job(timed, "interval", seconds=seconds, id=name)

    def start(self) -> None:
        self._scheduler.start()

    def stop(self) -> None:
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)

    def describe(self) -> list[dict[str, Any]]:
        """List the jobs as the status document has them."""
        return [
            {
                "job": job.id,
                "next_run": job.next_run_time.isoformat() if job.next_run_time else None,
                "last_run": datetime.fromtimestamp(ran.at, UTC).isoformat() if ran.at else None,
                "last_duration_s": None if ran.duration_s is None else round(ran.duration_s, 4),
            }
            for job in self._scheduler.get_jobs()
            for ran in (self._ran[job.id],)
        ]
