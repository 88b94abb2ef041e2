"""A snapshot is what git and the disk hold, uncommitted work included."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headwatch_indexer import git
from headwatch_indexer.disk import Disk
from headwatch_indexer.records import RepositoryRules, Snapshot
from headwatch_indexer.snapshot import Moving, RootMissing, StatCache, ignored_listing, take
from support.worktree import Worktree

Make = Callable[..., Worktree]
EMPTY = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"


@pytest.fixture(autouse=True)
def own_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The indexer's git reads the user's settings; here they are the test's."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    return home


def snap(
    worktree: Worktree, rules: RepositoryRules | None = None, known: StatCache | None = None
) -> Snapshot:
    """Take a snapshot and check what holds for every one."""
    location = git.locate(str(worktree.root))
    taken = take(location, rules or RepositoryRules(), known=known)
    for oid, content in taken.contents.items():
        digest = hashlib.new(location.object_format, b"blob %d\0" % len(content) + content).hexdigest()
        assert oid == digest, "content hashes to its id"
    assert not taken.entries.keys() & taken.skipped.keys()
    assert bool(taken.dirty_digest) >= any(entry.dirty for entry in taken.entries.values())
    return taken


def oids(taken: Snapshot) -> dict[bytes, str]:
    return {path: entry.blob_oid for path, entry in taken.entries.items()}


def dirty(taken: Snapshot) -> set[bytes]:
    return {path for path, entry in taken.entries.items() if entry.dirty}


def reasons(taken: Snapshot) -> dict[bytes, str]:
    return {path: skipped.reason for path, skipped in taken.skipped.items()}


def oid_of(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def state_of(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Inode, size and mtime of everything below a folder."""
    found = {}
    for path in folder.rglob("*"):
        stat = path.lstat()
        found[str(path)] = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
    return found


def test_clean_worktree_is_its_head_tree(git_repo: Make) -> None:
    """Every file by the index's id, nothing dirty, nothing read."""
    tree = git_repo()
    tree.write("a.py", "a = 1\n")
    tree.write("d/b.py", "b = 1\n")
    os.chmod(tree.root / "d/b.py", 0o755)
    head = tree.commit("one")
    taken = snap(tree)
    assert (taken.head, taken.branch) == (head, "main")
    assert oids(taken) == {b"a.py": oid_of(b"a = 1\n"), b"d/b.py": oid_of(b"b = 1\n")}
    assert taken.entries[b"d/b.py"].mode == 0o100755
    assert taken.entries[b"a.py"].size == 6
    assert (dirty(taken), taken.dirty_digest, dict(taken.contents), taken.unknown) == (
        set(),
        "",
        {},
        frozenset(),
    )


def test_edits_staged_edits_and_new_files_are_seen(git_repo: Make) -> None:
    """Unstaged, staged, staged and edited again, untracked: what is on disk counts."""
    tree = git_repo()
    for name in "abcd":
        tree.write(name, f"{name}\n")
    tree.commit("one")
    tree.write("a", "unstaged\n")
    tree.write("b", "staged\n")
    tree.git("add", "b")
    tree.write("c", "staged\n")
    tree.git("add", "c")
    tree.write("c", "edited\n")
    tree.write("n/new", "new\n")
    taken = snap(tree)
    assert oids(taken) == {
        b"a": oid_of(b"unstaged\n"),
        b"b": oid_of(b"staged\n"),
        b"c": oid_of(b"edited\n"),
        b"d": oid_of(b"d\n"),
        b"n/new": oid_of(b"new\n"),
    }
    assert dirty(taken) == {b"a", b"b", b"c", b"n/new"}
    assert set(taken.contents.values()) >= {b"unstaged\n", b"edited\n", b"new\n"}


def test_staged_change_taken_back_on_disk_is_clean(git_repo: Make) -> None:
    """Dirty means that the content differs from HEAD, whatever the index says."""
    tree = git_repo()
    tree.write("a", "one\n")
    tree.commit("one")
    tree.write("a", "two\n")
    tree.git("add", "a")
    tree.write("a", "one\n")
    taken = snap(tree)
    assert (dirty(taken), taken.dirty_digest) == (set(), "")


def test_digest_follows_content_not_staging(git_repo: Make) -> None:
    """Staging moves nothing; content, mode, deletion and untracked files do; going back gives "" again."""
    tree = git_repo()
    tree.write("a", "one\n")
    tree.write("b", "b\n")
    tree.commit("one")
    tree.write("a", "two\n")
    seen = [snap(tree).dirty_digest]
    tree.git("add", "a")
    assert snap(tree).dirty_digest == seen[0]
    os.chmod(tree.root / "a", 0o755)
    seen.append(snap(tree).dirty_digest)
    tree.delete("b")
    seen.append(snap(tree).dirty_digest)
    tree.write("c", "two\n")
    seen.append(snap(tree).dirty_digest)
    assert len(set(seen)) == 4
    tree.git("reset", "--hard", "--quiet")
    tree.delete("c")
    assert snap(tree).dirty_digest == ""


def test_deleted_files_are_gone_staged_or_not(git_repo: Make) -> None:
    """A deletion is no entry, and the digest tells of it."""
    tree = git_repo()
    for name in ("a", "b", "d/c"):
        tree.write(name, f"{name}\n")
    tree.commit("one")
    tree.delete("a")
    tree.git("rm", "--quiet", "b")
    tree.git("rm", "--quiet", "--cached", "d/c")
    taken = snap(tree)
    assert oids(taken) == {b"d/c": oid_of(b"d/c\n")}
    assert dirty(taken) == {b"d/c"}
    assert taken.dirty_digest


def test_intent_to_add_is_read_from_disk(git_repo: Make) -> None:
    """`git add -N` puts an empty blob into the index; the file has content."""
    tree = git_repo()
    tree.commit("none")
    tree.write("a", "a\n")
    tree.git("add", "-N", "a")
    taken = snap(tree)
    assert oids(taken) == {b"a": oid_of(b"a\n")}
    assert dirty(taken) == {b"a"}


def test_type_changes(git_repo: Make, tmp_path: Path) -> None:
    """file → symlink, file → folder, folder → file, symlink → file, folder → symlink, file → fifo."""
    tree = git_repo()
    for name in ("tolink", "todir", "tofile/x", "tolinkdir/x", "tofifo"):
        tree.write(name, f"{name}\n")
    os.symlink("todir", tree.root / "link")
    tree.commit("one")
    outside = Worktree(tmp_path / "outside")
    outside.write("x", "tolinkdir/x\n")
    tree.delete("tolink")
    os.symlink("todir", tree.root / "tolink")
    tree.delete("todir")
    tree.write("todir/y", "y\n")
    tree.delete("tofile/x")
    os.rmdir(tree.root / "tofile")
    tree.write("tofile", "file\n")
    tree.delete("link")
    tree.write("link", "no link\n")
    tree.delete("tolinkdir/x")
    os.rmdir(tree.root / "tolinkdir")
    os.symlink(outside.root, tree.root / "tolinkdir")
    tree.delete("tofifo")
    os.mkfifo(tree.root / "tofifo")
    os.mkfifo(tree.root / "newfifo")
    taken = snap(tree)
    assert oids(taken) == {
        b"todir/y": oid_of(b"y\n"),
        b"tofile": oid_of(b"file\n"),
        b"link": oid_of(b"no link\n"),
    }
    assert reasons(taken) == {
        b"tolink": "symlink",
        b"tolinkdir": "symlink",
        b"tofifo": "not a regular file",
    }


def test_same_size_and_mtime_is_noticed(git_repo: Make) -> None:
    """An edit that keeps size and restores the mtime is told by its ctime."""
    tree = git_repo()
    tree.write("a", "one\n")
    os.utime(tree.root / "a", (1_500_000_000, 1_500_000_000))
    tree.commit("one")
    tree.git("status")  # the index is refreshed, and no longer racy
    known = StatCache()
    assert dirty(snap(tree, known=known)) == set()
    tree.write("a", "two\n")
    os.utime(tree.root / "a", (1_500_000_000, 1_500_000_000))
    assert oids(snap(tree, known=known)) == {b"a": oid_of(b"two\n")}
    tree.write("a", "six\n")
    os.utime(tree.root / "a", (1_500_000_000, 1_500_000_000))
    assert oids(snap(tree, known=known)) == {b"a": oid_of(b"six\n")}


def test_young_files_are_read_again(git_repo: Make) -> None:
    """A stat is trusted once it is older than the clock's grain when the file was read."""
    tree = git_repo()
    tree.write("young", "1\n")
    known = StatCache()
    snap(tree, known=known)
    assert len(known) == 0
    assert dict(snap(tree, known=known).contents) == {oid_of(b"1\n"): b"1\n"}


def test_settled_files_are_not_read_again(git_repo: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a settled stat the id is known without reading; the content is read when it is asked for."""
    tree = git_repo()
    tree.write("a", "1\n")
    known = StatCache()
    ahead = time.time_ns() + 5_000_000_000
    monkeypatch.setattr("headwatch_indexer.disk.time.time_ns", lambda: ahead)
    first = snap(tree, known=known)
    second = snap(tree, known=known)
    assert len(known) == 1
    assert (first.entries, first.dirty_digest) == (second.entries, second.dirty_digest)
    assert len(second.contents) == 0
    assert second.contents.get(oid_of(b"1\n")) == b"1\n"
    assert second.contents.get(oid_of(b"2\n")) is None
    tree.write("a", "2\n")
    assert second.contents.get(oid_of(b"1\n")) is None
    assert first.contents.get(oid_of(b"1\n")) == b"1\n"
    assert oids(snap(tree, known=known)) == {b"a": oid_of(b"2\n")}
    tree.delete("a")
    snap(tree, known=known)
    assert len(known) == 0


def test_sparse_absent_files_are_neither_there_nor_deleted(git_repo: Make) -> None:
    """Sparse-checkout leaves files out; one written there all the same is seen."""
    tree = git_repo()
    for name in ("in/a", "out/b", "out/c", "top"):
        tree.write(name, f"{name}\n")
    tree.commit("one")
    tree.git("sparse-checkout", "set", "in")
    taken = snap(tree)
    assert set(taken.entries) == {b"in/a", b"top"}
    assert (taken.dirty_digest, taken.unknown) == ("", frozenset())
    tree.write("out/b", "here\n")
    taken = snap(tree)
    assert oids(taken)[b"out/b"] == oid_of(b"here\n")
    assert dirty(taken) == {b"out/b"}
    assert b"out/c" not in taken.entries


def test_sparse_index_is_expanded(git_repo: Make) -> None:
    """A sparse index holds folders; the snapshot holds files."""
    tree = git_repo()
    for name in ("in/a", "out/b", "top"):
        tree.write(name, f"{name}\n")
    tree.commit("one")
    tree.git("sparse-checkout", "set", "--cone", "--sparse-index", "in")
    assert set(snap(tree).entries) == {b"in/a", b"top"}
    tree.git("sparse-checkout", "disable")
    tree.git("update-index", "--split-index")
    assert set(snap(tree).entries) == {b"in/a", b"out/b", b"top"}


def test_skip_worktree_and_assume_unchanged_are_looked_at(git_repo: Make) -> None:
    """Flags that make git look away do not make the daemon look away."""
    tree = git_repo()
    for name in ("skip", "skipgone", "assume", "assumegone", "same"):
        tree.write(name, f"{name}\n")
    tree.commit("one")
    tree.git("update-index", "--skip-worktree", "skip", "skipgone")
    tree.git("update-index", "--assume-unchanged", "assume", "assumegone", "same")
    tree.write("skip", "edited\n")
    tree.write("assume", "edited\n")
    tree.delete("skipgone")
    tree.delete("assumegone")
    taken = snap(tree)
    assert oids(taken) == {
        b"skip": oid_of(b"edited\n"),
        b"assume": oid_of(b"edited\n"),
        b"same": oid_of(b"same\n"),
    }
    assert dirty(taken) == {b"skip", b"assume"}


def test_unmerged_files_are_taken_from_disk(git_repo: Make) -> None:
    """During a conflict the file with its markers is the truth; one that both sides lack is gone."""
    tree = git_repo()
    tree.write("a", "base\n")
    tree.write("gone", "base\n")
    tree.commit("base")
    tree.git("switch", "--quiet", "-c", "side")
    tree.write("a", "side\n")
    tree.write("gone", "side\n")
    tree.commit("side")
    tree.git("switch", "--quiet", "main")
    tree.write("a", "main\n")
    tree.delete("gone")
    tree.commit("main")
    with pytest.raises(AssertionError):
        tree.git("merge", "side")
    tree.delete("gone")
    taken = snap(tree)
    content = (tree.root / "a").read_bytes()
    assert b"<<<<<<<" in content
    assert oids(taken) == {b"a": oid_of(content)}
    assert dirty(taken) == {b"a"}


def test_clean_crlf_checkout_equals_the_index(git_repo: Make) -> None:
    """With autocrlf or eol attributes the disk has CRLF, the ids are git's, and nothing is dirty."""
    tree = git_repo()
    tree.write("a.txt", "one\ntwo\n")
    tree.write("b.txt", "b\n")
    tree.write("bin", b"\0\r\n")
    tree.commit("one")
    tree.git("config", "core.autocrlf", "true")
    tree.delete("a.txt")
    tree.delete("b.txt")
    tree.git("checkout", "--", ".")
    assert (tree.root / "a.txt").read_bytes() == b"one\r\ntwo\r\n"
    taken = snap(tree)
    assert oids(taken) == {
        b"a.txt": oid_of(b"one\ntwo\n"),
        b"b.txt": oid_of(b"b\n"),
        b"bin": oid_of(b"\0\r\n"),
    }
    assert dirty(taken) == set()
    tree.write("a.txt", "one\r\nchanged\r\n")
    tree.write("new.txt", "n\r\n")
    tree.write("bin", b"\0\r\nx")
    tree.git("update-index", "--assume-unchanged", "b.txt")
    taken = snap(tree)
    assert taken.contents[oids(taken)[b"a.txt"]] == b"one\nchanged\n"
    assert oids(taken)[b"a.txt"] == tree.git("hash-object", "a.txt")
    assert oids(taken)[b"new.txt"] == oid_of(b"n\n")
    assert oids(taken)[b"bin"] == oid_of(b"\0\r\nx")
    assert dirty(taken) == {b"a.txt", b"new.txt", b"bin"}


def test_crlf_that_git_keeps_is_kept(git_repo: Make) -> None:
    """Without conversion a CRLF file is named by its own bytes."""
    tree = git_repo()
    tree.commit("none")
    tree.write('od"d\r\nna\\me', "a\r\n")
    tree.write("b", "b\r\n")
    tree.write(".gitattributes", "b text\n")
    taken = snap(tree)
    assert oids(taken)[b'od"d\r\nna\\me'] == oid_of(b"a\r\n")
    assert oids(taken)[b"b"] == oid_of(b"b\n")


def test_failing_filter_costs_no_other_file(git_repo: Make) -> None:
    """Where a clean filter fails, the file is named by its own bytes and the others as git names them."""
    tree = git_repo()
    tree.commit("none")
    tree.write(".gitattributes", "*.x filter=broken\n*.txt text\n")
    tree.git("config", "filter.broken.clean", "false")
    tree.git("config", "filter.broken.required", "true")
    tree.write("a.x", "a\r\n")
    tree.write("b.txt", "b\r\n")
    taken = snap(tree)
    assert oids(taken)[b"a.x"] == oid_of(b"a\r\n")
    assert oids(taken)[b"b.txt"] == oid_of(b"b\n")


def test_submodules_nested_repositories_and_worktrees_are_boundaries(git_repo: Make, tmp_path: Path) -> None:
    """A submodule, a repository inside, linked worktrees, cut-off ones and bare ones: never their files."""
    tree = git_repo()
    other = git_repo("other")
    other.write("x", "x\n")
    other.commit("x")
    tree.write("a", "a\n")
    tree.commit("one")
    tree.git("-c", "protocol.file.allow=always", "submodule", "add", "--quiet", str(other.root), "sub")
    tree.commit("sub")
    tree.git("worktree", "add", "--quiet", ".claude/worktrees/one")
    tree.git("worktree", "add", "--quiet", ".claude/worktrees/cut")
    cut = Path(tree.git("-C", ".claude/worktrees/cut", "rev-parse", "--absolute-git-dir"))
    cut.rename(tmp_path / "away")
    Worktree.init(tree.root / "nested").write("y", "y\n")
    tree.git("init", "--quiet", "--bare", "d/bare.git")
    tree.write("sub/dirty", "z\n")
    taken = snap(tree)
    assert set(taken.entries) == {b".gitmodules", b"a"}
    assert reasons(taken) == {
        b"sub": "submodule",
        b"nested/": "nested repository",
        b".claude/worktrees/one/": "nested repository",
        b".claude/worktrees/cut/": "nested repository",
        b"d/bare.git/": "nested repository",
    }
    assert taken.dirty_digest == ""
    assert set(snap(Worktree(tree.root / "sub")).entries) == {b"x", b"dirty"}
    assert set(snap(Worktree(tree.root / ".claude/worktrees/one")).entries) == {b".gitmodules", b"a"}


def test_heads_of_every_kind(git_repo: Make) -> None:
    """Unborn, detached, packed."""
    tree = git_repo()
    tree.write("a", "a\n")
    tree.write("b", "b\n")
    tree.git("add", "a")
    taken = snap(tree)
    assert (taken.head, taken.branch) == (None, "main")
    assert dirty(taken) == {b"a", b"b"}
    head = tree.commit("one")
    tree.git("pack-refs", "--all")
    assert not (tree.root / ".git/refs/heads/main").exists()
    assert (snap(tree).head, snap(tree).branch) == (head, "main")
    tree.git("switch", "--quiet", "--detach")
    assert (snap(tree).head, snap(tree).branch) == (head, None)


def test_empty_repository_is_empty(git_repo: Make) -> None:
    """No commit and no file is a state, not an error."""
    taken = snap(git_repo())
    assert (taken.head, taken.branch, dict(taken.entries), taken.dirty_digest) == (None, "main", {}, "")


def test_sha256_repository(git_repo: Make) -> None:
    """Ids have 64 digits, also those of uncommitted content."""
    tree = git_repo("repo", "--object-format=sha256")
    tree.write("a", "a\n")
    tree.commit("one")
    tree.write("b", "b\n")
    taken = snap(tree)
    assert oids(taken) == {
        b"a": tree.git("rev-parse", "HEAD:a"),
        b"b": tree.git("hash-object", "b"),
    }
    assert len(taken.head or "") == 64


def test_bare_repository_is_its_head_tree(git_repo: Make, tmp_path: Path) -> None:
    """Nothing is checked out: the tree of HEAD is all there is."""
    tree = git_repo()
    tree.write("d/a", "a\n")
    tree.write("big", "x" * ((1 << 20) + 1))
    tree.write(".env", "K=1\n")
    os.symlink("d/a", tree.root / "link")
    head = tree.commit("one")
    tree.git("clone", "--quiet", "--bare", ".", str(tmp_path / "bare.git"))
    bare = Worktree(tmp_path / "bare.git")
    taken = snap(bare)
    assert (taken.head, taken.branch, taken.dirty_digest) == (head, "main", "")
    assert oids(taken) == {b"d/a": oid_of(b"a\n")}
    assert reasons(taken) == {b"big": "too large", b".env": "secret", b"link": "symlink"}
    unborn = git_repo("unborn.git", "--bare")
    assert dict(snap(unborn).entries) == {}


def test_inherited_git_variables_do_not_redirect(
    git_repo: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Started from a hook, GIT_DIR and its kin name another repository."""
    tree = git_repo()
    tree.write("a", "a\n")
    tree.commit("one")
    other = git_repo("other")
    monkeypatch.setenv("GIT_DIR", str(other.root / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other.root))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "no-index"))
    assert set(snap(tree).entries) == {b"a"}


@pytest.mark.parametrize(
    "name",
    [
        b"new\nline", b'quo"te', b"back\\slash", b"not\xffutf8", b" sp ace ", b"-n", b":(top)x", b"*", b"?[a]",
        "äöü".encode(), "e\u0301".encode(), b"tab\there", b"\\n",
    ],
)  # fmt: skip
def test_any_file_name_works(git_repo: Make, name: bytes) -> None:
    """Names are bytes: tracked, edited and new ones come back as they are."""
    tree = git_repo()
    tree.write(b"d/" + name, "a\n")
    tree.write(name, "a\n")
    tree.commit("one")
    assert oids(snap(tree)) == {name: oid_of(b"a\n"), b"d/" + name: oid_of(b"a\n")}
    tree.write(name, "b\n")
    tree.write(name + b"2", "c\n")
    taken = snap(tree)
    assert (oids(taken)[name], oids(taken)[name + b"2"]) == (oid_of(b"b\n"), oid_of(b"c\n"))


def test_what_is_ignored_is_gits_own_answer(git_repo: Make, own_home: Path) -> None:
    """Nested and negated .gitignore, info/exclude, core.excludesFile; tracked files are never ignored."""
    tree = git_repo()
    tree.write("forced.log", "tracked\n")
    tree.commit("one")
    tree.write(".gitignore", "*.log\nbuild/\n")
    tree.write("d/.gitignore", "!keep.log\n*.tmp\n")
    (tree.root / ".git/info/exclude").write_text("private\n")
    (own_home / "ignore").write_text("*.swp\n")
    (own_home / ".gitconfig").write_text(f"[core]\n\texcludesFile = {own_home}/ignore\n")
    for name in ("a.log", "d/keep.log", "d/x.tmp", "x.tmp", "build/o", "private", "a.swp"):
        tree.write(name, f"{name}\n")
    tree.write("forced.log", "edited\n")
    taken = snap(tree)
    assert set(taken.entries) == {b"forced.log", b".gitignore", b"d/.gitignore", b"d/keep.log", b"x.tmp"}
    listed = {skipped.path for skipped in ignored_listing(git.locate(str(tree.root)))}
    assert listed == {b"a.log", b"a.swp", b"build/", b"d/x.tmp", b"private"}


def test_modes_are_gits(git_repo: Make) -> None:
    """An executable bit is a change, unless core.fileMode says that it means nothing."""
    tree = git_repo()
    tree.write("a", "a\n")
    tree.commit("one")
    os.chmod(tree.root / "a", 0o755)
    taken = snap(tree)
    assert (taken.entries[b"a"].mode, dirty(taken)) == (0o100755, {b"a"})
    tree.git("config", "core.fileMode", "false")
    taken = snap(tree)
    assert (taken.entries[b"a"].mode, dirty(taken)) == (0o100644, set())
    tree.write("a", "b\n")
    assert snap(tree).entries[b"a"].mode == 0o100644


def test_out_of_scope_files_are_listed_with_their_reason(git_repo: Make) -> None:
    """Secrets, big files, generated and vendored ones, excluded ones: tracked or not, never read."""
    tree = git_repo()
    tree.write(
        ".gitattributes",
        "gen/** linguist-generated\nven/** linguist-vendored=true\nven/no -linguist-vendored\n",
    )
    for name in ("gen/a", "ven/b", "ven/no", "x/.env", "docs/a", "a"):
        tree.write(name, f"{name}\n")
    tree.write("big", "x" * ((1 << 20) + 1))
    tree.commit("one")
    tree.write("gen/new", "new\n")
    tree.write("server.pem", "key\n")
    tree.write("big2", "y" * ((1 << 20) + 1))
    tree.write("x/.env", "edited\n")
    known = StatCache()
    for _ in range(2):
        taken = snap(tree, RepositoryRules(exclude=("docs/",)), known)
        assert reasons(taken) == {
            b"gen/a": "generated",
            b"gen/new": "generated",
            b"ven/b": "vendored",
            b"x/.env": "secret",
            b"server.pem": "secret",
            b"docs/a": "excluded",
            b"big": "too large",
            b"big2": "too large",
        }
        assert taken.skipped[b"big"].size == taken.skipped[b"big2"].size == (1 << 20) + 1
        assert set(taken.entries) == {b".gitattributes", b"a", b"ven/no"}
        assert taken.dirty_digest == ""
    tree.write(".gitattributes", "")
    assert b"gen/a" in snap(tree, known=known).entries


def test_git_dir_is_left_untouched(git_repo: Make) -> None:
    """Nothing in .git changes by looking: no refreshed index, no lock, no object."""
    tree = git_repo()
    tree.write("a", "a\n")
    tree.write("crlf.txt", "a\n")
    tree.write(".gitattributes", "*.txt text\ngen linguist-generated\n")
    tree.commit("one")
    os.utime(
        tree.root / "a", (1_500_000_000, 1_500_000_000)
    )  # stale in the index: `git status` would refresh it
    tree.write("crlf.txt", "changed\r\n")
    tree.write("new", "new\n")
    before = state_of(tree.root / ".git")
    snap(tree)
    location = git.locate(str(tree.root))
    git.identity(location)
    git.worktrees(location.common_dir)
    git.ignored(location, [b"new", b"d"], directories=False)
    ignored_listing(location)
    assert state_of(tree.root / ".git") == before


def test_a_users_lock_does_not_stop_us(git_repo: Make) -> None:
    """index.lock held by the user's git is neither waited for nor removed."""
    tree = git_repo()
    tree.write("a", "a\n")
    tree.commit("one")
    tree.write("a", "b\n")
    lock = tree.root / ".git/index.lock"
    lock.write_bytes(b"")
    assert oids(snap(tree)) == {b"a": oid_of(b"b\n")}
    assert lock.exists()


def test_missing_root_is_no_empty_snapshot(git_repo: Make, tmp_path: Path) -> None:
    """A root that is gone, lost its .git, or lies in another repository that would answer for it: an error."""
    outer = git_repo("outer")
    outer.write("o", "o\n")
    outer.commit("outer")
    tree = git_repo("outer/inner")
    tree.write("a", "a\n")
    tree.commit("one")
    location = git.locate(str(tree.root))
    (tree.root / ".git").rename(tmp_path / "elsewhere")
    with pytest.raises(RootMissing):
        take(location, RepositoryRules())
    with pytest.raises(git.GitFailed):
        git.run(location.root, "status")
    tree.root.rename(tmp_path / "moved")
    with pytest.raises(RootMissing):
        take(location, RepositoryRules())


def test_pruned_worktree_is_missing(git_repo: Make) -> None:
    """A linked worktree whose git dir is gone is reported as such."""
    tree = git_repo()
    tree.commit("one")
    tree.git("worktree", "add", "--quiet", "../linked")
    location = git.locate(str(tree.root.parent / "linked"))
    tree.git("worktree", "remove", "../linked")
    (tree.root.parent / "linked").mkdir()
    with pytest.raises(RootMissing):
        take(location, RepositoryRules())


def test_failed_git_is_no_empty_snapshot(git_repo: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken index, or no git at all, raises."""
    tree = git_repo()
    tree.write("a", "a\n")
    tree.commit("one")
    location = git.locate(str(tree.root))
    (tree.root / ".git/index").write_bytes(b"broken")
    with pytest.raises(git.GitFailed, match="index"):
        take(location, RepositoryRules())
    monkeypatch.setenv("PATH", str(tree.root))
    with pytest.raises(git.GitFailed, match="cannot start git"):
        take(location, RepositoryRules())


def test_unlookable_files_are_unknown(git_repo: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that cannot be opened is neither deleted nor empty: its rows stay."""
    tree = git_repo()
    tree.write("a", "a\n")
    tree.write("b", "b\n")
    tree.commit("one")
    tree.write("a", "changed\n")
    tree.write("new", "new\n")
    really = os.open

    def refuse(path: str | bytes, *args: int, **kwargs: int) -> int:
        if path in (b"a", b"new"):
            raise OSError(24, "Too many open files", path)
        return really(path, *args, **kwargs)

    monkeypatch.setattr("headwatch_indexer.disk.os.open", refuse)
    taken = snap(tree)
    assert set(taken.entries) == {b"b"}
    assert taken.unknown == {b"a", b"new"}


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
def test_unreadable_folders_are_unknown_as_another_user(git_repo: Make, tmp_path: Path) -> None:
    """EACCES on a folder hides what is below: the folder is unknown, what git tracks there is not deleted."""
    tree = git_repo()
    for name in ("a", "closed/tracked", "half/tracked"):
        tree.write(name, f"{name}\n")
    tree.commit("one")
    tree.write("new/untracked", "x\n")
    for folder, _, files in os.walk(tmp_path):
        for path in (folder, *(os.path.join(folder, name) for name in files)):
            os.chown(path, 65534, 65534)
    os.chmod(tree.root / "closed", 0o000)
    os.chmod(tree.root / "new", 0o000)
    os.chmod(tree.root / "half/tracked", 0o000)
    program = (
        "import os, sys; os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "from headwatch_indexer import git, snapshot\n"
        "from headwatch_indexer.records import RepositoryRules\n"
        "taken = snapshot.take(git.locate(sys.argv[1]), RepositoryRules())\n"
        "print(sorted(taken.entries), sorted(taken.unknown))\n"
    )
    # pytest's own folders above are closed to others
    above = [
        parent for parent in tree.root.parents if parent.stat().st_uid == 0 and not parent.stat().st_mode & 1
    ]
    for parent in above:
        os.chmod(parent, parent.stat().st_mode | 0o011)
    done = subprocess.run([sys.executable, "-c", program, str(tree.root)], capture_output=True, text=True)
    for parent in above:
        os.chmod(parent, parent.stat().st_mode & ~0o011)
    if "ModuleNotFoundError" in done.stderr or "Permission denied: '/" in done.stderr:
        pytest.skip("the interpreter is out of reach for another user")
    assert done.returncode == 0, done.stderr
    # A mode 000 on the file itself leaves its stat in the index behind: git cannot compare, nor can we.
    assert done.stdout == "[b'a'] [b'closed/', b'closed/tracked', b'half/tracked', b'new/']\n"


def test_a_file_that_never_holds_still_is_unknown(git_repo: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """lstat–read–lstat: a file written while it is read is not taken."""
    tree = git_repo()
    tree.write("a", "0")
    really = Disk._content

    def written_meanwhile(self: Disk, path: bytes) -> bytes | None:
        content = really(self, path)
        with (tree.root / "a").open("ab") as file:
            file.write(b"x")
        return content

    monkeypatch.setattr(Disk, "_content", written_meanwhile)
    taken = snap(tree)
    assert (dict(taken.entries), taken.unknown) == ({}, {b"a"})


def test_moving_head_starts_over_then_gives_up(git_repo: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit between the two tokens means another look; after so many, Moving."""
    tree = git_repo()
    tree.write("a", "a\n")
    tree.commit("one")
    location = git.locate(str(tree.root))
    really = git.start
    moves = iter(range(3))

    def commit_first(root: str, *args: str, **kwargs: object) -> subprocess.Popen[bytes]:
        if args[0] == "status" and next(moves, None) is not None:
            tree.commit("moved")
        return really(root, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(git, "start", commit_first)
    with pytest.raises(Moving):
        take(location, RepositoryRules(), attempts=2)
    assert take(location, RepositoryRules(), attempts=2).head == tree.git("rev-parse", "HEAD")


def test_two_git_processes_a_pass(git_repo: Make) -> None:
    """A pass over a plain repository costs two processes, with attributes and CRLF one each more."""
    tree = git_repo()
    tree.write("a", "a\n")
    tree.commit("one")
    tree.write("a", "b\n")
    location = git.locate(str(tree.root))
    before = git.processes
    take(location, RepositoryRules())
    assert git.processes - before == 2


def test_case_of_names_matters(git_repo: Make) -> None:
    """A case-only rename is one file under its new name."""
    tree = git_repo()
    tree.write("Name.py", "a\n")
    tree.commit("one")
    tree.git("mv", "Name.py", "name.py")
    assert set(snap(tree).entries) == {b"name.py"}
