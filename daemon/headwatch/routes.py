"""Which worktrees does a changed path concern, and how? Pure: targets and a path in, hints out."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from typing import Literal

from headwatch.hints import COOKIE_PREFIX, Hint, Kind, Target

Scope = Literal["own", "shared", "worktrees", "cookie"]

SCOPE_FILES = frozenset(
    {b".gitignore", b".gitattributes", b".headwatch.toml"}
)  # they decide what is in scope

# Files of one worktree's git dir. A commit writes index; switch writes HEAD; the others mark operations.
_OPERATIONS = (
    b"MERGE_HEAD",
    b"CHERRY_PICK_HEAD",
    b"REVERT_HEAD",
    b"REBASE_HEAD",
    b"BISECT_START",
    b"BISECT_LOG",
)
_STEPS = (b"rebase-merge", b"rebase-apply", b"sequencer")
_OWN = frozenset((b"HEAD", b"index", b"config.worktree", b"info/sparse-checkout", *_OPERATIONS, *_STEPS))
_SHARED = frozenset(
    (
        b"packed-refs",
        b"shallow",
        b"config",
        b"info/exclude",
        b"info/attributes",
        b"refs",
        b"reftable/tables.list",
    )
)
_IGNORE = frozenset((b"config", b"config.worktree", b"info/exclude", b"info/attributes"))
_PRIVATE_REFS = (b"refs/bisect/", b"refs/worktree/", b"refs/rewritten/")
_LINK_FILES = frozenset((b"gitdir", b"commondir", b"locked"))
_CACHE_MAX = 10_000


def git_scope(name: bytes) -> Scope | None:
    """Tell whom a change of `name`, relative to a git dir or common dir, concerns; None: nobody."""
    if name.endswith(b".lock"):
        return None
    if name.startswith(COOKIE_PREFIX):
        return "cookie"
    if name in _OWN or name.startswith(_PRIVATE_REFS):
        return "own"
    if name in _SHARED or name.startswith(b"refs/"):
        return "shared"
    if name in _LINK_FILES or name == b"worktrees":
        return "worktrees"
    if name.startswith(b"worktrees/"):
        parts = name.split(b"/")
        if len(parts) == 2 or (len(parts) == 3 and (parts[2] in _LINK_FILES or parts[2] == b"HEAD")):
            return "worktrees"
    return None


def own_name(name: bytes) -> bytes:
    """Turn a name relative to a common dir into one relative to the git dir that it is in."""
    parts = name.split(b"/", 2)
    return parts[2] if len(parts) == 3 and parts[0] == b"worktrees" else name


def git_folder(name: bytes) -> bool:
    """Is this directory, relative to a common dir, one to watch? Never objects, hooks, lfs, logs."""
    if name in (b"", b"info", b"worktrees", b"reftable", b"refs") or name.startswith(b"refs/"):
        return True
    parts = name.split(b"/")
    return parts[0] == b"worktrees" and (len(parts) == 2 or (len(parts) == 3 and parts[2] == b"reftable"))


class Routes:
    """The registered targets, by every path that belongs to them."""

    def __init__(self, targets: Iterable[Target] = ()) -> None:
        self._by_root: defaultdict[bytes, list[int]] = defaultdict(list)
        self._by_git: defaultdict[bytes, list[int]] = defaultdict(list)
        self._by_common: defaultdict[bytes, list[int]] = defaultdict(list)
        self._common_of: dict[bytes, bytes] = {}  # git dir → common dir
        for target in targets:
            root, git, common = (os.fsencode(p) for p in (target.root, target.git_dir, target.common_dir))
            self._by_root[root].append(target.worktree)
            self._by_git[git].append(target.worktree)
            self._by_common[common].append(target.worktree)
            self._common_of[git] = common
        self._places: dict[bytes, tuple[Literal["git", "tree"], bytes] | None] = {}

    def rooted(self, root: bytes) -> list[int]:
        """The worktrees with this root."""
        return self._by_root.get(root, [])

    def hints(self, path: bytes, *, created: bool) -> list[Hint]:
        """Turn one changed absolute path into hints; none when it concerns nobody."""
        folder, _, name = path.rpartition(b"/")
        place = self._place(folder)
        if place is None:
            return []
        kind, base = place
        relative = path[len(base) + 1 :]
        if kind == "git":
            return self._git_hints(base, relative, created)
        if name == b".git":
            return []
        tree_kind: Kind = "ignore" if name in SCOPE_FILES else "path"
        return [Hint(worktree, tree_kind, relative) for worktree in self._by_root[base]]

    def _git_hints(self, base: bytes, name: bytes, created: bool) -> list[Hint]:
        kind: Kind = "ignore" if name in _IGNORE else "git"
        match git_scope(name):
            case "cookie":
                return [Hint(w, "cookie", name) for w in self._by_git.get(base, [])] if created else []
            case "own":
                return [Hint(w, kind, name) for w in self._by_git.get(base, [])]
            case "shared":
                return [Hint(w, kind, name) for w in self._by_common.get(base, self._by_git.get(base, []))]
            case "worktrees":
                return self._worktrees_hint(base)
            case None:
                return []

    def _worktrees_hint(self, base: bytes) -> list[Hint]:
        """Tell one worktree of the clone: the main one where it is registered, else the oldest."""
        common = self._common_of.get(base, base)
        speakers = self._by_git.get(common) or sorted(self._by_common.get(common, []))
        return [Hint(speakers[0], "worktrees")] if speakers else []

    def _place(self, folder: bytes) -> tuple[Literal["git", "tree"], bytes] | None:
        """Find what a directory is part of: the deepest git dir, common dir or root above it."""
        if folder in self._places:
            return self._places[folder]
        place: tuple[Literal["git", "tree"], bytes] | None = None
        at = folder
        while at:
            if at in self._by_git or at in self._by_common:
                place = ("git", at)
                break
            if at in self._by_root:
                place = ("tree", at)
                break
            at, _, name = at.rpartition(b"/")
            if name == b".git":  # inside a git dir that is not registered
                break
        if len(self._places) >= _CACHE_MAX:
            self._places.clear()
        self._places[folder] = place
        return place
