"""The embedder as main sees it: started when there is work, restarted when it dies, gone when idle.

`python -m headwatch.embedder <fd>` is the process itself.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

import structlog

from headwatch.child import Child, ChildDied, ChildSilent, RequestFailed, backoff_s
from headwatch.parent import Message
from headwatch.vector_worker import LOADER, QUEUE, main
from headwatch_indexer.errors import HeadwatchError, Unreachable

log = structlog.get_logger()

_LOAD_TIMEOUT_S = 900.0
_REFUSED_RETRY_S = 60.0  # a model that cannot be loaded
_REPORTED_DEATHS = 3  # in a row
_ENVIRONMENT = {
    # Threads that spin at a barrier starve each other when another process uses a core: with one of two
    # cores taken, 22 texts/s and 53 ms a query when spinning, 122 texts/s and 6 ms when sleeping.
    "OMP_WAIT_POLICY": "PASSIVE",
    "KMP_BLOCKTIME": "0",
}


class EmbedderNotReady(Unreachable):
    """The model did not answer in time, or cannot be loaded."""


class Embedder:
    """Keeps at most one embedder process. Safe to use from several threads; no call but `embed` waits long."""

    def __init__(
        self,
        dsn: str,
        *,
        model: str | None,
        model_id: int,
        device: str | None = None,
        idle_exit_s: float = 300.0,
        rss_limit_bytes: int = 2 * 2**30,
        loader: str = LOADER,
        queue: str = QUEUE,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.ready = threading.Event()  # the model is loaded and answers
        self.counters: Counter[str] = Counter()  # chunks_embedded, dead_letters, starts, deaths
        self._open: Message = {
            "op": "open",
            "dsn": dsn,
            "model": model,
            "model_id": model_id,
            "device": device,
            "idle_exit_s": idle_exit_s,
            "rss_limit_bytes": rss_limit_bytes,
            "loader": loader,
            "queue": queue,
        }
        self._environment = _ENVIRONMENT | dict(environment or {})
        self._changed = threading.Condition()  # guards all below
        self._supervisor: threading.Thread | None = None
        self._child: Child | None = None
        self._stopping = False
        self._asked = False  # somebody wants the model loaded
        self._nudge = 0  # number of the last work() …
        self._drained = 0  # … and of the last one that is done
        self._in_flight: list[int] = []
        self._suspects: dict[int, int] = {}  # content id → how often the process died on it alone
        self._failures = 0  # deaths in a row, without progress between
        self._not_before = 0.0
        self._leaving = False  # the process said that it exits
        self._error: HeadwatchError | None = None
        self._facts: Message = {}
        self._pending: int | None = None

    @property
    def pid(self) -> int | None:
        child = self._child
        return child.pid if child is not None and child.alive else None

    def ensure_started(self) -> None:
        """Have the model loaded soon; `ready` tells when."""
        with self._changed:
            if self.ready.is_set() or self._stopping:
                return
            self._asked = True
            self._wake()

    def work(self) -> None:
        """Say that contents may be waiting for a vector."""
        with self._changed:
            if self._stopping:
                return
            self._nudge += 1
            self._wake()
            child = self._child if self.ready.is_set() else None
            nudge = self._nudge
        if child is not None:
            _post(child, {"op": "work", "n": nudge})

    def embed_query(self, text: str, timeout_s: float = 0.3) -> list[float] | None:
        """Embed a query; None when the model is not ready in time (it is being started then)."""
        try:
            return self._ask([text], "query", timeout_s)[0]
        except (EmbedderNotReady, IndexError):
            return None
        except RequestFailed as exc:
            log.warning("query not embedded", reason=exc.message)
            return None

    def embed(self, texts: list[str], kind: str = "document", timeout_s: float = 120.0) -> list[list[float]]:
        """Embed texts in order; waits for the model. Raises EmbedderNotReady or RequestFailed."""
        return self._ask(texts, kind, timeout_s) if texts else []

    def state(self) -> dict[str, Any]:
        """Describe the process and the queue as last seen."""
        with self._changed:
            child, error = self._child, self._error
            state = {
                "loaded": self.ready.is_set(),
                "device": self._facts.get("device"),
                "name": self._facts.get("name"),
                "dim": self._facts.get("dim"),
                "pending": self._pending,
                "working": self._nudge > self._drained,
                "error": error.message if error else None,
                "hint": error.hint if error else None,
            }
        return state | {"rss_bytes": child.rss_bytes() if child is not None else 0}

    def stop(self) -> None:
        """End the process and keep it ended."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            child, supervisor = self._child, self._supervisor
        if child is not None:
            child.stop(grace_s=2.0)
        if supervisor is not None:
            supervisor.join()

    def _ask(self, texts: list[str], kind: str, timeout_s: float) -> list[list[float]]:
        end = time.monotonic() + timeout_s
        while True:
            self.ensure_started()
            if (
                self._error is not None
                or self._stopping
                or not self.ready.wait(max(0.0, end - time.monotonic()))
            ):
                raise self._not_ready()
            child = self._child
            left_s = end - time.monotonic()
            if child is None:
                continue
            try:
                message = {"op": "embed", "texts": texts, "kind": kind, "timeout_s": left_s}
                vectors: list[list[float]] = child.request(message, timeout_s=max(0.0, left_s))["vectors"]
            except ChildSilent as exc:
                raise self._not_ready() from exc
            except ChildDied:
                continue
            return vectors

    def _not_ready(self) -> EmbedderNotReady:
        if (error := self._error) is not None:
            return EmbedderNotReady(error.message, hint=error.hint)
        return EmbedderNotReady("the model is not ready", hint="try again in a few seconds")

    def _wake(self) -> None:
        if self._supervisor is None:
            self._supervisor = threading.Thread(target=self._supervise, name="embedder", daemon=True)
            self._supervisor.start()
        self._changed.notify_all()

    def _supervise(self) -> None:
        while True:
            with self._changed:
                while not self._stopping and (delay_s := self._delay_s()) != 0:
                    self._changed.wait(delay_s)
                if self._stopping:
                    return
                self._leaving = False
                child = self._child = Child(
                    "headwatch.embedder",
                    on_notice=self._noticed,
                    on_death=self._died,
                    environment=self._environment,
                )
                opening = self._open | {"suspects": dict(self._suspects)}
            self._bring_up(child, opening)

    def _delay_s(self) -> float | None:
        """Seconds until a process is to be started; None: until something changes."""
        if self._child is not None or not (self._asked or self._nudge > self._drained):
            return None
        return max(0.0, self._not_before - time.monotonic())

    def _bring_up(self, child: Child, opening: Message) -> None:
        try:
            child.start()
            if self._stopping:  # said while there was nothing to stop yet
                raise ChildDied
            facts = child.request(opening, timeout_s=_LOAD_TIMEOUT_S)
        except HeadwatchError as exc:
            child.stop(grace_s=1.0)
            with self._changed:
                self._child = None
                if isinstance(exc, RequestFailed):
                    log.warning("model not loaded", reason=exc.message, hint=exc.hint)
                    self._error, self._asked = exc, False
                    self._not_before = time.monotonic() + _REFUSED_RETRY_S
                elif not isinstance(exc, ChildDied):
                    self._error = exc
            return
        log.info("model loaded", **facts)
        with self._changed:
            self.counters["starts"] += 1
            self._facts, self._error, self._asked = facts, None, False
            nudge = self._nudge if self._nudge > self._drained else 0
            if self._child is child:
                self.ready.set()
        if nudge:
            _post(child, {"op": "work", "n": nudge})

    def _noticed(self, notice: Message) -> None:
        with self._changed:
            if "in_flight" in notice:
                self._in_flight = notice["in_flight"]
            if "exiting" in notice:
                self._leaving = True
                log.info("embedder exits", why=notice["exiting"], rss_bytes=notice.get("rss_bytes"))
            if "embedded" in notice:
                self.counters["chunks_embedded"] += notice["embedded"]
                self.counters["dead_letters"] += notice["buried"]
                if notice.get("pending") is not None:
                    self._pending = notice["pending"]
                self._failures = 0
            if "drained" in notice:
                self._drained = max(self._drained, notice["drained"])
                self._suspects = {}
            self._changed.notify_all()

    def _died(self, returncode: int) -> None:
        with self._changed:
            self._child = None
            self.ready.clear()
            if not self._leaving and not self._stopping:
                self.counters["deaths"] += 1
                self._failures += 1
                self._not_before = time.monotonic() + backoff_s(self._failures)
                self._suspect(self._in_flight)
                if self._failures >= _REPORTED_DEATHS:
                    self._error = ChildDied(
                        f"the embedder died {self._failures} times in a row, last with {returncode}",
                        hint="is there enough memory for the model? the log says more",
                    )
                log.warning("embedder died", returncode=returncode, failures=self._failures)
            self._in_flight = []
            self._changed.notify_all()

    def _suspect(self, ids: list[int]) -> None:
        """Remember what the process died on: tried one by one next time, given up after three deaths alone."""
        alone = len(ids) == 1
        for content_id in ids:
            self._suspects[content_id] = self._suspects.get(content_id, 0) + alone


def _post(child: Child, message: Message) -> None:
    try:
        child.submit(message)
    except ChildDied:
        log.debug("embedder is gone", op=message["op"])  # the supervisor starts it again


if __name__ == "__main__":
    main(int(sys.argv[1]))
    sys.stderr.flush()
    os._exit(0)  # nothing is left to save, and taking torch down takes up to five seconds
