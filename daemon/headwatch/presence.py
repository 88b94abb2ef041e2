"""Is every watched worktree still the one that was registered, and which directories does that hang on?"""

from __future__ import annotations

import os
import stat

from headwatch.hints import Target

Identity = tuple[tuple[int, int], tuple[int, int]]  # (device, inode) of root and git dir


def bases_of(target: Target) -> set[bytes]:
    """The git dirs to watch for a target: its common dir, and its git dir where that is not beneath it."""
    git_dir, common_dir = os.fsencode(target.git_dir), os.fsencode(target.common_dir)
    linked = git_dir.rpartition(b"/")[0] == common_dir + b"/worktrees"
    return {common_dir} if linked else {common_dir, git_dir}


class Presence:
    """The registered targets, and what stood at their paths when they were armed."""

    def __init__(self) -> None:
        self._identities: dict[Target, Identity | None] = {}  # None: gone

    def add(self, target: Target) -> None:
        """Register a target; it counts as gone until it is found."""
        self._identities.setdefault(target, None)

    def remove(self, target: Target) -> None:
        """Forget a target."""
        self._identities.pop(target, None)

    def find(self, target: Target) -> bool:
        """Look for a target; from now on it is known by what stands at its paths now."""
        if target not in self._identities:
            return False
        self._identities[target] = _identity(target)
        return self._identities[target] is not None

    def lose(self, target: Target) -> None:
        """Note that a target is gone."""
        self._identities[target] = None

    def here(self) -> list[Target]:
        """The targets that are not gone, as far as is known."""
        return [target for target, identity in self._identities.items() if identity is not None]

    def changed(self) -> list[Target]:
        """The targets that are not where, or not what, they were."""
        return [target for target in self.here() if _identity(target) != self._identities[target]]

    def bases(self) -> set[bytes]:
        """The git dirs to watch for all targets."""
        return {base for target in self._identities for base in bases_of(target)}

    def sharing(self, base: bytes) -> list[Target]:
        """The targets that are there and hang on this git dir."""
        return [target for target in self.here() if base in bases_of(target)]

    def above(self) -> set[bytes]:
        """Every directory but / whose move or deletion takes a root or git dir along."""
        above = set()
        for target in self._identities:
            for path in (target.root, target.git_dir, target.common_dir):
                at = os.fsencode(path).rpartition(b"/")[0]
                while at:
                    above.add(at)
                    at = at.rpartition(b"/")[0]
        return above


def _identity(target: Target) -> Identity | None:
    identities = []
    for path in (target.root, target.git_dir):
        try:
            status = os.lstat(path)
        except OSError:
            return None
        if not stat.S_ISDIR(status.st_mode):
            return None
        identities.append((status.st_dev, status.st_ino))
    return identities[0], identities[1]
