"""The database as headwatch uses it: reachable, migrated, in its tenant."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from psycopg.types.json import Jsonb

from headwatch import postgres
from headwatch.config import Config
from headwatch.home import ensure
from headwatch_indexer import migrate, store
from headwatch_indexer.models import model_info
from headwatch_indexer.store import vectors
from headwatch_indexer.store.catalog import ensure_tenant
from headwatch_sql import queries


@dataclass(frozen=True, slots=True)
class Opened:
    """A database that is ready for use."""

    dsn: str  # with the tenant
    embedded: bool
    model_id: int  # of the configured model; it need not be the active one yet
    revive: Callable[[], object]  # brings back a server that went away; one put in its place gets the schema


@contextmanager
def open_database(config: Config, *, claimed: bool = False) -> Iterator[Opened]:
    """Start or reach the database, bring an old schema up to date, and register tenant, settings and model.

    An embedded server that was started for this is stopped again, unless it is marked to stay up; so is one that a
    killed daemon left behind, where the caller has `claimed` the home. Raises
    Unreachable, SchemaMismatch or HeadwatchError with what to do.
    """
    if config.database_url:
        postgres.check(config.database_url)
        there = postgres.external(config.database_url)
        yield _opened(config, there, lambda: _prepare(config, there))
        return
    home = Path(config.home)
    ensure(config.home)
    server = postgres.EmbeddedServer(home)
    ran = server.running()
    database = server.start()
    try:
        yield _opened(config, database, lambda: _prepare(config, server.start()))
    finally:
        if (claimed or not ran) and not postgres.kept_up(home):
            server.stop()


def _opened(config: Config, database: postgres.Database, revive: Callable[[], object]) -> Opened:
    model_id = _prepare(config, database)
    dsn = postgres.with_tenant(database.dsn, str(config.tenant))
    return Opened(dsn=dsn, embedded=database.embedded, model_id=model_id, revive=revive)


def _prepare(config: Config, database: postgres.Database) -> int:
    """Bring schema, tenant, settings and model up to date; returns the model's id."""
    tenant = str(config.tenant)
    migrate.migrate(postgres.with_tenant(database.owner_dsn, tenant))
    with store.connect(postgres.with_tenant(database.dsn, tenant)) as conn:
        ensure_tenant(conn)
        settings = config.settings()
        conn.execute(
            queries("status")["set_setting"],
            {"keys": list(settings), "values": [Jsonb(value) for value in settings.values()]},
        )
        info = model_info(config.model)
        return vectors.provision(conn, info.name, info.revision, info.dim)
