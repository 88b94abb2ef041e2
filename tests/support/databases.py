"""A database server for tests, and fresh databases cloned from one that was migrated once."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

import psycopg
from psycopg import sql

from headwatch.dsn import parse, url
from headwatch.postgres import Database, EmbeddedServer, external
from headwatch_sql import queries

# Loses data with the machine's power, as a test database may.
FAST = {"fsync": "off", "full_page_writes": "off", "shared_buffers": "64MB", "max_wal_size": "512MB"}


@dataclass(frozen=True, slots=True)
class DatabaseServer:
    """A running server; `embedded` is None for one that is named by a URL."""

    administrator_dsn: str  # may create databases
    embedded: EmbeddedServer | None

    def database(self, name: str) -> Database:
        """Return the DSNs of a database here."""
        if self.embedded:
            return self.embedded.database(name)
        return external(self._administrator_dsn(name))

    @contextmanager
    def fresh(self, prefix: str, template: str | None = None) -> Iterator[Database]:
        """Create a database, empty but for pgvector or a copy of a template, and drop it in the end."""
        name = f"{prefix}_{uuid.uuid4().hex[:12]}"
        self._create(name, template)
        try:
            yield self.database(name)
        finally:
            self._execute("drop database {} with (force)", name)

    def _create(self, name: str, template: str | None) -> None:
        if self.embedded is None:  # pgvector has to be in its template1 where the login is no superuser
            self._execute("create database {} template {}", name, template or "template1")
            return
        self._execute("create database {} owner headwatch_owner template {}", name, template or "template0")
        with psycopg.connect(self._administrator_dsn(name), autocommit=True) as connection:
            connection.execute(queries("server")["create_vector"])
            connection.execute(queries("server")["privileges"])

    def _execute(self, statement: str, *names: str) -> None:
        with psycopg.connect(self.administrator_dsn, autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))

    def _administrator_dsn(self, name: str) -> str:
        return url(parse(self.administrator_dsn) | {"dbname": name})


def migrate(database: Database) -> None:
    """Bring a database to the current schema, as its owner."""
    if find_spec("headwatch_indexer.migrate"):
        import_module("headwatch_indexer.migrate").migrate(database.owner_dsn)


def name_of(database: Database) -> str:
    """Return a database's name on its server."""
    return parse(database.dsn)["dbname"]
