"""A picture that is kept by hints alone equals the disk, whatever is done to the directories."""

from __future__ import annotations

import os
import queue
import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from headwatch.hints import COOKIE_PREFIX, Hint, Target
from headwatch.linux_backend import LinuxBackend
from headwatch.watch import Watcher
from support.worktree import Worktree

LIMIT_S = 20.0
NAMES = ("a", "b", "c", "d")


def ignored(target: Target, directories: Sequence[bytes]) -> set[bytes]:
    """Every directory named `skip` is ignored."""
    return {path for path in directories if b"skip" in path.split(b"/")}


class Mirror:
    """Contents by path, refreshed only where a hint says so."""

    def __init__(self, root: Path) -> None:
        self.root = os.fsencode(root)
        self.files = self.disk(b"")

    def disk(self, path: bytes) -> dict[bytes, bytes]:
        """What is on disk at and beneath a path."""
        full = os.path.join(self.root, path) if path else self.root
        if not os.path.lexists(full) or b"skip" in path.split(b"/"):
            return {}
        if not os.path.isdir(full):
            return {path: Path(os.fsdecode(full)).read_bytes()}
        found: dict[bytes, bytes] = {}
        for name in os.listdir(full):
            if name not in (b".git", b"skip"):
                found |= self.disk(os.path.join(path, name))
        return found

    def refresh(self, path: bytes) -> None:
        """Look at a path again."""
        beneath = path + b"/"
        self.files = {p: c for p, c in self.files.items() if path and p != path and not p.startswith(beneath)}
        self.files |= self.disk(path)


class Hands:
    """Does random things to a tree, as fast as it can."""

    def __init__(self, root: Path, outside: Path, seed: int) -> None:
        self.root, self.outside = root, outside
        self.random = random.Random(seed)
        self.count = 0
        outside.mkdir()

    def somewhere(self) -> Path:
        path = self.root
        for _ in range(self.random.randint(1, 4)):
            path /= self.random.choice((*NAMES, *NAMES, "skip"))
        return path

    def write(self) -> None:
        path = self.somewhere() / f"f{self.random.randint(0, 3)}.py"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"x = {self.count}\n")
        except OSError:
            pass  # a file where a directory would be

    def save_atomically(self) -> None:
        path = self.somewhere() / "f0.py"
        if path.parent.is_dir() and not path.is_dir():
            beside = path.with_name(".tmp")
            beside.write_text(f"y = {self.count}\n")
            beside.rename(path)

    def rename(self) -> None:
        old, new = self.somewhere(), self.somewhere()
        if old.exists() and not new.is_relative_to(old) and not old.is_relative_to(new):
            new.parent.mkdir(parents=True, exist_ok=True)
            if not new.exists():
                old.rename(new)

    def swap(self) -> None:
        one, two = self.somewhere(), self.somewhere()
        if one.is_dir() and two.is_dir() and not one.is_relative_to(two) and not two.is_relative_to(one):
            aside = self.outside / "aside"
            one.rename(aside)
            two.rename(one)
            aside.rename(two)

    def out(self) -> None:
        path = self.somewhere()
        if path.is_dir():
            path.rename(self.outside / f"o{self.count}")

    def back(self) -> None:
        stored = sorted(self.outside.iterdir())
        path = self.somewhere()
        if stored and path.parent.is_dir() and not path.exists():
            self.random.choice(stored).rename(path)

    def edit_outside(self) -> None:
        for folder in sorted(self.outside.iterdir()):
            (folder / "f0.py").write_text(f"outside = {self.count}\n")

    def delete(self) -> None:
        path = self.somewhere()
        if path.is_dir():
            shutil.rmtree(path)

    def act(self) -> None:
        self.count += 1
        acts = [self.write] * 8 + [self.save_atomically] * 3 + [self.rename] * 4 + [self.swap, self.out]
        acts += [self.back, self.back, self.edit_outside, self.delete]
        self.random.choice(acts)()


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[tuple[Worktree, Watcher, queue.Queue[Hint]]]:
    repo = Worktree.init(tmp_path / "repo")
    heard: queue.Queue[Hint] = queue.Queue()
    watcher = Watcher(heard.put, ignored)
    root = os.path.realpath(repo.root)
    watcher.add(Target(1, root, root + "/.git", root + "/.git"))
    watcher.start()
    yield repo, watcher, heard
    watcher.stop()


def sync(repo: Worktree, heard: queue.Queue[Hint], mirror: Mirror, number: int) -> int:
    """Apply every hint up to a cookie; return how many rescans were among them."""
    cookie = COOKIE_PREFIX + b"%d" % number
    path = repo.root / ".git" / os.fsdecode(cookie)
    path.touch()
    rescans = 0
    while True:
        hint = heard.get(timeout=LIMIT_S)
        if hint.kind == "cookie":
            if hint.path == cookie:
                path.unlink()
                return rescans
        elif hint.kind == "rescan":
            rescans += 1
            mirror.refresh(b"")
        elif hint.kind == "path" and hint.path is not None:
            mirror.refresh(hint.path)


@pytest.mark.parametrize("seed", range(12))
def test_hints_alone_keep_a_true_picture(
    watched: tuple[Worktree, Watcher, queue.Queue[Hint]], tmp_path: Path, seed: int
) -> None:
    """After every burst of writes, renames, swaps, moves out and back, and deletions, nothing was missed."""
    repo, watcher, heard = watched
    mirror = Mirror(repo.root)
    hands = Hands(repo.root, tmp_path / "outside", seed)
    for number in range(30):
        for _ in range(hands.random.randint(1, 25)):
            hands.act()
        assert sync(repo, heard, mirror, number) == 0
        assert mirror.files == mirror.disk(b"")
    assert watcher.lost == 0
    assert_armed(repo, watcher)


@pytest.mark.parametrize("seed", range(4))
def test_lost_events_cost_a_rescan_and_no_more(
    watched: tuple[Worktree, Watcher, queue.Queue[Hint]], tmp_path: Path, seed: int
) -> None:
    """The same with every burst's events thrown away unread: the rescan makes up for them."""
    repo, watcher, heard = watched
    backend = watcher._backend
    assert isinstance(backend, LinuxBackend)
    mirror = Mirror(repo.root)
    hands = Hands(repo.root, tmp_path / "outside", seed)
    for number in range(12):
        with backend._emitter.locked():
            for _ in range(40):
                hands.act()
            while backend._emitter._kernel.read():
                pass
            backend._upkeep.lose_events()
        for _ in range(10):
            hands.act()
        assert sync(repo, heard, mirror, number) > 0
        assert mirror.files == mirror.disk(b"")
    assert_armed(repo, watcher)


def assert_armed(repo: Worktree, watcher: Watcher) -> None:
    """The watched directories are those in scope, each by its path of now, and no other."""
    backend = watcher._backend
    assert isinstance(backend, LinuxBackend)
    with backend._emitter.locked():
        folders = [f for roles in backend._upkeep.watches.by_wd.values() for f in roles]
        trees = {f.path: f for f in folders if isinstance(f.owner, Target)}
    root = os.fsencode(os.path.realpath(repo.root))
    wanted = set()
    for at, names, _ in os.walk(root):
        names[:] = [name for name in names if name not in (b".git", b"skip")]
        wanted.add(at)
    assert trees.keys() == wanted
    assert all(f.inode == os.lstat(path).st_ino for path, f in trees.items())
