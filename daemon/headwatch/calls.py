"""Runs blocking actions beside the event loop, in threads that never keep a stopping process alive."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, TypeVar, cast

from headwatch import log
from headwatch.protocol import Answer
from headwatch_indexer.errors import HeadwatchError, Unreachable

_CALL_LIMIT = 256  # calls at once: waits and followers block for long
_LINES_AHEAD = 256  # of a stream, before its source waits for its reader
_log = log.get("api")
T = TypeVar("T")


class Refused(HeadwatchError):
    """A request that no action sees; carries its HTTP status."""

    def __init__(self, status: int, message: str, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.status = status


class Calls:
    """Runs blocking actions beside the event loop.

    The threads are daemons: one that waits for minutes must not keep a stopping process alive, which the
    event loop's own pool would.
    """

    def __init__(self) -> None:
        self._running = 0
        self._answers: set[asyncio.Future[Any]] = set()
        self._streams: set[asyncio.Queue[bytes | None]] = set()

    async def run(self, call: Callable[[], T]) -> T:
        """Await `call()` in a thread."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def settle(error: BaseException | None, result: T | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(cast("T", result))

        def work() -> None:
            error, result = None, None
            try:
                result = call()
            except BaseException as exc:  # handed to the one who awaits
                error = exc
            self._post(loop, lambda: settle(error, result))

        self._start(work, loop)
        self._answers.add(future)
        try:
            return await future
        finally:
            self._answers.discard(future)

    def stream(self, call: Callable[[], Iterator[Answer]]) -> AsyncIterator[bytes]:
        """Give the items of `call()` as JSON lines; a slow reader slows the iterator down."""
        loop = asyncio.get_running_loop()
        lines: asyncio.Queue[bytes | None] = asyncio.Queue(maxsize=_LINES_AHEAD)
        closed = threading.Event()

        def put(line: bytes | None) -> None:
            if not closed.is_set():
                asyncio.run_coroutine_threadsafe(lines.put(line), loop).result()

        def work() -> None:
            try:
                for item in call():
                    if closed.is_set():
                        return
                    put(json.dumps(item, separators=(",", ":")).encode() + b"\n")
            except Exception as exc:
                _log.error("events ended", exc_info=exc)
            put(None)

        self._start(work, loop)
        return self._read(lines, closed)

    async def _read(
        self, lines: asyncio.Queue[bytes | None], closed: threading.Event
    ) -> AsyncIterator[bytes]:
        self._streams.add(lines)
        try:
            while line := await lines.get():
                yield line
        finally:
            self._streams.discard(lines)
            closed.set()
            _empty(lines)  # lets go of a thread that waits for room

    def close(self) -> None:
        """End every answer under way, so that a stopping server need not cancel them."""
        self._running = _CALL_LIMIT
        for future in self._answers:
            if not future.done():
                future.set_exception(Unreachable("the daemon stops", hint="start it again: headwatch run"))
        for lines in self._streams:
            _empty(lines)
            lines.put_nowait(None)

    def _start(self, work: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
        if self._running >= _CALL_LIMIT:
            raise Refused(
                503, f"{_CALL_LIMIT} requests are under way", hint="end some waits or events --follow"
            )

        def ended() -> None:
            self._running -= 1

        def body() -> None:
            with contextlib.suppress(
                RuntimeError, concurrent.futures.CancelledError
            ):  # the loop went: a stop
                work()
            self._post(loop, ended)

        self._running += 1
        threading.Thread(target=body, name="api call", daemon=True).start()

    @staticmethod
    def _post(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the daemon stops
            loop.call_soon_threadsafe(call)


def _empty(lines: asyncio.Queue[bytes | None]) -> None:
    while not lines.empty():
        lines.get_nowait()
