"""Which worktrees are kept: registered by path, linked ones found by themselves, removed ones retired."""

from __future__ import annotations

import os
from dataclasses import dataclass

from headwatch_indexer import git, store
from headwatch_indexer.store.catalog import ensure_tenant


@dataclass(frozen=True, slots=True)
class Discovery:
    """What a look at git's own list of worktrees changed."""

    added: tuple[str, ...]  # roots
    retired: tuple[int, ...]  # worktree ids


def add(
    conn: store.Connection, path: str, *, host: str, user_home: str, name: str | None = None
) -> list[store.WorktreeRow]:
    """Register the worktree at a path, and every other worktree of its repository; the named one comes first.

    Raises GitFailed or WrongUsage where the path is no worktree that can be watched.
    """
    ensure_tenant(conn)
    location = git.locate(path, home=user_home)
    identity = git.identity(location)
    first = store.register(conn, location, identity, host=host, name=name)
    store.set_let_go(conn, first.clone_id, ())
    others = [
        store.register(conn, linked, identity, host=host, name=None)
        for linked in git.worktrees(location.root)
        if linked.root != location.root
    ]
    return [first, *others]


def discover(conn: store.Connection, *, host: str) -> Discovery:
    """Compare the registered worktrees with git's own lists: new ones are added, removed ones retired.

    A clone whose git fails, or whose common dir is gone, keeps its rows. What was removed by hand stays removed.
    """
    known = store.worktrees(conn, host=host)
    added: list[str] = []
    retired: list[int] = []
    for common_dir in dict.fromkeys(w.common_dir for w in known):
        mine = [w for w in known if w.common_dir == common_dir]
        if not os.path.isdir(common_dir):
            continue
        try:
            listed = git.worktrees(common_dir)
        except (git.GitFailed, git.NotARepository):
            continue
        identity = _identity(conn, mine[0])
        if identity is None:  # removed meanwhile
            continue
        git_dirs = {location.git_dir for location in listed}
        for worktree in mine:  # first, since another worktree may lie where a retired one lay
            if worktree.git_dir not in git_dirs and _is_retired(worktree):
                store.forget_worktree(conn, worktree.id)
                retired.append(worktree.id)
        let_go = store.let_go(conn, mine[0].clone_id)
        store.set_let_go(conn, mine[0].clone_id, let_go & git_dirs)
        for location in listed:
            if location.git_dir in let_go:
                continue
            if (location.root, location.git_dir) not in {(w.root, w.git_dir) for w in mine}:
                store.register(conn, location, identity, host=host, name=None)
                if location.git_dir not in {w.git_dir for w in mine}:
                    added.append(location.root)
    return Discovery(tuple(added), tuple(retired))


def _is_retired(worktree: store.WorktreeRow) -> bool:
    """Tell a removed linked worktree from the main one, and from one that is locked and out of reach for now."""
    linked = worktree.git_dir != worktree.common_dir
    return linked and not os.path.exists(f"{worktree.git_dir}/locked")


def _identity(conn: store.Connection, worktree: store.WorktreeRow) -> str | None:
    repositories = store.repositories(conn)
    return next((r.identity for r in repositories if r.id == worktree.repository_id), None)
