"""Two tenants in one database: nothing of one is seen, counted, changed or provisioned by the other."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest

from headwatch.dsn import parse
from headwatch.postgres import Database, with_tenant
from headwatch_indexer import store
from headwatch_indexer.store.connection import Refused
from headwatch_indexer.store.vectors import activate, provision
from support.databases import DatabaseServer
from support.indexed import Index, open_index
from support.worktree import Worktree

A, B = str(uuid.UUID(int=10)), str(uuid.UUID(int=11))
VECTOR = [1.0, 0.0, 0.0]
FUNCTIONS = {  # what a reader may call, with the worktree of the other tenant
    "search_code": "search_code('secret', '[1,0,0]', %(worktree)s)",
    "search_lexical": "search_lexical('secret', %(worktree)s, 10)",
    "search_dense": "search_dense('[1,0,0]', %(worktree)s, 10)",
    "contents_below": "unnest(contents_below(%(worktree)s, null, null))",
    "worktree_state": "worktree_state(%(root)s)",
    "compare_worktrees": "compare_worktrees(%(worktree)s, -1)",
}


@dataclass(frozen=True, slots=True)
class Sides:
    """One database; `a` and `b` are the ids of the same worktree, registered by both tenants."""

    database: Database
    root: str
    a: int
    b: int


def fill(dsn: str, tree: Worktree, index: Index) -> int:
    row = index.add(tree)
    index.reconcile(tree)
    queue = store.open_vector_queue(dsn, provision(index.conn, "m", "r", 3))
    queue.save([(content, VECTOR) for content, _ in queue.next(100)])
    assert queue.next(100) == []
    queue.bury(_one(index.conn, "select min(id) from content"), "for the test")
    queue.close()
    store.record(index.conn, "seen", row.id)
    assert store.own(index.conn, row.clone_id, host="here", common_dir=row.common_dir + dsn)
    index.conn.execute("insert into setting (key, value) values ('k', '1')")
    return row.id


@pytest.fixture(scope="module")
def sides(server: DatabaseServer, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    """Both tenants index the same repository, B with more text in it."""
    home = tmp_path_factory.mktemp("home")
    tree = Worktree.init(home / "repo")
    with server.fresh("hw_tenants", template) as database:
        ids = {}
        for tenant in (A, B):
            tree.write("secret.py", f"def secret():\n    return {tenant!r}\n")
            tree.write("binary.dat", b"\0\1\2")
            tree.commit(tenant)
            dsn = with_tenant(database.dsn, tenant)
            with open_index(dsn, home) as index:
                ids[tenant] = fill(dsn, tree, index)
        yield Sides(database, str(tree.root), ids[A], ids[B])


def relations(conn: psycopg.Connection[tuple]) -> list[str]:  # type: ignore[type-arg]  # any row
    rows = conn.execute(
        "select relname::text from pg_class where relnamespace = 'headwatch'::regnamespace"
        " and relkind in ('r', 'p', 'v') and relname <> 'tenant_access'"
    ).fetchall()
    return [row[0] for row in rows]


def _one(conn: store.Connection, statement: str, values: dict[str, object] | None = None) -> int:
    row = conn.execute(statement.encode(), values).fetchone()
    assert row is not None
    return int(row[0])


def open_as(dsn: str, tenant: str | None) -> store.Connection:
    return store.connect(dsn if tenant is None else with_tenant(dsn, tenant))


def logins(database: Database) -> dict[str, str]:
    return {"owner": database.owner_dsn, "writer": database.dsn, "reader": database.reader_dsn}


@pytest.mark.parametrize("login", ["owner", "writer", "reader"])
def test_tables_and_views_show_one_tenant(sides: Sides, login: str) -> None:
    """Every row of every table, partition and view is the tenant's own, also for the objects' owner."""
    with open_as(logins(sides.database)[login], A) as conn:
        seen = 0
        for relation in relations(conn):
            if relation != "worktree_now":  # has no column of its own for it
                rows = conn.execute(f"select distinct tenant_id::text from {relation}".encode()).fetchall()
                assert rows in ([], [(A,)]), relation
                seen += len(rows)
        assert seen >= 20, "the tables were empty"
        assert conn.execute("select worktree_id from worktree_now").fetchall() == [(sides.a,)]


@pytest.mark.parametrize("tenant", [None, "", str(uuid.UUID(int=12))])
@pytest.mark.parametrize("login", ["owner", "writer", "reader"])
def test_no_tenant_sees_nothing(sides: Sides, login: str, tenant: str | None) -> None:
    """Without a tenant, with an empty one or with one that has no rows, everything is empty and nothing fails."""
    with open_as(logins(sides.database)[login], None) as conn:
        if tenant is not None:
            conn.execute("select set_config('app.current_tenant_id', %s, false)", (tenant,))
        for relation in relations(conn):
            assert _one(conn, f"select count(*) from {relation}") == 0, relation
        assert conn.execute("select * from active_model()").fetchall() == []
        for name, call in FUNCTIONS.items():
            assert ask(conn, call, {"worktree": sides.a, "root": sides.root}) in ([], "not known"), name


def test_malformed_tenant_is_an_error(sides: Sides) -> None:
    """A tenant that is no UUID fails instead of being taken for none."""
    with open_as(sides.database.reader_dsn, None) as conn:
        conn.execute("set app.current_tenant_id = 'me'")
        with pytest.raises(psycopg.errors.InvalidTextRepresentation):
            conn.execute("select * from worktree")


def ask(conn: store.Connection, call: str, values: dict[str, object]) -> object:
    try:
        return conn.execute(f"select * from {call}".encode(), values).fetchall()
    except psycopg.errors.RaiseException as exc:
        return "not known" if "is not known" in str(exc) else str(exc)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_answer_from_one_tenant(sides: Sides, name: str) -> None:
    """A reader who names the other tenant's worktree gets nothing of it, and its own all the same."""
    with open_as(sides.database.reader_dsn, A) as conn:
        theirs = ask(conn, FUNCTIONS[name], {"worktree": sides.b, "root": sides.root})
        mine = ask(conn, FUNCTIONS[name], {"worktree": sides.a, "root": sides.root})
        assert mine, name
        assert B not in str(theirs), name
        assert B not in str(mine), name
        if name != "worktree_state":  # asked by root, which both have
            assert theirs in ([], "not known")


def test_statistics_are_the_tenants_own(sides: Sides) -> None:
    """The score of a word is the same whether another tenant has the same repository or not."""
    with open_as(sides.database.reader_dsn, A) as a, open_as(sides.database.reader_dsn, B) as b:
        score = "select bm25 from search_lexical('secret', %s, 10) order by 1 desc limit 1"
        assert a.execute(score, (sides.a,)).fetchone() == b.execute(score, (sides.b,)).fetchone()


def test_a_prepared_statement_follows_the_tenant(sides: Sides) -> None:
    """A plan made for one tenant is not an answer for the next one on the same connection."""
    with open_as(sides.database.reader_dsn, A) as conn:
        query = "select id from worktree union all select worktree_id from worktree_now"
        for tenant, ids in ((A, {(sides.a,)}), (B, {(sides.b,)}), (A, {(sides.a,)})):
            conn.execute("select set_config('app.current_tenant_id', %s, false)", (tenant,))
            for _ in range(7):
                assert set(conn.execute(query, prepare=True).fetchall()) == ids
        conn.execute("select set_config('app.current_tenant_id', %s, false)", (B,))
        for _ in range(7):
            found = conn.execute("select content from search_code('secret', null, %s)", (sides.b,)).fetchall()
            assert found
            assert A not in str(found)


@pytest.mark.parametrize("login", ["owner", "writer"])
def test_rows_of_another_tenant_cannot_be_written(sides: Sides, login: str) -> None:
    """Inserts and updates into another tenant are refused; updates and deletes find none of its rows."""
    with open_as(logins(sides.database)[login], A) as conn:
        for relation in relations(conn):
            if conn.execute(
                "select relkind::text from pg_class where relname = %s", (relation,)
            ).fetchone() == ("v",):
                continue
            with conn.transaction(force_rollback=True):
                assert (
                    conn.execute(f"delete from {relation} where tenant_id = %s".encode(), (B,)).rowcount == 0
                ), relation
        for statement in (
            "insert into repository (tenant_id, name, identity) values (%(b)s, 'x', 'x')",
            "insert into setting (tenant_id, key, value) values (%(b)s, 'x', '1')",
            "update setting set tenant_id = %(b)s",
            "insert into journal (tenant_id, event) values (%(b)s, 'x')",
            "update worktree set tenant_id = %(b)s",
            "insert into tenant (id, name) values (%(b)s, 'x')",
            "insert into tenant_access values (%(b)s, current_user)",
        ):
            with pytest.raises((psycopg.errors.InsufficientPrivilege, psycopg.errors.ForeignKeyViolation)):
                conn.execute(statement.encode(), {"b": B})
        # Nor can a row of one's own point at the other's.
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            conn.execute(
                "insert into clone (repository_id, host, common_dir) select %s, 'h', '/x'",
                (_repository(sides, B),),
            )


@pytest.mark.parametrize("kind", ["posting", "vector"])
def test_partitions_of_another_tenant_take_nothing(sides: Sides, kind: str) -> None:
    """A partition has one tenant: the other can neither read nor fill it, whatever tenant_id it writes."""
    repository = _repository(sides, B)
    with open_as(sides.database.dsn, B) as conn:
        model = _one(conn, "select id from active_model()")
    table = f"posting_r{repository}" if kind == "posting" else f"code_vector_m{model}_r{repository}"
    columns = (
        "(tenant_id, repository_id, term_id, content_id, tf, length) values (%s, %s, 1, 1, 1, 1)"
        if kind == "posting"
        else "(tenant_id, repository_id, content_id, embedding) values (%s, %s, 1, '[1,0,0]')"
    )
    with open_as(sides.database.dsn, A) as conn:
        assert _one(conn, f"select count(*) from {table}") == 0
        for tenant in (A, B):
            with pytest.raises((psycopg.errors.InsufficientPrivilege, psycopg.errors.CheckViolation)):
                conn.execute(f"insert into {table} {columns}".encode(), (tenant, repository))


def _repository(sides: Sides, tenant: str) -> int:
    with open_as(sides.database.dsn, tenant) as conn:
        return _one(conn, "select id from repository")


def test_provisioning_refuses_what_is_anothers(sides: Sides) -> None:
    """Functions that run with their owner's rights look at the caller's tenant."""
    repository = _repository(sides, B)
    with open_as(sides.database.dsn, B) as conn:
        model_b = _one(conn, "select id from active_model()")
    with open_as(sides.database.dsn, A) as conn:
        model_a = _one(conn, "select id from active_model()")
        for call in (
            f"provision_repository({repository})",
            f"attach_repository({repository})",
            f"provision_vectors({model_a}, {repository})",
            f"provision_vectors({model_b}, {_repository(sides, A)})",
        ):
            with pytest.raises(psycopg.errors.RaiseException, match="does not exist in this tenant"):
                conn.execute(f"select {call}".encode())
        conn.execute(f"select drop_repository({repository})".encode())
        assert conn.execute(f"select index_vectors({model_b}, {repository})".encode()).fetchone() == (False,)
        assert not activate(conn, model_b)
        assert _one(conn, "select id from active_model()") == model_a
    assert _repository(sides, B) == repository
    with open_as(sides.database.dsn, B) as conn:
        assert _one(conn, "select count(*) from search_dense('[1,0,0]', (select id from worktree), 10)") > 0


@pytest.mark.parametrize(
    "statement",
    [
        "insert into setting (key, value) values ('x', '1')",
        "update worktree set state = 'fresh'",
        "delete from journal",
        "truncate journal",
        "select provision_model('x', 'y', 3)",
        "select drop_repository(1)",
        "create table headwatch.mine ()",
        "create or replace function headwatch.tokens(source text) returns text[] language sql as 'select null'",
        "alter table headwatch.worktree disable row level security",
        "drop policy tenant on headwatch.worktree",
        "set row_security = off; select * from worktree",
    ],
)
def test_reader_cannot_write(sides: Sides, statement: str) -> None:
    """The reader reads."""
    with (
        open_as(sides.database.reader_dsn, A) as conn,
        pytest.raises((psycopg.errors.InsufficientPrivilege, psycopg.errors.DuplicateFunction)),
    ):
        conn.execute(statement.encode())


@pytest.mark.parametrize(
    "statement",
    [
        "create table headwatch.mine ()",
        "alter table headwatch.worktree no force row level security",
        "create policy all_of_it on headwatch.worktree using (true)",
        "set row_security = off; select * from worktree",
        "set role headwatch_owner",
        "select protect('headwatch.worktree')",
        "select grant_to_roles('headwatch.worktree', 'all', 'all')",
    ],
)
def test_writer_cannot_loosen_anything(sides: Sides, statement: str) -> None:
    """The writer changes rows, not rules."""
    with open_as(sides.database.dsn, A) as conn, pytest.raises(psycopg.errors.InsufficientPrivilege):
        conn.execute(statement.encode())


def test_access_list_restricts_logins(sides: Sides) -> None:
    """A tenant with an access list is closed to logins that are not on it; others stay open."""
    reader = parse(sides.database.reader_dsn)["user"]
    writer = parse(sides.database.dsn)["user"]
    with (
        open_as(sides.database.owner_dsn, B) as owner,
        open_as(sides.database.dsn, B) as conn,
        open_as(sides.database.reader_dsn, B) as readers,
    ):
        assert _one(readers, "select count(*) from worktree") == 1
        owner.execute("insert into tenant_access (tenant_id, login) values (%s, %s)", (B, writer))
        try:
            for relation in relations(conn):
                assert _one(readers, f"select count(*) from {relation}") == 0, relation
            with pytest.raises(Refused, match="is not known"), store.translate():
                readers.execute("select * from search_code('secret', null, %s)", (sides.b,))
            assert _one(conn, "select count(*) from worktree") == 1
            with open_as(sides.database.reader_dsn, A) as other:
                assert _one(other, "select count(*) from worktree") == 1
            owner.execute("insert into tenant_access (tenant_id, login) values (%s, %s)", (B, reader))
            assert _one(readers, "select count(*) from worktree") == 1
            # A list without the owner closes the tenant to it too, but not the list.
            assert _one(owner, "select count(*) from worktree") == 0
        finally:
            owner.execute("delete from tenant_access")


@pytest.mark.parametrize("login", ["writer", "reader"])
def test_access_list_is_not_the_users_to_change(sides: Sides, login: str) -> None:
    """Who could add itself to the list would not be kept out by it."""
    dsn = logins(sides.database)[login]
    for statement in (
        "insert into tenant_access (tenant_id, login) select current_tenant(), session_user",
        "update tenant_access set login = session_user",
        "delete from tenant_access",
    ):
        with open_as(dsn, B) as conn, pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute(statement.encode())
