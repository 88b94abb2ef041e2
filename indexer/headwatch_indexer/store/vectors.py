"""The vector queue: just the live contents that have no vector for a model."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pgvector import HalfVector
from pgvector.psycopg import register_vector

from headwatch_indexer.errors import HeadwatchError
from headwatch_indexer.store.connection import Connection, connect, translate
from headwatch_sql import queries

_SQL = queries("vectors")
_SHORTEST = 1e-3  # half-precision numbers of a shorter vector lose what cosine compares
_LONGEST = 65_504.0  # the largest half-precision number


class VectorRefused(HeadwatchError):
    """A vector must not be stored: another dimension, NaN or infinity, or no length."""


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


def pending(conn: Connection, model_id: int, worktree: int | None = None) -> dict[int, int]:
    """Count, for every worktree or for one, its contents that wait for a vector; none is left out."""
    values = {"model_id": model_id, "worktree": worktree}
    with translate():
        return dict(conn.execute(_with_model("pending", model_id), values).fetchall())


def pending_total(conn: Connection, model_id: int) -> int:
    """Count the distinct contents that wait for a vector."""
    with translate():
        row = conn.execute(_with_model("pending_total", model_id), {"model_id": model_id}).fetchone()
    return int(row[0]) if row else 0


def open_vector_queue(dsn: str, model_id: int) -> VectorQueue:
    """Open the queue of one model on a connection of its own."""
    return VectorQueue(dsn, model_id)


class VectorQueue:
    """Live contents without a vector; nothing to lose, since it is only a question to the database."""

    def __init__(self, dsn: str, model_id: int) -> None:
        self._dsn = dsn
        self._model_id = model_id
        self._conn: Connection | None = None
        self._model: tuple[str, int] | None = None  # name, dimension
        self._provisioned: set[int] = set()  # repositories

    def next(self, limit: int) -> list[tuple[int, str]]:
        """Take up to `limit` (content id, text) pairs, contents of the latest generations first.

        Vectors that another repository of the tenant has for the same text are copied, not handed out. An empty
        list means that this model is complete: its vectors are indexed, and it becomes the active one.
        """
        conn = self._connection()
        with translate(self._dsn):
            self._provision(conn)
            while rows := self._waiting(conn, limit):
                copied = self._copy(conn, [content for content, _ in rows])
                if len(copied) < len(rows):
                    return [(content, text) for content, text in rows if content not in copied]
            for repository_id in self._provisioned:
                conn.execute("select index_vectors(%s, %s)", (self._model_id, repository_id))
        current = active(conn)
        if current is None or current[0] != self._model_id:
            activate(conn, self._model_id)
        return []

    def save(self, rows: Sequence[tuple[int, Sequence[float]]]) -> int:
        """Store vectors of contents; returns how many are new.

        Raises VectorRefused, with nothing written, when one of them has another dimension than the model, is not
        finite, or has no length.
        """
        conn = self._connection()
        for content, vector in rows:
            self._check(conn, content, vector)
        with translate(self._dsn), conn.transaction(), conn.cursor() as cursor:
            conn.execute("set local synchronous_commit = off")  # what is lost is embedded again
            cursor.executemany(
                _with_model("save", self._model_id),
                [(HalfVector(list(vector)), content) for content, vector in rows],
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
        return pending_total(self._connection(), self._model_id)

    def copy_known(self) -> int:
        """Copy all vectors that another repository has for the same text; returns how many."""
        conn = self._connection()
        with translate(self._dsn):
            self._provision(conn)
            return len(self._copy(conn, None))

    def close(self) -> None:
        if self._conn is not None:
            self._conn.close()
            self._conn = None

    def _provision(self, conn: Connection) -> None:
        """Make the partition of every repository that shows something."""
        for (repository_id,) in conn.execute(_SQL["live_repositories"]).fetchall():
            if repository_id not in self._provisioned:
                conn.execute("select provision_vectors(%s, %s)", (self._model_id, repository_id))
                self._provisioned.add(repository_id)

    def _waiting(self, conn: Connection, limit: int) -> list[tuple[int, str]]:
        return conn.execute(
            _with_model("next", self._model_id), {"limit": limit, "model_id": self._model_id}
        ).fetchall()

    def _copy(self, conn: Connection, contents: list[int] | None) -> set[int]:
        if len(self._provisioned) < 2:
            return set()
        rows = conn.execute(
            _with_model("copy_known", self._model_id),
            {"contents": contents, "repositories": list(self._provisioned)},
        ).fetchall()
        return {content for (content,) in rows}

    def _check(self, conn: Connection, content: int, vector: Sequence[float]) -> None:
        if self._model is None:
            with translate(self._dsn):
                self._model = conn.execute(_SQL["model"], {"model_id": self._model_id}).fetchone()
            if self._model is None:
                raise VectorRefused(f"model {self._model_id} is not known", hint="restart headwatch")
        name, dim = self._model
        length = math.hypot(*vector)  # NaN and infinity come through
        if len(vector) != dim:
            what = f"it has {len(vector)} dimensions, model {name} has {dim}"
        elif not math.isfinite(length) or length > _LONGEST:
            what = "it is not finite"
        elif length < _SHORTEST:
            what = "it has no length"
        else:
            return
        raise VectorRefused(
            f"refused the vector of content {content}: {what}",
            hint="another model is loaded than the one configured; see: headwatch doctor",
        )

    def _connection(self) -> Connection:
        if self._conn is None or self._conn.closed or self._conn.broken:
            self._conn = connect(self._dsn, name="headwatch embedder")
            with translate(self._dsn):
                register_vector(self._conn)
            self._provisioned.clear()
        return self._conn


def _with_model(query: str, model_id: int) -> bytes:
    """Put a model's table into a query; the id is a number from the database."""
    return _SQL[query].replace(b"{vectors}", b"code_vector_m%d" % model_id)
