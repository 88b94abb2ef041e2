"""A user at work as fast as git allows, followed by a running daemon: at every pause its rows are right."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest

from support.daemon import QUIET, Daemon, populate
from support.eventually import eventually
from support.worktree import Worktree

PATHS = ("pkg/a.py", "pkg/b.py", "pkg/util.py", "x/y/z.py", "README.md", "cmd/main.go", "q.js")
LOSSY = ("--set", "watch.drop=half", "--set", "watch.token_s=0.3", "--set", "watch.stat_s=1")
_PAUSES = 6
_MOST_STEPS = 20  # between two pauses


class Walk:
    """A main worktree and up to three linked ones; whatever git refuses to do is not done."""

    def __init__(self, tree: Worktree, random: Random) -> None:
        self.trees = [tree]
        self.random = random
        self.steps = 0
        self.here = tree

    def step(self) -> None:
        """Do one thing that a user might do."""
        self.steps += 1
        self.here = self.random.choice(self.trees)
        doing = self.random.choice(
            [self.write] * 4
            + [self.delete, self.rename, self.commit, self.branch, self.switch, self.undo, self.stash]
            + [self.merge, self.rebase, self.link, self.unlink, self.collect]
        )
        with suppress(AssertionError, OSError):
            doing()
        for operation in ("merge", "rebase"):  # what stopped at a conflict
            with suppress(AssertionError, OSError):
                self.here.git(operation, "--abort")

    def write(self) -> None:
        text = f"def f{self.random.randrange(9)}():\n    return {self.random.randrange(5)}\n"
        self.here.write(self.random.choice(PATHS), text)

    def delete(self) -> None:
        self.here.delete(self.random.choice(PATHS))

    def rename(self) -> None:
        os.rename(self.here.root / "pkg", self.here.root / f"pkg{self.steps}")

    def commit(self) -> None:
        self.here.commit(f"step {self.steps}")

    def branch(self) -> None:
        self.here.git("switch", "--quiet", "-c", f"b{self.steps}")

    def switch(self) -> None:
        self.here.git("switch", "--quiet", self.any_branch())

    def undo(self) -> None:
        self.here.git("reset", "--quiet", "--hard", "HEAD~1")

    def stash(self) -> None:
        self.here.git(*self.random.choice((["stash", "-u", "--quiet"], ["stash", "pop", "--quiet"])))

    def merge(self) -> None:
        self.here.git("merge", "--quiet", "-m", "merged", self.any_branch())

    def rebase(self) -> None:
        self.here.git("rebase", "--quiet", self.any_branch())

    def collect(self) -> None:
        self.here.git("gc", "--quiet", "--prune=now")

    def link(self) -> None:
        if len(self.trees) < 4:
            root = self.trees[0].root.parent / f"linked{self.steps}"
            self.here.git("worktree", "add", "--quiet", "-b", f"w{self.steps}", root)
            self.trees.append(Worktree(root))

    def unlink(self) -> None:
        if len(self.trees) > 1:
            gone = self.trees.pop()
            self.trees[0].git("worktree", "remove", "--force", gone.root)

    def any_branch(self) -> str:
        return self.random.choice(self.here.git("branch", "--format=%(refname:short)").split())


@pytest.mark.parametrize(("seed", "settings"), [(1, QUIET), (2, QUIET), (3, LOSSY)])
def test_a_user_at_work(
    new_daemon: Callable[..., Daemon],
    git_repo: Callable[..., Worktree],
    seed: int,
    settings: tuple[str, ...],
) -> None:
    """Rows, worktrees and proofs are those of the disk at every pause, also when every other event is lost."""
    walk = Walk(populate(git_repo()), Random(seed))
    daemon = new_daemon(*settings).start(walk.here.root)
    for _ in range(_PAUSES):
        for _ in range(walk.random.randrange(1, _MOST_STEPS)):
            walk.step()
        for tree in walk.trees:
            daemon.settle(tree)
        roots = {str(tree.root) for tree in walk.trees}
        eventually(lambda roots=roots: daemon.worktrees().keys() == roots, "the same worktrees", 20)
    assert daemon.stop() == 0
    assert [line for line in daemon.logged() if line["level"] not in ("info", "debug")] == []
