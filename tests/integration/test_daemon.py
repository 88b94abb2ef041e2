"""What people do with files and git, followed by a running daemon: its rows are always those of the disk."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from support import oracle
from support.daemon import Daemon
from support.eventually import eventually
from support.worktree import Worktree

Step = Callable[[Worktree], object]


@contextmanager
def computing_nothing(daemon: Daemon, tree: Worktree) -> Iterator[None]:
    """Fail when anything is parsed, or a text turns up that would have to be embedded."""
    before = daemon.counters()["symbols_parsed"], contents(daemon, tree)
    yield
    assert (daemon.counters()["symbols_parsed"], contents(daemon, tree)) == before


def contents(daemon: Daemon, tree: Worktree) -> int:
    """How many texts of a repository have a vector, or wait for one."""
    [(n,)] = daemon.sql(
        "select count(*) from headwatch.content where repository_id ="
        " (select repository_id from headwatch.worktree where root = %s)",
        os.path.realpath(tree.root),
    )
    return int(n)


def generation(daemon: Daemon, tree: Worktree) -> int:
    return int(daemon.worktree(tree.root)["generation"])


def branch_off(tree: Worktree, name: str, path: str, text: str) -> None:
    """Make a branch with one commit of its own, and come back to main."""
    tree.git("switch", "--quiet", "-c", name)
    tree.write(path, text)
    tree.commit(f"on {name}")
    tree.git("switch", "--quiet", "main")


@pytest.mark.parametrize(
    "step",
    [
        lambda t: t.write("pkg/util.py", "def clamp(x):\n    return x\n\ndef more():\n    return 1\n"),
        lambda t: t.delete("pkg/shapes.py"),
        lambda t: os.rename(t.root / "pkg/text.py", t.root / "cmd/words.py"),
        lambda t: os.rename(t.root / "pkg", t.root / "package"),
        lambda t: t.git("mv", "pkg/util.py", "pkg/tools.py"),
        lambda t: t.write("new/deep/er/file.py", "def fresh():\n    pass\n"),
        lambda t: t.write(".git/info/exclude", "/cmd/\n") or t.git("rm", "-qr", "--cached", "cmd"),
    ],
    ids=["edit", "delete", "rename", "rename a folder", "git mv", "untracked", "ignored from now on"],
)
def test_a_change_on_disk(running: Daemon, tree: Worktree, step: Step) -> None:
    """Uncommitted changes are in the rows soon after they are on disk, by events alone."""
    before = generation(running, tree)
    step(tree)
    running.catches_up(tree, before)


def test_ignored_files(running: Daemon, tree: Worktree) -> None:
    """What git ignores never has a row, wherever it turns up."""
    before = generation(running, tree)
    tree.write("build/made.py", "def brewed():\n    pass\n")
    tree.write("pkg/noise.log", "noise\n")
    tree.write("pkg/seen.py", "def seen():\n    pass\n")
    running.catches_up(tree, before)
    assert running.search("brewed", tree.root) == []
    assert running.search("seen", tree.root)[0]["path"] == "pkg/seen.py"


def test_a_commit_computes_nothing(running: Daemon, tree: Worktree) -> None:
    """A commit, and its amendment, move the baseline alone: nothing is parsed, nothing is embedded."""
    before = generation(running, tree)
    tree.write("pkg/util.py", "def clamp(x):\n    return x + 1\n")
    tree.write("pkg/extra.py", "def extra():\n    return 'extra'\n")
    dirty = running.catches_up(tree, before)
    assert dirty["dirty_files"] == 2
    with computing_nothing(running, tree):
        head = tree.commit("second")
        committed = running.catches_up(tree, dirty["generation"])
        assert committed["indexed_head"] == committed["live_head"] == head
        assert committed["dirty_files"] == 0
        assert committed["last_transition"]["action"] == "commit"
        assert committed["last_transition"]["new"] == head
        tree.git("commit", "--quiet", "--amend", "-m", "second, better")
        amended = running.catches_up(tree, committed["generation"])
        assert amended["last_transition"]["action"].startswith("commit (amend)")
        assert amended["indexed_head"] == tree.git("rev-parse", "HEAD") != head


def test_a_commit_out_of_scope(running: Daemon, tree: Worktree) -> None:
    """A commit that touches only files that are not indexed advances the baseline all the same."""
    before = running.worktree(tree.root)
    tree.write("data.bin", bytes(range(256)) * 8)
    running.catches_up(tree, before["generation"])
    with computing_nothing(running, tree):
        head = tree.commit("a binary")
        eventually(lambda: running.worktree(tree.root)["indexed_head"] == head, "the baseline advances")
    assert running.settle(tree)["files"] == before["files"]


def test_switch_and_back(running: Daemon, tree: Worktree) -> None:
    """A branch is parsed when it is first checked out; going back, and there again, computes nothing."""
    branch_off(tree, "feature", "pkg/util.py", "def clamp(x):\n    return 'feature'\n")
    running.settle(tree)
    before = generation(running, tree)
    tree.git("switch", "--quiet", "feature")
    there = running.catches_up(tree, before)
    assert (there["branch"], there["last_transition"]["action"]) == ("feature", "checkout")
    with computing_nothing(running, tree):
        tree.git("switch", "--quiet", "main")
        back = running.catches_up(tree, there["generation"])
        tree.git("switch", "--quiet", "feature")
        again = running.catches_up(tree, back["generation"])
    assert [back["branch"], again["branch"]] == ["main", "feature"]


def test_reset_and_stash(running: Daemon, tree: Worktree) -> None:
    """`reset --hard`, `stash` and `stash pop` are followed, and bring nothing back that has to be computed."""
    before = generation(running, tree)
    tree.write("pkg/util.py", "def clamp(x):\n    return 'second'\n")
    tree.commit("second")
    second = running.catches_up(tree, before)["generation"]
    with computing_nothing(running, tree):
        tree.git("reset", "--quiet", "--hard", "HEAD~1")
        back = running.catches_up(tree, second)
    assert back["last_transition"]["action"] == "reset"
    tree.write("pkg/util.py", "def clamp(x):\n    return 'draft'\n")
    draft = running.catches_up(tree, back["generation"])["generation"]
    with computing_nothing(running, tree):
        tree.git("stash")
        clean = running.catches_up(tree, draft)
        tree.git("stash", "pop", "--quiet")
        popped = running.catches_up(tree, clean["generation"])
    assert (clean["dirty_files"], popped["dirty_files"]) == (0, 1)


def test_a_rebase_is_one_generation(running: Daemon, tree: Worktree) -> None:
    """A rebase is held while it goes on, and applied once, in one pass, when it is done."""
    tree.git("switch", "--quiet", "-c", "feature")
    for n in range(6):
        tree.write(f"pkg/step{n}.py", f"def step{n}():\n    return {n}\n")
        tree.commit(f"step {n}")
    tree.git("switch", "--quiet", "main")
    tree.write("pkg/util.py", "def clamp(x):\n    return 'main'\n")
    tree.commit("main moves")
    tree.git("switch", "--quiet", "feature")
    before = running.settle(tree)
    gate = tree.root.parent / "gate"
    os.mkfifo(gate)
    pause = f"test -e {gate}.passed || {{ cat {gate}; touch {gate}.passed; }}"  # after the first of the picks
    rebase = subprocess.Popen(["git", "rebase", "--quiet", "--exec", pause, "main"], cwd=tree.root)
    try:
        eventually(lambda: running.worktree(tree.root)["state"] == "held", "the rebase is held")
        held = running.worktree(tree.root)
        passes = running.counters()["reconciles"]
        gate.write_text("go\n")
        assert rebase.wait(30) == 0
    finally:
        rebase.kill()
        rebase.wait()
    assert (held["generation"], held["reason"]) == (before["generation"], "a rebase is under way")
    assert held["indexed_head"] == before["indexed_head"]
    assert not held["text_fresh"]
    after = running.catches_up(tree, before["generation"])
    assert after["generation"] == before["generation"] + 1
    assert after["last_transition"]["action"].startswith("rebase")
    assert running.counters()["reconciles"] - passes == 2  # the one, and that of `settle`


def test_a_merge_conflict_is_held(running: Daemon, tree: Worktree) -> None:
    """While a merge waits for the user the worktree is `held`, with the reason, until it ends either way."""
    branch_off(tree, "theirs", "pkg/util.py", "def clamp(x):\n    return 'theirs'\n")
    tree.write("pkg/util.py", "def clamp(x):\n    return 'ours'\n")
    tree.commit("ours")
    running.settle(tree)
    before = generation(running, tree)
    with pytest.raises(AssertionError, match="failed"):
        tree.git("merge", "theirs")
    eventually(lambda: running.worktree(tree.root)["state"] == "held", "the merge is held")
    held = running.worktree(tree.root)
    assert (held["reason"], held["generation"]) == ("a merge is under way", before)
    done = running.run("wait", str(tree.root), "--timeout", "0.3", code=3)
    assert "a merge is under way" in done.stderr
    tree.git("merge", "--abort")
    eventually(lambda: running.worktree(tree.root)["state"] == "fresh", "the merge was aborted")
    assert running.settle(tree)["indexed_head"] == tree.git("rev-parse", "HEAD")


@pytest.mark.parametrize(
    ("start", "end", "operation"),
    [
        (["cherry-pick", "theirs"], ["cherry-pick", "--abort"], "cherry-pick"),
        (["revert", "HEAD~1"], ["revert", "--abort"], "revert"),
        (["rebase", "theirs"], ["rebase", "--abort"], "rebase"),
        (["bisect", "start", "HEAD", "HEAD~2"], ["bisect", "reset"], "bisect"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_held_until_it_ends(
    running: Daemon, tree: Worktree, start: list[str], end: list[str], operation: str
) -> None:
    """Whatever git has under way is named, and ends in rows that are those of the disk."""
    branch_off(tree, "theirs", "pkg/util.py", "def clamp(x):\n    return 'theirs'\n")
    for text in ("ours", "ours too"):
        tree.write("pkg/util.py", f"def clamp(x):\n    return {text!r}\n")
        tree.commit(text)
    running.settle(tree)
    with suppress(AssertionError):  # it stops at a conflict
        tree.git(*start)
    eventually(lambda: running.worktree(tree.root)["state"] == "held", "it is held")
    assert running.worktree(tree.root)["reason"] == f"a {operation} is under way"
    tree.git(*end)
    eventually(lambda: running.worktree(tree.root)["state"] == "fresh", "it ended")
    running.settle(tree)


def test_a_branch_in_folders(running: Daemon, tree: Worktree) -> None:
    """A first commit on a branch whose ref lies in folders that did not exist is noticed."""
    before = generation(running, tree)
    tree.git("switch", "--quiet", "-c", "feat/a/b")
    switched = running.catches_up(tree, before)
    assert switched["branch"] == "feat/a/b"
    head = tree.git("commit", "--quiet", "--allow-empty", "-m", "empty") or tree.git("rev-parse", "HEAD")
    assert running.catches_up(tree, switched["generation"])["indexed_head"] == head


def test_detached(running: Daemon, tree: Worktree) -> None:
    """A detached HEAD has no branch; commits on it are followed, and so is the way back."""
    before = generation(running, tree)
    tree.git("switch", "--quiet", "--detach")
    detached = running.catches_up(tree, before)
    assert detached["branch"] is None
    tree.write("pkg/util.py", "def clamp(x):\n    return 'detached'\n")
    head = tree.commit("nowhere")
    moved = running.catches_up(tree, detached["generation"])
    assert (moved["branch"], moved["indexed_head"]) == (None, head)
    tree.git("switch", "--quiet", "main")
    assert running.catches_up(tree, moved["generation"])["branch"] == "main"


def test_before_the_first_commit(running: Daemon, git_repo: Callable[..., Worktree]) -> None:
    """A repository without a commit is followed from its untracked files on; the first commit is a commit."""
    tree = git_repo("unborn")
    tree.write("a.py", f"def first():\n    return {str(tree.root)!r}\n")
    running.add(tree.root)
    unborn = running.settle(tree)
    assert (unborn["live_head"], unborn["indexed_head"], unborn["branch"]) == (None, None, "main")
    assert (unborn["state"], unborn["files"]) == ("fresh", 1)
    head = tree.commit("first")
    assert running.catches_up(tree, unborn["generation"])["indexed_head"] == head
    running.remove(tree.root)


def test_a_bare_repository(running: Daemon, tree: Worktree, tmp_path: Path) -> None:
    """A bare repository shows what its HEAD holds, and follows pushes."""
    bare = tmp_path / "bare.git"
    tree.git("clone", "--quiet", "--bare", tree.root, bare)
    running.add(bare)
    before = running.wait(bare)
    assert (before["files"], before["state"]) == (running.worktree(tree.root)["files"], "fresh")
    tree.write("pkg/pushed.py", "def pushed():\n    pass\n")
    head = tree.commit("pushed")
    tree.git("push", "--quiet", bare, "main")
    eventually(lambda: running.worktree(bare)["indexed_head"] == head, "the push is in the rows")
    assert running.search("pushed", bare)[0]["path"] == "pkg/pushed.py"


def test_a_lone_save_is_one_pass(running: Daemon, tree: Worktree) -> None:
    """One save costs one pass, whose reads and whose cookie cause no other."""
    before = generation(running, tree)
    passes = running.counters()["reconciles"]
    tree.write("pkg/util.py", "def clamp(x):\n    return 'saved'\n")
    running.catches_up(tree, before)
    assert running.counters()["reconciles"] - passes == 2  # the one, and that of `settle`
    running.wait(tree.root)
    assert running.counters()["reconciles"] - passes == 3


def test_reading_is_no_change(running: Daemon, tree: Worktree) -> None:
    """Reading every file, and `git status`, cause no hint about a file and no pass."""
    counted = running.counters()
    subprocess.run(["grep", "-r", "def", str(tree.root)], check=True, stdout=subprocess.DEVNULL)
    tree.git("--no-optional-locks", "status")
    running.wait(tree.root)  # its cookie comes after everything that the reads could have caused
    after = running.counters()
    assert (after["reconciles"], after["hints"]) == (counted["reconciles"] + 1, counted["hints"])


def test_git_is_untouched(running: Daemon, tree: Worktree) -> None:
    """Following a repository writes nothing into it: same index, same files, and no cookie left."""
    tree.write("pkg/util.py", "def clamp(x):\n    return 'dirty'\n")
    running.settle(tree)

    def seen() -> dict[str, tuple[int, int]]:
        files = [path for path in (tree.root / ".git").rglob("*") if path.is_file()]
        return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in files}

    before = seen()
    running.call("POST", "/reconcile", {"repo": str(tree.root)})
    running.settle(tree)
    assert seen() == before
    assert oracle.expected_rows(tree.root)
