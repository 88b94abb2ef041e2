"""The main process's own connection: it holds the locks that say who keeps which clone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import structlog
from psycopg.errors import ForeignKeyViolation

from headwatch_indexer import store

log = structlog.get_logger()


class Session:
    """One connection, opened again when it is lost, with the clones that it owns. Safe to use from several threads.

    Single statements only: a transaction of one thread would take in those of the others.
    """

    def __init__(self, dsn: str, host: str) -> None:
        self._dsn = dsn
        self._host = host
        self._conn: store.Connection | None = None
        self._lock = threading.Lock()
        self._clones: dict[int, str] = {}  # id → common dir
        self._owned: set[int] = set()  # those whose lock this connection holds
        self._told: set[int] = set()  # those that somebody else holds, as the log knows

    def conn(self) -> store.Connection:
        """Give the connection; one that was lost is opened again, and owns the clones again."""
        with self._lock:
            if self._conn is None or self._conn.closed or self._conn.broken:
                self._owned.clear()
                self._conn = store.connect(self._dsn, name="headwatch")
                self._own(self._conn)
            return self._conn

    @contextmanager
    def another(self) -> Iterator[store.Connection]:
        """Open a connection for work that needs transactions."""
        conn = store.connect(self._dsn, name="headwatch registry")
        try:
            yield conn
        finally:
            conn.close()

    def own(self, clone_id: int, common_dir: str) -> None:
        """Keep a clone from now on; one that another daemon keeps is taken over when that one is gone."""
        conn = self.conn()
        with self._lock:
            self._clones[clone_id] = common_dir
            self._own(conn)

    def release(self, clone_id: int) -> None:
        """Keep a clone no more; a database that is away has let go of it already."""
        with self._lock:
            common_dir = self._clones.pop(clone_id, None)
            self._owned.discard(clone_id)
        if common_dir is not None:
            with suppress(store.Unavailable):
                store.release(self.conn(), clone_id, host=self._host, common_dir=common_dir)

    def beat(self) -> None:
        """Say that the owner of the clones lives. Raises store.Unavailable when the database is away."""
        conn = self.conn()
        with self._lock:
            self._own(conn)
            owned = list(self._owned)
        store.beat(conn, owned)

    def close(self) -> None:
        with self._lock:
            if self._conn is not None:
                self._conn.close()
                self._conn = None

    def _own(self, conn: store.Connection) -> None:
        for clone_id in self._clones.keys() - self._owned:
            common_dir = self._clones[clone_id]
            try:
                mine = store.own(conn, clone_id, host=self._host, common_dir=common_dir)
            except store.Refused as exc:
                if not isinstance(exc.__cause__, ForeignKeyViolation):
                    raise
                del self._clones[clone_id]  # it was purged meanwhile
                continue
            if mine:
                self._owned.add(clone_id)
                self._told.discard(clone_id)
            elif clone_id not in self._told:
                self._told.add(clone_id)
                log.warning("another daemon keeps this clone", common_dir=common_dir)
