"""Connections: autocommit, in one tenant, with psycopg's errors turned into ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

import psycopg
from psycopg.conninfo import conninfo_to_dict

from headwatch_indexer.errors import HeadwatchError, Unreachable

Row: TypeAlias = tuple[object, ...]
Connection: TypeAlias = psycopg.Connection[tuple]  # type: ignore[type-arg]  # rows are typed where they are unpacked


class Unavailable(Unreachable):
    """The database is out of reach, or went away; a later try may work."""


class Refused(HeadwatchError):
    """The database answered, and refused what was asked."""


def connect(dsn: str, *, name: str = "headwatch", timeout_s: int = 10) -> Connection:
    """Open a connection in autocommit mode; the tenant comes with the DSN's options.

    Raises Unavailable when the server cannot be reached.
    """
    with translate(dsn):
        conn: Connection = psycopg.connect(
            dsn, autocommit=True, application_name=name, connect_timeout=timeout_s, prepare_threshold=3
        )
        conn.execute("select set_config('search_path', 'headwatch, public', false)")
    return conn


@contextmanager
def translate(dsn: str | None = None) -> Iterator[None]:
    """Turn psycopg's errors into HeadwatchError; no message carries a password."""
    try:
        yield
    except (psycopg.OperationalError, psycopg.InterfaceError) as exc:
        if isinstance(exc, (psycopg.errors.DiskFull, psycopg.errors.OutOfMemory)):
            raise Unavailable(
                f"Postgres has no room: {_first(exc)}", hint="free disk space; headwatch goes on by itself"
            ) from exc
        where = _where(dsn) if dsn else "the database"
        raise Unavailable(
            f"cannot use {where}: {_first(exc)}", hint="is Postgres running? try: headwatch doctor"
        ) from exc
    except psycopg.DatabaseError as exc:
        raise Refused(
            f"the database refused: {_first(exc)}", hint=exc.diag.message_hint or "try: headwatch doctor"
        ) from exc


def _first(exc: psycopg.Error) -> str:
    return str(exc).strip().split("\n")[0] or type(exc).__name__


def _where(dsn: str) -> str:
    parts = conninfo_to_dict(dsn)
    return f"database {parts.get('dbname', '?')} at {parts.get('host', 'localhost')}"
