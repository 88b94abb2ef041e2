"""Linux's inotify as it is: one descriptor, add, remove, wait, read."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import struct
from typing import NamedTuple

IN_MODIFY = 0x2
IN_CLOSE_WRITE = 0x8
IN_MOVED_FROM = 0x40
IN_MOVED_TO = 0x80
IN_CREATE = 0x100
IN_DELETE = 0x200
IN_DELETE_SELF = 0x400
IN_MOVE_SELF = 0x800
IN_UNMOUNT = 0x2000
IN_Q_OVERFLOW = 0x4000
IN_IGNORED = 0x8000
IN_ONLYDIR = 0x0100_0000
IN_DONT_FOLLOW = 0x0200_0000
IN_EXCL_UNLINK = 0x0400_0000
IN_MASK_ADD = 0x2000_0000
IN_ISDIR = 0x4000_0000

_HEADER = struct.Struct("iIII")  # wd, mask, cookie, length of the name
_READ_BYTES = 256 * 1024


class RawEvent(NamedTuple):
    """One struct inotify_event. Moves are not paired: the cookie is left out."""

    wd: int
    mask: int
    name: bytes


class Inotify:
    """One inotify instance, and a way to wake the thread that waits for it.

    Where no instance can be had (EMFILE: fs.inotify.max_user_instances), every `add` raises that OSError
    until `reopen` succeeds; `wait` and `wake` work all the same.
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = select.poll()
        self._poll.register(self._wake, select.POLLIN)
        self._fd = -1
        self._errno = 0
        self.reopen()

    def reopen(self) -> bool:
        """Ask for an instance again if there is none; True when there is one now."""
        if self._fd < 0:
            self._fd = self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
            self._errno = ctypes.get_errno()
            if self._fd >= 0:
                self._poll.register(self._fd, select.POLLIN)
        return self._fd >= 0

    def add(self, path: bytes, mask: int) -> int:
        """Watch a directory; the descriptor of one that is watched already comes back unchanged."""
        if self._fd < 0:
            raise OSError(self._errno, "no inotify instance", os.fsdecode(path))
        wd: int = self._libc.inotify_add_watch(self._fd, path, mask)
        if wd < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), os.fsdecode(path))
        return wd

    def remove(self, wd: int) -> None:
        """Stop watching; fine if the kernel has let go of it already."""
        if self._fd >= 0:
            self._libc.inotify_rm_watch(self._fd, wd)

    def wait(self, timeout_s: float | None) -> None:
        """Block until there is something to read, `wake` was called, or the time is up."""
        self._poll.poll(None if timeout_s is None else max(0.0, timeout_s) * 1000)
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake)

    def wake(self) -> None:
        """Let `wait` return, from any thread; nothing to do once closed."""
        if self._wake >= 0:
            os.eventfd_write(self._wake, 1)

    def read(self) -> list[RawEvent]:
        """Take what the kernel has queued, up to 256 KiB of it, without blocking."""
        if self._fd < 0:
            return []
        try:
            data = os.read(self._fd, _READ_BYTES)
        except BlockingIOError:
            return []
        return parse(data)

    def close(self) -> None:
        """Give the descriptors back."""
        for fd in (self._fd, self._wake):
            if fd >= 0:
                os.close(fd)
        self._fd, self._wake, self._errno = -1, -1, errno.EBADF


def parse(data: bytes) -> list[RawEvent]:
    """Cut what the kernel wrote into events; names lose their padding."""
    events, at = [], 0
    while at < len(data):
        wd, mask, _, length = _HEADER.unpack_from(data, at)
        at += _HEADER.size
        events.append(RawEvent(wd, mask, data[at : at + length].rstrip(b"\0")))
        at += length
    return events
