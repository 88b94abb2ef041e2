"""What could not be looked at keeps its rows, and a pass that fails leaves the old state."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headwatch_indexer import git, pipeline, store, symbols
from headwatch_indexer.snapshot import Moving, RootMissing, take
from support import oracle
from support.indexed import Index
from support.unprivileged import ordinary_user, own_folder
from support.worktree import Worktree

Make = Callable[..., Worktree]
ONE = "class A:\n    def run(self) -> int:\n        return 1\n"
TWO = "def two() -> int:\n    return 2\n"


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


class Interrupted(Exception):
    """What a test raises in the middle of a pass."""


def refuse_to_open(monkeypatch: pytest.MonkeyPatch, name: bytes, error: OSError) -> None:
    """Let the file of that name be unreadable for this process."""
    right = os.open

    def refusing(path: Any, *args: Any, **kwargs: Any) -> int:
        if path == name:
            raise error
        return right(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", refusing)


@pytest.mark.parametrize(
    "error", [PermissionError(13, "Permission denied"), OSError(24, "Too many open files")]
)
def test_unreadable_file_keeps_its_rows(
    index: Index, tree: Worktree, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    """Changed, but not to be read: the old rows stay and the proof names the file; then it is read."""
    tree.write("pkg/two.py", TWO.replace("2", "3"))
    tree.write("one.py", ONE.replace("1", "3"))
    with monkeypatch.context() as patched:
        refuse_to_open(patched, b"two.py", error)
        report = index.reconcile(tree)
    assert (report.files, report.removed) == (1, 0)
    row = index.row(tree)
    assert "pkg/two.py" in (row.reason or "")
    contents = {row.qualname: row.content for row in oracle.live_rows(index.conn, tree.root)}
    assert contents["two"].endswith("return 2")
    assert contents["A.run"].endswith("return 3")
    assert index.update(tree).files == 1
    assert index.row(tree).reason is None


def test_unreadable_file_is_not_skipped(
    index: Index, tree: Worktree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that nobody has read yet has no rows, and its neighbours have theirs."""
    tree.write("new.py", TWO)
    tree.write("other.py", TWO)
    with monkeypatch.context() as patched:
        refuse_to_open(patched, b"new.py", PermissionError(13, "Permission denied"))
        index.reconcile(tree)
    assert index.paths(tree) == {"one.py", "pkg/two.py", "other.py"}
    assert index.skipped(tree) == {}
    index.update(tree)


@pytest.fixture
def user_tree(index: Index, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worktree]:
    """An indexed repository whose files belong to an ordinary user."""
    with own_folder() as folder, ordinary_user():
        for name in ("HOME", "XDG_CONFIG_HOME"):
            monkeypatch.setenv(name, str(folder))
        worktree = Worktree.init(folder / "repo")
        worktree.write("one.py", ONE)
        worktree.write("pkg/two.py", TWO)
        worktree.write("pkg/deep/three.py", TWO)
        worktree.commit("one")
        worktree.write("pkg/deep/untracked.py", TWO)
        worktree.write("data/four.py", ONE)
        worktree.write("data/blob.bin", b"\0")
        index.add(worktree)
        index.update(worktree)
        yield worktree


@pytest.mark.parametrize("folder", ["pkg", "pkg/deep", "data", "."])
@pytest.mark.parametrize("mode", [0o000, 0o100, 0o400])
def test_unreadable_folder_keeps_its_rows(index: Index, user_tree: Worktree, folder: str, mode: int) -> None:
    """Neither to be entered nor listed: all beneath stays, tracked or not, skipped rows too."""
    before = oracle.live_rows(index.conn, user_tree.root)
    skipped = index.skipped(user_tree)
    closed = user_tree.root / folder
    closed.chmod(mode)
    try:
        try:
            index.reconcile(user_tree)
        except (git.GitFailed, RootMissing):
            assert folder == "." or mode == 0o400
        assert oracle.live_rows(index.conn, user_tree.root) == before
        assert index.skipped(user_tree) == skipped
    finally:
        closed.chmod(0o755)
    assert index.update(user_tree).files == 0


def test_parser_version_parses_again(index: Index, tree: Worktree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another parser reads every file again, once; going back costs nothing."""
    version = symbols.PARSER_VERSION
    monkeypatch.setattr(symbols, "PARSER_VERSION", version + 1)
    report = index.update(tree)
    assert (report.files, report.symbols_parsed) == (2, 3)
    assert not index.update(tree).changed
    monkeypatch.setattr(symbols, "PARSER_VERSION", version)
    report = index.update(tree)
    assert (report.files, report.symbols_parsed) == (2, 0)


def interrupt(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Let a pass fail at a place, after what is done there is done."""
    module, name = {
        "parse": (symbols, "parse"),
        "add_parses": (store, "add_parses"),
        "add_postings": (pipeline, "add_postings"),
        "apply": (store, "apply"),
    }[place]
    right = getattr(module, name)

    def interrupted(*args: Any, **kwargs: Any) -> None:
        right(*args, **kwargs)
        raise Interrupted(place)

    monkeypatch.setattr(module, name, interrupted)


@pytest.mark.parametrize("place", ["parse", "add_parses", "add_postings", "apply"])
def test_interrupted_pass(index: Index, tree: Worktree, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """The old generation stands complete; the next pass brings the new one, new words included."""
    before, generation = oracle.live_rows(index.conn, tree.root), index.row(tree).generation
    tree.write("one.py", "def brand_new_word() -> None: ...\n")
    tree.write("new.py", TWO + "# another_new_word\n")
    tree.delete("pkg/two.py")
    with monkeypatch.context() as patched:
        interrupt(patched, place)
        with pytest.raises(Interrupted):
            index.reconcile(tree)
    assert oracle.live_rows(index.conn, tree.root) == before
    assert index.row(tree).generation == generation
    oracle.check_internal(index.conn, index.row(tree).id)
    assert index.update(tree).generation == generation + 1


@pytest.mark.parametrize("place", ["add_parses", "add_postings", "apply"])
def test_interrupted_first_index(
    git_repo: Make, index: Index, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Tables made for a new repository go with the pass, and are made again."""
    tree = git_repo()
    tree.write("one.py", ONE)
    tree.commit("one")
    index.add(tree)
    with monkeypatch.context() as patched:
        interrupt(patched, place)
        with pytest.raises(Interrupted):
            index.reconcile(tree)
    assert index.row(tree).generation == 0
    assert index.update(tree).generation == 1


def test_content_read_by_an_interrupted_pass(
    index: Index, tree: Worktree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uncommitted content whose stat is known already is read again, not taken for missing."""
    settled = (1 << 63) - 1
    monkeypatch.setattr("headwatch_indexer.disk.time.time_ns", lambda: settled)
    tree.write("one.py", ONE.replace("1", "2"))
    with monkeypatch.context() as patched:
        interrupt(patched, "apply")
        with pytest.raises(Interrupted):
            index.reconcile(tree)
    assert index.update(tree).files == 1
    tree.write("script.in", TWO)
    index.update(tree)
    tree.write(".headwatch.toml", '[languages]\n"*.in" = "python"\n')
    index.update(tree)
    assert index.skipped(tree) == {}


def test_connection_lost_in_a_pass(index: Index, tree: Worktree, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database goes away before the commit: an error that says so, and nothing written."""
    right = store.apply
    before = oracle.live_rows(index.dsn, tree.root)

    def cut(conn: store.Connection, change: store.Application) -> store.Applied:
        applied = right(conn, change)
        with psycopg.connect(index.dsn, autocommit=True) as other:
            other.execute("select pg_terminate_backend(%s, 5000)", (conn.info.backend_pid,))
        return applied

    tree.write("one.py", TWO)
    with monkeypatch.context() as patched:
        patched.setattr(store, "apply", cut)
        with pytest.raises(store.Unavailable):
            index.reconcile(tree)
    assert oracle.live_rows(index.dsn, tree.root) == before
    index.reconnect()
    assert index.update(tree).files == 1


@pytest.mark.parametrize("lost", [".", ".git", ".git/HEAD", ".git/refs", ".git/index.corrupt"])
def test_what_git_cannot_tell_keeps_rows(index: Index, tree: Worktree, lost: str) -> None:
    """Root or repository gone, HEAD gone, an index that cannot be read: an error, and all rows stay."""
    before = oracle.live_rows(index.conn, tree.root)
    tree.delete("pkg/two.py")
    away = tree.root.parent / "away"
    if lost == ".git/index.corrupt":
        shutil.copyfile(tree.root / ".git/index", away)
        (tree.root / ".git/index").write_bytes(b"DIRC" + b"\0" * 40)
    else:
        os.rename(tree.root / lost if lost != "." else tree.root, away)
    with pytest.raises((RootMissing, git.GitFailed)) as caught:
        index.reconcile(tree)
    assert caught.value.hint
    assert str(tree.root) in caught.value.message
    assert oracle.live_rows(index.conn, tree.root) == before
    if lost == ".git/index.corrupt":
        os.rename(away, tree.root / ".git/index")
    else:
        os.rename(away, tree.root / lost if lost != "." else tree.root)
    assert index.update(tree).removed == 1


def test_root_inside_another_repository(index: Index, git_repo: Make) -> None:
    """A repository that lost its .git is not answered for by the one around it."""
    outer = git_repo("outer")
    outer.write("outer.py", TWO)
    outer.commit("outer")
    inner = Worktree.init(outer.root / "inner")
    inner.write("one.py", ONE)
    inner.commit("inner")
    index.add(inner)
    index.update(inner)
    before = oracle.live_rows(index.conn, inner.root)
    os.rename(inner.root / ".git", outer.root.parent / "away")
    with pytest.raises(RootMissing):
        index.reconcile(inner)
    assert oracle.live_rows(index.conn, inner.root) == before


def test_root_made_again(index: Index, tree: Worktree) -> None:
    """Deleted, and another repository at its place: the rows are the new one's."""
    shutil.rmtree(tree.root)
    again = Worktree.init(tree.root)
    again.write("new.py", "def brand_new() -> None: ...\n")
    again.commit("again")
    index.add(again)
    index.update(again)
    assert index.paths(again) == {"new.py"}


def test_much_gone_is_believed_when_it_is_seen_twice(index: Index, tree: Worktree) -> None:
    """All of many files deleted by the user: two looks agree, the rows go."""
    for n in range(30):
        tree.write(f"many/m{n}.py", f"def m{n}(): ...\n")
    index.update(tree)
    shutil.rmtree(tree.root / "many")
    assert index.update(tree).removed == 30


def test_much_gone_is_doubted(index: Index, tree: Worktree, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scan that lost most files while a second look has them: nothing is removed."""
    for n in range(30):
        tree.write(f"many/m{n}.py", f"def m{n}(): ...\n")
    index.update(tree)
    before = oracle.live_rows(index.conn, tree.root)
    looks = [lambda taken: replace(taken, entries={}), lambda taken: taken]
    right = take
    with monkeypatch.context() as patched:
        patched.setattr(pipeline, "take", lambda *args, **kwargs: looks.pop(0)(right(*args, **kwargs)))
        with pytest.raises(Moving):
            index.reconcile(tree)
    assert oracle.live_rows(index.conn, tree.root) == before
    assert not index.update(tree).changed


def test_locks_of_git_are_left_alone(index: Index, tree: Worktree) -> None:
    """A pass neither waits for index.lock nor takes or removes it, and writes nothing into the repository."""
    tree.write("one.py", TWO)
    lock = tree.root / ".git/index.lock"
    lock.write_bytes(b"")
    os.utime(tree.root / "pkg/two.py")  # an index that git would like to refresh
    before = {path: path.lstat().st_mtime_ns for path in Path(tree.root).rglob("*")}
    index.update(tree)
    assert {path: path.lstat().st_mtime_ns for path in Path(tree.root).rglob("*")} == before


def test_started_from_a_hook(
    index: Index, tree: Worktree, git_repo: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIT_DIR and its kin of the environment lead nowhere else."""
    other = git_repo("other")
    other.write("other.py", TWO)
    other.commit("other")
    tree.write("one.py", TWO)
    for name, value in (
        ("GIT_DIR", other.root / ".git"),
        ("GIT_WORK_TREE", other.root),
        ("GIT_INDEX_FILE", other.root / ".git/index"),
    ):
        monkeypatch.setenv(name, str(value))
    assert index.update(tree).files == 1
    assert index.paths(tree) == {"one.py", "pkg/two.py"}


def test_same_size_and_mtime(index: Index, tree: Worktree) -> None:
    """An edit that keeps size and mtime is seen, pass after pass."""
    stamp = (1_600_000_000, 1_600_000_000)
    for n in range(2, 6):
        tree.write("one.py", ONE.replace("1", str(n)))
        os.utime(tree.root / "one.py", stamp)
        assert index.update(tree).files == 1
        tree.commit(str(n))
        os.utime(tree.root / "one.py", stamp)
        index.update(tree)


def test_retired_under_a_pass(index: Index, tree: Worktree) -> None:
    """A worktree that is let go between a look at it and the lock is left alone."""
    row = index.row(tree)
    store.forget_worktree(index.conn, row.id)
    tree.write("one.py", TWO)
    with pytest.raises(pipeline.Retired, match="was removed"):
        pipeline.reconcile(index.conn, row, pipeline.Workspace(), index.terms)
    assert index.rows() == []
