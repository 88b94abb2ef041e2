"""What the watcher tells: hints about worktrees. Git is asked for the truth afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["path", "git", "rescan", "ignore", "cookie", "worktrees", "gone"]

COOKIE_PREFIX = b"headwatch-cookie-"  # a file of this name in a git dir comes back as a "cookie" hint


@dataclass(frozen=True, slots=True)
class Hint:
    """Where to look. Wrong or doubled hints cost time, never correctness.

    path       something at `path` changed; a directory stands for all that was or is beneath it
    git        `path` inside the git dir or common dir changed (`HEAD`, `refs/heads/main`)
    rescan     anything may have changed
    ignore     the rules of what is in scope changed; `path` is the file when it lies in the worktree
    cookie     the file `path` appeared in the git dir: every earlier change has been hinted at
    worktrees  the list of linked worktrees of this clone changed (told to one worktree of the clone)
    gone       the root or the git dir was deleted, moved or replaced; "rescan" follows when it is back
    """

    worktree: int
    kind: Kind
    path: bytes | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """One worktree to watch. Paths are absolute and free of symlinks, as git gives them."""

    worktree: int
    root: str
    git_dir: str
    common_dir: str
