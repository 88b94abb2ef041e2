"""Serves the API on a claimed Unix socket, from a thread, to this user alone."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from headwatch import __version__, log
from headwatch.api import application
from headwatch.calls import Calls
from headwatch.endpoint import Claim
from headwatch.protocol import Actions
from headwatch_indexer.errors import HeadwatchError

_HEADER_TIMEOUT_S = 10.0
_DRAIN_S = 2  # what a stop grants to answers under way
_log = log.get("api")


class ApiServer:
    """One uvicorn server in a thread of its own; it wakes only for requests."""

    def __init__(
        self, actions: Actions, claim: Claim, failed: Callable[[BaseException], None] = lambda error: None
    ) -> None:
        """Serve `actions` on a claimed socket; `failed` hears of an error that ends the server."""
        self.started = threading.Event()
        self._failed = failed
        self.error: BaseException | None = None  # why the server ended by itself
        self._claim = claim
        calls = Calls()
        self._thread: threading.Thread | None = None
        config = uvicorn.Config(
            application(actions, calls, claim.home),
            http=_SameUserProtocol,
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=_DRAIN_S,
            headers=[("headwatch-version", __version__)],
        )
        self._server = _Server(config, self.started, calls)

    def start(self, timeout_s: float = 10.0) -> None:
        """Listen, and return when requests are answered."""
        sock = self._claim.listen()
        self._thread = threading.Thread(target=self._serve, args=(sock,), name="api", daemon=True)
        self._thread.start()
        if not self.started.wait(timeout_s) or self.error:
            raise HeadwatchError(f"the API did not start: {self.error}", hint="see the log") from self.error

    def stop(self, timeout_s: float = 5.0) -> None:
        """Answer what is under way for a moment, then close; safe to call twice."""
        if self._thread is not None:
            self._server.end()
            self._thread.join(timeout_s)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.stop()

    def _serve(self, sock: socket.socket) -> None:
        try:
            asyncio.run(self._server.serve(sockets=[sock]))
        except BaseException as exc:  # told to whoever opened the server
            self.error = exc
            _log.error("api ended", exc_info=exc)
            self._failed(exc)
        finally:
            sock.close()
            self.started.set()


class _Server(uvicorn.Server):
    """uvicorn without its ten wake-ups a second."""

    def __init__(self, config: uvicorn.Config, started: threading.Event, calls: Calls) -> None:
        super().__init__(config)
        self._calls = calls
        self._announce = started
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None

    async def main_loop(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        self.server_state.default_headers = self.config.encoded_headers
        self._announce.set()
        await self._ended.wait()
        self._calls.close()

    def end(self) -> None:
        """Stop serving; called from another thread."""
        self.should_exit = True
        if self._loop is not None and self._ended is not None:
            self._loop.call_soon_threadsafe(self._ended.set)


class _SameUserProtocol(H11Protocol):
    """HTTP for peers of this user (and root), with a limit on how long a request's head may take."""

    _refused = False
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        peer = peer_uid(transport.get_extra_info("socket"))
        if peer not in (os.geteuid(), 0):
            _log.warning("peer refused", uid=peer)
            self._refused = True
            transport.abort()
            return
        super().connection_made(transport)
        self._watch_head()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._watch_head()
        else:
            self._unwatch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch_head()
        if not self._refused:
            super().connection_lost(exc)

    def _watch_head(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(_HEADER_TIMEOUT_S, self.transport.close)

    def _unwatch_head(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def peer_uid(connection: Any) -> int:
    """Ask the kernel which user is at the other end of a Unix socket."""
    if hasattr(socket, "SO_PEERCRED"):  # Linux: struct ucred
        answer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", answer)[1])
    answer = connection.getsockopt(0, 1, 76)  # macOS: SOL_LOCAL, LOCAL_PEERCRED, struct xucred
    return int(struct.unpack_from("=II", answer)[1])
