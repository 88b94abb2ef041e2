"""Blobs come out of the object database as they are, or not at all."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from headwatch_indexer import git, objects
from headwatch_indexer.objects import Objects, open_objects
from support.worktree import Worktree

Make = Callable[..., Worktree]
NONE = "0123456789" * 4


def open_command(worktree: Worktree) -> Objects:
    """Open by the git command, whatever libgit2 could do."""
    return objects._Command(git.locate(str(worktree.root)))


def open_best(worktree: Worktree) -> Objects:
    return open_objects(git.locate(str(worktree.root)))


@pytest.fixture(params=[open_best, open_command], ids=["libgit2", "command"])
def opened(request: pytest.FixtureRequest) -> Callable[[Worktree], Objects]:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def tree(git_repo: Make) -> Worktree:
    made = git_repo()
    made.write("a", "a\n")
    made.write("empty", "")
    made.write("bytes", bytes(range(256)) * 1000)
    made.commit("one")
    return made


def oid(worktree: Worktree, name: str) -> str:
    return worktree.git("rev-parse", name)


def test_blobs_are_read_whole(tree: Worktree, opened: Callable[[Worktree], Objects]) -> None:
    """Content by id; None for what is missing and for what is no blob."""
    with closing(opened(tree)) as blobs:
        assert blobs.read(oid(tree, "HEAD:a")) == b"a\n"
        assert blobs.read(oid(tree, "HEAD:empty")) == b""
        assert blobs.read(oid(tree, "HEAD:bytes")) == bytes(range(256)) * 1000
        assert blobs.read(NONE) is None
        assert blobs.read(oid(tree, "HEAD")) is None
        assert blobs.read(oid(tree, "HEAD^{tree}")) is None
        assert blobs.read(oid(tree, "HEAD:a")) == b"a\n"


def test_many_blobs_in_order(tree: Worktree, opened: Callable[[Worktree], Objects]) -> None:
    """More than fits one batch, missing ones between; sizes of those that are there."""
    for n in range(500):
        tree.write(f"many/{n}", f"{n}\n" * n)
    tree.commit("many")
    names = [line.split()[2] for line in tree.git("ls-tree", "-r", "HEAD", "many/").splitlines()]
    asked = [*names[:250], NONE, *names[250:]]
    with closing(opened(tree)) as blobs:
        found = list(blobs.read_many(asked))
        assert [name for name, _ in found] == asked
        for name, content in found:
            if name == NONE:
                assert content is None
            else:
                assert content is not None
                assert hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest() == name
        assert blobs.sizes(asked) == {name: len(content) for name, content in found if content is not None}
        assert blobs.sizes([oid(tree, "HEAD")]) == {}


def test_a_reader_that_stops_early_harms_no_later_one(
    tree: Worktree, opened: Callable[[Worktree], Objects]
) -> None:
    """Answers nobody took are never given to the next question."""
    with closing(opened(tree)) as blobs:
        for name, _ in blobs.read_many(
            [oid(tree, "HEAD:a"), oid(tree, "HEAD:bytes"), oid(tree, "HEAD:empty")]
        ):
            assert name == oid(tree, "HEAD:a")
            break
        assert blobs.read(oid(tree, "HEAD:empty")) == b""


def test_new_objects_and_packs_are_seen(tree: Worktree, opened: Callable[[Worktree], Objects]) -> None:
    """What is committed, repacked or collected after opening."""
    with closing(opened(tree)) as blobs:
        name = oid(tree, "HEAD:a")
        assert blobs.read(name) == b"a\n"
        tree.write("b", "b\n")
        tree.commit("two")
        assert blobs.read(oid(tree, "HEAD:b")) == b"b\n"
        for _ in range(2):
            tree.git("repack", "-a", "-d", "-q")
            tree.git("prune-packed")
            assert blobs.read(name) == b"a\n"
            assert blobs.read(oid(tree, "HEAD:b")) == b"b\n"
        tree.git("gc", "--quiet", "--prune=now")
        assert blobs.read(name) == b"a\n"


def deleted_files_open(pid: int) -> list[str]:
    """Files of this process that are mapped or open but gone from disk."""
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    links = [os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir() if fd.is_symlink()]
    return [line for line in maps + links if "(deleted)" in line and ".pack" in line]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_deleted_packs_are_let_go(tree: Worktree) -> None:
    """After a repack the old pack's disk space is not held."""
    tree.git("repack", "-a", "-d", "-q")
    with closing(open_best(tree)) as blobs:
        assert blobs.read(oid(tree, "HEAD:bytes")) is not None
        tree.write("b", "b\n")
        tree.commit("two")
        tree.git("repack", "-a", "-d", "-q")
        blobs.refresh()
        assert deleted_files_open(os.getpid()) == []
        assert blobs.read(oid(tree, "HEAD:b")) == b"b\n"


def test_handles_are_reopened_in_time(tree: Worktree, opened: Callable[[Worktree], Objects],
                                      monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """After ten minutes a handle is let go, idle or not, and the next read works."""
    with closing(opened(tree)) as blobs:
        name = oid(tree, "HEAD:a")
        assert blobs.read(name) == b"a\n"
        now = objects.time.monotonic() + objects.REOPEN_S + 1
        monkeypatch.setattr("headwatch_indexer.objects.time.monotonic", lambda: now)
        blobs.refresh()
        assert not getattr(blobs, "_repository", None)
        assert not getattr(blobs, "_process", None)
        assert blobs.read(name) == b"a\n"


def test_replaced_objects_keep_their_own_content(
    tree: Worktree, opened: Callable[[Worktree], Objects]
) -> None:
    """refs/replace rewrites what git shows; a blob id still names its own content."""
    tree.git("replace", oid(tree, "HEAD:a"), oid(tree, "HEAD:empty"))
    with closing(opened(tree)) as blobs:
        assert blobs.read(oid(tree, "HEAD:a")) == b"a\n"


def test_linked_worktrees_alternates_and_sha256(git_repo: Make, tree: Worktree, tmp_path: Path) -> None:
    """Wherever git keeps the objects."""
    tree.git("worktree", "add", "--quiet", "--detach", "../linked")
    tree.git("clone", "--quiet", "--shared", ".", "../shared")
    for name in ("linked", "shared"):
        with closing(open_best(Worktree(tmp_path / name))) as blobs:
            assert isinstance(blobs, objects._Library)
            assert blobs.read(oid(tree, "HEAD:a")) == b"a\n"
    long = git_repo("sha256", "--object-format=sha256")
    long.write("a", "a\n")
    long.commit("one")
    with closing(open_best(long)) as blobs:
        assert isinstance(blobs, objects._Command)
        assert blobs.read(oid(long, "HEAD:a")) == b"a\n"
        assert blobs.read("0" * 64) is None


def test_partial_clone_never_fetches(
    tree: Worktree, tmp_path: Path, opened: Callable[[Worktree], Objects]
) -> None:
    """A promised blob that is not here is missing; the ones around it are read, the remote is not asked."""
    tree.git("config", "uploadpack.allowFilter", "true")
    tree.write("b", "b\n")
    tree.commit("two")
    tree.git("clone", "--quiet", "--bare", "--filter=blob:none", f"file://{tree.root}", "../partial")
    partial = Worktree(tmp_path / "partial")
    stored = partial.git("hash-object", "-w", "--stdin", stdin=b"here\n")
    missing = [oid(tree, "HEAD:a"), oid(tree, "HEAD:b")]
    with closing(opened(partial)) as blobs:
        found = list(blobs.read_many([stored, missing[0], stored, missing[1], NONE, stored]))
        assert [content for _, content in found] == [b"here\n", None, b"here\n", None, None, b"here\n"]
        assert blobs.sizes([missing[0], stored]) == {stored: 5}
    partial.git("config", "extensions.partialClone", "origin")
    with closing(open_best(partial)) as blobs:
        assert isinstance(blobs, objects._Command)
        assert blobs.read(missing[0]) is None
    listed = partial.git("rev-list", "--objects", "--missing=print", "HEAD")
    assert f"?{missing[0]}" in listed


def test_broken_object_raises(tree: Worktree, opened: Callable[[Worktree], Objects]) -> None:
    """A damaged object is an error, not a missing one."""
    name = oid(tree, "HEAD:a")
    path = tree.root / ".git/objects" / name[:2] / name[2:]
    path.chmod(0o644)
    path.write_bytes(b"broken")
    with closing(opened(tree)) as blobs:
        with pytest.raises(git.GitFailed):
            blobs.read(name)
        assert blobs.read(oid(tree, "HEAD:empty")) == b""


def test_foreign_owner_is_reported(tree: Worktree) -> None:
    """libgit2 refuses, git refuses, and the error says what to do."""
    if os.getuid() != 0:
        pytest.skip("needs root to give a folder away")
    location = git.locate(str(tree.root))
    for folder in (tree.root, tree.root / ".git"):
        os.chown(folder, 65534, 65534)
    with pytest.raises(git.GitFailed, match="dubious ownership"):
        open_objects(location)


def test_git_alone_imports_no_libgit2() -> None:
    """The watching process uses git, scope, rules and reflog, and never loads pygit2."""
    program = (
        "import sys; from headwatch_indexer import git, scope, rules, reflog, snapshot, objects;"
        "sys.exit('pygit2' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
