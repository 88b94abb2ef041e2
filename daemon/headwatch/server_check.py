"""Whether a Postgres can be used: reached, new enough, with pgvector; and if not, what to do."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
from psycopg.rows import class_row

from headwatch.dsn import parse, redact
from headwatch_indexer.errors import HeadwatchError, Unreachable
from headwatch_sql import queries

_MIN_SERVER = 150000  # views with security_invoker
_MIN_VECTOR = (0, 8)  # iterative index scans
_HINTS = {
    "password authentication failed": "check user and password in HEADWATCH_DATABASE_URL",
    "no password supplied": "put the password into HEADWATCH_DATABASE_URL, or into ~/.pgpass",
    "does not exist": "create the login and the database, or correct their names in HEADWATCH_DATABASE_URL",
    "too many": "close some of the server's clients, or raise its max_connections",
}


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What a server says of itself and of our login."""

    server_version: str  # "18.4"
    version_num: int  # 180004
    database: str
    superuser: bool  # row-level security does not bind one
    vector_version: str | None  # of the extension in this database; None: not made yet, but this login can
    vector_available: bool


def check(dsn: str, *, timeout_s: int = 10) -> ServerInfo:
    """Connect and see that headwatch can work there.

    Raises Unreachable if it does not answer, HeadwatchError if it is too old or has no usable pgvector; a
    password of the DSN is in no message.
    """
    parameters = parse(dsn)
    try:
        with psycopg.connect(dsn, connect_timeout=timeout_s, autocommit=True) as connection:
            cursor = connection.cursor(row_factory=class_row(ServerInfo))
            info = cursor.execute(queries("server")["server_info"]).fetchone()
    except psycopg.Error as error:
        raise _unreachable(dsn, parameters.get("password", ""), str(error)) from None
    assert info is not None
    _require(info)
    return info


def _require(info: ServerInfo) -> None:
    if info.version_num < _MIN_SERVER:
        raise HeadwatchError(
            f"the server is PostgreSQL {info.server_version}, headwatch needs 15 or later",
            hint="use a newer server, or leave HEADWATCH_DATABASE_URL unset for the embedded one",
        )
    run = f"run as an administrator, in the database {info.database!r}"
    if info.vector_version is None and not info.vector_available:
        raise HeadwatchError(
            "the server has no pgvector",
            hint=f"install pgvector 0.8 or later there, then {run}: create extension vector;",
        )
    if info.vector_version is None and not info.superuser:
        raise HeadwatchError(
            f"the database {info.database!r} lacks the extension vector, which this login may not create",
            hint=f"{run}: create extension vector;",
        )
    if info.vector_version is not None and _numbers(info.vector_version) < _MIN_VECTOR:
        raise HeadwatchError(
            f"pgvector is {info.vector_version}, headwatch needs 0.8 or later",
            hint=f"install a newer pgvector there, then {run}: alter extension vector update;",
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _unreachable(dsn: str, password: str, said: str) -> Unreachable:
    if password:
        said = said.replace(password, "***")
    hint = next(
        (hint for sign, hint in _HINTS.items() if sign in said),
        "is Postgres running, and is the address right?",
    )
    return Unreachable(f"cannot use the database at {redact(dsn)}: {said.strip()}", hint=hint)
