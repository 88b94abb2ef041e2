"""Lexical search and its filters inside the database, against a BM25 of our own; then what search_code makes of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from headwatch.config import LOCAL_TENANT
from headwatch.postgres import with_tenant
from headwatch_indexer import retrieval, store
from headwatch_indexer.records import RepositoryRules
from headwatch_indexer.tokens import tokens
from support import bm25
from support.corpus import write_corpus
from support.databases import DatabaseServer
from support.indexed import Index, open_index
from support.worktree import Worktree

QUERIES = (
    "open a file and read its lines",
    "parse",
    "def __init__ self return value",
    "get the path of a temporary file",
    "HTTPResponse readline",
    "raise ValueError if not isinstance str",
    "thread lock acquire timeout",
    "url quote unquote encoding errors",
    "zzzznothing",
    "self self self self",
    "parse parse_args",
)
STRANGE = (
    "", " ", "\t\n", "!?.,;:-()[]{}", "___", "%", "_", "100%", "a' or 1=1 --", "'; drop table content; --", "\\",
    "\\d+(.*)[", "(unclosed", "$1 $$ %s %(x)s {0}", "x" * 20_000, "word " * 4_000,
    "🚀", "🚀 launch 配列 \u0301 é é", "\ufeff\u200b\u2028",
    "İ ß ſ K", "\x01\x7f", "null", "true & false | !x <-> y :*",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Library:
    """An indexed repository that no test changes."""

    index: Index
    row: store.WorktreeRow
    corpus: dict[int, str]

    @property
    def conn(self) -> store.Connection:
        return self.index.conn

    def lexical(self, query: str, k: int, filters: str = "") -> list[tuple[int, float]]:
        return self.conn.execute(
            f"select content_id, bm25 from search_lexical(%s, %s, %s{filters}) order by bm25 desc, content_id".encode(),
            (query, self.row.id, k),
        ).fetchall()

    def code(self, query: str, arguments: str = "") -> list[tuple]:  # type: ignore[type-arg]  # rows of a query
        return self.conn.execute(
            "select path, qualname, kind, score, parts, language, content from"
            f" search_code(%s, null, %s{arguments}) order by rank".encode(),
            (query, self.row.id),
        ).fetchall()


@pytest.fixture(scope="module")
def library(
    server: DatabaseServer, template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Library]:
    """300 definitions of the standard library."""
    home = tmp_path_factory.mktemp("home")
    tree = Worktree.init(home / "repo")
    write_corpus(tree, 300)
    tree.write("src/wanted.py", WANTED)
    tree.write("tests/test_wanted.py", TESTS_OF_WANTED)
    tree.commit("all")
    with (
        server.fresh("hw_search", template) as database,
        open_index(with_tenant(database.dsn, str(LOCAL_TENANT)), home) as index,
    ):
        index.add(tree)
        index.reconcile(tree)
        row = index.row(tree)
        yield Library(index, row, bm25.corpus_of(index.conn, row.repository_id))


WANTED = '''class RateLimiter:
    """Let through so many calls a second."""

    def take_token(self, count):
        return self.tokens >= count


def take_token_or_wait(limiter, count):
    while not limiter.take_token(count):
        pass
'''
TESTS_OF_WANTED = "".join(
    f"def test_take_token_{n}():\n    limiter = RateLimiter({n})\n    assert limiter.take_token({n})\n"
    f"    assert take_token_or_wait(limiter, {n}) is None  # take_token RateLimiter take_token\n\n\n"
    for n in range(12)
)


def same(found: list[tuple[int, float]], wanted: list[tuple[int, float]]) -> None:
    """The same scores to 1e-6, in order, and the same documents but for ties at the cut."""
    assert len(found) == len(wanted)
    for (_, score), (_, expected) in zip(found, wanted, strict=True):
        assert math.isclose(score, expected, rel_tol=1e-6, abs_tol=1e-6)
    cut = wanted[-1][1] + 1e-6 if wanted else 0.0
    assert {n for n, score in found if score > cut} == {n for n, score in wanted if score > cut}


ANY = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
NAMES = st.text(st.sampled_from("aAbBzZ019__ .-\u0130\u00df\u017f\u212a\u0301配🚀"))


@given(st.one_of(ANY, NAMES))
@example("İ ß ſ K ŉ ǰ ΐ ﬀ")
@example("parseHTTPResponse2XML __a__b9C XMLhttp42_ a1B2c3D4")
@example("e\u0301 \u0301x x\u200dy 👩‍👩‍👧 配列Sort並べ \U0001d54f")
@example("a" * 64 + " " + "b" * 65 + " " + "cD" * 40 + "\x85\xa0\u2003z")
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_tokens_in_the_database_are_those_in_python(library: Library, text: str) -> None:
    """One tokeniser, twice: any text gives the same tokens in the same order."""
    assert library.conn.execute("select headwatch.tokens(%s)", (text,)).fetchone() == (tokens(text),)


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("k", [10, 200, 5000])
def test_lexical_is_okapi_bm25(library: Library, query: str, k: int) -> None:
    """Scores are those of the reference over the repository's live contents; any term may match."""
    wanted = bm25.best(bm25.scores(library.corpus, query), library.corpus, k)
    same(library.lexical(query, k), wanted)


def test_lexical_stays_right_as_code_moves(index: Index, tmp_path_factory: pytest.TempPathFactory) -> None:
    """After edits, removals, branch switches and a second worktree, statistics are those of what is live."""
    folder = tmp_path_factory.mktemp("moves")
    tree = Worktree.init(folder / "repo")
    write_corpus(tree, 40, seed=2)
    tree.commit("all")
    index.add(tree)

    def check(*trees: Worktree) -> None:
        for each in trees:
            index.reconcile(each)
        for each in trees:
            row = index.row(each)
            corpus = bm25.corpus_of(index.conn, row.repository_id)
            shown = bm25.shown_by(index.conn, row.id)
            for query in QUERIES:
                found = index.conn.execute(
                    "select content_id, bm25 from search_lexical(%s, %s, 50)", (query, row.id)
                ).fetchall()
                same(found, bm25.best(bm25.scores(corpus, query), shown, 50))

    check(tree)
    tree.write("src/core/part0.py", "def parse(path):\n    return open(path).read()\n")
    check(tree)
    tree.delete("tests/unit/test_part30.py")
    tree.write("again.py", "def parse(path):\n    return open(path).read()\n")
    check(tree)
    tree.commit("changed")
    tree.git("checkout", "--quiet", "-b", "other", "HEAD~1")
    check(tree)
    linked = Worktree(folder / "linked")
    tree.git("worktree", "add", "--quiet", str(linked.root), "main")
    index.discover()
    linked.write("only/here.py", "def timeout_of_lock(lock):\n    return lock.timeout\n")
    check(tree, linked)
    tree.git("checkout", "--quiet", "--detach", "main")
    check(tree, linked)
    store.forget_worktree(index.conn, index.row(linked).id)
    check(tree)


@pytest.mark.parametrize("query", STRANGE)
@pytest.mark.parametrize("mode", ["hybrid", "lexical"])
def test_any_text_is_a_query(library: Library, query: str, mode: str) -> None:
    """Nothing in a query is a pattern, a statement or an error; it finds what its words find."""
    found = library.code(query, f", 10, '{mode}'")
    if not tokens(query):
        assert found == []
    same(library.lexical(query, 20), bm25.best(bm25.scores(library.corpus, query), library.corpus, 20))


def test_nul_in_a_query(library: Library) -> None:
    """A character that Postgres cannot hold separates words."""
    question = retrieval.Question(text="parse\0query", mode="lexical")
    results = retrieval.search(library.conn, library.row, question, None, RepositoryRules())
    assert "parseQuery" in [result["qualname"] for result in results]


FILTERS = {
    ", only_path => 'src/**'": "f.path like 'src/%%'",
    ", only_path => 'lib'": "f.path like 'lib/%%'",
    ", only_path => '*.js'": "f.path like '%%.js'",
    ", only_path => 'src/*/part*.py'": "f.path ~ '^src/[^/]+/part[^/]*\\.py$'",
    ", only_path => '**/deep/part?0.py'": "f.path ~ '/deep/part.0\\.py$'",
    ", only_path => 'none'": "false",
    ", only_path => 'src.*'": "false",
    ", only_language => 'javascript'": "s.language = 'javascript'",
    ", only_language => 'python'": "s.language = 'python'",
    ", only_kind => 'class'": "s.kind = 'class'",
    ", only_kind => 'section'": "s.kind = 'section'",
    ", no_tests => true": "f.path not like 'tests/%%'",
    ", only_kind => 'function', only_path => 'src/**', no_tests => true":
        "s.kind = 'function' and f.path like 'src/%%'",
    ", only_kind => 'method', only_language => 'python'": "s.kind = 'method' and s.language = 'python'",
}  # fmt: skip


@pytest.mark.parametrize("filters", FILTERS)
def test_filters_are_applied_inside(library: Library, filters: str) -> None:
    """k results come back when k exist under the filter, the best ones, and none from outside."""
    shown = bm25.shown_by(library.conn, library.row.id, FILTERS[filters])
    for query in QUERIES[:8]:
        for k in (5, 40):
            wanted = bm25.best(bm25.scores(library.corpus, query), shown, k)
            same(library.lexical(query, k, filters), wanted)


@pytest.mark.parametrize(
    ("arguments", "holds"),
    [
        (", 30, only_path => 'src/**'", lambda row: row[0].startswith("src/")),
        (", 30, only_language => 'markdown'", lambda row: row[5] == "markdown"),
        (", 30, only_kind => 'class'", lambda row: row[2] == "class"),
        (", 30, tests => 'exclude'", lambda row: not row[0].startswith("tests/")),
    ],
)
def test_filters_of_search_code(library: Library, arguments: str, holds: object) -> None:
    """Every result passes the filter, names that the query asks for too."""
    assert callable(holds)
    found = library.code("take_token open parse a file RateLimiter", arguments)
    assert found
    assert all(holds(row) for row in found)


@pytest.mark.parametrize("k", [1, 10, 50, 200])
def test_as_many_as_asked_for(library: Library, k: int) -> None:
    """k results when so many symbols match, each once, in order of score."""
    found = library.code("self return if", f", {k}, 'lexical'")
    assert len(found) == k
    assert len({(row[0], row[1]) for row in found}) == k
    assert [row[3] for row in found] == sorted((row[3] for row in found), reverse=True)


def test_filters_over_many_files(index: Index, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where too much passes a filter to be listed first, what is found is the same."""
    tree = Worktree.init(tmp_path_factory.mktemp("many") / "repo")
    for file in range(24):
        folder = ("src", "lib", "tests")[file % 3]
        tree.write(
            f"{folder}/many{file}.py",
            "".join(
                f"def f{file}_{n}(a{n}):\n    return a{n} + b{n % 7} + c{file}\n\n\n" for n in range(110)
            ),
        )
    tree.commit("all")
    index.add(tree)
    index.reconcile(tree)
    row = index.row(tree)
    assert row.symbols > 2400
    corpus = bm25.corpus_of(index.conn, row.repository_id)
    for filters in (*FILTERS, ", only_path => '**/*.py'", ", only_path => 'lib', only_kind => 'function'"):
        condition = (
            {", only_path => '**/*.py'": "true"}.get(filters)
            or FILTERS.get(filters)
            or "f.path like 'lib/%%'"
        )
        shown = bm25.shown_by(index.conn, row.id, condition)
        for query in ("return b3", "c5 a17", "f9_100 def"):
            found = index.conn.execute(
                f"select content_id, bm25 from search_lexical(%s, %s, 60{filters})".encode(), (query, row.id)
            ).fetchall()
            same(found, bm25.best(bm25.scores(corpus, query), shown, 60))


def test_parts_of_one_symbol_do_not_crowd_out_others(
    index: Index, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A symbol of a hundred parts is one result; the others are still found."""
    tree = Worktree.init(tmp_path_factory.mktemp("long") / "repo")
    body = "".join(f"    gizmo = gizmo + gizmo * {n}  # gizmo\n" for n in range(6000))
    tree.write("long.py", "def long(gizmo):\n" + body)
    for n in range(8):
        tree.write(f"short{n}.py", f"def short{n}(x):\n    return x.gizmo, x.a, x.b, x.c, {n}\n")
    tree.commit("all")
    index.add(tree)
    index.reconcile(tree)
    found = index.conn.execute(
        "select qualname from search_code('gizmo', null, %s, 9)", (index.row(tree).id,)
    ).fetchall()
    assert sorted(name for (name,) in found) == ["long", *(f"short{n}" for n in range(8))]


def test_explained_parts_give_the_score(library: Library) -> None:
    """Evaluating the formula over a result's parts gives its score to 1e-9."""
    for query in (*QUERIES, "take_token", "RateLimiter.take_token"):
        for *_, score, parts, _, _ in library.code(query, ", 50"):
            assert math.isclose(eval(retrieval.FORMULA, {}, parts), score, rel_tol=0, abs_tol=1e-9)


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("take_token", "RateLimiter.take_token"),
        ("take_token_or_wait", "take_token_or_wait"),
        ("where is RateLimiter defined", "RateLimiter"),
        ("RateLimiter.take_token", "RateLimiter.take_token"),
        ("RateLimiter::take_token", "RateLimiter.take_token"),
        ("how does take_token work", "RateLimiter.take_token"),
    ],
)
def test_definition_ranks_above_its_tests(library: Library, query: str, first: str) -> None:
    """A name in the query finds its definition first, though tests say it more often."""
    found = library.code(query)
    assert (found[0][0], found[0][1]) == ("src/wanted.py", first)


def test_tests_come_first_when_asked_for(library: Library) -> None:
    """A query that asks for tests does not demote them; `equal` never does, `exclude` leaves them out."""
    assert library.code("tests of rate limiter take token")[0][0] == "tests/test_wanted.py"
    scores = {
        how: [
            row[3]
            for row in library.code("limiter assert wait none", f", 50, tests => '{how}'")
            if row[0] == "tests/test_wanted.py"
        ]
        for how in ("demote", "equal", "exclude")
    }
    assert scores["equal"][0] == pytest.approx(2.5 * scores["demote"][0])
    assert scores["exclude"] == []


def test_content_is_the_lines_on_disk(library: Library) -> None:
    """A result's content is its whole lines as the file has them."""
    rows = library.conn.execute(
        "select path, start_line, end_line, content from search_code('file open parse read', null, %s, 50)",
        (library.row.id,),
    ).fetchall()
    assert len(rows) == 50
    for path, first, last, content in rows:
        with open(f"{library.row.root}/{path}", encoding="utf-8") as file:
            lines = file.read().split("\n")
        assert content == "\n".join(lines[first - 1 : last]), path


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("search_code('x', null, -1)", "worktree -1 is not known"),
        ("search_code('x', null, %(w)s, 10, 'fuzzy')", "mode is hybrid, lexical or dense"),
        ("search_code('x', null, %(w)s, 10, tests => 'maybe')", "tests is demote, equal or exclude"),
        ("search_code('x', null, %(w)s, 0)", "k is 1 to 1000"),
    ],
)
def test_wrong_arguments_say_so(library: Library, call: str, message: str) -> None:
    """What cannot be meant is an error, never an empty answer."""
    with pytest.raises(psycopg.DatabaseError, match=message):
        library.conn.execute(f"select * from {call}".encode(), {"w": library.row.id})
