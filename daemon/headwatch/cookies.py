"""Has the watcher told everything up to now? A file that it must see answers that."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time

from headwatch.hints import COOKIE_PREFIX

_STALE_S = 60.0  # no cookie is waited for so long


class Cookies:
    """Cookie files in git dirs. Safe to use from several threads."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._awaited: dict[bytes, threading.Event] = {}

    def see(self, name: bytes) -> None:
        """The watcher saw the cookie of this name."""
        if (seen := self._awaited.get(name)) is not None:
            seen.set()

    def wait(self, git_dir: str, timeout_s: float) -> None:
        """Drop a cookie and wait until it is seen; one that cannot be written is no loss, only less certain."""
        name = COOKIE_PREFIX + f"{os.getpid()}-{next(self._numbers)}".encode()
        seen = self._awaited[name] = threading.Event()
        path = os.path.join(os.fsencode(git_dir), name)
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            seen.wait(timeout_s)
        except OSError:
            return
        finally:
            del self._awaited[name]
            with contextlib.suppress(OSError):
                os.unlink(path)

    @staticmethod
    def clear(git_dir: str) -> None:
        """Remove the cookies that a killed daemon left."""
        folder = os.fsencode(git_dir)
        with contextlib.suppress(OSError):
            for name in os.listdir(folder):
                path = os.path.join(folder, name)
                if name.startswith(COOKIE_PREFIX) and time.time() - os.lstat(path).st_mtime > _STALE_S:
                    os.unlink(path)
