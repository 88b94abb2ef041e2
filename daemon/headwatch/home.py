"""Who keeps a home: one daemon, whatever its socket, proven by a lock that dies with its process."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator

from headwatch_indexer.errors import HeadwatchError

_LOCK = "daemon.lock"


class HomeTaken(HeadwatchError):
    """Another daemon keeps this home."""


def ensure(home: str) -> None:
    """Make the data directory, 0700. Raises HeadwatchError where it cannot be one."""
    try:
        os.makedirs(home, mode=0o700, exist_ok=True)
    except OSError as exc:
        raise HeadwatchError(
            f"cannot use the data directory {home}: {exc.strerror or exc}",
            hint="set HEADWATCH_HOME to a folder that you may write to",
        ) from None


@contextlib.contextmanager
def claim(home: str, socket: str) -> Iterator[None]:
    """Keep a home until the context ends; `socket` tells others where to ask.

    Raises HomeTaken, naming the holder.
    """
    ensure(home)
    lock = os.open(os.path.join(home, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            told = _read(lock)
            raise HomeTaken(
                f"cannot use {home}: another headwatch daemon keeps it "
                f"(pid {told.get('pid', 'unknown')}, socket {told.get('socket', 'unknown')})",
                hint="use that one (headwatch status), stop it first, or give this one a HEADWATCH_HOME of its own",
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, json.dumps({"pid": os.getpid(), "socket": socket}).encode(), 0)
        yield
        os.ftruncate(lock, 0)
    finally:
        os.close(lock)


def socket_of_keeper(home: str) -> str | None:
    """The socket of the daemon that keeps a home now; None where nobody does."""
    try:
        lock = os.open(os.path.join(home, _LOCK), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        told = _read(lock).get("socket")
        return told if isinstance(told, str) else None
    finally:
        os.close(lock)
    return None


def _read(lock: int) -> dict[str, object]:
    with contextlib.suppress(ValueError):
        told = json.loads(os.pread(lock, 4096, 0))
        if isinstance(told, dict):
            return told
    return {}
