"""Run one supervised child process and talk with it over a socketpair."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Self, TypeAlias

import psutil
import structlog

from headwatch.parent import Handler, Parent, serve
from headwatch_indexer.errors import HeadwatchError

__all__ = ["Child", "ChildDied", "ChildSilent", "Handler", "Parent", "RequestFailed", "backoff_s", "serve"]

log = structlog.get_logger()
Message: TypeAlias = dict[str, Any]

_SEND_TIMEOUT_S = 30  # a child always reads; one that does not for so long is stuck
_FINAL_S = 5.0  # between the end of its line and the end of the process


class ChildDied(HeadwatchError):
    """The child ended before it answered."""

    def __init__(self, message: str = "a child process died", *, hint: str = "it is started again") -> None:
        super().__init__(message, hint=hint)


class ChildSilent(HeadwatchError):
    """The child did not answer in time; it still runs, and a late answer is dropped."""


class RequestFailed(HeadwatchError):
    """The child could not do what was asked; message, hint and exit code are those of its error."""

    def __init__(self, failure: Message) -> None:
        super().__init__(failure["message"], hint=failure["hint"])
        self.kind: str = failure["kind"]  # name of the error's class
        self.exit_code = failure["exit_code"]


def backoff_s(failures: int, *, first_s: float = 1.0, longest_s: float = 60.0) -> float:
    """Say how long to wait before the next start after so many failures in a row: 0, 1, 2, 4 … 60 s."""
    return min(first_s * 2.0 ** min(failures - 1, 32), longest_s) if failures else 0.0


class Child:
    """A process of `python -m module <fd>`. Safe to use from several threads.

    `on_notice` gets what the child tells unasked, `on_death` its exit code (negative: the signal); both run
    on the thread that reads from the child, so they must not wait for an answer of it. Standard output goes
    to stderr: only the parent prints. The child does not outlive this process.
    """

    def __init__(
        self,
        module: str,
        *,
        on_notice: Callable[[Message], None] | None = None,
        on_death: Callable[[int], None] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.module = module
        self.returncode: int | None = None
        self._on_notice = on_notice
        self._on_death = on_death
        self._environment = dict(environment or {})
        self._ids = itertools.count(1)
        self._pending: dict[int, Future[Message]] = {}
        self._lock = threading.Lock()  # guards _pending and its end
        self._sending = threading.Lock()
        self._spawned = threading.Event()
        self._dead = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._line: Connection[Any, Any] | None = None
        self._problem: OSError | None = None
        # The reader also starts the process: Linux's parent-death signal comes when the *thread* that
        # started a child ends, and this one ends after the child.
        self._reader = threading.Thread(target=self._run, name=f"child {module}", daemon=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def alive(self) -> bool:
        return self._process is not None and not self._dead.is_set()

    def start(self) -> None:
        """Start the process; returns when it exists, not when it is ready."""
        self._reader.start()
        self._spawned.wait()
        if self._problem is not None:
            raise ChildDied(
                f"cannot start {self.module}: {self._problem.strerror}",
                hint="out of memory or of processes? see: ulimit -u",
            ) from self._problem

    def request(self, message: Message, timeout_s: float | None = None) -> Message:
        """Ask and wait for the answer.

        Raises ChildDied, ChildSilent after `timeout_s` (None: never), or RequestFailed.
        """
        future = self.submit(message)
        try:
            return future.result(timeout_s)
        except TimeoutError:
            raise ChildSilent(
                f"{self.module} did not answer {message.get('op')!r} within {timeout_s:g} s",
                hint="it may be busy: try again",
            ) from None

    def submit(self, message: Message) -> Future[Message]:
        """Ask without waiting; several requests may be under way."""
        number = next(self._ids)
        future: Future[Message] = Future()
        with self._lock:
            if not self.alive:
                raise ChildDied(f"{self.module} does not run")
            self._pending[number] = future
        self._send({**message, "id": number})
        return future

    def stop(self, grace_s: float = 5.0) -> None:
        """Ask the child to end, kill it after `grace_s`; returns when it is gone."""
        if not self._reader.is_alive():
            return
        with suppress(ChildDied):
            self.submit({"op": "exit"})
        if not self._dead.wait(grace_s):
            log.warning("child killed", module=self.module, pid=self.pid, grace_s=grace_s)
            self.kill()
        self._dead.wait()
        if threading.current_thread() is not self._reader:
            self._reader.join()

    def kill(self) -> None:
        """End the child and its own children at once."""
        with self._lock:  # while it is not reaped, its group is its own
            if self._process is not None and self._process.returncode is None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.kill()  # in case it did not lead its group yet

    def rss_bytes(self) -> int:
        """Resident memory; 0 when it does not run."""
        try:
            return int(psutil.Process(self.pid).memory_info().rss) if self.alive else 0
        except psutil.Error:
            return 0

    def _run(self) -> None:
        try:
            self._spawn()
        except OSError as exc:
            self._problem = exc
            self._dead.set()
            self._spawned.set()
            return
        self._spawned.set()
        try:
            self._read()
        finally:
            self._finish()

    def _spawn(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", _SEND_TIMEOUT_S, 0))
            try:
                environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
                self._process = subprocess.Popen(
                    # -P: a module of the daemon's working directory must not shadow ours.
                    [sys.executable, "-P", "-m", self.module, str(theirs.fileno())],
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    stdout=2,
                    env=environment | self._environment,
                    process_group=0,  # Ctrl-C at a terminal reaches the parent alone
                )
            except BaseException:
                ours.close()
                raise
        self._line = Connection(ours.detach())

    def _read(self) -> None:
        assert self._line is not None
        while True:
            try:
                message: Message = self._line.recv()
            except (EOFError, OSError):
                return
            if "notice" in message:
                if self._on_notice is not None:
                    self._on_notice(message["notice"])
                continue
            with self._lock:
                future = self._pending.pop(message["id"], None)
            if future is None or not future.set_running_or_notify_cancel():
                continue
            if "failure" in message:
                future.set_exception(RequestFailed(message["failure"]))
            else:
                future.set_result(message["result"])

    def _send(self, message: Message) -> None:
        assert self._line is not None
        try:
            with self._sending:
                self._line.send(message)
        except (BlockingIOError, TimeoutError):
            self.kill()  # stuck; half a message was written, so the line is spoilt
        except OSError:
            pass  # the reader sees the end as well, and fails what is pending

    def _finish(self) -> None:
        """After the line's end: see the process gone, fail what is pending, tell."""
        assert self._process is not None
        assert self._line is not None
        with self._sending:
            self._line.close()
        if not _gone_within(self._process, _FINAL_S):
            self.kill()
        self.returncode = self._process.wait()
        self._dead.set()
        if self._on_death is not None:
            self._on_death(self.returncode)
        with self._lock:
            pending = list(self._pending.values())
            self._pending.clear()
        for future in pending:
            if future.set_running_or_notify_cancel():
                future.set_exception(
                    ChildDied(f"{self.module} ended with {self.returncode} before it answered")
                )


def _gone_within(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True
