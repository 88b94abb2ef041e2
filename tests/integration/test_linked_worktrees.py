"""Linked worktrees are found by themselves, share what is known, and are each right on their own."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable

import pytest

from headwatch_indexer import pipeline, store
from headwatch_indexer.snapshot import RootMissing
from headwatch_indexer.store.content import Terms
from support import oracle
from support.indexed import HOST, Index
from support.worktree import Worktree

Make = Callable[..., Worktree]
ONE = "class A:\n    def run(self) -> int:\n        return 1\n"
TWO = "def two() -> int:\n    return 2\n"


@pytest.fixture
def tree(git_repo: Make, index: Index) -> Worktree:
    """A main worktree of two files that is indexed and right."""
    worktree = git_repo()
    worktree.write("one.py", ONE)
    worktree.write("pkg/two.py", TWO)
    worktree.commit("one")
    index.add(worktree)
    index.update(worktree)
    return worktree


def link(tree: Worktree, where: str, *options: str) -> Worktree:
    """Make a linked worktree at a path relative to the main one."""
    tree.git("worktree", "add", "-q", *options, where)
    return Worktree(tree.root.joinpath(where).resolve())


def counts(index: Index) -> dict[str, int]:
    """Rows of every table that names a worktree, and the live totals of the repository."""
    found = {}
    for table in ("worktree", "file", "skipped", "visible", "transition"):
        row = index.conn.execute(f"select count(*) from headwatch.{table}".encode()).fetchone()
        assert row is not None
        found[table] = row[0]
    row = index.conn.execute("select sum(contents), sum(tokens) from headwatch.repo_stat").fetchone()
    assert row is not None
    return found | {"contents": int(row[0]), "tokens": int(row[1])}


def test_found_and_known(index: Index, tree: Worktree) -> None:
    """A new worktree at a known commit is discovered once, and nothing in it is parsed."""
    side = link(tree, "../side", "-b", "side")
    found = index.discover()
    assert (found.added, found.retired) == ((str(side.root),), ())
    assert index.discover() == type(found)((), ())
    report = index.update(side)
    assert (report.files, report.symbols_parsed, report.branch) == (2, 0, "side")
    row, main = index.row(side), index.row(tree)
    assert (row.repository_id, row.clone_id) == (main.repository_id, main.clone_id)
    assert (row.git_dir, row.common_dir) == (f"{tree.root}/.git/worktrees/side", f"{tree.root}/.git")
    assert not index.update(tree).changed


def test_added_from_any_of_them(git_repo: Make, index: Index) -> None:
    """Registering a linked worktree registers all of them, the named one first."""
    tree = git_repo()
    tree.write("one.py", ONE)
    tree.commit("one")
    side = link(tree, "../side", "--detach")
    assert index.add(side).root == str(side.root)
    assert {row.root for row in index.rows()} == {str(tree.root), str(side.root)}
    assert len({row.repository_id for row in index.rows()}) == 1
    index.update(side)
    assert index.update(tree).symbols_parsed == 0


def test_same_path_edited_in_each(index: Index, tree: Worktree) -> None:
    """Each has its own text, and its neighbour's pass changes nothing in it."""
    side = link(tree, "../side", "-b", "side")
    index.discover()
    index.update(side)
    tree.write("one.py", ONE.replace("1", "'main'"))
    side.write("one.py", ONE.replace("1", "'side'"))
    side.write("new.py", TWO)
    generation = index.row(tree).generation
    index.update(side)
    assert index.row(tree).generation == generation
    index.update(tree)
    for each in (tree, side):
        oracle.assert_equal(index.conn, each.root)
    difference = index.conn.execute(
        "select path, qualname, difference from headwatch.compare_worktrees(%s, %s)",
        (index.row(tree).id, index.row(side).id),
    ).fetchall()
    assert difference == [
        ("new.py", "two", "only in b"),
        ("one.py", "A", "differs"),
        ("one.py", "A.run", "differs"),
    ]


def test_commits_stay_with_their_worktree(index: Index, tree: Worktree) -> None:
    """A commit in one is no news in another; HEAD, branch and transitions are told apart."""
    side = link(tree, "../side", "-b", "side")
    index.discover()
    index.update(side)
    side.write("one.py", TWO)
    head = side.commit("side")
    assert not index.update(tree).changed
    report = index.update(side)
    assert (report.head, report.transitions) == (head, ("commit",))
    tree.git("merge", "-q", "--ff-only", "side")
    report = index.update(tree)
    assert (report.files, report.symbols_parsed, report.transitions) == (1, 0, ("merge",))


def test_nested_ones_are_no_children(index: Index, tree: Worktree) -> None:
    """Worktrees inside the main one are counted once each, ignored by git or not."""
    sides = [link(tree, f".claude/worktrees/agent{n}", "-b", f"agent{n}") for n in range(4)]
    assert len(index.discover().added) == 4
    for side in sides:
        assert index.update(side).symbols_parsed == 0
    sides[0].write("one.py", TWO)
    index.update(sides[0])
    index.update(tree)
    assert index.paths(tree) == {"one.py", "pkg/two.py"}
    assert set(index.skipped(tree).values()) == {"nested repository"}
    tree.write(".gitignore", ".claude/\n")
    index.update(tree)
    assert index.skipped(tree) == {}
    assert len(index.rows()) == 5


def test_removal_retires(index: Index, tree: Worktree) -> None:
    """Its rows go, what only it showed is no longer counted, the others are untouched."""
    before = counts(index)
    side = link(tree, "../side", "-b", "side")
    index.discover()
    side.write("only.py", "def only_here() -> str:\n    return 'side'\n")
    side.write("data.bin", b"\0")
    index.update(side)
    assert counts(index)["contents"] > before["contents"]
    retired = index.row(side).id
    tree.git("worktree", "remove", "--force", "../side")
    found = index.discover()
    assert (found.added, found.retired) == ((), (retired,))
    assert counts(index) == before
    oracle.assert_equal(index.conn, tree.root)
    again = link(tree, "../side")
    index.discover()
    again.write("only.py", "def only_here() -> str:\n    return 'side'\n")
    assert index.update(again).symbols_parsed == 0
    oracle.assert_equal(index.conn, tree.root)


def test_prune_retires(index: Index, tree: Worktree) -> None:
    """A folder deleted by hand; a pass before that is known leaves the rows."""
    side = link(tree, "../side", "-b", "side")
    index.discover()
    index.update(side)
    retired = index.row(side).id
    shutil.rmtree(side.root)
    with pytest.raises(RootMissing, match=str(side.root)):
        index.reconcile(side)
    assert index.row(side).files == 2
    tree.git("worktree", "prune")
    assert index.discover().retired == (retired,)
    oracle.assert_equal(index.conn, tree.root)


def test_locked_and_out_of_reach(index: Index, tree: Worktree) -> None:
    """A worktree on a drive that is not there now keeps its rows; git keeps it too."""
    side = link(tree, "../side", "-b", "side")
    index.discover()
    index.update(side)
    tree.git("worktree", "lock", "../side")
    os.rename(side.root, side.root.parent / "unplugged")
    assert index.discover().retired == ()
    assert index.row(side).files == 2
    os.rename(side.root.parent / "unplugged", side.root)
    index.discover()
    assert not index.update(side).changed


def test_moved_folder_keeps_its_row(index: Index, tree: Worktree) -> None:
    """`git worktree move` changes the root of the row, and nothing else."""
    side = link(tree, "../side", "-b", "side")
    index.discover()
    side.write("one.py", TWO)
    index.update(side)
    row = index.row(side)
    tree.git("worktree", "move", "../side", "../elsewhere")
    moved = Worktree(side.root.parent / "elsewhere")
    found = index.discover()
    assert (found.added, found.retired) == ((), ())
    assert index.row(moved).id == row.id
    report = index.update(moved)
    assert (report.changed, report.generation) == (False, row.generation)


def test_places_that_are_taken_over(index: Index, tree: Worktree) -> None:
    """Two worktrees change places; one moves to where a removed one lay; each is told by its git dir."""
    a, b = link(tree, "../a", "-b", "a"), link(tree, "../b", "-b", "b")
    index.discover()
    a.write("one.py", ONE.replace("1", "'a'"))
    b.write("one.py", ONE.replace("1", "'b'"))
    index.update(a)
    index.update(b)
    first, second = index.row(a).id, index.row(b).id
    for old, new in (("a", "c"), ("b", "a"), ("c", "b")):
        tree.git("worktree", "move", f"../{old}", f"../{new}")
    with pytest.raises(RootMissing, match=r"worktrees/b now"):
        index.reconcile(a)
    found = index.discover()
    assert (found.added, found.retired) == ((), ())
    assert (index.row(a).id, index.row(b).id) == (second, first)
    assert not index.update(a).changed
    assert not index.update(b).changed
    tree.git("worktree", "remove", "--force", "../a")
    tree.git("worktree", "move", "../b", "../a")
    assert index.discover().retired == (second,)
    assert index.row(a).id == first
    assert not index.update(a).changed


def test_path_used_again(index: Index, tree: Worktree) -> None:
    """Removed and made again at once at the same path, on another branch, before anyone looked."""
    side = link(tree, "../side", "-b", "side")
    side.write("one.py", TWO)
    side.commit("side")
    index.discover()
    index.update(side)
    tree.git("worktree", "remove", "../side")
    side = link(tree, "../side", "-b", "other")
    index.discover()
    report = index.update(side)
    assert (report.branch, report.symbols_parsed) == ("other", 0)


def test_of_a_bare_repository(git_repo: Make, index: Index, tree: Worktree) -> None:
    """No main worktree at all: linked ones come and go, the last one too."""
    bare = Worktree(tree.root.parent / "bare.git")
    tree.git("clone", "-q", "--bare", ".", bare.root)
    side = link(bare, "../side", "-b", "side")
    other = link(bare, "../other", "-b", "other")
    index.add(side)
    index.update(side)
    index.update(other)
    rows = {index.row(side).id, index.row(other).id}
    bare.git("worktree", "remove", "../side")
    bare.git("worktree", "remove", "../other")
    assert {*index.discover().retired} == rows
    assert {row.root for row in index.rows()} >= {str(tree.root)}
    oracle.assert_equal(index.conn, tree.root)


def test_one_clone_without_git_spares_the_others(index: Index, tree: Worktree, git_repo: Make) -> None:
    """A repository that git cannot read keeps its rows, and does not hide what is new elsewhere."""
    broken = git_repo("broken")
    broken.write("one.py", ONE)
    broken.commit("broken")
    side = link(broken, "../broken-side", "-b", "side")
    index.add(broken)
    index.update(broken)
    index.update(side)
    os.rename(broken.root / ".git/HEAD", broken.root / ".git/HEAD.away")
    fresh = link(tree, "../fresh", "-b", "fresh")
    found = index.discover()
    assert (found.added, found.retired) == ((str(fresh.root),), ())
    os.rename(broken.root / ".git", broken.root.parent / "away")
    assert index.discover().retired == ()
    assert index.row(side).files == 1


def test_two_clones_share_what_is_known(git_repo: Make, index: Index) -> None:
    """Clones of one repository have one identity: known content is not parsed again, each has its rows."""
    tree = git_repo()
    tree.write("one.py", ONE)
    tree.commit("one")
    tree.git("remote", "add", "origin", "https://example.org/x/repo.git")
    clone = Worktree(tree.root.parent / "clone")
    tree.git("clone", "-q", ".", clone.root)
    clone.git("remote", "set-url", "origin", "git@example.org:x/repo.git")
    index.add(tree)
    index.update(tree)
    index.add(clone)
    assert index.update(clone).symbols_parsed == 0
    clone.write("one.py", TWO)
    index.update(clone)
    oracle.assert_equal(index.conn, tree.root)


def test_passes_at_the_same_time(index: Index, tree: Worktree) -> None:
    """Two indexers over two worktrees with much in common, while a third one is retired."""
    sides = [link(tree, f"../side{n}", "-b", f"side{n}") for n in range(3)]
    index.discover()
    for n, side in enumerate(sides):
        for k in range(12):
            side.write(f"m{k}.py", f"def shared{k}(): return {k}\n\ndef own{k}(): return '{n % 2} {k}'\n")
    index.update(sides[2])
    retired = index.row(sides[2]).id
    failures: list[BaseException] = []
    start = threading.Barrier(3)

    def work(job: Callable[[store.Connection], object]) -> None:
        conn = store.connect(index.dsn)
        try:
            start.wait()
            job(conn)
        except BaseException as exc:
            failures.append(exc)
        finally:
            conn.close()

    def reconcile(side: Worktree) -> Callable[[store.Connection], object]:
        def job(conn: store.Connection) -> None:
            row = store.worktree_at(conn, str(side.root), host=HOST)
            assert row is not None
            workspace = pipeline.Workspace()
            pipeline.reconcile(conn, row, workspace, Terms())
            workspace.close()

        return job

    jobs = [
        reconcile(sides[0]),
        reconcile(sides[1]),
        lambda conn: store.forget_worktree(conn, retired),
    ]
    threads = [threading.Thread(target=work, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    for each in (tree, *sides[:2]):
        oracle.assert_equal(index.conn, each.root)
