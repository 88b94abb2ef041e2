"""One home has one daemon, and a command finds it, or goes on without it; a pass that cannot be is no end."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from support.daemon import Daemon, populate
from support.worktree import Worktree

NewDaemon = Callable[..., Daemon]
GitRepo = Callable[..., Worktree]


def test_another_socket_is_no_other_home(new_daemon: NewDaemon, git_repo: GitRepo) -> None:
    """A second daemon on another socket is refused, naming the first; commands find that one all the same."""
    tree = populate(git_repo())
    daemon = new_daemon().start(tree.root)
    daemon.settle(tree)
    elsewhere = daemon.environment | {"HEADWATCH_SOCKET": str(daemon.home / "run" / "other.sock")}
    first, daemon.environment = daemon.environment, elsewhere
    try:
        refused = daemon.run("run", "--no-vectors", code=1)
        assert f"pid {daemon.pid}" in refused.stderr
        assert "hint: " in refused.stderr
        assert json.loads(daemon.run("status", "--json").stdout)["daemon"]["pid"] == daemon.pid
        daemon.run("run", "--once", "--no-vectors", str(tree.root))
    finally:
        daemon.environment = first
    daemon.settle(tree)
    assert "database lost" not in daemon.log()


def test_a_frozen_daemon_holds_nobody_up(new_daemon: NewDaemon, git_repo: GitRepo) -> None:
    """Commands say within seconds that the daemon does not answer: status goes on without it, wait exits 4."""
    tree = populate(git_repo())
    daemon = new_daemon().start(tree.root)
    daemon.settle(tree)
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        told = daemon.run("status", "--json")
        assert "does not answer" in told.stderr
        assert json.loads(told.stdout)["daemon"]["running"] is False
        assert "does not answer" in daemon.run("wait", str(tree.root), code=4).stderr
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
    daemon.settle(tree)


def test_once_goes_on_past_what_it_cannot_read(new_daemon: NewDaemon, git_repo: GitRepo) -> None:
    """`run --once` ends with 1 and names a broken and a missing worktree; all others are up to date."""
    good, broken, gone = (populate(git_repo(name)) for name in ("good", "broken", "gone"))
    daemon = new_daemon()
    daemon.run("add", *(str(tree.root) for tree in (good, broken, gone)))
    (broken.root / ".git" / "index").write_bytes(b"garbage")
    shutil.rmtree(gone.root)
    done = daemon.run("run", "--once", "--no-vectors", code=1)
    assert str(broken.root) in done.stderr
    assert str(gone.root) in done.stderr
    assert str(good.root) not in done.stderr.split("could not be read", 1)[1]
    found = json.loads(daemon.run("status", "--json").stdout)["repositories"]
    states = {tree["root"]: tree["state"] for repository in found for tree in repository["worktrees"]}
    assert states[str(good.root)] == "fresh"
    assert states[str(gone.root)] == "missing"
    assert states[str(broken.root)] in ("pending", "unknown")


def test_answers_from_a_bare_repository_are_verified(
    new_daemon: NewDaemon, git_repo: GitRepo, tmp_path: Path
) -> None:
    """Where nothing is checked out the blob is all there is: results are current, not stale."""
    tree = populate(git_repo())
    tree.git("clone", "--quiet", "--bare", str(tree.root), str(tmp_path / "bare.git"))
    daemon = new_daemon()
    daemon.run("run", "--once", "--no-vectors", str(tmp_path / "bare.git"))
    answer = json.loads(daemon.run("search", "def", "--repo", str(tmp_path / "bare.git"), "--json").stdout)
    assert answer["results"]
    assert {(result["verified"], result["freshness"]) for result in answer["results"]} == {(True, "current")}


@pytest.mark.parametrize("flags", [("--kind", "bogus"), ("--language", "klingon")])
def test_a_name_that_nothing_has_is_refused(
    new_daemon: NewDaemon, git_repo: GitRepo, flags: tuple[str, str]
) -> None:
    """A kind or language that no symbol can have is wrong usage, not an empty answer."""
    tree = populate(git_repo())
    daemon = new_daemon()
    daemon.run("run", "--once", "--no-vectors", str(tree.root))
    done = daemon.run("search", "x", "--repo", str(tree.root), *flags, code=2)
    assert flags[1] in done.stderr


def test_a_home_that_cannot_be_made(new_daemon: NewDaemon, tmp_path: Path) -> None:
    """A data directory that is a file is named, with what to set."""
    (tmp_path / "file").write_text("")
    daemon = new_daemon()
    daemon.environment |= {"HEADWATCH_HOME": str(tmp_path / "file")}
    done = daemon.run("list", code=1)
    assert str(tmp_path / "file") in done.stderr
    assert "HEADWATCH_HOME" in done.stderr
