"""Bring the schema to the version that this code knows, or refuse with both numbers."""

from __future__ import annotations

import psycopg
from psycopg import sql

from headwatch_indexer.errors import HeadwatchError
from headwatch_indexer.store.connection import translate
from headwatch_sql import migrations

_LOCK = 0x6865_6164_7761_7463  # "headwatc"
_TRY_LOCK_S = 60


class SchemaMismatch(HeadwatchError):
    """The database's schema is not the one that this code knows."""


def known() -> int:
    """The schema version that this code writes and reads."""
    return migrations()[-1][0]


def version(conn: psycopg.Connection[tuple[object, ...]]) -> int:
    """The schema version of a database; 0 when headwatch has none there."""
    # A relation lock makes this session hear of migrations that others have committed; an advisory lock does not.
    conn.execute("select from pg_catalog.pg_proc limit 0")
    found = conn.execute("select to_regprocedure('headwatch.schema_version()') is not null").fetchone()
    if not found or not found[0]:
        return 0
    row = conn.execute("select headwatch.schema_version()").fetchone()
    return int(str(row[0])) if row else 0


def require(conn: psycopg.Connection[tuple[object, ...]]) -> None:
    """Raise SchemaMismatch unless the database has exactly the known version."""
    found = version(conn)
    if found > known():
        raise SchemaMismatch(
            f"the database has schema version {found}, this headwatch knows {known()}: the code is older",
            hint="upgrade headwatch to the version that wrote this database",
        )
    if found < known():
        raise SchemaMismatch(
            f"the database has schema version {found}, this headwatch needs {known()}: the schema is older",
            hint="run: headwatch db migrate",
        )


def migrate(dsn: str) -> int:
    """Apply what is missing, each migration in one transaction that takes an advisory lock first.

    `dsn` logs in as the objects' owner. Returns the schema version. Raises SchemaMismatch when the database is
    newer than this code, Refused when its login may not make what is needed, or pgvector is missing.
    """
    with translate(dsn), psycopg.connect(dsn, autocommit=True) as conn:
        if (found := version(conn)) > known():
            require(conn)
        for number, statements in migrations():
            if number > found:
                _apply(conn, number, statements)
        return version(conn)


def _apply(conn: psycopg.Connection[tuple[object, ...]], number: int, statements: bytes) -> None:
    with conn.transaction():
        conn.execute(sql.SQL("set local lock_timeout = {}").format(f"{_TRY_LOCK_S}s"))
        conn.execute("select pg_advisory_xact_lock(%s)", (_LOCK,))
        if version(conn) < number:  # else another process was first
            conn.execute(statements)
            conn.execute(_version_function(number))


def _version_function(number: int) -> sql.Composed:
    """Record the version in a function: a table would need a tenant, which a schema has not."""
    return sql.SQL(
        "create or replace function headwatch.schema_version() returns int language sql immutable parallel safe "
        "return {body}; comment on function headwatch.schema_version() is 'The number of the last migration applied.'"
    ).format(body=sql.Literal(number))
