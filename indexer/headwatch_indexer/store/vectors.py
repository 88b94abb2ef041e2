"""The vector queue: just the live contents that have no vector for a model."""

from __future__ import annotations

from collections.abc import Sequence

from pgvector import HalfVector
from pgvector.psycopg import register_vector
from psycopg import sql

from headwatch_indexer.errors import HeadwatchError
from headwatch_indexer.store.connection import Connection, connect, translate
from headwatch_sql import queries

_SQL = queries("vectors")


def provision(conn: Connection, name: str, revision: str, dim: int) -> int:
    """Register a model with its vector table; returns its id."""
    with translate():
        row = conn.execute("select provision_model(%s, %s, %s)", (name, revision, dim)).fetchone()
    assert row is not None
    return int(row[0])


def activate(conn: Connection, model_id: int) -> bool:
    """Switch to a model; returns whether another one was active."""
    with translate(), conn.transaction():
        conn.execute(_SQL["deactivate"], {"model_id": model_id})
        return bool(conn.execute(_SQL["activate"], {"model_id": model_id}).rowcount)


def active(conn: Connection) -> tuple[int, str, str, int] | None:
    """The active model: id, name, revision, dimension."""
    with translate():
        row = conn.execute("select id, name, revision, dim from active_model()").fetchone()
    return None if row is None else (row[0], row[1], row[2], row[3])


def pending(conn: Connection, model_id: int) -> dict[int, int]:
    """Count, for every worktree, its contents that wait for a vector."""
    with translate():
        return dict(conn.execute(_with_model("pending", model_id), {"model_id": model_id}).fetchall())


def open_vector_queue(dsn: str, model_id: int) -> VectorQueue:
    """Open the queue of one model on a connection of its own."""
    return VectorQueue(dsn, model_id)


class VectorQueue:
    """Live contents without a vector; nothing to lose, since it is only a question to the database."""

    def __init__(self, dsn: str, model_id: int) -> None:
        self._dsn = dsn
        self._model_id = model_id
        self._conn: Connection | None = None
        self._provisioned: set[int] = set()
        self._repository: dict[int, int] = {}  # content id → repository id, of what `next` handed out

    def next(self, limit: int) -> list[tuple[int, str]]:
        """Take up to `limit` (content id, text) pairs, contents of the latest generations first.

        Vectors that another repository of the tenant has for the same text are copied, not handed out.
        """
        conn = self._connection()
        with translate(self._dsn):
            for (repository_id,) in conn.execute(_SQL["live_repositories"]).fetchall():
                if repository_id not in self._provisioned:
                    conn.execute("select provision_vectors(%s, %s)", (self._model_id, repository_id))
                    self._provisioned.add(repository_id)
            rows = conn.execute(
                _with_model("next", self._model_id), {"limit": limit, "model_id": self._model_id}
            ).fetchall()
        self._repository = {content: repository for content, repository, _ in rows}
        return [(content, text) for content, _, text in rows]

    def save(self, rows: Sequence[tuple[int, Sequence[float]]]) -> int:
        """Store vectors of contents that `next` handed out; returns how many are new."""
        conn = self._connection()
        with translate(self._dsn), conn.cursor() as cursor:
            cursor.executemany(
                _with_model("save", self._model_id),
                [
                    (self._repository[content], content, HalfVector(list(vector)), content)
                    for content, vector in rows
                ],
            )
            return max(cursor.rowcount, 0)

    def bury(self, content_id: int, why: str, attempts: int = 3) -> None:
        """Give a content up for this model, with the reason."""
        conn = self._connection()
        with translate(self._dsn):
            conn.execute(
                _SQL["bury"],
                {
                    "content_id": content_id,
                    "model_id": self._model_id,
                    "reason": why[:500],
                    "attempts": attempts,
                },
            )

    def pending(self) -> int:
        """Count distinct contents that wait."""
        conn = self._connection()
        with translate(self._dsn):
            row = conn.execute(
                _with_model("pending_total", self._model_id), {"model_id": self._model_id}
            ).fetchone()
        return int(row[0]) if row else 0

    def copy_known(self) -> int:
        """Copy vectors that another repository has for the same text; returns how many."""
        conn = self._connection()
        with translate(self._dsn):
            return conn.execute(
                _with_model("copy_known", self._model_id), {"model_id": self._model_id}
            ).rowcount

    def close(self) -> None:
        if self._conn is not None:
            self._conn.close()
            self._conn = None

    def _connection(self) -> Connection:
        if self._conn is None or self._conn.closed or self._conn.broken:
            self._conn = connect(self._dsn, name="headwatch embedder")
            register_vector(self._conn)
            self._provisioned.clear()
        return self._conn


def _with_model(query: str, model_id: int) -> sql.Composed:
    """Put a model's table into a query; the id is a number from the database."""
    if not isinstance(model_id, int):
        raise HeadwatchError(f"not a model id: {model_id!r}", hint="select * from headwatch.active_model()")
    return sql.SQL(_SQL[query].decode()).format(
        vectors=sql.Identifier(f"code_vector_m{model_id}")
    )
