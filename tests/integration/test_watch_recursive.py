"""The backend for systems whose stock watchdog observer is sound, on this system's stock observer."""

from __future__ import annotations

import os
import queue
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwatch import recursive
from headwatch.hints import COOKIE_PREFIX, Hint
from headwatch.outside import Outside
from headwatch.recursive import RecursiveBackend
from headwatch.routes import Routes
from headwatch.watch import HintHandler
from support.ears import LIMIT_S, ignored, target_of
from support.worktree import Worktree


class Stock:
    """A recursive backend and its hints."""

    def __init__(self, worktree: Worktree) -> None:
        self.heard: queue.Queue[Hint] = queue.Queue()
        handler = HintHandler(self.heard.put)
        self.target = target_of(worktree, 1)
        handler.routes = Routes([self.target])
        self.backend = RecursiveBackend(handler, Outside(ignored, None, lambda: 0, None))
        self.backend.start()
        self.backend.add(self.target)

    def until(self, wanted: Hint) -> list[Hint]:
        hints: list[Hint] = []
        while not hints or hints[-1] != wanted:
            hints.append(self.heard.get(timeout=LIMIT_S))
        return hints

    def synced(self) -> list[Hint]:
        cookie = Path(self.target.git_dir, os.fsdecode(COOKIE_PREFIX) + "1")
        cookie.touch()
        hints = self.until(Hint(1, "cookie", COOKIE_PREFIX + b"1"))[:-1]
        cookie.unlink()
        return hints


@pytest.fixture
def repo(tmp_path: Path) -> Worktree:
    worktree = Worktree.init(tmp_path / "repo")
    worktree.write(".gitignore", "node_modules/\n")
    worktree.write("src/a.py", "a = 1\n")
    worktree.write("node_modules/p/index.js", "x\n")
    Worktree.init(tmp_path / "repo" / "vendor" / "theirs").write("t.py", "t = 1\n")
    worktree.git("add", ".gitignore", "src")
    worktree.git("commit", "--quiet", "-m", "first")
    return worktree


@pytest.fixture
def stock(repo: Worktree, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stock]:
    monkeypatch.setattr(recursive, "LOOK_S", 0.1)
    opened = Stock(repo)
    yield opened
    opened.backend.stop()


def test_one_stream_tells_what_is_in_scope(repo: Worktree, stock: Stock) -> None:
    """Edits and commits are told; ignored directories and other repositories are not."""
    assert stock.backend.watches == 1
    repo.write("node_modules/p/index.js", "y\n")
    repo.write("vendor/theirs/t.py", "t = 2\n")
    repo.write("src/a.py", "a = 2\n")
    assert set(stock.synced()) == {Hint(1, "path", b"src/a.py")}
    repo.git("commit", "--quiet", "--all", "-m", "second")
    assert {h.path for h in stock.synced() if h.kind == "git"} == {b"index", b"refs/heads/main"}


def test_changed_rules_change_the_scope(repo: Worktree, stock: Stock) -> None:
    """A directory that is no longer ignored is told from then on."""
    repo.write("node_modules/p/index.js", "y\n")
    assert stock.synced() == []
    repo.write(".gitignore", "# nothing\n")
    assert Hint(1, "ignore", b".gitignore") in stock.synced()
    repo.write("node_modules/p/index.js", "z\n")
    assert Hint(1, "path", b"node_modules/p/index.js") in stock.synced()


def test_a_root_that_comes_back_is_followed(repo: Worktree, stock: Stock, tmp_path: Path) -> None:
    """Gone, then a rescan, then edits again."""
    shutil.copytree(repo.root, tmp_path / "copy", symlinks=True)
    shutil.rmtree(repo.root)
    stock.until(Hint(1, "gone"))
    shutil.copytree(tmp_path / "copy", repo.root, symlinks=True)
    stock.until(Hint(1, "rescan"))
    repo.write("src/a.py", "a = 3\n")
    assert Hint(1, "path", b"src/a.py") in stock.synced()


def test_a_linked_worktree_has_two_streams(repo: Worktree, tmp_path: Path) -> None:
    """The common dir lies outside a linked worktree's root: it gets a stream of its own, and gives it back."""
    linked = Worktree(tmp_path / "linked")
    repo.git("worktree", "add", "--quiet", "-b", "topic", linked.root)
    stock = Stock(linked)
    try:
        assert stock.backend.watches == 2
        linked.write("src/a.py", "a = 2\n")
        linked.git("commit", "--quiet", "--all", "-m", "second")
        assert {b"index", b"refs/heads/topic"} <= {h.path for h in stock.synced() if h.kind == "git"}
        stock.backend.remove(stock.target)
        assert stock.backend.watches == 0
    finally:
        stock.backend.stop()
