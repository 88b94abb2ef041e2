"""The membership rows of one worktree, and how paths are spelled in them."""

from __future__ import annotations

from headwatch_indexer.plan import FileRow
from headwatch_indexer.records import Skipped
from headwatch_indexer.store.connection import Connection, translate
from headwatch_sql import queries

_SQL = queries("membership")


def spell(path: bytes) -> tuple[str, bytes | None]:
    """Spell a path for a row: its text, and its exact bytes where it is not UTF-8 (then shown as \\xHH)."""
    try:
        return path.decode(), None
    except UnicodeDecodeError:
        return path.decode(errors="backslashreplace"), path


def files(conn: Connection, worktree_id: int) -> dict[bytes, FileRow]:
    """Read the membership of a worktree, by exact path."""
    with translate():
        rows = conn.execute(_SQL["files"], {"worktree_id": worktree_id}).fetchall()
    return {
        path: FileRow(path, oid, mode, language, parse_id, version)
        for path, oid, mode, language, parse_id, version in (
            (exact if exact is not None else text.encode(), oid, mode, language, parse_id, version)
            for text, exact, oid, mode, language, parse_id, version in rows
        )
    }


def skipped(conn: Connection, worktree_id: int) -> dict[bytes, Skipped]:
    """Read what is listed in a worktree but not indexed, by exact path."""
    with translate():
        rows = conn.execute(_SQL["skipped"], {"worktree_id": worktree_id}).fetchall()
    return {
        path: Skipped(path, reason, size)
        for path, reason, size in (
            (exact if exact is not None else text.encode(), reason, size)
            for text, exact, reason, size in rows
        )
    }
