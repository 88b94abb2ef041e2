"""Which registered worktree a path means: never silently another one."""

from __future__ import annotations

import os
from collections.abc import Sequence

from headwatch.protocol import UnknownWorktree
from headwatch_indexer.store import WorktreeRow


def worktree_of(path: str, known: Sequence[WorktreeRow]) -> WorktreeRow:
    """Find the worktree that a path lies in: the nearest `.git` above it decides, not the longest known root.

    Raises UnknownWorktree, naming what is registered, for any other path.
    """
    asked = os.path.realpath(path)
    by_root = {worktree.root: worktree for worktree in known}
    at = asked
    while True:
        if at in by_root:
            return by_root[at]
        if os.path.lexists(os.path.join(at, ".git")) or at == os.path.dirname(at):
            break
        at = os.path.dirname(at)
    roots = ", ".join(sorted(by_root)) or "none"
    raise UnknownWorktree(
        f"{path} is in no registered worktree",
        hint=f"register it with: headwatch add {path}; registered: {roots}",
    )
