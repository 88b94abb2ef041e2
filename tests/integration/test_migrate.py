"""The schema: made from nothing, by whom, twice, at once, and by which rules every object in it lives."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from headwatch.config import LOCAL_TENANT
from headwatch.dsn import parse, url
from headwatch.postgres import Database, with_tenant
from headwatch_indexer import migrate, store
from headwatch_indexer.store.connection import Refused
from headwatch_indexer.store.vectors import provision
from headwatch_sql import migrations
from support.catalogue_rules import RULES, broken
from support.databases import DatabaseServer
from support.indexed import open_index
from support.worktree import Worktree

NEWEST = migrations()[-1][0]


@pytest.fixture
def empty(server: DatabaseServer) -> Iterator[Database]:
    """A database with pgvector and nothing else."""
    with server.fresh("hw_empty") as database:
        yield database


@contextmanager
def login(server: DatabaseServer, name: str) -> Iterator[str]:
    """Make a role for a while; its databases go before it."""
    with psycopg.connect(server.administrator_dsn, autocommit=True) as administrator:
        role = sql.Identifier(name)
        administrator.execute(sql.SQL("create role {} login nosuperuser").format(role))
        yield name
        administrator.execute(sql.SQL("drop role {}").format(role))


def as_user(dsn: str, user: str) -> str:
    return url(parse(dsn) | {"user": user})


def versions(dsn: str) -> int:
    with psycopg.connect(dsn, autocommit=True) as conn:
        return migrate.version(conn)


def test_from_nothing_and_again(empty: Database) -> None:
    """An empty database comes to the newest version; another run changes nothing."""
    assert versions(empty.owner_dsn) == 0
    assert migrate.migrate(empty.owner_dsn) == NEWEST
    before = catalogue(empty.owner_dsn)
    assert migrate.migrate(empty.owner_dsn) == NEWEST
    assert catalogue(empty.owner_dsn) == before


def test_numbers_have_no_gap() -> None:
    """Migrations are numbered 1, 2, 3, …"""
    assert [number for number, _ in migrations()] == list(range(1, NEWEST + 1))


def test_two_processes_at_once(empty: Database) -> None:
    """One applies, the other waits for it; both succeed."""
    program = "import sys; from headwatch_indexer.migrate import migrate; print(migrate(sys.argv[1]))"
    both = [
        subprocess.Popen(
            [sys.executable, "-c", program, empty.owner_dsn],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for process in both:
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out.strip()) == (0, str(NEWEST)), err


def test_newer_schema_is_refused(database: Database) -> None:
    """Code that is older than the schema says both numbers and changes nothing."""
    with psycopg.connect(database.owner_dsn, autocommit=True) as conn:
        conn.execute(
            "create or replace function headwatch.schema_version() returns int language sql return 999"
        )
        with pytest.raises(
            migrate.SchemaMismatch, match=rf"version 999.* {NEWEST}: the code is older"
        ) as caught:
            migrate.require(conn)
    assert "upgrade headwatch" in caught.value.hint
    with pytest.raises(migrate.SchemaMismatch, match="999"):
        migrate.migrate(database.owner_dsn)
    assert versions(database.owner_dsn) == 999


def test_older_schema_is_refused(empty: Database, database: Database) -> None:
    """A schema that lags is not worked with: the command that helps is named. The right one passes."""
    with (
        psycopg.connect(empty.owner_dsn) as conn,
        pytest.raises(migrate.SchemaMismatch, match=rf"version 0.* {NEWEST}: the schema is older") as caught,
    ):
        migrate.require(conn)
    assert "headwatch db migrate" in caught.value.hint
    with psycopg.connect(database.dsn) as conn:
        migrate.require(conn)


def test_failed_migration_leaves_nothing(empty: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A migration is one transaction: what fails half-way was never there."""
    broken = (*migrations()[:1], (2, b"create table headwatch.half (); select 1 / 0"))
    monkeypatch.setattr(migrate, "migrations", lambda: broken)
    with pytest.raises(Refused, match="division by zero"):
        migrate.migrate(empty.owner_dsn)
    assert versions(empty.owner_dsn) == 1
    with psycopg.connect(empty.owner_dsn) as conn:
        assert conn.execute("select to_regclass('headwatch.half')").fetchone() == (None,)


def test_login_that_may_not_create_roles(
    server: DatabaseServer, home: Path, git_repo: Callable[..., Worktree]
) -> None:
    """Without CREATEROLE, and without the roles, one login does everything."""
    with login(server, "hw_plain_login") as name, server.fresh("hw_plain") as database:
        dsn = as_user(database.owner_dsn, name)
        with psycopg.connect(administrator_dsn(server, database), autocommit=True) as administrator:
            administrator.execute(grant("create, connect, temporary", dsn))
            administrator.execute(f"grant usage on schema public to {name}".encode())
        with without_our_roles(server):
            assert migrate.migrate(dsn) == NEWEST
            with psycopg.connect(dsn) as conn:
                roles = (
                    "select count(*) from pg_roles where rolname in ('headwatch_reader', 'headwatch_writer')"
                )
                assert conn.execute(roles.encode()).fetchone() == (0,)
            tree = git_repo()
            tree.write("a.py", "def alone(): return 1\n")
            tree.commit("a")
            with open_index(with_tenant(dsn, str(LOCAL_TENANT)), home) as index:
                index.add(tree)
                index.update(tree)


@contextmanager
def without_our_roles(server: DatabaseServer) -> Iterator[None]:
    """Be as a server that never had the reader and the writer."""
    roles = ("headwatch_reader", "headwatch_writer")
    with psycopg.connect(server.administrator_dsn, autocommit=True) as administrator:
        for role in roles:
            administrator.execute(f"alter role {role} rename to {role}_away".encode())
        try:
            yield
        finally:
            for role in roles:
                administrator.execute(f"alter role {role}_away rename to {role}".encode())


def administrator_dsn(server: DatabaseServer, database: Database) -> str:
    return url(parse(server.administrator_dsn) | {"dbname": parse(database.dsn)["dbname"]})


def grant(rights: str, dsn: str) -> sql.Composed:
    """Grant a DSN's login rights on its database."""
    names = parse(dsn)
    return sql.SQL("grant {} on database {} to {}").format(
        sql.SQL(rights), sql.Identifier(names["dbname"]), sql.Identifier(names["user"])
    )


def test_login_that_may_create_nothing(server: DatabaseServer) -> None:
    """The grant that is missing is named with database and login."""
    with login(server, "hw_poor_login") as name, server.fresh("hw_poor") as database:
        dsn = as_user(database.owner_dsn, name)
        with psycopg.connect(server.administrator_dsn, autocommit=True) as administrator:
            administrator.execute(grant("connect", dsn))
        with pytest.raises(Refused, match="login hw_poor_login may not create a schema") as caught:
            migrate.migrate(dsn)
        assert f"grant create on database {parse(dsn)['dbname']} to hw_poor_login" in caught.value.hint


def test_without_pgvector(server: DatabaseServer, empty: Database) -> None:
    """A database without the extension is told the statement that makes it."""
    with psycopg.connect(administrator_dsn(server, empty), autocommit=True) as administrator:
        administrator.execute("drop extension vector")
    with pytest.raises(Refused, match='extension "vector" is not installed in database hw_empty') as caught:
        migrate.migrate(empty.owner_dsn)
    assert "create extension vector" in caught.value.hint
    assert versions(empty.owner_dsn) == 0


def test_server_out_of_reach() -> None:
    """A server that does not answer is named without its password."""
    with pytest.raises(store.Unavailable, match=r"cannot use database rows at 127\.0\.0\.1") as caught:
        migrate.migrate("postgresql://me:secret@127.0.0.1:1/rows")
    assert "secret" not in str(caught.value) + caught.value.hint


@pytest.fixture(scope="module")
def populated(
    server: DatabaseServer, template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Database]:
    """A database with an indexed repository, and a model with its vectors' partition."""
    with server.fresh("hw_populated", template) as database:
        home = tmp_path_factory.mktemp("home")
        tree = Worktree.init(home / "repo")
        tree.write("a.py", "def one(): return 1\n")
        tree.commit("a")
        dsn = with_tenant(database.dsn, str(LOCAL_TENANT))
        with open_index(dsn, home) as index:
            index.add(tree)
            index.reconcile(tree)
            queue = store.open_vector_queue(dsn, provision(index.conn, "m", "r", 3))
            assert queue.next(10)
            queue.close()
        yield database


@pytest.mark.parametrize("rule", RULES)
def test_no_object_breaks(populated: Database, rule: str) -> None:
    """None of the tables, partitions, views, functions and roles breaks a rule that isolation stands on."""
    with psycopg.connect(populated.owner_dsn) as conn:
        assert broken(conn, rule) == []


def test_rules_see_partitions(populated: Database) -> None:
    """The rules were asked about partitions that were made after the migrations."""
    with psycopg.connect(populated.owner_dsn) as conn:
        names = {
            row[0]
            for row in conn.execute(
                "select relname from pg_class where relnamespace = 'headwatch'::regnamespace and relispartition"
                " and relkind = 'r'"
            ).fetchall()
        }
    assert len(names) == 2
    assert any(name.startswith("posting_r") for name in names)
    assert any(name.startswith("code_vector_m") for name in names)


def catalogue(dsn: str) -> list[tuple[object, ...]]:
    """Everything in the schema, with the identities that a second creation would change."""
    with psycopg.connect(dsn) as conn:
        return conn.execute(
            "select oid, relname::text from pg_class where relnamespace = 'headwatch'::regnamespace"
            " union all select oid, proname::text from pg_proc where pronamespace = 'headwatch'::regnamespace"
            " order by 1"
        ).fetchall()
