"""Commands on the database itself: db url, migrate, shell, stats, stop."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwatch.client import find
from headwatch.commands.context import Json, configuration, example, put
from headwatch_indexer.errors import HeadwatchError, WrongUsage

if TYPE_CHECKING:
    from headwatch.config import Config
    from headwatch.postgres import Database

Owner = Annotated[
    bool, typer.Option("--owner", help="As the owner of the objects, who may change the schema.")
]
Reader = Annotated[bool, typer.Option("--reader", help="As a role that may only read.")]


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    group = typer.Typer(rich_markup_mode=None, help="Reach and care for the database.", no_args_is_help=False)
    group.command(epilog=example("psql $(headwatch db url)", "headwatch db url --reader"))(url)
    group.command(epilog=example("headwatch db migrate"))(migrate)
    group.command(epilog=example("headwatch db shell", "headwatch db shell -c 'table headwatch.worktree'"))(
        shell
    )
    group.command(epilog=example("headwatch db stats --json"))(stats)
    group.command(epilog=example("headwatch db stop"))(stop)
    app.add_typer(group, name="db")


def url(owner: Owner = False, reader: Reader = False) -> None:
    """Print one DSN that works as it is from any program of this user.

    Starts the embedded server when it does not run, and leaves it up (until: headwatch db stop).
    """
    config = configuration()
    role = _role(owner, reader)
    database = _open(config)
    if find(config.socket, config.home) is None:  # a running daemon has seen to the schema
        _migrate(config, database)
    print(_dsn(config, database, role))


def migrate() -> None:
    """Bring the schema to the version that this headwatch needs."""
    config = configuration()
    print(f"schema version {_migrate(config, _open(config))}")


def shell(
    arguments: Annotated[
        list[str] | None, typer.Option("-c", "--command", help="Run this and exit.", metavar="SQL")
    ] = None,
    owner: Owner = False,
    reader: Reader = False,
) -> None:
    """Open psql on the database."""
    from headwatch import postmaster

    config = configuration()
    role = _role(owner, reader)
    dsn = _dsn(config, _open(config), role)
    psql = str(postmaster.binary("psql"))
    commands = [part for sql in arguments or [] for part in ("-c", sql)]
    sys.stdout.flush()
    os.execv(psql, [psql, dsn, *commands])  # noqa: S606 - psql takes this process's terminal


def stats(as_json: Json = False) -> None:
    """Show the size of the database and of each table."""
    from headwatch import render
    from headwatch_indexer import store
    from headwatch_sql import queries

    config = configuration()
    sql = queries("inspect")
    with store.connect(_dsn(config, _open(config), "dsn")) as connection, store.translate():
        rows = connection.execute(sql["table_sizes"]).fetchall()
        size = connection.execute(sql["database_size"]).fetchone()
    keys = ("name", "rows", "table_bytes", "index_bytes")
    answer: dict[str, Any] = {"tables": [dict(zip(keys, row, strict=True)) for row in rows]}
    put(answer | {"size_bytes": size[0] if size else None}, as_json, render.tables)


def stop() -> None:
    """Stop the embedded server."""
    config = configuration()
    if config.database_url:
        raise WrongUsage(
            "cannot stop the database: it is an external one",
            hint="stop it where it runs, or unset HEADWATCH_DATABASE_URL",
        )
    if find(config.socket, config.home) is not None:
        raise HeadwatchError(
            "cannot stop the database: a headwatch daemon uses it", hint="stop the daemon first"
        )
    from headwatch.postgres import EmbeddedServer

    server = EmbeddedServer(Path(config.home))
    ran = server.running()
    server.stop()
    print("stopped" if ran else "it did not run")


def _open(config: Config) -> Database:
    """Start or adopt the database; an embedded one that nobody needs is left as the mark says."""
    from headwatch import postgres

    if config.database_url:
        postgres.check(config.database_url)
        return postgres.external(config.database_url)
    from headwatch.home import ensure

    home = Path(config.home)
    server = postgres.EmbeddedServer(home)
    if not server.running():  # started here means started for good: nobody else would stop it
        ensure(config.home)
        postgres.keep_up(home, on=True)
    return server.start()


def _migrate(config: Config, database: Database) -> int:
    from headwatch_indexer import store
    from headwatch_indexer.migrate import migrate

    dsn = _dsn(config, database, "owner_dsn")
    with store.translate(dsn):
        return migrate(dsn)


def _role(owner: bool, reader: bool) -> str:
    """Choose which of the database's logins is meant."""
    if owner and reader:
        raise WrongUsage(
            "--owner and --reader exclude each other", hint="give one, or none to read and write"
        )
    return "owner_dsn" if owner else "reader_dsn" if reader else "dsn"


def _dsn(config: Config, database: Database, role: str) -> str:
    from headwatch.postgres import with_tenant

    return with_tenant(getattr(database, role), str(config.tenant))
