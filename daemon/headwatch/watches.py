"""One watched directory after the other: what the kernel watches for us, and in which roles."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from headwatch import inotify
from headwatch.hints import Target

Owner = Target | bytes | None  # a worktree's tree; a part of that git dir; or a folder above a root

_MASK = (
    inotify.IN_CLOSE_WRITE
    | inotify.IN_MODIFY
    | inotify.IN_MOVED_FROM
    | inotify.IN_MOVED_TO
    | inotify.IN_CREATE
    | inotify.IN_DELETE
    | inotify.IN_DELETE_SELF
    | inotify.IN_MOVE_SELF
)
_MASK_ABOVE = inotify.IN_DELETE_SELF | inotify.IN_MOVE_SELF
# MASK_ADD: a folder above one root may lie inside another, and one watch serves both.
_FLAGS = inotify.IN_ONLYDIR | inotify.IN_DONT_FOLLOW | inotify.IN_EXCL_UNLINK | inotify.IN_MASK_ADD
_EXHAUSTED = frozenset({errno.ENOSPC, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSYS})
_FOUND_MAX = 512


@dataclass(slots=True, eq=False)
class Folder:
    """One watched directory in one role. A moved one is dropped and armed anew: `path` never changes."""

    path: bytes
    wd: int  # -1 once dropped
    inode: int
    owner: Owner
    parent: Folder | None = None
    children: dict[bytes, Folder] = field(default_factory=dict)

    def __truediv__(self, name: bytes) -> bytes:
        return self.path + b"/" + name

    @property
    def armed(self) -> bool:
        """Is it still watched?"""
        return self.wd >= 0

    def walk(self) -> Iterator[Folder]:
        """This folder and all beneath it, parents first."""
        stack: list[Folder] = [self]
        while stack:
            folder = stack.pop()
            yield folder
            stack.extend(folder.children.values())


@dataclass(slots=True)
class Found:
    """Files that a listing met: up to 512 by name, then only that there are more."""

    paths: list[bytes] = field(default_factory=list)
    overflow: bool = False

    def add(self, path: bytes) -> None:
        """Note one file."""
        if len(self.paths) < _FOUND_MAX:
            self.paths.append(path)
        else:
            self.overflow = True


class Watches:
    """All watches of one inotify instance. Not thread-safe: its owner holds a lock."""

    def __init__(self, kernel: inotify.Inotify, budget: int) -> None:
        self.budget = budget
        self.by_wd: dict[int, list[Folder]] = {}
        self.short: dict[Owner, int] = {}  # owners with unwatched directories, and why: 0 budget, else errno
        self._kernel = kernel

    def arm(self, path: bytes, owner: Owner, parent: Folder | None = None) -> Folder | None:
        """Watch one directory; None when it is gone, a symlink, unreadable, or one too many.

        The budget binds worktrees only: without its few git dirs a worktree would not be followed at all.
        """
        if isinstance(owner, Target) and len(self.by_wd) >= self.budget:
            self.short.setdefault(owner, 0)
            return None
        try:
            wd = self._kernel.add(path, (_MASK_ABOVE if owner is None else _MASK) | _FLAGS)
        except OSError as error:
            if error.errno in _EXHAUSTED and owner is not None:
                self.short[owner] = error.errno
            return None
        for other in self.by_wd.get(wd, ()):
            if other.owner == owner and other.path == path:
                return other
            if other.owner == owner:  # it was moved here, and that event is yet to be read
                self._disown(other)
                break
        if parent is not None and (replaced := parent.children.get(name_of(path))) is not None:
            self.drop(replaced)
        folder = Folder(path, wd, inode_of(path), owner, parent)
        self.by_wd.setdefault(wd, []).append(folder)
        if parent is not None:
            parent.children[name_of(path)] = folder
        return folder

    def drop(self, folder: Folder) -> None:
        """Stop watching a folder and all beneath it."""
        self._unlink(folder)
        for below in list(folder.walk()):
            self._release(below)

    def expired(self, wd: int) -> list[Folder]:
        """The kernel let go of a watch, for the directory is no more; returns the folders it was."""
        folders = list(self.by_wd.get(wd, ()))
        for folder in folders:
            self.drop(folder)
        return folders

    def _release(self, folder: Folder) -> None:
        roles = self.by_wd.get(folder.wd, [])
        if folder in roles:
            roles.remove(folder)
            if not roles:
                del self.by_wd[folder.wd]
                self._kernel.remove(folder.wd)
        folder.wd = -1

    def _disown(self, folder: Folder) -> None:
        """Forget where a moved folder was, but keep its watch for the one who arms it now."""
        self._unlink(folder)
        for child in list(folder.children.values()):
            self.drop(child)
        self.by_wd[folder.wd].remove(folder)
        folder.wd = -1

    def _unlink(self, folder: Folder) -> None:
        if folder.parent is not None and folder.parent.children.get(name_of(folder.path)) is folder:
            del folder.parent.children[name_of(folder.path)]


def entries_of(path: bytes) -> list[tuple[bytes, bool]]:
    """List a directory as (name, is a directory); what cannot be listed is empty. Symlinks are files."""
    try:
        with os.scandir(path) as entries:
            return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    except OSError:
        return []


def inode_of(path: bytes) -> int:
    """The inode number at a path; 0 when there is none."""
    try:
        return os.lstat(path).st_ino
    except OSError:
        return 0


def name_of(path: bytes) -> bytes:
    """The last part of a path."""
    return path.rpartition(b"/")[2]
