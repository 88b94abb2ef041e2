"""Vectors: the queue that fills them, what it refuses and shares, and the search over them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

import numpy as np
import psycopg
import pytest
from numpy.typing import NDArray

from headwatch.config import LOCAL_TENANT
from headwatch.postgres import Database, with_tenant
from headwatch_indexer import retrieval, store
from headwatch_indexer.records import RepositoryRules
from headwatch_indexer.store import VectorQueue, vectors
from headwatch_indexer.store.catalog import ensure_tenant
from headwatch_indexer.store.connection import Refused
from support.databases import DatabaseServer
from support.indexed import Index
from support.many_contents import Many, add_many, show
from support.worktree import Worktree

Vectors = dict[int, NDArray[np.float64]]


@dataclass(slots=True)
class Filled:
    """A model's queue with the vectors that went through it."""

    conn: store.Connection
    queue: VectorQueue
    model: int
    dim: int
    dsn: str
    stored: Vectors = field(default_factory=dict)
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))

    def vector(self) -> list[float]:
        found = self.rng.standard_normal(self.dim)
        unit: list[float] = (found / np.linalg.norm(found)).tolist()
        return unit

    def drain(self) -> int:
        """Fill everything that waits; returns how much that was."""
        done = 0
        while rows := self.queue.next(2000):
            batch = [(content, self.vector()) for content, _ in rows]
            self.queue.save(batch)
            self.stored |= {
                content: np.array(vector, dtype=np.float16).astype(float) for content, vector in batch
            }
            done += len(batch)
        return done

    def nearest(self, query: list[float], among: list[int], k: int) -> list[tuple[int, float]]:
        """The exact answer, from what was given to the queue."""
        asked = np.array(query, dtype=np.float16).astype(float)
        ids = [content for content in among if content in self.stored]
        rows = np.array([self.stored[content] for content in ids]).reshape(len(ids), self.dim)
        cosine = rows @ asked / np.linalg.norm(rows, axis=1) / np.linalg.norm(asked)
        order = np.argsort(-cosine, kind="stable")[:k]
        return [(ids[n], float(cosine[n])) for n in order]

    def dense(self, query: list[float], worktree: int, k: int, filters: str = "") -> list[tuple[int, float]]:
        return self.conn.execute(
            f"select content_id, similarity from search_dense(%s::halfvec, %s, %s{filters})"
            " order by similarity desc, content_id".encode(),
            (str(query), worktree, k),
        ).fetchall()


@contextmanager
def filling(conn: store.Connection, dsn: str, name: str, dim: int, revision: str = "1") -> Iterator[Filled]:
    """Register a model and open its queue."""
    model = vectors.provision(conn, name, revision, dim)
    with closing(store.open_vector_queue(dsn, model)) as queue:
        yield Filled(conn, queue, model, dim, dsn)


@dataclass(frozen=True, slots=True)
class Two:
    """A worktree of 600 and one of 6,000 contents, and one that shows 300 of the 6,000."""

    filled: Filled
    small: Many
    big: Many
    part: int


@pytest.fixture(scope="module", params=[8, 384])
def two(server: DatabaseServer, template: str, request: pytest.FixtureRequest) -> Iterator[Two]:
    """Random unit vectors of 8 and of 384 dimensions."""
    with server.fresh("hw_vectors", template) as database:
        dsn = with_tenant(database.dsn, str(LOCAL_TENANT))
        with store.connect(dsn) as conn:
            ensure_tenant(conn)
            small, big = add_many(conn, "small", 600), add_many(conn, "big", 6000)
            part = show(conn, big, "part", 300)
            with filling(conn, dsn, "random", request.param) as filled:
                assert filled.drain() == 6600
                with psycopg.connect(database.owner_dsn, autocommit=True) as owner:
                    owner.execute("analyze")
                yield Two(filled, small, big, part)


def hnsw_scans(filled: Filled, many: Many) -> int:
    """How often the HNSW index of a repository was used."""
    filled.conn.execute("select pg_stat_force_next_flush()")
    filled.conn.execute("select 1")
    row = filled.conn.execute(
        "select idx_scan from pg_stat_user_indexes where indexrelname = %s",
        (f"code_vector_m{filled.model}_r{many.repository}_hnsw",),
    ).fetchone()
    return 0 if row is None else int(row[0])


def near(found: list[tuple[int, float]], wanted: list[tuple[int, float]]) -> None:
    """The same similarities, to what half precision leaves of them, and the same contents but for near ties."""
    assert len(found) == len(wanted)
    for (_, similarity), (_, expected) in zip(found, wanted, strict=True):
        assert math.isclose(similarity, expected, abs_tol=2e-4)
    cut = wanted[-1][1] + 5e-4 if wanted else 0.0
    assert {n for n, similarity in found if similarity > cut} <= {n for n, _ in wanted}


@pytest.mark.parametrize("k", [1, 40, 400, 1000])
def test_exact_below_the_crossover(two: Two, k: int) -> None:
    """A worktree that shows fewer than 5,000 contents is answered exactly, without an index."""
    for _ in range(5):
        query = two.filled.vector()
        near(two.filled.dense(query, two.small.worktree, k), two.filled.nearest(query, two.small.contents, k))
    assert hnsw_scans(two.filled, two.small) == 0


def test_small_worktree_of_a_big_repository(two: Two) -> None:
    """300 of 6,000 visible: exact among these, and as many as are asked for."""
    mine = two.big.contents[:300]
    before = hnsw_scans(two.filled, two.big)
    for k in (40, 300, 1000):
        query = two.filled.vector()
        near(two.filled.dense(query, two.part, k), two.filled.nearest(query, mine, k))
    assert hnsw_scans(two.filled, two.big) == before


def test_hnsw_above_the_crossover(two: Two) -> None:
    """More than 5,000 visible: the index is walked, nothing is missing from the count, little from the best."""
    before = hnsw_scans(two.filled, two.big)
    hits = asked = 0
    for k in (10, 40, 200):
        for _ in range(5):
            query = two.filled.vector()
            found = two.filled.dense(query, two.big.worktree, k)
            assert len(found) == k
            assert len({content for content, _ in found}) == k
            assert [s for _, s in found] == sorted((s for _, s in found), reverse=True)
            wanted = {content for content, _ in two.filled.nearest(query, two.big.contents, k)}
            hits += len(wanted & {content for content, _ in found})
            asked += k
    assert hnsw_scans(two.filled, two.big) > before
    # Random directions of 384 dimensions have no neighbourhoods: the worst that there is for the index.
    assert hits / asked > (0.95 if two.filled.dim == 8 else 0.3)


def test_more_than_the_walk_finds(two: Two) -> None:
    """Where the index gives fewer than k and more exist, all are compared."""
    query = two.filled.vector()
    assert len(two.filled.dense(query, two.big.worktree, 5990)) == 5990
    assert len(two.filled.dense(query, two.big.worktree, 9000)) == 6000


@pytest.mark.parametrize(
    ("filters", "share"),
    [
        (", only_kind => 'class'", lambda n: n % 500 == 0),
        (", only_kind => 'method'", lambda n: n % 2 == 0 and n % 500 != 0),
        (", only_path => 'src/f3.py'", lambda n: n % 40 == 2),
        (", only_language => 'python', only_kind => 'class'", lambda n: n % 500 == 0),
        (", only_language => 'rust'", lambda n: False),
        (", no_tests => true", lambda n: True),
    ],
)
@pytest.mark.parametrize("k", [10, 100])
def test_filters_are_applied_inside(two: Two, filters: str, share: object, k: int) -> None:
    """A filter leaves k results when k pass it: rare ones too."""
    assert callable(share)
    for many in (two.small, two.big):
        passing = [content for n, content in enumerate(many.contents, 1) if share(n)]
        query = two.filled.vector()
        found = two.filled.dense(query, many.worktree, k, filters)
        assert len(found) == min(k, len(passing))
        assert {content for content, _ in found} <= set(passing)
        if many is two.small or len(passing) < 200:
            near(found, two.filled.nearest(query, passing, k))


def test_wrong_dimension_says_both(two: Two) -> None:
    """A query of another model is an error that names the active one."""
    with pytest.raises(
        psycopg.DataError, match=rf"has 3 dimensions, the active model random has {two.filled.dim}"
    ):
        two.filled.conn.execute("select * from search_dense('[1,2,3]', %s, 10)", (two.small.worktree,))
    row = next(w for w in store.worktrees(two.filled.conn, host="here") if w.id == two.small.worktree)
    with pytest.raises(Refused, match="has 3 dimensions") as caught:
        retrieval.search(two.filled.conn, row, retrieval.Question("f1"), [1.0, 2.0, 3.0], RepositoryRules())
    assert "active_model()" in caught.value.hint


def test_hybrid_is_reciprocal_rank_fusion(index: Index, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A result's lexical and dense parts are 1 / (60 + its place) in the two searches."""
    tree = Worktree.init(tmp_path_factory.mktemp("fused") / "repo")
    for n in range(50):
        tree.write(f"m{n}.py", f"def f{n}(x):\n    return x.open({n}) + x.read(a{n % 5})\n")
    tree.commit("all")
    index.add(tree)
    index.reconcile(tree)
    row = index.row(tree)
    with filling(index.conn, index.dsn, "fused", 8) as filled:
        filled.drain()
        query = filled.vector()
        results = index.conn.execute(
            "select c.content_id, s.parts, s.similarity, s.bm25"
            " from search_code('open read a3 a4', %s::halfvec, %s, 60) s"
            " join file f on f.path = s.path and f.worktree_id = %s join chunk c on c.parse_id = f.parse_id",
            (str(query), row.id, row.id),
        ).fetchall()
        lexical = index.conn.execute(
            "select content_id, bm25 from search_lexical('open read a3 a4', %s, 120)", (row.id,)
        ).fetchall()
        dense = filled.dense(query, row.id, 120)
        assert len(results) == 50
        for content, parts, similarity, score in results:
            for name, value, ranked in (("lexical", score, lexical), ("dense", similarity, dense)):
                ids = [number for number, _ in ranked]
                if content in ids:
                    place = ids.index(content)
                    assert math.isclose(parts[name], 1 / (60 + place + 1), abs_tol=1e-12)
                    assert math.isclose(value, ranked[place][1], abs_tol=1e-9)
                else:
                    assert (parts[name], value) == (0, None)


# The queue.


@pytest.fixture
def filled(database: Database) -> Iterator[Filled]:
    """A model of 3 dimensions in a database of this test alone."""
    dsn = with_tenant(database.dsn, str(LOCAL_TENANT))
    with store.connect(dsn) as conn:
        ensure_tenant(conn)
        with filling(conn, dsn, "m", 3) as filled:
            yield filled


def stored(filled: Filled) -> int:
    row = filled.conn.execute(f"select count(*) from code_vector_m{filled.model}".encode()).fetchone()
    assert row is not None
    return int(row[0])


def test_queue_hands_out_each_content_once(filled: Filled) -> None:
    """What has a vector is not asked for again; pending counts what is left."""
    add_many(filled.conn, "repo", 30, files=3)
    first = filled.queue.next(10)
    assert len(first) == 10
    assert filled.queue.pending() == 30
    assert filled.queue.save([(content, filled.vector()) for content, _ in first]) == 10
    assert filled.queue.save([(content, filled.vector()) for content, _ in first]) == 0
    second = filled.queue.next(100)
    assert {content for content, _ in second}.isdisjoint(content for content, _ in first)
    assert filled.queue.pending() == len(second) == 20
    filled.drain()
    assert (filled.queue.pending(), filled.queue.next(10)) == (0, [])


def test_latest_worktree_goes_first(filled: Filled) -> None:
    """What was applied last is nearest to the user's work."""
    add_many(filled.conn, "old", 20, files=2)
    new = add_many(filled.conn, "new", 20, files=2)
    assert {content for content, _ in filled.queue.next(20)} == set(new.contents)


BAD = {
    "short": ([1.0, 0.0], "it has 2 dimensions, model m has 3"),
    "long": ([1.0, 0.0, 0.0, 0.0], "it has 4 dimensions, model m has 3"),
    "empty": ([], "it has 0 dimensions, model m has 3"),
    "nan": ([1.0, math.nan, 0.0], "it is not finite"),
    "infinite": ([1.0, math.inf, 0.0], "it is not finite"),
    "too large": ([1e30, 0.0, 0.0], "it is not finite"),
    "zero": ([0.0, 0.0, 0.0], "it has no length"),
    "tiny": ([1e-20, 0.0, 0.0], "it has no length"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_vector_is_refused_before_anything_is_written(filled: Filled, kind: str) -> None:
    """One bad vector in a batch: the error says which and why, and none of the batch is stored."""
    add_many(filled.conn, "repo", 10, files=1)
    rows = filled.queue.next(10)
    vector, why = BAD[kind]
    batch = [(content, filled.vector()) for content, _ in rows[:-1]] + [(rows[-1][0], vector)]
    with pytest.raises(vectors.VectorRefused, match=f"content {rows[-1][0]}: {why}") as caught:
        filled.queue.save(batch)
    assert "headwatch doctor" in caught.value.hint
    assert stored(filled) == 0
    assert filled.drain() == 10


def test_dead_letters_are_asked_for_no_more(filled: Filled) -> None:
    """A buried content is neither handed out nor counted, for this model; it is kept with its reason."""
    add_many(filled.conn, "repo", 5, files=1)
    poisoned = filled.queue.next(1)[0][0]
    filled.queue.bury(poisoned, "it hurts", attempts=3)
    filled.queue.bury(poisoned, "it still hurts", attempts=2)
    assert poisoned not in [content for content, _ in filled.queue.next(10)]
    assert filled.queue.pending() == 4
    assert list(vectors.pending(filled.conn, filled.model).values()) == [4]
    assert filled.conn.execute("select content_id, reason, attempts from dead_letter").fetchall() == [
        (poisoned, "it still hurts", 5)
    ]
    with filling(filled.conn, filled.dsn, "m", 3, revision="2") as other:
        assert poisoned in [content for content, _ in other.queue.next(10)]


def test_content_that_is_gone_is_not_stored(filled: Filled) -> None:
    """A vector that comes after its repository went is dropped without an error."""
    many = add_many(filled.conn, "repo", 5, files=1)
    rows = filled.queue.next(10)
    filled.conn.execute("select drop_repository(%s)", (many.repository,))
    assert filled.queue.next(10) == []
    again = add_many(filled.conn, "repo2", 5, files=1)
    assert len(filled.queue.next(10)) == 5
    assert filled.queue.save([(rows[0][0], filled.vector()), (again.contents[0], filled.vector())]) == 1


def test_queue_survives_a_lost_connection(filled: Filled) -> None:
    """A call fails as Unavailable, the next one goes on."""
    add_many(filled.conn, "repo", 5, files=1)
    rows = filled.queue.next(10)
    filled.conn.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'headwatch embedder'"
        " and datname = current_database()"
    )
    batch = [(content, filled.vector()) for content, _ in rows]
    with pytest.raises(store.Unavailable):
        filled.queue.save(batch)
    assert filled.queue.save(batch) == 5


def test_two_queues_at_once(filled: Filled) -> None:
    """Two workers that take the same contents store each vector once."""
    add_many(filled.conn, "repo", 20, files=2)
    with closing(store.open_vector_queue(filled.dsn, filled.model)) as other:
        mine, theirs = filled.queue.next(20), other.next(20)
        assert mine == theirs
        new = filled.queue.save([(content, filled.vector()) for content, _ in mine])
        new += other.save([(content, filled.vector()) for content, _ in theirs])
    assert (new, stored(filled)) == (20, 20)


def test_worktrees_share_what_they_both_show(index: Index, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A second worktree at the same commit needs no vector; one that differs needs the difference."""
    folder = tmp_path_factory.mktemp("shared")
    tree = Worktree.init(folder / "repo")
    for n in range(5):
        tree.write(f"m{n}.py", f"def f{n}():\n    return {n}\n")
    tree.commit("all")
    index.add(tree)
    index.reconcile(tree)
    with filling(index.conn, index.dsn, "shared", 3) as filled:
        assert filled.drain() == 5
        linked = Worktree(folder / "linked")
        tree.git("worktree", "add", "--quiet", "--detach", str(linked.root))
        index.discover()
        index.reconcile(linked)
        assert filled.queue.pending() == 0
        linked.write("m0.py", "def f0():\n    return 'other'\n")
        index.reconcile(linked)
        assert vectors.pending(index.conn, filled.model) == {index.row(linked).id: 1}
        assert filled.drain() == 1


def test_second_repository_with_the_same_text_is_not_embedded(
    index: Index, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Vectors are copied where another repository of the tenant has the same text, also for what comes later."""
    folder = tmp_path_factory.mktemp("copies")
    with filling(index.conn, index.dsn, "copied", 3) as filled:
        trees = [Worktree.init(folder / name) for name in ("first", "second")]
        for number, tree in enumerate(trees):
            for n in range(5):
                tree.write(f"m{n}.py", f"def f{n}():\n    return {n}\n")
            tree.write("own.py", f"def own():\n    return 'only in {number}'\n")
            tree.commit("all")
            index.add(tree)
            index.reconcile(tree)
            if number == 0:
                assert filled.drain() == 6
        assert [text for _, text in filled.queue.next(100)] == ["own\ndef own():\n    return 'only in 1'"]
        assert filled.drain() == 1
        trees[0].write("later.py", "def later():\n    return 'both'\n")
        index.reconcile(trees[0])
        assert filled.drain() == 1
        trees[1].write("renamed/later.py", "def later():\n    return 'both'\n")
        index.reconcile(trees[1])
        assert filled.queue.copy_known() == 1
        assert filled.queue.pending() == 0
        same = index.conn.execute(
            f"select count(*), count(distinct e.embedding::text) from code_vector_m{filled.model} e"
            " join content c on c.id = e.content_id where c.text like 'f1%%'".encode()
        ).fetchone()
        assert same == (2, 1)


def test_new_model_is_filled_beside_the_old_one(filled: Filled) -> None:
    """The old model answers until the new one has everything; then the new one does, and nothing is mixed."""
    many = add_many(filled.conn, "repo", 10, files=1)
    filled.drain()
    old = (filled.model, "m", "1", 3)
    with filling(filled.conn, filled.dsn, "n", 5) as other:
        assert vectors.active(filled.conn) == old
        rows = other.queue.next(6)
        other.queue.save([(content, other.vector()) for content, _ in rows])
        assert vectors.active(filled.conn) == old
        assert len(filled.dense(filled.vector(), many.worktree, 20)) == 10
        assert other.drain() == 4
        assert vectors.active(filled.conn) == (other.model, "n", "1", 5)
        assert len(other.dense(other.vector(), many.worktree, 20)) == 10
    with pytest.raises(psycopg.DataError, match="the active model n has 5"):
        filled.dense(filled.vector(), many.worktree, 20)
    assert vectors.activate(filled.conn, filled.model)
    assert not vectors.activate(filled.conn, filled.model)
    assert len(filled.dense(filled.vector(), many.worktree, 20)) == 10


def test_model_of_another_dimension_is_another_model(filled: Filled) -> None:
    """The same name and revision with another dimension is refused; with the same one it is the same model."""
    assert vectors.provision(filled.conn, "m", "1", 3) == filled.model
    with pytest.raises(Refused, match="model m revision 1 has 3 dimensions, not 4"):
        vectors.provision(filled.conn, "m", "1", 4)


@pytest.mark.parametrize("dim", [1, 1024, 4000, 5000])
def test_any_dimension(filled: Filled, dim: int) -> None:
    """Up to 4,000 dimensions vectors can be indexed; longer ones are searched exactly."""
    many = add_many(filled.conn, "repo", 12, files=1)
    with filling(filled.conn, filled.dsn, "wide", dim) as wide:
        assert wide.drain() == 12
        query = wide.vector()
        if dim > 1:
            near(wide.dense(query, many.worktree, 5), wide.nearest(query, many.contents, 5))
        assert len(wide.dense(query, many.worktree, 20)) == 12
