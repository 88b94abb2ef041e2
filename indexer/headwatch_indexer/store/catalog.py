"""Repositories, clones and worktrees: who is registered, and what their proof says."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from psycopg.rows import class_row

from headwatch_indexer.records import Location
from headwatch_indexer.store.connection import Connection, translate
from headwatch_sql import queries

_SQL = queries("catalog")


@dataclass(frozen=True, slots=True)
class RepositoryRow:
    """A registered repository."""

    id: int
    name: str
    identity: str
    object_format: str
    default_branch: str | None


@dataclass(frozen=True, slots=True)
class WorktreeRow:
    """One worktree's freshness proof and where it lives."""

    id: int
    repository_id: int
    clone_id: int
    root: str
    git_dir: str
    common_dir: str
    object_format: str
    branch: str | None
    live_head: str | None
    indexed_head: str | None
    dirty_digest: str
    dirty_files: int
    files: int
    symbols: int
    skipped: int
    generation: int
    state: str
    reason: str | None
    reflog_cursor: object
    applied_at: datetime | None

    @property
    def location(self) -> Location:
        bare = self.root == self.git_dir  # the git dir of a checkout is never its root
        return Location(self.root, self.git_dir, self.common_dir, self.object_format, bare)


def ensure_tenant(conn: Connection) -> None:
    """Make sure that the session's tenant has its row."""
    with translate():
        conn.execute(_SQL["ensure_tenant"])


def register(
    conn: Connection, location: Location, identity: str, *, host: str, name: str | None
) -> WorktreeRow:
    """Register a worktree with its clone and repository; the same again returns the same row.

    A worktree whose folder moved keeps its row: it is known by its git dir.
    """
    with translate(), conn.transaction():
        known = conn.execute(
            _SQL["repository_of"], {"host": host, "common_dir": location.common_dir}
        ).fetchone()
        repository_id = (
            known[0]  # an object database stays with its repository, whatever becomes of its origin
            if known
            else _one(
                conn,
                "register_repository",
                name=name or default_name(identity, location),
                identity=identity,
                object_format=location.object_format,
            )
        )
        if name:
            conn.execute(_SQL["rename_repository"], {"id": repository_id, "name": name})
        clone_id = _one(
            conn, "register_clone", repository_id=repository_id, host=host, common_dir=location.common_dir
        )
        values = {
            "repository_id": repository_id,
            "clone_id": clone_id,
            "root": location.root,
            "git_dir": location.git_dir,
        }
        conn.execute(_SQL["make_way"], values)
        if not conn.execute(_SQL["worktree_moved"], values).fetchone():
            conn.execute(_SQL["register_worktree"], values)
    found = worktree_at(conn, location.root, host=host)
    assert found is not None
    return found


def default_name(identity: str, location: Location) -> str:
    """Name a repository by the last part of its origin, else by its folder."""
    if "/" in identity and not identity.startswith(("root:", "path:")):
        return identity.rsplit("/", 1)[1]
    common = location.common_dir.rstrip("/")
    folder = os.path.dirname(common) if os.path.basename(common) == ".git" else common
    return os.path.basename(folder).removesuffix(".git")


def rename_repository(conn: Connection, repository_id: int, name: str) -> None:
    """Give a repository another display name."""
    with translate():
        conn.execute(_SQL["rename_repository"], {"id": repository_id, "name": name})


def repositories(conn: Connection) -> list[RepositoryRow]:
    """List repositories that have a worktree here, by name."""
    with translate(), conn.cursor(row_factory=class_row(RepositoryRow)) as cursor:
        return cursor.execute(_SQL["repositories"]).fetchall()


def worktrees(conn: Connection, *, host: str) -> list[WorktreeRow]:
    """List the worktrees of this host, by id."""
    with translate(), conn.cursor(row_factory=class_row(WorktreeRow)) as cursor:
        return cursor.execute(_SQL["worktrees"], {"host": host}).fetchall()


def worktree_at(conn: Connection, root: str, *, host: str) -> WorktreeRow | None:
    """Find the worktree whose root is `root` on this host."""
    return next((w for w in worktrees(conn, host=host) if w.root == root), None)


def is_registered(conn: Connection, worktree_id: int) -> bool:
    """Whether a worktree's row is still there."""
    with translate():
        return conn.execute(_SQL["is_registered"], {"id": worktree_id}).fetchone() is not None


def mark(
    conn: Connection, worktree_id: int, *, state: str, reason: str | None = None, live_head: str | None = None
) -> None:
    """Write a worktree's state, and its live head when one is given; nothing is written when nothing changes."""
    with translate():
        conn.execute(
            _SQL["mark"], {"id": worktree_id, "state": state, "reason": reason, "live_head": live_head}
        )


def forget_worktree(
    conn: Connection, worktree_id: int, *, purge: bool = False, by_hand: bool = False
) -> None:
    """Retire a worktree with its rows.

    `purge` drops its repository too when that was its last worktree; one that is removed `by_hand` is not found
    again by itself.
    """
    with translate(), conn.transaction():
        conn.execute(_SQL["lock_repository_of"], {"id": worktree_id})
        if by_hand:
            conn.execute(_SQL["let_worktree_go"], {"id": worktree_id})
        row = conn.execute(_SQL["retire"], {"id": worktree_id}).fetchone()
        if purge and row and row[1] == 0:
            conn.execute("select drop_repository(%s)", (row[0],))


def let_go(conn: Connection, clone_id: int) -> set[str]:
    """List the git dirs of worktrees that were removed by hand."""
    with translate():
        row = conn.execute(_SQL["let_go_of"], {"clone_id": clone_id}).fetchone()
    return set(row[0]) if row else set()


def set_let_go(conn: Connection, clone_id: int, git_dirs: Iterable[str]) -> None:
    """Replace that list."""
    with translate():
        conn.execute(_SQL["set_let_go"], {"clone_id": clone_id, "git_dirs": sorted(git_dirs)})


def _one(conn: Connection, query: str, **values: object) -> int:
    row = conn.execute(_SQL[query], values).fetchone()
    assert row is not None
    return int(row[0])
