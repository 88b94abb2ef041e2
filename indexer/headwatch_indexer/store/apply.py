"""Apply a difference: membership, visibility, statistics and the baseline in the caller's one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg.types.json import Jsonb

from headwatch_indexer.records import Skipped, Transition
from headwatch_indexer.store.connection import Connection
from headwatch_indexer.store.membership import spell
from headwatch_sql import queries

_SQL = queries("apply")


@dataclass(frozen=True, slots=True)
class Application:
    """Everything that one generation of a worktree changes."""

    worktree_id: int
    repository_id: int
    head: str | None
    branch: str | None
    dirty_digest: str
    dirty_files: int
    write: Sequence[tuple[bytes, str, int, int]]  # path, blob id, mode, parse id
    remove: Sequence[bytes]
    skip: Sequence[Skipped]
    unskip: Sequence[bytes]
    transitions: Sequence[Transition]
    reflog_cursor: object  # JSON-ready; None keeps the one that is stored
    state: str = "fresh"
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Applied:
    """What an application did."""

    generation: int
    rows: int  # membership, visibility and skipped rows written or removed


def lock_repository(conn: Connection, repository_id: int) -> None:
    """Let one writer at a time change a repository's rows, until the transaction ends."""
    conn.execute("select pg_advisory_xact_lock(%s, %s)", (0x6877, repository_id & 0x7FFF_FFFF))


def apply(conn: Connection, change: Application) -> Applied:
    """Write a difference and move the baseline with it. Runs inside the caller's transaction."""
    rows = _write_skipped(conn, change)
    replaced = [path for path, *_ in change.write]
    old = _paths(conn, "remove_files", change.worktree_id, [*change.remove, *replaced])
    rows += len(old)
    if change.write:
        spelled = [spell(path) for path in replaced]
        conn.execute(
            _SQL["add_files"],
            {
                "worktree_id": change.worktree_id,
                "paths": [text for text, _ in spelled],
                "exact": [exact for _, exact in spelled],
                "oids": [oid for _, oid, _, _ in change.write],
                "modes": [mode for _, _, mode, _ in change.write],
                "parses": [parse for *_, parse in change.write],
            },
        )
        rows += len(change.write)
    new = [parse for *_, parse in change.write]
    values = {
        "worktree_id": change.worktree_id,
        "repository_id": change.repository_id,
        "old": old,
        "new": new,
    }
    came: list[int] = []
    gone: list[int] = []
    if old or new:
        moved = conn.execute(_SQL["move_visibility"], values).fetchone()
        came, gone = (moved[0] or [], moved[1] or []) if moved else ([], [])
        rows += len(came) + len(gone)
        if came or gone:
            flips = {
                "repository_id": change.repository_id,
                "worktree_id": change.worktree_id,
                "came": came,
                "gone": gone,
            }
            conn.execute(_SQL["count_terms"], flips)
            conn.execute(_SQL["count_contents"], flips)
    if change.transitions:
        conn.execute(
            _SQL["add_transitions"],
            {
                "worktree_id": change.worktree_id,
                "old": [t.old for t in change.transitions],
                "new": [t.new for t in change.transitions],
                "actions": [t.action for t in change.transitions],
                "messages": [t.message for t in change.transitions],
                "at": [t.at for t in change.transitions],
            },
        )
    baseline = conn.execute(
        _SQL["move_baseline"],
        {
            **values,
            "head": change.head,
            "branch": change.branch,
            "dirty_digest": change.dirty_digest,
            "dirty_files": change.dirty_files,
            "files": len(new) - len(old),
            "contents": len(came) - len(gone),
            "state": change.state,
            "reason": change.reason,
            "cursor": None if change.reflog_cursor is None else Jsonb(change.reflog_cursor),
        },
    ).fetchone()
    assert baseline is not None
    return Applied(generation=int(baseline[0]), rows=rows)


def _write_skipped(conn: Connection, change: Application) -> int:
    gone = [*change.unskip, *(s.path for s in change.skip)]
    removed = _paths(conn, "remove_skipped", change.worktree_id, gone)
    if change.skip:
        spelled = [spell(s.path) for s in change.skip]
        conn.execute(
            _SQL["add_skipped"],
            {
                "worktree_id": change.worktree_id,
                "paths": [text for text, _ in spelled],
                "exact": [exact for _, exact in spelled],
                "reasons": [s.reason for s in change.skip],
                "sizes": [s.size for s in change.skip],
            },
        )
    return len(removed) + len(change.skip)


def _paths(conn: Connection, query: str, worktree_id: int, paths: Sequence[bytes]) -> list[int]:
    """Remove rows by exact path; the parse ids that they had (0 where a row has none)."""
    if not paths:
        return []
    spelled = [spell(path) for path in paths]
    found = conn.execute(
        _SQL[query],
        {
            "worktree_id": worktree_id,
            "paths": [text for text, _ in spelled],
            "exact": [exact for _, exact in spelled],
        },
    ).fetchall()
    return [row[0] for row in found]
