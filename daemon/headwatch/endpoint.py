"""Who owns the Unix socket: one live daemon, proven by a lock that dies with its process."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import stat
from types import TracebackType
from typing import Self

from headwatch.client import Client
from headwatch_indexer.errors import HeadwatchError


class SocketTaken(HeadwatchError):
    """Another daemon, or something that is no daemon, holds the path of the socket."""


class Claim:
    """The right to serve on one path, held by this process until `close`.

    Claiming comes first when a daemon opens, listening last: in between nobody can connect, and a second
    daemon already learns that it is one too many.
    """

    def __init__(self, path: str, home: str) -> None:
        """Take the path.

        Raises SocketTaken, naming the holder, when a live daemon has it or when it is not a socket.
        """
        self.path = path
        self.home = home
        _private_folder(os.path.dirname(path))
        self._made: tuple[int, int, int] | None = None
        self._lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            self._take()
        except BaseException:
            os.close(self._lock)
            raise

    def _take(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _taken(self.path, _holder(self._lock)) from None
        _remove_stale(self.path)
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, json.dumps({"pid": os.getpid(), "home": self.home}).encode(), 0)

    def listen(self) -> socket.socket:
        """Bind the socket, 0600, and listen."""
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with contextlib.suppress(OSError):
                os.fchmod(server.fileno(), 0o600)  # Linux: the mode that bind gives the file
            server.bind(self.path)
            os.chmod(self.path, 0o600)
            server.listen(256)
        except OSError as exc:
            server.close()
            raise SocketTaken(
                f"cannot listen on the socket {self.path}: {exc.strerror or exc}",
                hint="set HEADWATCH_SOCKET to a path in a folder of your own",
            ) from exc
        self._made = _identity(self.path)
        return server

    def close(self) -> None:
        """Remove the socket if it is still ours, and let go of the path."""
        if self._lock < 0:
            return
        with contextlib.suppress(FileNotFoundError):
            if self._made is not None and _identity(self.path) == self._made:
                os.unlink(self.path)
        with contextlib.suppress(OSError):
            os.ftruncate(self._lock, 0)
        os.close(self._lock)
        self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()


def _identity(path: str) -> tuple[int, int, int]:
    """Tell one file at a path from the next: inode numbers alone are used again at once."""
    found = os.lstat(path)
    return found.st_dev, found.st_ino, found.st_mtime_ns


def _private_folder(folder: str) -> None:
    """Make the socket's folder and what is missing above it, 0700; refuse one where others could meddle."""
    hint = "set HEADWATCH_SOCKET to a path in a folder of your own"
    try:
        _make_private(folder)
        found = os.stat(folder)
    except OSError as exc:
        raise SocketTaken(f"cannot make the socket's folder {folder}: {exc.strerror}", hint=hint) from exc
    if found.st_uid not in (os.geteuid(), 0):
        raise SocketTaken(
            f"cannot use the socket's folder {folder}: it belongs to user {found.st_uid}", hint=hint
        )
    if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
        raise SocketTaken(f"cannot use the socket's folder {folder}: other users may write to it", hint=hint)


def _make_private(folder: str) -> None:
    if not os.path.isdir(folder):
        _make_private(os.path.dirname(folder))
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)


def _remove_stale(path: str) -> None:
    """Remove the socket of a dead daemon: it is one, and nobody answers."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise SocketTaken(
            f"cannot listen on {path}: it is not a socket",
            hint="move it away, or set HEADWATCH_SOCKET to another path",
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(2.0)
        try:
            probe.connect(path)
        except TimeoutError:
            pass  # somebody listens, and is busy
        except OSError as exc:
            if exc.errno not in (errno.ECONNREFUSED, errno.ENOENT):
                raise SocketTaken(
                    f"cannot look at the socket {path}: {exc.strerror}", hint="see headwatch doctor"
                ) from exc
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            return
    raise _taken(path, {})


def _holder(lock: int) -> dict[str, object]:
    """Read who holds the lock, as the holder wrote it."""
    try:
        told = json.loads(os.pread(lock, 4096, 0))
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _taken(path: str, told: dict[str, object]) -> SocketTaken:
    """Name the live daemon: by its own answer, else by what stands in the lock file."""
    with contextlib.suppress(HeadwatchError):
        told = told | Client(path, timeout_s=2.0).health()
    who = f"pid {told.get('pid', 'unknown')}, home {told.get('home', 'unknown')}"
    return SocketTaken(
        f"cannot listen on {path}: another headwatch daemon holds it ({who})",
        hint="use that one (headwatch status), stop it first, or give this one a HEADWATCH_HOME of its own",
    )
