"""The oracle sees every kind of lie that an index in place can tell."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any

import pytest

from headwatch_indexer import pipeline, plan, store, symbols
from headwatch_indexer.records import Parsed
from headwatch_indexer.snapshot import take
from support import oracle
from support.indexed import Index
from support.worktree import Worktree

Make = Callable[..., Worktree]
ONE = "import os\n\n\nclass A:\n    def run(self) -> int:\n        return 1\n"
TWO = "def two() -> int:\n    return 2\n"
LIES = {
    "update headwatch.visible set n = n + 1 where content_id = %(two)s": "visible 2 times, should be 1",
    "delete from headwatch.visible where content_id = %(two)s": "visible 0 times, should be 1",
    "update headwatch.term_stat set df = df + 1 where df = 2": "term_stat.df",
    "update headwatch.repo_stat set tokens = tokens - 1": "repo_stat",
    "delete from headwatch.posting where content_id = %(two)s": "postings .*missing term",
    "insert into headwatch.posting select * from headwatch.posting where tf = 1 limit 1": "postings .*surplus term",
    "update headwatch.posting set tf = tf + 1 where content_id = %(two)s": "postings",
    "update headwatch.content set length = 0 where id = %(two)s": "repo_stat|length",
    "update headwatch.worktree set files = files + 1": "worktree.files",
    "update headwatch.worktree set symbols = symbols - 1": "worktree.symbols",
    "update headwatch.worktree set skipped = skipped + 1": "worktree.skipped",
    "update headwatch.worktree set indexed_head = null": "the proof says",
    "update headwatch.worktree set branch = 'side'": "the proof says",
    "update headwatch.symbol set kind = 'method' where name = 'two'": "two.*kind is 'method'",
    "update headwatch.blob set source = overlay(source placing '9' from 1)": "content is",
    "update headwatch.file set path = 'x/two.py' where path = 'pkg/two.py'": "pkg/two.py.* is missing",
    "delete from headwatch.chunk where content_id = %(two)s": "visible.n",
    "insert into headwatch.skipped (worktree_id, path, reason) select worktree_id, path, 'binary' from headwatch.file":
        "worktree.skipped|both indexed and skipped",
}  # fmt: skip


@pytest.fixture
def tree(git_repo: Make, index: Index) -> Worktree:
    """A repository of two files that is indexed and right."""
    worktree = git_repo()
    worktree.write("one.py", ONE)
    worktree.write("pkg/two.py", TWO)
    worktree.commit("one")
    index.add(worktree)
    index.update(worktree)
    return worktree


def assert_caught(index: Index, tree: Worktree, what: str) -> None:
    """The oracle refuses the rows and says where they are wrong."""
    with pytest.raises(AssertionError, match=what):
        oracle.assert_equal(index.conn, tree.root)


def break_plan(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """Let every plan come out with fields replaced."""
    right = plan.compare
    monkeypatch.setattr(plan, "compare", lambda *given: dataclasses.replace(right(*given), **changes))


def test_rows_of_a_known_tree(tree: Worktree) -> None:
    """The oracle's own answer, written out once by hand."""
    oid = tree.git("rev-parse", "HEAD:one.py")
    two = tree.git("rev-parse", "HEAD:pkg/two.py")
    assert oracle.expected_rows(tree.root) == {
        ("one.py", "<module>", "module", 1, 1, "import os", oid),
        ("one.py", "A", "class", 4, 6, ONE.split("\n\n\n")[1].rstrip("\n"), oid),
        ("one.py", "A.run", "method", 5, 6, "    def run(self) -> int:\n        return 1", oid),
        ("pkg/two.py", "two", "function", 1, 2, TWO.rstrip("\n"), two),
    }


def test_difference_names_the_first_one(tree: Worktree) -> None:
    """Equal sets give None; else a sentence with path, name and what differs."""
    rows = oracle.expected_rows(tree.root)
    assert oracle.difference(rows, rows) is None
    run = next(row for row in rows if row.qualname == "A.run")
    moved = {*rows} - {run} | {run._replace(start_line=4)}
    assert oracle.difference(rows - {run}, rows) == (
        "one.py#A.run (method, lines 5-6) is missing (0 surplus, 1 missing)"
    )
    assert oracle.difference(rows, rows - {run}) == (
        "one.py#A.run (method, lines 5-6) is there, and should not be (1 surplus, 0 missing)"
    )
    assert oracle.difference(moved, rows) == (
        "one.py#A.run (method, lines 5-6): start_line is 4, should be 5 (1 surplus, 1 missing)"
    )


def test_rows_that_are_never_removed(index: Index, tree: Worktree, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that forgets deletions."""
    break_plan(monkeypatch, remove=())
    tree.delete("pkg/two.py")
    index.reconcile(tree)
    assert_caught(index, tree, r"pkg/two.py#two .* is there, and should not be")


def test_uncommitted_content_ignored(index: Index, tree: Worktree, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot that takes HEAD for the truth."""

    def committed_only(*args: Any, **kwargs: Any) -> Any:
        taken = take(*args, **kwargs)
        clean = {path: entry for path, entry in taken.entries.items() if not entry.dirty}
        return dataclasses.replace(taken, entries=clean, unknown=frozenset(taken.entries.keys() - clean))

    monkeypatch.setattr(pipeline, "take", committed_only)
    tree.write("one.py", ONE.replace("1", "11"))
    index.reconcile(tree)
    assert_caught(index, tree, "one.py#.*blob_oid is")
    tree.git("checkout", "one.py")
    tree.write("new.py", TWO)
    index.reconcile(tree)
    assert_caught(index, tree, "new.py#two .* is missing")


def test_lines_off_by_one(index: Index, tree: Worktree, monkeypatch: pytest.MonkeyPatch) -> None:
    """A parse whose lines do not fit its text, and one whose text is not the blob's."""
    right = symbols.parse

    def shifted(content: bytes, language: str) -> Parsed:
        parsed = right(content, language)
        late = tuple(dataclasses.replace(s, end_line=s.end_line + 1) for s in parsed.symbols)
        return dataclasses.replace(parsed, symbols=late)

    monkeypatch.setattr(symbols, "parse", shifted)
    tree.write("one.py", ONE + "# more\n")
    index.reconcile(tree)
    assert_caught(index, tree, "one.py#<module> .*end_line is")


def test_stale_text_under_a_new_blob(index: Index, tree: Worktree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Content read before an edit, named by the id after it."""
    right = symbols.parse
    monkeypatch.setattr(
        symbols, "parse", lambda content, language: right(content.replace(b"11", b"1"), language)
    )
    tree.write("one.py", ONE.replace("1", "11"))
    index.reconcile(tree)
    assert_caught(index, tree, "one.py#A.*content is")


def test_membership_of_another_worktree(index: Index, tree: Worktree) -> None:
    """Rows that a worktree inherits from its neighbour."""
    tree.git("worktree", "add", "-q", "-b", "side", "../side")
    side = Worktree(tree.root.parent / "side")
    side.write("pkg/two.py", "def three():\n    pass\n")
    index.discover()
    index.update(side)
    query = "update headwatch.file f set parse_id = o.parse_id, blob_oid = o.blob_oid from headwatch.file o"
    index.conn.execute(
        f"{query} where f.path = o.path and f.worktree_id = %s and o.worktree_id = %s".encode(),
        (index.row(side).id, index.row(tree).id),
    )
    assert_caught(index, side, "pkg/two.py#three .* is missing")
    oracle.assert_equal(index.conn, tree.root)


def test_lies_between_tables(index: Index, tree: Worktree) -> None:
    """Each count and each copy is checked: one wrong row is one too many."""
    found = index.conn.execute("select id from headwatch.content where text like 'two%'").fetchone()
    assert found is not None
    for lie, caught in LIES.items():
        with index.conn.transaction(force_rollback=True):
            assert index.conn.execute(lie.encode(), {"two": found[0]}).rowcount > 0, lie
            assert_caught(index, tree, caught)
    oracle.assert_equal(index.conn, tree.root)


def test_missed_visible_decrement(index: Index, tree: Worktree, monkeypatch: pytest.MonkeyPatch) -> None:
    """A removal that takes the file's row and leaves its contents to be found by a search."""
    right = store.apply

    def forgetful(conn: store.Connection, change: store.Application) -> store.Applied:
        before = index.conn.execute("select * from headwatch.visible").fetchall()
        applied = right(conn, change)
        for row in before:
            conn.execute("insert into headwatch.visible values (%s, %s, %s, %s) on conflict do nothing", row)
        return applied

    monkeypatch.setattr(store, "apply", forgetful)
    tree.delete("pkg/two.py")
    index.reconcile(tree)
    assert_caught(index, tree, "chunk 'two.*visible 1 times, should be 0")


def test_a_symlinked_root_is_the_same_worktree(index: Index, tree: Worktree) -> None:
    """The oracle follows a root to where it is, as registration does; a DSN does as well as a connection."""
    os.symlink(tree.root, tree.root.parent / "link")
    oracle.assert_equal(index.conn, tree.root.parent / "link")
    oracle.assert_equal(index.dsn, tree.root)
