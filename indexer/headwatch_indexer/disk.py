"""What one file of a worktree holds right now, without following a symlink or trusting a half-written save."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Collection
from dataclasses import dataclass
from types import TracebackType

FileKey = tuple[int, int, int, int, int]  # inode, size, mtime_ns, ctime_ns, mode

# A file this young may change again under the same stat: timestamps move in ticks of milliseconds on
# Linux's own file systems, of up to two seconds elsewhere.
RACY_NS = 2_000_000_000

_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO})
_TRIES = 3
_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | getattr(os, "O_NOCTTY", 0)


class Unstable(OSError):
    """The file changed while it was read, again and again."""


@dataclass(frozen=True, slots=True)
class Look:
    """A file that was read whole between two equal stats."""

    content: bytes
    stat: os.stat_result
    read_at_ns: int  # wall clock, before the first stat


class Disk:
    """The files of one worktree, reached folder by folder from its root; a symlinked folder is no folder.

    Not for several threads. Holds at most two descriptors, so paths are best asked for in sorted order.
    """

    def __init__(self, root: str) -> None:
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._folder = b""
        self._descriptor = self._root
        self._missing: set[bytes] = set()  # folders known to be absent

    def __enter__(self) -> Disk:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()
        os.close(self._root)

    def identity(self) -> tuple[int, int]:
        """Return (device, inode) of the root that is being read."""
        found = os.fstat(self._root)
        return (found.st_dev, found.st_ino)

    def stat(self, path: bytes) -> os.stat_result | None:
        """Look at a path; None when it is absent, which was seen twice. Raises OSError when it cannot be told."""
        found = self._stat(path)
        if found is None:
            self._leave()
            self._missing.clear()
            found = self._stat(path)
            if found is None and (folder := path.rpartition(b"/")[0]) and not self._enter(folder):
                self._missing.add(folder)
        return found

    def peek(self, path: bytes) -> os.stat_result | None:
        """Look at a path once: for what is likely absent, and only matters where it is not."""
        return self._stat(path)

    def read(self, path: bytes) -> Look | None:
        """Read a regular file whole; None when it is absent or of another kind.

        Raises OSError when it cannot be read, Unstable when it never held still.
        """
        for _ in range(_TRIES):
            read_at_ns = time.time_ns()
            before = self.stat(path)
            if before is None or not stat.S_ISREG(before.st_mode):
                return None
            content = self._content(path)
            after = self.stat(path)
            if content is None or after is None or file_key(before) != file_key(after):
                continue
            if len(content) == after.st_size:
                return Look(content, after, read_at_ns)
        raise Unstable(errno.EAGAIN, "changed while it was read", os.fsdecode(path))

    def _content(self, path: bytes) -> bytes | None:
        folder, _, name = path.rpartition(b"/")
        if not self._enter(folder):
            return None
        try:
            descriptor = os.open(name, _FILE, dir_fd=self._descriptor)
        except OSError as exc:
            if exc.errno in _ABSENT:
                return None
            raise
        with open(descriptor, "rb", buffering=0) as file:
            return file.read()

    def _stat(self, path: bytes) -> os.stat_result | None:
        folder, _, name = path.rpartition(b"/")
        if not self._enter(folder):
            return None
        try:
            return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        except OSError as exc:
            if exc.errno in _ABSENT:
                return None
            raise

    def _enter(self, folder: bytes) -> bool:
        """Open a folder, name by name; False when it is absent, a symlink or no folder."""
        if folder == self._folder:
            return True
        if folder in self._missing:
            return False
        self._leave()
        descriptor = self._root
        for name in folder.split(b"/") if folder else ():
            try:
                below = os.open(name, _FOLDER, dir_fd=descriptor)
            except OSError as exc:
                if exc.errno not in _ABSENT:
                    raise
                self._missing.add(folder)
                return False
            finally:
                if descriptor != self._root:
                    os.close(descriptor)
            descriptor = below
        self._folder, self._descriptor = folder, descriptor
        return True

    def _leave(self) -> None:
        if self._descriptor != self._root:
            os.close(self._descriptor)
        self._folder, self._descriptor = b"", self._root


class StatCache:
    """Which content a file had at which stat, kept by the caller between two passes over one worktree.

    Trusted only for stats that were older than RACY_NS when the file was read.
    """

    def __init__(self) -> None:
        self._oids: dict[bytes, tuple[FileKey, str]] = {}
        self.attributes: dict[bytes, frozenset[str]] = {}  # path → set ones, while `attributes_key` stands
        self.attributes_key = ""

    def __len__(self) -> int:
        return len(self._oids)

    def oid(self, path: bytes, found: os.stat_result) -> str | None:
        """Return the blob id that the file has if its stat is the one it was read at."""
        key, oid = self._oids.get(path, (None, None))
        return oid if key == file_key(found) else None

    def remember(self, path: bytes, look: Look, oid: str) -> None:
        """Keep what was read, unless the file was so young that a second write could hide."""
        if max(look.stat.st_mtime_ns, look.stat.st_ctime_ns) < look.read_at_ns - RACY_NS:
            self._oids[path] = (file_key(look.stat), oid)
        else:
            self._oids.pop(path, None)

    def keep_only(self, paths: Collection[bytes]) -> None:
        """Forget what the last snapshot did not have."""
        for path in [path for path in self._oids if path not in paths]:
            del self._oids[path]


def file_key(found: os.stat_result) -> FileKey:
    """Reduce a stat to what changes when the file does."""
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_mode)


def blob_oid(content: bytes, object_format: str) -> str:
    """Name content by the id that git gives it."""
    digest = hashlib.new(object_format, b"blob %d\0" % len(content), usedforsecurity=False)
    digest.update(content)
    return digest.hexdigest()
