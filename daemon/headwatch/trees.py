"""Which directories of a worktree are watched: armed first, listed second, pruned by git's ignore rules."""

from __future__ import annotations

import errno
import os
from collections import defaultdict
from collections.abc import Iterable

from headwatch.hints import Target
from headwatch.outside import Ignored
from headwatch.watches import Folder, Found, Watches, entries_of, inode_of
from headwatch_indexer.errors import HeadwatchError

Seed = tuple[Folder, bytes]  # a watched folder, and the name of a directory in it that is to be watched


class Trees:
    """The watched directories of all worktrees."""

    def __init__(self, watches: Watches, ignored: Ignored) -> None:
        self._watches = watches
        self._ignored = ignored
        self._roots: dict[Target, Folder] = {}
        self._pruned: defaultdict[Target, set[bytes]] = defaultdict(set)  # ignored, and nested repositories

    def add(self, target: Target) -> None:
        """Watch the directories of a worktree that are in scope."""
        root = self._watches.arm(os.fsencode(target.root), target)
        if root is not None:
            self._roots[target] = root
            self._grow(target, self._list(root, Found()), Found())

    def remove(self, target: Target) -> None:
        """Stop watching a worktree."""
        root = self._roots.pop(target, None)
        if root is not None:
            self._watches.drop(root)
        self._pruned.pop(target, None)
        self._watches.short.pop(target, None)

    def grow(self, target: Target, seeds: list[Seed]) -> Found:
        """Watch new directories and all beneath them; tell the files that are already there."""
        found = Found()
        self._grow(target, seeds, found)
        return found

    def prune(self, target: Target, folder: Folder) -> None:
        """A repository of its own appeared in a folder: leave that alone from now on."""
        self._pruned[target].add(folder.path)
        self._watches.drop(folder)

    def vanished(self, target: Target, parent: Folder, name: bytes) -> bool:
        """A directory was deleted or moved away: unwatch all of it. False when it never mattered."""
        child = parent.children.get(name)
        if child is not None:
            self._watches.drop(child)
        pruned = self._pruned[target]
        mattered = parent / name not in pruned
        pruned.discard(parent / name)
        return mattered

    def rejudge(self, target: Target) -> Found:
        """The ignore rules changed: unwatch what they ignore now, watch what they no longer do."""
        found = Found()
        root = self._roots.get(target)
        if root is None or not root.armed:
            return found
        folders = {folder.path: folder for folder in root.walk()}
        pruned = self._pruned.pop(target, set())
        ignored = self._ask(target, folders.keys() - {root.path} | pruned)
        if ignored is None:
            self._pruned[target] = pruned
            return found
        for path in sorted(ignored):
            folder = folders.get(path)
            if folder is None or folder.armed:  # else it went with the folder above it
                self._pruned[target].add(path)
            if folder is not None:
                self._watches.drop(folder)
        seeds = []
        for path in pruned - ignored:
            above, _, name = path.rpartition(b"/")
            if above in folders:
                seeds.append((folders[above], name))
        self._grow(target, seeds, found)
        return found

    def relist(self, target: Target) -> None:
        """Find directories that came, went or were replaced unseen; the others keep their watches."""
        self._watches.short.pop(target, None)
        root = self._roots.get(target)
        if root is None or not root.armed:
            self.add(target)
            return
        seeds: list[Seed] = []
        stack = [root]
        while stack:
            folder = stack.pop()
            if folder is not root and _is_repository(folder.path):
                self.prune(target, folder)
                continue
            names = {name for _, name in self._list(folder, Found())}
            for name in folder.children.keys() - names:
                self._watches.drop(folder.children[name])
            for name in names:
                child = folder.children.get(name)
                if child is not None and child.inode == inode_of(child.path):
                    stack.append(child)
                elif folder / name not in self._pruned[target]:
                    seeds.append((folder, name))
        self._grow(target, seeds, Found())

    def _grow(self, target: Target, level: list[Seed], found: Found) -> None:
        """Arm, then list, one level after the other: one question to git a level."""
        while level:
            parents = {parent / name: parent for parent, name in level if parent.armed}
            ignored = self._ask(target, parents)
            if ignored is None:
                return
            level = []
            for path, parent in parents.items():
                if path in ignored:
                    self._pruned[target].add(path)
                    continue
                folder = self._watches.arm(path, target, parent)
                if folder is None:
                    continue
                if _is_repository(path):
                    self.prune(target, folder)
                    continue
                level += self._list(folder, found)

    def _list(self, folder: Folder, found: Found) -> list[Seed]:
        """List a watched directory: its files go to `found`, its directories are returned."""
        directories = []
        for name, is_directory in entries_of(folder.path):
            if is_directory and name != b".git":
                directories.append((folder, name))
            elif not is_directory:
                found.add(folder / name)
        return directories

    def _ask(self, target: Target, paths: Iterable[bytes]) -> set[bytes] | None:
        """Ask git what it ignores; None, and to be tried again, when it cannot say."""
        prefix = os.fsencode(target.root) + b"/"
        relative = [path.removeprefix(prefix) for path in paths]
        try:
            return {prefix + path for path in self._ignored(target, relative)} if relative else set()
        except (HeadwatchError, OSError):
            self._watches.short[target] = errno.EAGAIN
            return None


def _is_repository(path: bytes) -> bool:
    """Is there a repository, linked worktree or submodule of its own?"""
    return os.path.lexists(path + b"/.git")
