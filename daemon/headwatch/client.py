"""Ask a running daemon: HTTP over its Unix socket."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from headwatch_indexer.errors import HeadwatchError, NotFresh, Unreachable, WrongUsage

if TYPE_CHECKING:
    from headwatch.protocol import Answer, SearchRequest

_ERRORS = {2: WrongUsage, 3: NotFresh, 4: Unreachable}
_PATIENCE_S = 5.0  # a daemon that is not stuck says in milliseconds that it is there
_GRACE_S = 30.0  # a wait's answer may come this much after its own limit


class NoDaemon(Unreachable):
    """Nobody listens on the socket."""

    def __init__(self, path: str) -> None:
        super().__init__(f"no headwatch daemon answers on {path}", hint="start one: headwatch run")


class Client:
    """The Actions of a running daemon; one connection a request."""

    def __init__(self, socket_path: str, timeout_s: float = 120.0) -> None:
        self.socket_path = socket_path
        self.timeout_s = timeout_s
        self.server_version: str | None = None  # of the last answer

    def status(self, repo: str | None = None) -> Answer:
        return self._json("GET", "/status" if repo is None else f"/status?repo={quote(os.fsencode(repo))}")

    def search(self, request: SearchRequest) -> Answer:
        return self._json("POST", "/search", request.model_dump(exclude_unset=True))

    def show(self, symbol: str, repo: str | None, cwd: str) -> Answer:
        return self._json("POST", "/show", {"symbol": symbol, "repo": repo, "cwd": cwd})

    def add(self, paths: list[str], name: str | None = None) -> Answer:
        return self._json("POST", "/repositories", {"repo": paths, "name": name})

    def remove(self, path: str, purge: bool = False) -> Answer:
        return self._json("POST", "/remove", {"repo": path, "purge": purge})

    def list_(self) -> Answer:
        return self._json("GET", "/repositories")

    def skipped(self, repo: str | None, cwd: str) -> Answer:
        return self._json("POST", "/skipped", {"repo": repo, "cwd": cwd})

    def wait(self, repo: str | None, timeout_s: float, vectors: bool, cwd: str) -> Answer:
        body = {"repo": repo, "timeout": timeout_s, "vectors": vectors, "cwd": cwd}
        return self._json("POST", "/wait", body, timeout_s + _GRACE_S)

    def reconcile(self, repo: str | None = None) -> Answer:
        return self._json("POST", "/reconcile", {"repo": repo})

    def embed(self, texts: list[str], kind: str = "query") -> Answer:
        return self._json("POST", "/embed", {"texts": texts, "kind": kind})

    def health(self) -> Answer:
        return self._json("GET", "/health")

    def metrics(self) -> str:
        with self._request("GET", "/metrics", None, self.timeout_s) as response:
            return response.read().decode()

    def answers(self) -> bool:
        """Whether the daemon answers at all: one that is stopped or stuck still has its socket."""
        try:
            self._json("GET", "/health", timeout_s=_PATIENCE_S)
        except Unreachable:
            return False
        return True

    def events(self, follow: bool) -> Iterator[Answer]:
        route = f"/events?follow={str(follow).lower()}"
        with self._request("GET", route, None, None if follow else self.timeout_s) as response:
            while line := response.readline():
                yield cast("Answer", json.loads(line))

    def _json(self, verb: str, route: str, body: object = None, timeout_s: float | None = None) -> Answer:
        with self._request(verb, route, body, timeout_s or self.timeout_s) as response:
            return cast("Answer", json.loads(response.read()))

    @contextlib.contextmanager
    def _request(
        self, verb: str, route: str, body: object, timeout_s: float | None
    ) -> Iterator[http.client.HTTPResponse]:
        """Send one request and give its answer; an error answer is raised as the error it tells of."""
        connection = _UnixConnection(self.socket_path, timeout_s)
        headers = {"Connection": "close"}
        payload = None
        if body is not None:
            payload = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        try:
            connection.request(verb, route, payload, headers)
            response = connection.getresponse()
            self.server_version = response.getheader("headwatch-version")
            if response.status >= 400:
                raise _told(response.status, response.read(), route)
            yield response
        except TimeoutError as exc:
            raise Unreachable(
                f"the headwatch daemon on {self.socket_path} did not answer {route} within {timeout_s:g} s",
                hint="is it busy or stopped? see its log, or restart it",
            ) from exc
        except (OSError, http.client.HTTPException, ValueError) as exc:
            what = str(exc) or type(exc).__name__
            raise Unreachable(
                f"lost the headwatch daemon on {self.socket_path} during {route}: {what}",
                hint="did it stop? try: headwatch status",
            ) from exc
        finally:
            connection.close()


def find(socket_path: str, home: str) -> Client | None:
    """Give a client of the daemon that listens on the socket, or that keeps the home behind another one."""
    client = connect(socket_path)
    if client is None:
        from headwatch.home import socket_of_keeper

        other = socket_of_keeper(home)
        client = connect(other) if other not in (None, socket_path) else None
    return client


def connect(socket_path: str) -> Client | None:
    """Give a client when somebody listens on the socket, else None."""
    probe = _UnixConnection(socket_path, 5.0)
    try:
        probe.connect()
    except NoDaemon:
        return None
    except OSError:
        return Client(socket_path)  # somebody has it; the first request says what is wrong
    finally:
        probe.close()
    return Client(socket_path)


class _UnixConnection(http.client.HTTPConnection):
    """An HTTP connection to a Unix socket that belongs to this user."""

    def __init__(self, path: str, timeout_s: float | None) -> None:
        super().__init__("headwatch", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        """Connect, waiting a moment where the daemon's queue of connections is full."""
        me = os.geteuid()
        try:
            owner = os.stat(self._path).st_uid
        except OSError:
            raise NoDaemon(self._path) from None
        if me != 0 and owner not in (me, 0):
            raise Unreachable(
                f"the socket {self._path} belongs to user {owner}, not to you",
                hint="set HEADWATCH_SOCKET to your own",
            )
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(self.timeout)
        try:
            _connect(sock, self._path)
        except BaseException:
            sock.close()
            raise
        self.sock = sock


def _connect(sock: socket.socket, path: str) -> None:
    for pause_s in (0.01, 0.05, 0.2, 0.5, None):
        try:
            sock.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            raise NoDaemon(path) from None
        except BlockingIOError:  # EAGAIN: the backlog is full
            if pause_s is None:
                raise
            time.sleep(pause_s)
        else:
            return


def _told(status: int, body: bytes, route: str) -> HeadwatchError:
    """Turn an error answer back into the error that the daemon raised."""
    try:
        error: dict[str, Any] = json.loads(body)["error"]
        message, hint, code = str(error["message"]), str(error["hint"]), int(error.get("exit_code", 1))
    except (ValueError, KeyError, TypeError):
        message, hint, code = f"the daemon answered {route} with status {status}", "see the daemon's log", 1
    return _ERRORS.get(code, HeadwatchError)(message, hint=hint)
