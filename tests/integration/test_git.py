"""Where worktrees are and how their git stands, by the git command and by plain looks."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from headwatch_indexer import git
from headwatch_indexer.records import Location
from support.worktree import Worktree

Make = Callable[..., Worktree]


@pytest.fixture(autouse=True)
def own_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The indexer's git reads the user's settings; here they are the test's."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    return home


def test_environment_drops_what_redirects_and_forbids_what_disturbs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No inherited GIT_*, no optional locks, no lazy fetch, no prompt, messages in C."""
    monkeypatch.setenv("GIT_DIR", "/elsewhere")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    env = git.environment()
    assert {name: value for name, value in env.items() if name.startswith("GIT_")} == {
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_TERMINAL_PROMPT": "0",
    }
    assert env["LC_ALL"] == "C"
    assert env["HOME"] == os.environ["HOME"]


def test_run_counts_feeds_and_raises(git_repo: Make) -> None:
    """Every process is counted; an exit code outside `ok` raises with what git said and what to do."""
    tree = git_repo()
    before = git.processes
    assert git.run(str(tree.root), "hash-object", "--stdin", input=b"a\n").startswith(b"7898")
    assert git.run(str(tree.root), "config", "no.such", ok=(1,)) == b""
    with pytest.raises(git.GitFailed) as caught:
        git.run(str(tree.root), "rev-parse", "--verify", "nonsense")
    assert git.processes == before + 3
    assert (caught.value.returncode, caught.value.arguments[0]) == (128, "rev-parse")
    assert "fatal:" in caught.value.message
    assert str(tree.root) in caught.value.hint


def test_a_git_that_hangs_is_ended(git_repo: Make) -> None:
    """At the time limit git and what it started are killed."""
    tree = git_repo()
    tree.write("a.x", "a\n")
    tree.write(".gitattributes", "*.x filter=slow\n")
    tree.git("config", "filter.slow.clean", "sleep 60")
    with pytest.raises(git.TimedOut, match="still running"):
        git.run(str(tree.root), "hash-object", "a.x", timeout_s=0.3)


def test_foreign_owner_gets_its_exact_command(git_repo: Make) -> None:
    """Dubious ownership is reported with the command that trusts the folder; validation stays on."""
    tree = git_repo()
    if os.getuid() != 0:
        pytest.skip("needs root to give a folder away")
    for path in (tree.root, tree.root / ".git"):
        os.chown(path, 65534, 65534)
    with pytest.raises(git.GitFailed, match="dubious ownership") as caught:
        git.locate(str(tree.root))
    assert f"git config --global --add safe.directory {tree.root}" in caught.value.hint


def test_locate_finds_the_top_level(git_repo: Make, tmp_path: Path) -> None:
    """A folder or a file inside, a symlink to it, a strange name: always the real root."""
    tree = git_repo("re po\nwith ä")
    tree.write("d/e/f", "f\n")
    os.symlink(tree.root, tmp_path / "link")
    root = str(tree.root)
    expected = Location(root, f"{root}/.git", f"{root}/.git", "sha1")
    for path in (root, f"{root}/d/e", f"{root}/d/e/f", str(tmp_path / "link"), str(tmp_path / "link/d")):
        assert git.locate(path) == expected


def test_locate_tells_kinds_apart(git_repo: Make, tmp_path: Path) -> None:
    """Linked worktree, submodule, bare repository, sha256."""
    tree = git_repo()
    tree.write("a", "a\n")
    tree.commit("one")
    root = str(tree.root)
    tree.git("worktree", "add", "--quiet", "../linked")
    linked = git.locate(str(tmp_path / "linked"))
    assert (linked.git_dir, linked.common_dir) == (f"{root}/.git/worktrees/linked", f"{root}/.git")
    tree.git("-c", "protocol.file.allow=always", "submodule", "add", "--quiet", root, "sub")
    sub = git.locate(f"{root}/sub")
    assert (sub.root, sub.git_dir) == (f"{root}/sub", f"{root}/.git/modules/sub")
    assert sub.common_dir == sub.git_dir
    bare = git_repo("bare.git", "--bare", "--object-format=sha256")
    location = git.locate(str(bare.root))
    assert location == Location(str(bare.root), str(bare.root), str(bare.root), "sha256", bare=True)
    assert git.locate(f"{bare.root}/refs").root == str(bare.root)


def test_locate_refuses_with_a_reason(git_repo: Make, tmp_path: Path, own_home: Path) -> None:
    """Missing, no repository, inside .git, /, $HOME itself or as a repository around."""
    with pytest.raises(git.RootMissing, match="no such path"):
        git.locate(str(tmp_path / "nowhere"))
    with pytest.raises(git.NotARepository):
        git.locate(str(tmp_path))
    tree = git_repo()
    with pytest.raises(git.NotARepository, match="inside a git dir"):
        git.locate(f"{tree.root}/.git/refs")
    with pytest.raises(git.RootRefused):
        git.locate("/")
    with pytest.raises(git.RootRefused):
        git.locate(str(own_home), home=str(own_home))
    Worktree.init(own_home)
    (own_home / "src").mkdir()
    with pytest.raises(git.RootRefused):
        git.locate(str(own_home / "src"), home=str(own_home))
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut/.git").write_text("gitdir: /nowhere\n")
    with pytest.raises(git.NotARepository):
        git.locate(str(tmp_path / "cut"))


def test_identity_is_the_origin_else_the_roots_else_the_place(git_repo: Make, tmp_path: Path) -> None:
    """The same for clones and linked worktrees."""
    tree = git_repo()
    location = git.locate(str(tree.root))
    assert git.identity(location) == f"path:{tree.root}/.git"
    root = tree.commit("one")
    tree.commit("two")
    assert git.identity(location) == f"root:{root[:12]}"
    tree.git("clone", "--quiet", ".", "../copy")
    assert git.identity(git.locate(str(tmp_path / "copy"))) == f"root:{root[:12]}"
    tree.git("worktree", "add", "--quiet", "--detach", "../linked")
    Worktree(tmp_path / "linked").git("checkout", "--quiet", "--orphan", "pages")
    assert git.identity(git.locate(str(tmp_path / "linked"))) == f"root:{root[:12]}"
    tree.git("remote", "add", "origin", "git@GitHub.com:owner/name.git")
    assert git.identity(location) == "github.com/owner/name"
    tree.git("config", "url.https://example.org/.insteadOf", "ex:")
    tree.git("remote", "set-url", "origin", "ex:a/b")
    assert git.identity(location) == "example.org/a/b"


def test_shallow_history_has_no_roots(git_repo: Make, tmp_path: Path) -> None:
    """The oldest commit of a shallow clone is not where the project began."""
    tree = git_repo()
    tree.commit("one")
    tree.commit("two")
    tree.git("clone", "--quiet", "--depth=1", f"file://{tree.root}", "../copy")
    assert git.identity(git.locate(str(tmp_path / "copy"))) == f"path:{tmp_path}/copy/.git"


def test_worktrees_lists_what_is_checked_out(git_repo: Make, tmp_path: Path) -> None:
    """Main and linked ones; not the bare, the prunable, the missing."""
    tree = git_repo()
    tree.commit("one")
    for name in ("a", "b\nc", "gone", "locked"):
        tree.git("worktree", "add", "--quiet", "--detach", f"../{name}")
    tree.git("worktree", "lock", "../locked")
    shutil.rmtree(tmp_path / "gone")
    shutil.rmtree(tmp_path / "locked")
    expected = {str(tree.root), str(tmp_path / "a"), str(tmp_path / "b\nc")}
    for start in (f"{tree.root}/.git", str(tree.root), str(tmp_path / "a")):
        found = git.worktrees(start)
        assert {location.root for location in found} == expected
        assert found[0].root == str(tree.root)
        for location in found:
            assert location == git.locate(location.root)
    (tmp_path / "a/.git").unlink()  # a plain folder by now
    assert {location.root for location in git.worktrees(str(tree.root))} == expected - {str(tmp_path / "a")}


def test_worktrees_of_bare_repositories_and_submodules(git_repo: Make, tmp_path: Path) -> None:
    """A bare main worktree is left out; a submodule's is where its files are."""
    tree = git_repo()
    tree.commit("one")
    tree.git("clone", "--quiet", "--bare", ".", "../bare.git")
    Worktree(tmp_path / "bare.git").git("worktree", "add", "--quiet", "../linked")
    assert [found.root for found in git.worktrees(str(tmp_path / "bare.git"))] == [str(tmp_path / "linked")]
    tree.git("-c", "protocol.file.allow=always", "submodule", "add", "--quiet", str(tree.root), "sub")
    assert git.worktrees(f"{tree.root}/sub") == [git.locate(f"{tree.root}/sub")]


def test_head_of_every_kind(git_repo: Make, tmp_path: Path) -> None:
    """Unborn, born, packed, nested names, detached, symbolic, linked: as rev-parse says, without a process."""
    tree = git_repo()
    location = git.locate(str(tree.root))
    before = git.processes
    assert git.head(location) == (None, "main")
    one = tree.commit("one")
    assert git.head(location) == (one, "main")
    tree.git("switch", "--quiet", "-c", "feat/a/b")
    two = tree.commit("two")
    tree.git("pack-refs", "--all", "--prune")
    assert git.head(location) == (two, "feat/a/b")
    three = tree.commit("three")
    assert git.head(location) == (three, "feat/a/b")
    tree.git("switch", "--quiet", "--detach", one)
    assert git.head(location) == (one, None)
    tree.git("symbolic-ref", "refs/heads/alias", "refs/heads/feat/a/b")
    tree.git("symbolic-ref", "HEAD", "refs/heads/alias")
    assert git.head(location) == (three, "feat/a/b")  # where a commit goes
    tree.git("symbolic-ref", "HEAD", "refs/heads/feat")  # a folder of refs, and an unborn branch
    assert git.head(location) == (None, "feat")
    assert git.processes == before
    tree.git("worktree", "add", "--quiet", "-b", "side", "../linked", one)
    assert git.head(git.locate(str(tmp_path / "linked"))) == (one, "side")


def test_head_asks_git_where_files_do_not_tell(git_repo: Make) -> None:
    """A HEAD that is a symlink, a ref of the worktree's own, an empty ref file."""
    tree = git_repo()
    one = tree.commit("one")
    location = git.locate(str(tree.root))
    head = tree.root / ".git/HEAD"
    head.unlink()
    head.symlink_to("refs/heads/main")
    assert git.head(location) == (one, "main")
    head.unlink()
    head.write_text("ref: refs/heads/main\n")
    tree.git("update-ref", "refs/worktree/x", one)
    tree.git("symbolic-ref", "refs/heads/own", "refs/worktree/x")
    tree.git("symbolic-ref", "HEAD", "refs/heads/own")
    assert git.head(location) == (one, None)


@pytest.mark.skipif(
    subprocess.run(
        ["git", "init", "--ref-format=reftable", "-h"], capture_output=True, check=False
    ).returncode
    != 129
    or "ref-format"
    not in subprocess.run(["git", "init", "-h"], capture_output=True, text=True, check=False).stdout,
    reason="this git knows no reftable",
)
def test_reftable_resolves_through_git(git_repo: Make) -> None:
    """HEAD is a stub in reftable repositories."""
    tree = git_repo("repo", "--ref-format=reftable")
    one = tree.commit("one")
    location = git.locate(str(tree.root))
    assert git.head(location) == (one, "main")
    before = git.token(location)
    tree.commit("two")
    assert git.token(location) != before


@pytest.mark.parametrize(
    "change",
    [
        ("commit", "--quiet", "--allow-empty", "-m", "x"), ("switch", "--quiet", "--detach"), ("add", "new"),
        ("pack-refs", "--all"), ("config", "x.y", "z"), ("switch", "--quiet", "-c", "other"),
        ("sparse-checkout", "set", "d"), ("update-ref", "refs/heads/main", "HEAD~1"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_token_moves_with_git(git_repo: Make, change: tuple[str, ...]) -> None:
    """Every move of HEAD, its branch, the index, packed refs or settings is a new token; looking is none."""
    tree = git_repo()
    tree.commit("one")
    tree.commit("two")
    location = git.locate(str(tree.root))
    tree.write("new", "new\n")
    processes = git.processes
    before = git.token(location)
    assert git.token(location) == before
    assert git.processes == processes
    tree.git(*change)
    assert git.token(location) != before


def test_token_moves_with_rules_grafts_and_the_worktree_itself(git_repo: Make, tmp_path: Path) -> None:
    """info/exclude, info/attributes, shallow, a swapped .git."""
    tree = git_repo()
    tree.commit("one")
    location = git.locate(str(tree.root))
    seen = {git.token(location)}
    for name in ("info/exclude", "info/attributes", "shallow"):
        with (tree.root / ".git" / name).open("a") as file:
            file.write("\n")
        seen.add(git.token(location))
    shutil.copytree(tree.root / ".git", tmp_path / "copy")
    (tree.root / ".git").rename(tmp_path / "old")
    (tmp_path / "copy").rename(tree.root / ".git")
    seen.add(git.token(location))
    (tree.root / ".git/index").unlink()
    seen.add(git.token(location))
    assert len(seen) == 6


def conflict(tree: Worktree) -> str:
    """Make two branches that conflict, main checked out; returns the other's commit."""
    tree.write("a", "base\n")
    tree.commit("base")
    tree.git("switch", "--quiet", "-c", "side")
    tree.write("a", "side\n")
    side = tree.commit("side")
    tree.git("switch", "--quiet", "main")
    tree.write("a", "main\n")
    tree.commit("main")
    return side


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("merge", "side"), "merge"),
        (("rebase", "side"), "rebase"),
        (("rebase", "--apply", "side"), "rebase"),
        (("cherry-pick", "side"), "cherry-pick"),
        (("cherry-pick", "side~1..side"), "cherry-pick"),
        (("revert", "--no-edit", "main~1"), "revert"),
        (("am", "p.patch"), "am"),
    ],
)
def test_operations_under_way_are_named(git_repo: Make, command: tuple[str, ...], expected: str) -> None:
    """What stopped at a conflict is under way, until it is given up."""
    tree = git_repo()
    conflict(tree)
    (tree.root / "p.patch").write_text(tree.git("format-patch", "--stdout", "side~1..side") + "\n")
    git_dir = f"{tree.root}/.git"
    assert git.operation(git_dir) is None
    with pytest.raises(AssertionError):
        tree.git(*command)
    assert git.operation(git_dir) == expected
    tree.git(command[0], "--abort")
    assert git.operation(git_dir) is None


def test_bisect_and_a_sequence_between_two_steps(git_repo: Make, tmp_path: Path) -> None:
    """Bisect belongs to its worktree; a sequencer without CHERRY_PICK_HEAD is a pick or a revert."""
    tree = git_repo()
    conflict(tree)
    tree.git("worktree", "add", "--quiet", "--detach", "../linked")
    linked = Worktree(tmp_path / "linked")
    linked.git("bisect", "start")
    assert git.operation(git.locate(str(linked.root)).git_dir) == "bisect"
    git_dir = tree.root / ".git"
    assert git.operation(str(git_dir)) is None
    (git_dir / "sequencer").mkdir()
    (git_dir / "sequencer/todo").write_text("revert 1234567 x\n")
    assert git.operation(str(git_dir)) == "revert"
    (git_dir / "sequencer/todo").write_text("pick 1234567 x\n")
    assert git.operation(str(git_dir)) == "cherry-pick"


def test_locks_are_this_worktrees_own(git_repo: Make, tmp_path: Path) -> None:
    """index.lock, HEAD.lock and the lock of the branch; not those of other worktrees."""
    tree = git_repo()
    tree.commit("one")
    tree.git("worktree", "add", "--quiet", "../linked")
    main, linked = git.locate(str(tree.root)), git.locate(str(tmp_path / "linked"))
    paths = [
        f"{main.git_dir}/index.lock",
        f"{main.git_dir}/HEAD.lock",
        f"{main.common_dir}/refs/heads/main.lock",
    ]
    assert git.locks(main.git_dir, main.common_dir) == []
    for path in paths:
        Path(path).touch()
    os.utime(paths[0], (5, 5))
    found = git.locks(main.git_dir, main.common_dir)
    assert [path for path, _ in found] == paths
    assert found[0][1] == 5.0
    assert git.locks(linked.git_dir, linked.common_dir) == []
    Path(linked.git_dir, "HEAD.lock").touch()
    assert len(git.locks(linked.git_dir, linked.common_dir)) == 1


def test_ignored_is_gits_answer_but_for_tracked_files(git_repo: Make) -> None:
    """Folders with a tracked file are not ignored, nor tracked files; what is gone is judged by its name."""
    tree = git_repo()
    tree.write("build/keep/tracked.py", "x\n")
    tree.write("forced.log", "x\n")
    tree.commit("one")
    tree.write(".gitignore", "build/\n*.log\ngone/\n[x]*\n")
    tree.write("build/out/o", "o\n")
    tree.write("src/a.log", "a\n")
    location = git.locate(str(tree.root))
    folders = [
        b"build",
        b"build/keep",
        b"build/out",
        b"build/out/deep",
        b"src",
        b"gone",
        b"x\xff\n",
        b"other",
    ]
    assert git.ignored(location, folders, directories=True) == {
        b"build/out",
        b"build/out/deep",
        b"gone",
        b"x\xff\n",
    }
    files = [b"forced.log", b"src/a.log", b"a.py", b"build/out/o", b"build/keep/tracked.py", b'x"\n']
    assert git.ignored(location, files, directories=False) == {b"src/a.log", b"build/out/o", b'x"\n'}
    assert git.ignored(location, [], directories=True) == set()
    assert git.ignored(location, [b"a.py"], directories=False) == set()


def test_one_path_that_git_dies_on_costs_no_other(git_repo: Make, tmp_path: Path) -> None:
    """A path behind a symlink or inside a submodule is not ignored; the others get their answer."""
    tree = git_repo()
    tree.write(".gitignore", "*.log\n")
    tree.commit("one")
    tree.git("-c", "protocol.file.allow=always", "submodule", "add", "--quiet", str(tree.root), "sub")
    os.symlink(tmp_path, tree.root / "link")
    location = git.locate(str(tree.root))
    paths = [b"a.log", b"link/x.log", b"sub/x.log", b"b.log", b"../out.log", b"c", b":(top)x", b":x.log"]
    assert git.ignored(location, paths, directories=False) == {b"a.log", b"b.log", b":x.log"}
