"""What happened: the daemon's own events, and the moves that the reflogs recorded."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from headwatch_indexer.store.connection import Connection, translate
from headwatch_sql import queries

_SQL = queries("journal")
_KEPT = 10_000  # newest rows of the journal that a trim leaves


def record(conn: Connection, event: str, worktree_id: int | None = None, **detail: Any) -> None:
    """Write one event of the daemon; old ones are trimmed now and then."""
    with translate():
        conn.execute(_SQL["record"], {"event": event, "worktree_id": worktree_id, "detail": Jsonb(detail)})


def trim(conn: Connection) -> None:
    """Keep the newest events."""
    with translate():
        conn.execute(_SQL["trim"], {"kept": _KEPT})


def events(conn: Connection, *, after: tuple[int, int] = (0, 0), limit: int = 1000) -> list[dict[str, Any]]:
    """List events after a (journal id, transition id) cursor, oldest first, JSON-ready.

    Each has "at", "event" and "worktree" (its root, or None); "cursor" is what to pass as `after` next.
    """
    with translate():
        rows = conn.execute(
            _SQL["events"], {"journal": after[0], "transition": after[1], "limit": limit}
        ).fetchall()
    found = []
    cursor = list(after)
    for source, id_, at, event, root, detail in rows:
        cursor[source] = id_
        assert isinstance(at, datetime)
        root = detail.pop("root", None) or root
        found.append(
            {"at": at.isoformat(), "event": event, "worktree": root, **detail, "cursor": tuple(cursor)}
        )
    return found


def transitions(conn: Connection) -> dict[int, dict[str, Any]]:
    """The last transition of every worktree, JSON-ready."""
    with translate():
        rows = conn.execute(_SQL["last_transitions"]).fetchall()
    return {
        worktree: {"action": action, "old": old, "new": new, "at": at.isoformat()}
        for worktree, action, old, new, at in rows
    }
