"""A vector queue in one SQLite file, so that a test and an embedder process see the same rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

from headwatch.drain import ATTEMPTS, Row
from headwatch_indexer.errors import Unreachable

_SCHEMA = """
create table content (id integer primary key, text text not null);
create table vector (id integer primary key, dim integer not null, length real not null, saves integer not null);
create table dead (id integer primary key, why text not null, attempts integer not null);
"""
_WAITING = "from content where id not in (select id from vector) and id not in (select id from dead)"


class SqliteQueue:
    """Contents, vectors and dead letters; the database is away while a file `<path>.away` exists."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self.away = Path(f"{path}.away")

    @classmethod
    def create(cls, path: Path, texts: Iterable[str]) -> SqliteQueue:
        queue = cls(str(path))
        with closing(sqlite3.connect(path)) as conn, conn:
            conn.execute("pragma journal_mode = wal")
            conn.executescript(_SCHEMA)
            conn.executemany("insert into content (text) values (?)", [(text,) for text in texts])
        return queue

    def next(self, limit: int) -> list[Row]:
        return [
            (row[0], row[1]) for row in self._run(f"select id, text {_WAITING} order by id limit ?", limit)
        ]

    def save(self, rows: Sequence[tuple[int, Sequence[float]]]) -> int:
        with closing(self._connect()) as conn, conn:
            conn.executemany(
                "insert into vector values (?, ?, ?, 1) on conflict (id) do update set saves = saves + 1",
                [(n, len(vector), sum(x * x for x in vector)) for n, vector in rows],
            )
        return len(rows)

    def bury(self, content_id: int, why: str, attempts: int = ATTEMPTS) -> None:
        self._run("insert into dead values (?, ?, ?)", content_id, why, attempts)

    def pending(self) -> int:
        return int(self._run(f"select count(*) {_WAITING}")[0][0])

    def add(self, *texts: str) -> None:
        for text in texts:
            self._run("insert into content (text) values (?)", text)

    def saved(self) -> dict[int, int]:
        """Content id → how often its vector was stored."""
        return dict(self._run("select id, saves from vector"))

    def shapes(self) -> set[tuple[int, float]]:
        """The dimensions and rounded squared lengths of all vectors."""
        return set(self._run("select dim, round(length, 3) from vector"))

    def dead(self) -> dict[str, str]:
        """Text → why it was given up."""
        return dict(self._run("select text, why from dead join content using (id)"))

    def _run(self, statement: str, *values: object) -> list[tuple]:  # type: ignore[type-arg]  # any row
        with closing(self._connect()) as conn, conn:
            return conn.execute(statement, values).fetchall()

    def _connect(self) -> sqlite3.Connection:
        if self.away.exists():
            raise Unreachable("cannot connect to the test's database", hint="remove the file")
        return sqlite3.connect(self.path, timeout=30)


def open_queue(dsn: str, _model_id: int) -> SqliteQueue:
    """Open the queue in the file `dsn`."""
    return SqliteQueue(dsn)
