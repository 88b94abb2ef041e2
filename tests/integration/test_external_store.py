"""The whole way of the rows on somebody else's server: TCP, a password, one login that is no superuser."""

from __future__ import annotations

import uuid
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from headwatch import postgres
from headwatch.dsn import parse
from headwatch.postgres import Database, with_tenant
from headwatch_indexer import migrate, retrieval, store
from headwatch_indexer.records import RepositoryRules
from headwatch_indexer.store import vectors
from headwatch_sql import migrations
from support import bm25
from support.catalogue_rules import RULES, broken
from support.corpus import write_corpus
from support.encoders import DIM, FakeEncoder
from support.indexed import Index, open_index
from support.worktree import Worktree

TENANT, OTHER = str(uuid.UUID(int=21)), str(uuid.UUID(int=22))


@pytest.fixture(params=["external_database", "database"])
def rows(request: pytest.FixtureRequest) -> Database:
    """The same tests on the external server and on the embedded one."""
    found: Database = request.getfixturevalue(request.param)
    migrate.migrate(found.owner_dsn)
    return found


@pytest.fixture
def tree(tmp_path: Path) -> Worktree:
    tree = Worktree.init(tmp_path / "repo")
    write_corpus(tree, 40)
    tree.commit("all")
    return tree


def fill(index: Index, name: str = "fake") -> int:
    """Embed all that waits; returns how much that was."""
    encoder = FakeEncoder()
    with closing(store.open_vector_queue(index.dsn, vectors.provision(index.conn, name, "0", DIM))) as queue:
        done = 0
        while waiting := queue.next(100):
            done += queue.save([(content, encoder.encode([text])[0].tolist()) for content, text in waiting])
        assert queue.pending() == 0
    return done


def test_external_login_is_what_it_should_be(external_database: Database) -> None:
    """The server under test is reached over TCP with a password, as no superuser."""
    names = parse(external_database.dsn)
    assert names["host"] == "127.0.0.1"
    assert names["password"]
    info = postgres.check(external_database.dsn)
    assert not info.superuser
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(external_database.dsn.replace(names["password"], "wrong"))


def test_migrated_schema_keeps_the_rules(rows: Database, tree: Worktree, tmp_path: Path) -> None:
    """Made by this login, the objects are under the same rules as anywhere; a second run changes nothing."""
    assert migrate.migrate(rows.owner_dsn) == migrations()[-1][0]
    with open_index(with_tenant(rows.dsn, TENANT), tmp_path) as index:
        index.add(tree)
        index.reconcile(tree)
        fill(index)
        for rule in RULES:
            assert broken(index.conn, rule) == [], rule


def test_index_search_and_vectors(rows: Database, tree: Worktree, tmp_path: Path) -> None:
    """Rows equal the disk, search is exact, vectors arrive, the proof holds while its owner lives."""
    with open_index(with_tenant(rows.dsn, TENANT), tmp_path) as index:
        index.add(tree)
        index.update(tree)
        row = index.row(tree)
        corpus = bm25.corpus_of(index.conn, row.repository_id)
        query = "read a file and parse its lines"
        found = index.conn.execute("select * from search_lexical(%s, %s, 30)", (query, row.id)).fetchall()
        wanted = bm25.best(bm25.scores(corpus, query), corpus, 30)
        assert [score for _, score in found] == pytest.approx([score for _, score in wanted], abs=1e-6)

        assert fill(index) == len(corpus)
        text = next(iter(corpus.values()))
        nearest = index.conn.execute(
            "select t.text, d.similarity from search_dense(%s::halfvec, %s, 1) d join content t on t.id = d.content_id",
            (str(FakeEncoder().encode_query(text).tolist()), row.id),
        ).fetchone()
        assert nearest == (text, pytest.approx(1, abs=1e-3))

        question = retrieval.Question("parseQuery", k=5, explain=True)
        vector = FakeEncoder().encode_query("parseQuery").tolist()
        results = retrieval.search(index.conn, row, question, vector, RepositoryRules())
        assert (results[0]["qualname"], results[0]["verified"], len(results)) == ("parseQuery", True, 5)

        state = "select state from worktree_state(%s)"
        assert index.conn.execute(state, (row.root,)).fetchall() == [("unknown",)]
        assert store.own(index.conn, row.clone_id, host="here", common_dir=row.common_dir)
        assert index.conn.execute(state, (row.root,)).fetchall() == [("fresh",)]

        tree.write("src/new.py", "def brand_new_thing():\n    return 1\n")
        tree.delete("web/query.js")
        index.update(tree)
        assert fill(index) == 1
        names = index.conn.execute(
            "select qualname from search_code('brand_new_thing', null, %s, 1)", (row.id,)
        )
        assert names.fetchall() == [("brand_new_thing",)]
        store.forget_worktree(index.conn, row.id, purge=True)
        assert index.conn.execute("select count(*) from content").fetchone() == (0,)


def test_tenants_are_apart(rows: Database, tree: Worktree, tmp_path: Path) -> None:
    """One login in two tenants sees one at a time."""
    for tenant in (TENANT, OTHER):
        with open_index(with_tenant(rows.dsn, tenant), tmp_path) as index:
            index.add(tree)
            index.update(tree)
            fill(index)
            ids = index.conn.execute("select distinct tenant_id::text from live_symbol").fetchall()
            assert ids == [(tenant,)]
    with store.connect(rows.reader_dsn) as conn:
        assert conn.execute("select count(*) from worktree").fetchone() == (0,)
