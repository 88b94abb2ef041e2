"""A child's end of the line to its parent: requests in, answers and notices out."""

from __future__ import annotations

import ctypes
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

from headwatch import log
from headwatch_indexer.errors import HeadwatchError

Message: TypeAlias = dict[str, Any]
Handler: TypeAlias = Callable[[Message], Message | None]

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Request:
    """One request of the parent, to be answered once."""

    message: Message
    _parent: Parent
    received_at: float = field(default_factory=time.monotonic)

    @property
    def op(self) -> str:
        return str(self.message["op"])

    def reply(self, result: Message | None = None) -> None:
        self._parent.send({"id": self.message["id"], "result": result or {}})

    def fail(self, error: Exception) -> None:
        """Answer with an error; the parent raises RequestFailed with its message and hint."""
        known = isinstance(error, HeadwatchError)
        failure = {
            "kind": type(error).__name__,
            "message": str(error) if known else f"{self.op} failed: {type(error).__name__}: {error}",
            "hint": error.hint if isinstance(error, HeadwatchError) else "the daemon's log has the traceback",
            "exit_code": error.exit_code if isinstance(error, HeadwatchError) else 1,
        }
        self._parent.send({"id": self.message["id"], "failure": failure})


class Parent:
    """The inherited socket. Made in the main thread; this process ends when the parent is gone.

    A thread reads it all the time, so the parent never blocks. Requests that `urgent` picks wait in a line
    of their own. Ctrl-C and SIGTERM are the parent's to judge: this process waits for its word.
    """

    def __init__(self, fd: int, urgent: Callable[[Message], bool] | None = None) -> None:
        _die_with_parent()
        # Handlers, not SIG_IGN: that would be inherited by git processes.
        signal.signal(signal.SIGINT, _leave_to_parent)
        signal.signal(signal.SIGTERM, _leave_to_parent)
        log.setup()
        os.set_inheritable(fd, False)
        self.exiting = threading.Event()  # the parent asked for the end; long work may look at it
        self._line: Connection[Any, Any] = Connection(fd)
        self._sending = threading.Lock()
        self._urgent = urgent
        self._requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
        self._urgent_requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="parent", daemon=True).start()

    def take(self, timeout_s: float | None = None) -> Request | None:
        """Wait for the next request that is not urgent; None after `timeout_s`."""
        return _next(self._requests, timeout_s)

    def take_urgent(self, timeout_s: float | None = None) -> Request | None:
        """Wait for the next urgent request; None after `timeout_s`."""
        return _next(self._urgent_requests, timeout_s)

    def notify(self, notice: Message) -> None:
        """Tell the parent something unasked."""
        self.send({"notice": notice})

    def serve(self, handlers: Mapping[str, Handler]) -> None:
        """Answer requests by their "op", one after the other, until one is "exit".

        What a handler raises is the parent's answer; errors that are not HeadwatchErrors are also printed.
        """
        while True:
            request = self.take()
            if request is None:
                continue
            if request.op == "exit":
                request.reply()
                return
            answer(request, handlers)

    def send(self, message: Message) -> None:
        try:
            with self._sending:
                self._line.send(message)
        except OSError:
            os._exit(0)  # the parent is gone

    def _read(self) -> None:
        while True:
            try:
                message: Message = self._line.recv()
            except (EOFError, OSError):
                os._exit(0)  # whatever runs is for nobody; transactions roll back
            request = Request(message, self)
            if request.op == "exit":
                self.exiting.set()
            if self._urgent is not None and self._urgent(message):
                self._urgent_requests.put(request)
            else:
                self._requests.put(request)


def serve(fd: int, handlers: Mapping[str, Handler]) -> None:
    """Answer the parent's requests until it says exit or is gone."""
    Parent(fd).serve(handlers)


def answer(request: Request, handlers: Mapping[str, Handler]) -> None:
    """Answer one request with its handler's result or error."""
    handler = handlers.get(request.op)
    if handler is None:
        request.fail(LookupError(f"no such request, known are {', '.join(sorted(handlers))}"))
        return
    try:
        result = handler(request.message)
    except HeadwatchError as exc:
        request.fail(exc)
    except Exception as exc:  # the parent decides what becomes of a child whose job failed
        traceback.print_exc()
        request.fail(exc)
    else:
        request.reply(result)


def _next(requests: queue.SimpleQueue[Request], timeout_s: float | None) -> Request | None:
    try:
        return requests.get(timeout=timeout_s) if timeout_s != 0 else requests.get_nowait()
    except queue.Empty:
        return None


def _die_with_parent() -> None:
    """Ask Linux for a kill when the parent dies: the socket's end tells too, unless this process hangs."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _leave_to_parent(_signal: int, _frame: object) -> None:
    pass
