"""The status document: what the rows say, what git says now, and what the daemon is doing."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from headwatch_indexer import git, store
from headwatch_indexer.errors import HeadwatchError
from headwatch_indexer.store import RepositoryRow, WorktreeRow, vectors
from headwatch_sql import queries

COUNTERS = (
    "hints",
    "reconciles",
    "rows_written",
    "symbols_parsed",
    "chunks_embedded",
    "chunks_reused",
    "events_lost",
    "git_processes",
)
_WORST_FIRST = ("missing", "unknown", "degraded", "held", "pending", "fresh")
_SQL = queries("status")


def database(conn: store.Connection, *, embedded: bool) -> dict[str, Any]:
    """Describe the server and the schema."""
    with store.translate():
        row = conn.execute(_SQL["database"]).fetchone()
    assert row is not None
    server, vector, schema, size = row
    return {
        "embedded": embedded,
        "server_version": server,
        "vector_version": vector,
        "schema_version": schema,
        "size_bytes": size,
    }


def pending_vectors(conn: store.Connection, worktree: int | None = None) -> dict[int, int]:
    """Count the contents of every worktree, or of one, that the active model has no vector for."""
    model = vectors.active(conn)
    if model is not None:
        return vectors.pending(conn, model[0], worktree)
    with store.translate():
        return dict(conn.execute(_SQL["visible"]).fetchall())


def queued_vectors(conn: store.Connection) -> int:
    """Count the distinct contents of all worktrees that wait for a vector of the active model."""
    model = vectors.active(conn)
    if model is None:
        return sum(pending_vectors(conn).values())
    return vectors.pending_total(conn, model[0])


def dead_letters(conn: store.Connection) -> int:
    with store.translate():
        row = conn.execute(_SQL["dead_letters"]).fetchone()
    return int(row[0]) if row else 0


def live(worktree: WorktreeRow) -> tuple[str | None, str | None]:
    """What git says is checked out now; the indexed values' unknown becomes (None, None)."""
    try:
        return git.head(worktree.location)
    except HeadwatchError:
        return None, None


def with_daemon(worktree: WorktreeRow, live_head: str | None) -> tuple[str, str | None]:
    """A worktree's state while its daemon runs: what is written, unless HEAD has moved since."""
    if worktree.state == "fresh" and live_head != worktree.indexed_head:
        return "pending", "HEAD has moved"
    return worktree.state, worktree.reason


def without_daemon(worktree: WorktreeRow) -> tuple[str, str | None]:
    """A worktree's state when nobody keeps it: proven by looking, since the row may be old."""
    from headwatch_indexer.rules import load_rules
    from headwatch_indexer.snapshot import RootMissing, take

    if worktree.generation == 0 and os.path.isdir(worktree.root):
        return "pending", "not indexed yet"
    try:
        snapshot = take(worktree.location, load_rules(worktree.root))
    except RootMissing as exc:
        return "missing", exc.message
    except HeadwatchError as exc:
        return "unknown", exc.message
    if (snapshot.head, snapshot.dirty_digest) != (worktree.indexed_head, worktree.dirty_digest):
        return "pending", "changed since it was indexed; no daemon runs"
    return "fresh", worktree.reason


def worktree(
    row: WorktreeRow,
    state: str,
    reason: str | None,
    now: tuple[str | None, str | None],
    pending: int,
    transition: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """One worktree as `status` shows it; `now` is git's own (head, branch)."""
    live_head, live_branch = now
    text_fresh = state in ("fresh", "degraded") and live_head == row.indexed_head and row.generation > 0
    return {
        "root": row.root,
        "branch": row.branch if row.generation else live_branch,
        "state": state,
        "reason": reason,
        "live_head": live_head,
        "indexed_head": row.indexed_head,
        "dirty_files": row.dirty_files,
        "generation": row.generation,
        "files": row.files,
        "symbols": row.symbols,
        "skipped": row.skipped,
        "pending_vectors": pending,
        "text_fresh": text_fresh,
        "vectors_fresh": text_fresh and pending == 0,
        "applied_at": row.applied_at.isoformat() if row.applied_at else None,
        "behind_default": None,
        "last_transition": dict(transition) if transition else None,
    }


def by_repository(
    repositories: Sequence[RepositoryRow], entries: Sequence[tuple[int, dict[str, Any]]]
) -> list[dict[str, Any]]:
    """Group (repository id, worktree entry) pairs."""
    return [
        {
            "name": repository.name,
            "identity": repository.identity,
            "worktrees": [entry for owner, entry in entries if owner == repository.id],
        }
        for repository in repositories
    ]


def overall(entries: Sequence[tuple[int, dict[str, Any]]]) -> str:
    """The worst state of all worktrees; fresh when there is none."""
    states = {entry["state"] for _, entry in entries}
    return next((state for state in _WORST_FIRST if state in states), "fresh")
