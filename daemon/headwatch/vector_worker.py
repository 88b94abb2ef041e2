"""The embedder process: loads the model, answers queries at once, drains the vector queue between them."""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeAlias, cast

import psutil
import structlog

from headwatch.child import backoff_s
from headwatch.drain import Drain, VectorQueue
from headwatch.parent import Message, Parent, Request, answer
from headwatch_indexer.embed import Encoder
from headwatch_indexer.errors import HeadwatchError, Unreachable

log = structlog.get_logger()
QueueOpener: TypeAlias = Callable[[str, int], VectorQueue]

LOADER = "headwatch_indexer.embed:load"
QUEUE = "headwatch_indexer.store:open_vector_queue"

_PENDING_EVERY_S = 1.0  # counting the queue costs a query
_GROWTH_BYTES = 512 * 2**20  # a process whose memory at the start is near the limit may grow by this much
_BATCH_NICENESS = 10


def main(fd: int) -> None:
    """Serve the parent: the first request is "open", then "embed" and "work", at last "exit"."""
    parent = Parent(fd, urgent=_is_query)
    opening = parent.take()
    if opening is None or opening.op != "open":
        return
    started = time.monotonic()
    loading = threading.Event()
    loading.set()
    threading.Thread(target=_leave_while, args=(parent, loading), name="leave", daemon=True).start()
    try:
        encoder = _load(opening.message)
    except HeadwatchError as exc:
        parent.notify({"exiting": "refused"})
        opening.fail(exc)
        return
    finally:
        loading.clear()
    facts = {
        "name": encoder.name,
        "revision": encoder.revision,
        "dim": encoder.dim,
        "device": encoder.device,
        "seconds": time.monotonic() - started,
    }
    opening.reply(facts)
    parent.notify({"ready": True, **facts})
    worker = _Worker(parent, encoder, opening.message)
    threading.Thread(target=worker.answer_queries, name="queries", daemon=True).start()
    if (
        sys.platform == "linux"
    ):  # where it counts for this thread and the ones that it starts, not for queries
        os.setpriority(os.PRIO_PROCESS, 0, _BATCH_NICENESS)
    worker.run()


class _Worker:
    """What the process does once the model is loaded."""

    def __init__(self, parent: Parent, encoder: Encoder, settings: Message) -> None:
        self._parent = parent
        self._encoder = encoder
        self._settings = settings
        self._drain: Drain | None = None
        self._queue: VectorQueue | None = None
        self._nudge: int | None = None  # number of the last "work" request while there is work
        self._failures = 0  # of the database, in a row
        self._pause_until = 0.0
        self._used_at = time.monotonic()
        self._counted_at = float("-inf")
        self._steps = 0
        self._limit_bytes = max(int(settings["rss_limit_bytes"]), _rss_bytes() + _GROWTH_BYTES)

    def run(self) -> None:
        """Work until the parent says exit, nothing was asked for too long, or memory has grown too far."""
        while True:
            request = self._parent.take(self._patience_s())
            if request is not None:
                if not self._handle(request):
                    return
            elif self._nudge is not None:
                if time.monotonic() >= self._pause_until:
                    self._step()
                if self._steps and _rss_bytes() > self._limit_bytes:
                    self._parent.notify({"exiting": "recycle", "rss_bytes": _rss_bytes()})
                    return
            elif time.monotonic() - self._used_at >= self._settings["idle_exit_s"]:
                self._parent.notify({"exiting": "idle"})
                return

    def answer_queries(self) -> None:
        """Embed queries beside any batch; one whose asker has given up is not computed."""
        while True:
            request = self._parent.take_urgent()
            if request is None:
                continue
            self._used_at = time.monotonic()
            waits_s = request.message.get("timeout_s")
            if waits_s is not None and time.monotonic() - request.received_at > waits_s:
                request.reply({"vectors": []})
                continue
            answer(request, {"embed": self._embed_queries})

    def _patience_s(self) -> float:
        if self._nudge is not None:
            return max(0.0, self._pause_until - time.monotonic())
        idle_at: float = self._used_at + self._settings["idle_exit_s"]
        return max(0.05, idle_at - time.monotonic())

    def _handle(self, request: Request) -> bool:
        self._used_at = time.monotonic()
        if request.op == "exit":
            request.reply()
            return False
        answer(request, {"embed": self._embed_texts, "work": self._work})
        return True

    def _work(self, message: Message) -> Message:
        self._nudge = message["n"]
        return {}

    def _embed_texts(self, message: Message) -> Message:
        return {"vectors": self._encoder.encode(message["texts"]).tolist()}

    def _embed_queries(self, message: Message) -> Message:
        return {"vectors": [self._encoder.encode_query(text).tolist() for text in message["texts"]]}

    def _step(self) -> None:
        try:
            drain = self._opened()
            step = drain.step()
        except Unreachable as exc:
            if not self._failures:
                log.warning("vectors wait for the database", reason=exc.message)
            self._failures += 1
            self._pause_until = time.monotonic() + backoff_s(self._failures, longest_s=30.0)
            return
        self._failures = 0
        self._steps += 1
        self._used_at = time.monotonic()
        notice: Message = {"embedded": step.embedded, "buried": step.buried}
        if step.drained:
            notice |= {"pending": 0, "drained": self._nudge}
            self._nudge = None
        elif time.monotonic() - self._counted_at >= _PENDING_EVERY_S:
            notice["pending"] = self._count()
        self._parent.notify(notice)

    def _opened(self) -> Drain:
        if self._drain is None:
            open_queue = cast("QueueOpener", _named(self._settings["queue"]))
            self._queue = open_queue(self._settings["dsn"], self._settings["model_id"])
            self._drain = Drain(
                self._encoder,
                self._queue,
                announce=lambda ids: self._parent.notify({"in_flight": ids}),
                suspects=self._settings["suspects"],
            )
        return self._drain

    def _count(self) -> int | None:
        assert self._queue is not None
        self._counted_at = time.monotonic()
        try:
            return self._queue.pending()
        except Unreachable:
            return None  # the next step says so


def _leave_while(parent: Parent, loading: threading.Event) -> None:
    """End this process when its parent says so while the model is being loaded, which takes seconds."""
    parent.exiting.wait()
    if loading.is_set():
        os._exit(0)


def _load(settings: Message) -> Encoder:
    load = cast("Callable[..., Encoder]", _named(settings["loader"]))
    return load(settings["model"], device=settings["device"], threads=_cpus())


def _is_query(message: Message) -> bool:
    return message["op"] == "embed" and message.get("kind") == "query"


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _rss_bytes() -> int:
    return int(psutil.Process().memory_info().rss)


def _named(what: str) -> Any:
    """Import what "module:name" names."""
    module, _, name = what.partition(":")
    return getattr(importlib.import_module(module), name)
