"""One pass makes the rows equal to the worktree, whatever git did to it, and writes no more than that."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from headwatch_indexer import store
from support.indexed import Index
from support.worktree import Worktree

Make = Callable[..., Worktree]
ONE = "import os\n\n\nclass A:\n    def run(self) -> int:\n        return 1\n"
TWO = "def two() -> int:\n    return 2\n"


@pytest.fixture
def tree(git_repo: Make, index: Index) -> Worktree:
    """A repository of three files that is indexed and right."""
    worktree = git_repo()
    worktree.write("one.py", ONE)
    worktree.write("pkg/two.py", TWO)
    worktree.write("README.md", "# Title\n\nWords.\n")
    worktree.commit("one")
    index.add(worktree)
    index.update(worktree)
    return worktree


def versions(index: Index) -> set[tuple[str, str, str]]:
    """Every row of every table by its place and the transaction that wrote it."""
    tables = index.conn.execute(
        "select oid::regclass::text from pg_class where relnamespace = 'headwatch'::regnamespace and relkind = 'r'"
    ).fetchall()
    return {
        (table, *row)
        for (table,) in tables
        for row in index.conn.execute(f"select ctid::text, xmin::text from {table}".encode()).fetchall()
    }


def texts(index: Index, tree: Worktree, path: str) -> dict[str, str]:
    """Qualified name → content of a file's live symbols."""
    query = "select qualname, content from headwatch.live_symbol where worktree_id = %s and path = %s"
    return dict(index.conn.execute(query, (index.row(tree).id, path)).fetchall())


def commit(tree: Worktree, path: str, content: str) -> str:
    tree.write(path, content)
    return tree.commit(f"write {path}")


def test_first_index(git_repo: Make, index: Index) -> None:
    """Everything is parsed once, the proof names HEAD, and the generation starts."""
    tree = git_repo()
    tree.write("one.py", ONE)
    tree.write("two.py", TWO)
    head = tree.commit("one")
    row = index.add(tree)
    assert (row.state, row.generation, row.indexed_head) == ("pending", 0, None)
    report = index.update(tree)
    assert (report.changed, report.generation, report.files, report.symbols_parsed) == (True, 1, 2, 4)
    assert (report.head, report.branch, report.transitions) == (head, "main", ("commit (initial)",))
    row = index.row(tree)
    assert (row.state, row.reason, row.files, row.symbols, row.skipped) == ("fresh", None, 2, 4, 0)
    assert row.applied_at is not None


def test_no_op_pass_writes_no_row(index: Index, tree: Worktree) -> None:
    """Clean or dirty, with or without warm caches: what has not changed is not written."""
    tree.write("one.py", ONE.replace("1", "11"))
    tree.write("data.bin", b"\0\1")
    tree.write("new.py", TWO)
    generation = index.update(tree).generation
    before = versions(index)
    for _ in range(2):
        for full in (False, True):
            report = index.reconcile(tree, full=full)
            assert (report.changed, report.rows, report.generation) == (False, 0, generation)
        index.forget_caches()
    assert versions(index) == before


def test_edit(index: Index, tree: Worktree) -> None:
    """Only the edited file is written and parsed; chunks that stayed are found again."""
    tree.write("one.py", ONE.replace("return 1", "return 11"))
    report = index.update(tree)
    assert (report.files, report.removed, report.symbols_parsed) == (1, 0, 3)
    assert report.chunks_reused > 0
    assert texts(index, tree, "one.py")["A.run"].endswith("return 11")
    assert index.row(tree).indexed_head == tree.git("rev-parse", "HEAD")


def test_staged_and_edited_again(index: Index, tree: Worktree) -> None:
    """The disk counts, not what is staged."""
    tree.write("one.py", ONE.replace("1", "2"))
    tree.git("add", "one.py")
    tree.write("one.py", ONE.replace("1", "3"))
    index.update(tree)
    assert texts(index, tree, "one.py")["A.run"].endswith("return 3")


def test_back_to_what_was(index: Index, tree: Worktree) -> None:
    """An edit that is taken back is known content."""
    tree.write("one.py", ONE + "# more\n")
    index.update(tree)
    tree.write("one.py", ONE)
    report = index.update(tree)
    assert (report.files, report.symbols_parsed) == (1, 0)
    assert index.row(tree).dirty_digest == ""


def test_delete(index: Index, tree: Worktree) -> None:
    """From the disk, or by git: the rows go."""
    tree.delete("one.py")
    assert index.update(tree).removed == 1
    tree.git("rm", "-q", "pkg/two.py")
    assert index.update(tree).removed == 1
    tree.commit("gone")
    report = index.update(tree)
    assert (report.removed, report.files) == (0, 0)
    assert index.paths(tree) == {"README.md"}


def test_rename_and_copy(index: Index, tree: Worktree) -> None:
    """Known content under another path is not parsed again."""
    tree.git("mv", "one.py", "moved.py")
    report = index.update(tree)
    assert (report.files, report.removed, report.symbols_parsed) == (1, 1, 0)
    os.rename(tree.root / "pkg", tree.root / "lib")
    report = index.update(tree)
    assert (report.files, report.removed, report.symbols_parsed) == (1, 1, 0)
    tree.write("copy.py", ONE)
    report = index.update(tree)
    assert (report.files, report.removed, report.symbols_parsed) == (1, 0, 0)
    assert index.paths(tree) == {"README.md", "moved.py", "lib/two.py", "copy.py"}
    tree.delete("copy.py")
    index.update(tree)
    assert texts(index, tree, "moved.py").keys() == {"<module>", "A", "A.run"}


def test_mode_change(index: Index, tree: Worktree) -> None:
    """The executable bit is a change of the row alone."""
    os.chmod(tree.root / "one.py", 0o755)
    report = index.update(tree)
    assert (report.files, report.symbols_parsed) == (1, 0)
    assert store.files(index.conn, index.row(tree).id)[b"one.py"].mode == 0o100755


def test_touch_is_no_change(index: Index, tree: Worktree) -> None:
    """A new mtime over the same content writes nothing."""
    os.utime(tree.root / "one.py", (1_600_000_000, 1_600_000_000))
    assert not index.update(tree).changed


def test_commit_moves_the_baseline_alone(index: Index, tree: Worktree) -> None:
    """Dirty → clean: the generation moves, no file is written and none parsed."""
    tree.write("one.py", ONE + "# more\n")
    index.update(tree)
    generation = index.row(tree).generation
    head = tree.commit("two")
    report = index.update(tree)
    assert (report.generation, report.files, report.symbols_parsed) == (generation + 1, 0, 0)
    assert (report.head, report.transitions) == (head, ("commit",))
    assert index.row(tree).dirty_digest == ""


def test_commit_out_of_scope_moves_the_baseline(index: Index, tree: Worktree) -> None:
    """A commit that touches nothing that is indexed is seen all the same, an empty one too."""
    for path, content in (("logo.bin", "\0"), ("logo.bin", "\0")):
        head = commit(tree, path, content)
        assert index.update(tree).changed
        assert index.row(tree).indexed_head == head


def test_amend(index: Index, tree: Worktree) -> None:
    """Message only, then content."""
    tree.git("commit", "-q", "--amend", "-m", "another")
    report = index.update(tree)
    assert (report.changed, report.files, report.transitions) == (True, 0, ("commit (amend)",))
    tree.write("one.py", TWO)
    tree.git("commit", "-q", "-a", "--amend", "--no-edit")
    assert index.update(tree).files == 1


def test_branch_switch_and_back(index: Index, tree: Worktree) -> None:
    """Known content costs rows and no parsing."""
    tree.git("switch", "-q", "-c", "side")
    commit(tree, "one.py", ONE.replace("A", "B"))
    tree.git("mv", "pkg/two.py", "two.py")
    tree.commit("moved")
    assert index.update(tree).symbols_parsed == 3
    for branch in ("main", "side", "main"):
        tree.git("switch", "-q", branch)
        report = index.update(tree)
        assert (report.symbols_parsed, report.branch) == (0, branch)
        assert (report.files, report.removed, report.transitions) == (2, 1, ("checkout",))


def test_switch_with_the_same_tree(index: Index, tree: Worktree) -> None:
    """A new branch at the same commit is another branch in the proof."""
    tree.git("switch", "-q", "-c", "side")
    report = index.update(tree)
    assert (report.changed, report.branch, report.files) == (True, "side", 0)
    tree.git("branch", "-q", "-m", "renamed")
    assert index.update(tree).branch == "renamed"


def test_reset_and_restore(index: Index, tree: Worktree) -> None:
    """Content that comes back by git is the content."""
    commit(tree, "one.py", TWO)
    tree.write("pkg/two.py", ONE)
    tree.write("new.py", ONE)
    index.update(tree)
    tree.git("restore", ".")
    assert index.update(tree).files == 1
    tree.git("reset", "-q", "--hard", "HEAD~1")
    report = index.update(tree)
    assert (report.files, report.symbols_parsed, report.transitions) == (1, 0, ("reset",))
    tree.git("reset", "-q", "--soft", tree.git("rev-parse", "ORIG_HEAD"))
    index.update(tree)
    tree.git("clean", "-q", "-f", "-d")
    assert index.update(tree).removed == 1


def test_stash_and_pop(index: Index, tree: Worktree) -> None:
    """Stashed work is not live, popped work is, and known."""
    tree.write("one.py", ONE.replace("A", "B"))
    tree.write("new.py", TWO)
    index.update(tree)
    tree.git("stash", "-q", "-u")
    assert index.update(tree).removed == 1
    tree.git("stash", "pop", "-q")
    report = index.update(tree)
    assert (report.files, report.symbols_parsed) == (2, 0)


def diverge(tree: Worktree) -> None:
    """Make main and side differ in one.py, and side have a file of its own."""
    tree.git("switch", "-q", "-c", "side")
    tree.write("side.py", TWO.replace("two", "side"))
    commit(tree, "one.py", ONE.replace("return 1", "return 'side'"))
    tree.git("switch", "-q", "main")
    commit(tree, "one.py", ONE.replace("return 1", "return 'main'"))


def test_merge_conflict(index: Index, tree: Worktree) -> None:
    """While it lasts, the file with its markers is what is there; then the resolution, then the merge."""
    diverge(tree)
    index.update(tree)
    with pytest.raises(AssertionError, match="merge"):
        tree.git("merge", "-q", "side")
    index.update(tree)
    assert any("<<<<<<<" in text for text in texts(index, tree, "one.py").values())
    tree.git("checkout", "--theirs", "one.py")
    index.update(tree)
    tree.git("add", "one.py")
    tree.git("rm", "-q", "README.md")
    index.update(tree)
    tree.git("commit", "-q", "--no-edit")
    index.update(tree)
    assert texts(index, tree, "one.py")["A.run"].endswith("return 'side'")


def test_conflict_of_edit_and_deletion(index: Index, tree: Worktree) -> None:
    """An unmerged path that one side removed is live as long as it is on disk."""
    tree.git("switch", "-q", "-c", "side")
    tree.git("rm", "-q", "one.py")
    tree.commit("removed")
    tree.git("switch", "-q", "main")
    commit(tree, "one.py", ONE.replace("1", "2"))
    with pytest.raises(AssertionError, match="merge"):
        tree.git("merge", "-q", "side")
    index.update(tree)
    tree.delete("one.py")
    assert index.update(tree).removed == 1
    tree.git("merge", "--abort")
    index.update(tree)
    assert "one.py" in index.paths(tree)


def test_cherry_pick_revert_and_squash(index: Index, tree: Worktree) -> None:
    """Commits that repeat known content."""
    tree.git("switch", "-q", "-c", "side")
    commit(tree, "side.py", TWO.replace("two", "side"))
    index.update(tree)
    tree.git("switch", "-q", "main")
    index.update(tree)
    tree.git("cherry-pick", "side")
    assert index.update(tree).symbols_parsed == 0
    tree.git("revert", "--no-edit", "HEAD")
    assert index.update(tree).removed == 1
    tree.git("reset", "-q", "--hard", "HEAD~2")
    tree.git("merge", "-q", "--squash", "side")
    index.update(tree)
    tree.git("commit", "-q", "-m", "squashed")
    assert index.update(tree).symbols_parsed == 0


def test_rebase(index: Index, tree: Worktree) -> None:
    """Stopped in a conflict (HEAD detached), continued, aborted: the disk is what counts."""
    diverge(tree)
    tree.git("switch", "-q", "side")
    index.update(tree)
    with pytest.raises(AssertionError, match="rebase"):
        tree.git("rebase", "-q", "main")
    assert index.update(tree).branch is None
    tree.git("checkout", "--theirs", "one.py")
    tree.git("add", "one.py")
    tree.git("-c", "core.editor=true", "rebase", "--continue")
    report = index.update(tree)
    assert report.branch == "side"
    assert {"rebase (pick)", "rebase (finish)"} & {*report.transitions}
    assert "side.py" in index.paths(tree)


def test_detached_and_orphan(index: Index, tree: Worktree) -> None:
    """No branch, then a branch without a commit whose files are all there."""
    commit(tree, "one.py", TWO)
    tree.git("checkout", "-q", "--detach", "HEAD~1")
    report = index.update(tree)
    assert (report.branch, report.head) == (None, tree.git("rev-parse", "HEAD"))
    tree.git("checkout", "-q", "--orphan", "fresh")
    report = index.update(tree)
    assert (report.branch, report.head, report.removed) == ("fresh", None, 0)
    tree.git("rm", "-q", "-r", "-f", ".")
    assert index.update(tree).removed == 3
    commit(tree, "new.py", TWO)
    assert index.update(tree).head == tree.git("rev-parse", "HEAD")


def test_unborn_repository(git_repo: Make, index: Index) -> None:
    """Nothing, then an untracked file, a staged one, the first commit."""
    tree = git_repo()
    index.add(tree)
    report = index.update(tree)
    assert (report.head, report.branch, report.generation) == (None, "main", 1)
    assert not index.update(tree).changed
    tree.write("one.py", ONE)
    assert index.update(tree).files == 1
    tree.git("add", "one.py")
    assert not index.update(tree).changed
    tree.commit("first")
    report = index.update(tree)
    assert (report.files, report.generation) == (0, 3)


def test_bare_repository(git_repo: Make, index: Index, tree: Worktree) -> None:
    """Its HEAD tree is what it holds."""
    tree.write("big.txt", "x\n" * 600_000)
    tree.write("id_rsa", "key\n")
    tree.commit("more")
    bare = Worktree(tree.root.parent / "bare.git")
    tree.git("clone", "-q", "--bare", ".", bare.root)
    index.add(bare)
    index.update(bare)
    assert index.paths(bare) == {"one.py", "pkg/two.py", "README.md"}
    assert index.skipped(bare) == {"big.txt": "too large", "id_rsa": "secret"}
    commit(tree, "one.py", TWO)
    tree.git("push", "-q", bare.root, "main")
    assert index.update(bare).files == 1
    assert not index.update(bare).changed


def test_sha256_repository(git_repo: Make, index: Index) -> None:
    """Ids of 64 digits go through the git command."""
    tree = git_repo("repo", "--object-format=sha256")
    tree.write("one.py", ONE)
    tree.commit("one")
    index.add(tree)
    index.update(tree)
    tree.write("one.py", TWO)
    index.update(tree)
    index.forget_caches()
    tree.git("stash", "-q")
    assert index.update(tree).symbols_parsed == 0
    assert len(index.row(tree).indexed_head or "") == 64


def test_packed_refs_and_objects(index: Index, tree: Worktree) -> None:
    """gc moves refs and blobs, not content."""
    tree.git("switch", "-q", "-c", "side")
    commit(tree, "one.py", TWO)
    tree.git("pack-refs", "--all", "--prune")
    tree.git("gc", "-q", "--prune=now")
    index.forget_caches()
    assert index.update(tree).head == tree.git("rev-parse", "HEAD")
    tree.git("switch", "-q", "main")
    index.update(tree)


def test_without_reflogs(git_repo: Make, index: Index) -> None:
    """HEAD itself is compared."""
    tree = git_repo()
    tree.git("config", "core.logAllRefUpdates", "false")
    tree.write("one.py", ONE)
    tree.commit("one")
    index.add(tree)
    assert index.update(tree).transitions == ()
    commit(tree, "one.py", TWO)
    report = index.update(tree)
    assert (report.files, report.transitions, report.head) == (1, (), tree.git("rev-parse", "HEAD"))


def test_many_commits_between_two_passes(index: Index, tree: Worktree) -> None:
    """One pass takes the final state; every move is recorded once."""
    for n in range(5):
        commit(tree, "one.py", ONE.replace("1", str(n + 2)))
    report = index.update(tree)
    assert (report.files, report.transitions) == (1, ("commit",) * 5)
    index.forget_caches()
    assert not index.update(tree).changed
    recorded = index.conn.execute(
        "select count(*) from headwatch.transition where worktree_id = %s", (index.row(tree).id,)
    ).fetchone()
    assert recorded == (6,)
