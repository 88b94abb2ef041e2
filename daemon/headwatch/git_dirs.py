"""Which directories of git dirs are watched, and which above them: five for a plain repository."""

from __future__ import annotations

from headwatch.hints import COOKIE_PREFIX
from headwatch.routes import git_folder
from headwatch.watches import Folder, Found, Watches, entries_of, inode_of


class GitDirs:
    """The watched folders of git dirs and common dirs, each by its base."""

    def __init__(self, watches: Watches) -> None:
        self._watches = watches
        self._bases: dict[bytes, Folder] = {}
        self._above: dict[bytes, Folder] = {}

    def add(self, base: bytes) -> list[bytes]:
        """Watch a git dir, and what of it is not watched yet; returns the cookies that lie there."""
        known = self._bases.get(base)
        if known is not None and (not known.armed or known.inode != inode_of(base)):
            self.remove(base)
        self._watches.short.pop(base, None)
        folder = self._watches.arm(base, base)
        found = Found()
        if folder is not None:
            self._bases[base] = folder
            self._list(folder, found)
        return [base + b"/" + name for name, _ in entries_of(base) if name.startswith(COOKIE_PREFIX)]

    def grow(self, parent: Folder, name: bytes) -> Found:
        """Watch a new folder, and those beneath it; tell the files that are already there.

        The directories of a new branch `feat/a/b` can outrun the watch and give no event at all.
        """
        found = Found()
        if parent.armed:
            self._grow(parent, name, found)
        return found

    def vanished(self, parent: Folder, name: bytes) -> None:
        """A folder was deleted: pack-refs removes emptied ones."""
        child = parent.children.get(name)
        if child is not None:
            self._watches.drop(child)

    def remove(self, base: bytes) -> None:
        """Stop watching a git dir."""
        folder = self._bases.pop(base, None)
        if folder is not None:
            self._watches.drop(folder)
        self._watches.short.pop(base, None)

    def set_above(self, paths: set[bytes]) -> None:
        """Watch these directories for being moved or deleted themselves, and no others."""
        for path, folder in list(self._above.items()):
            if path not in paths or not folder.armed or folder.inode != inode_of(path):
                self._watches.drop(self._above.pop(path))
        for path in paths - self._above.keys():
            armed = self._watches.arm(path, None)
            if armed is not None:
                self._above[path] = armed

    def _grow(self, parent: Folder, name: bytes, found: Found) -> None:
        path = parent / name
        known = parent.children.get(name)
        if known is not None and known.inode != inode_of(path):
            self._watches.drop(known)
        folder = self._watches.arm(path, parent.owner, parent)
        if folder is not None:
            self._list(folder, found)

    def _list(self, folder: Folder, found: Found) -> None:
        base = folder.owner
        assert isinstance(base, bytes)
        for name, is_directory in entries_of(folder.path):
            if not is_directory:
                found.add(folder / name)
            elif git_folder((folder / name)[len(base) + 1 :]):
                self._grow(folder, name, found)
