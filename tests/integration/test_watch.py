"""The watcher on real directories, with the real inotify and the real git: nothing is lost silently."""

from __future__ import annotations

import os
import queue
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from headwatch import linux_backend, upkeep
from headwatch.hints import Hint, Target
from headwatch.linux_backend import LinuxBackend
from headwatch.mounts import MAX_WATCHES_SYSCTL
from headwatch.watch import Watcher
from headwatch_indexer.errors import HeadwatchError
from support.ears import LIMIT_S, Ears, ignored, target_of
from support.worktree import Worktree

Listen = Callable[..., Ears]


@pytest.fixture
def repo(tmp_path: Path) -> Worktree:
    worktree = Worktree.init(tmp_path / "repo")
    worktree.write("src/a.py", "a = 1\n")
    worktree.write("src/deep/er/b.py", "b = 1\n")
    worktree.write(".gitignore", "node_modules/\n*.log\n")
    worktree.commit("first")
    return worktree


@pytest.fixture
def listen() -> Iterator[Listen]:
    open_ears: list[Ears] = []

    def make(*worktrees: Worktree, **options: Any) -> Ears:
        open_ears.append(Ears(*worktrees, **options))
        return open_ears[-1]

    yield make
    for ears in open_ears:
        ears.watcher.stop()


def test_an_edit_is_one_hint(repo: Worktree, listen: Listen) -> None:
    """A save in place tells its path, and nothing else."""
    ears = listen(repo)
    repo.write("src/a.py", "a = 2\n")
    hints = ears.synced()
    assert set(hints) == {Hint(1, "path", b"src/a.py")}


def test_names_may_be_any_bytes(repo: Worktree, listen: Listen) -> None:
    """Newlines, quotes and bytes that are not UTF-8 arrive as they are on disk."""
    ears = listen(repo)
    names = {b"src/new\nline.py", b'src/qu"ote.py', b"src/\xff\xfe.py", b"src/with space.py"}
    for name in names:
        repo.write(name, "x = 1\n")
    assert names <= ears.paths()


def vim(folder: Path) -> None:
    """Probe with 4913, back up by rename, write anew, drop the backup."""
    (folder / "4913").touch()
    (folder / "4913").unlink()
    (folder / "a.py").rename(folder / "a.py~")
    (folder / "a.py").write_text("a = 2\n")
    (folder / "a.py~").unlink()


def jetbrains(folder: Path) -> None:
    """Write beside, move the old away and the new in, drop the old."""
    (folder / "a.py___jb_tmp___").write_text("a = 2\n")
    (folder / "a.py").rename(folder / "a.py___jb_old___")
    (folder / "a.py___jb_tmp___").rename(folder / "a.py")
    (folder / "a.py___jb_old___").unlink()


def emacs(folder: Path) -> None:
    """Lock by a dangling link, write in place, unlock."""
    (folder / ".#a.py").symlink_to("me@host.1:1")
    (folder / "a.py").write_text("a = 2\n")
    (folder / ".#a.py").unlink()


def sed(folder: Path) -> None:
    """Edit as `sed -i` does."""
    subprocess.run(["sed", "-i", "s/1/2/", "a.py"], cwd=folder, check=True)


@pytest.mark.parametrize("save", [vim, jetbrains, emacs, sed])
def test_every_editors_save_is_seen(repo: Worktree, listen: Listen, save: Callable[[Path], None]) -> None:
    """However an editor replaces a file, its path is hinted at after its final content is in place."""
    ears = listen(repo)
    save(repo.root / "src")
    assert b"src/a.py" in ears.paths()


def test_reading_is_no_hint(repo: Worktree, listen: Listen) -> None:
    """Reading every file, and git's own reading, tell nothing."""
    ears = listen(repo)
    subprocess.run(["grep", "-rq", "nothing like it", "."], cwd=repo.root)
    repo.git("--no-optional-locks", "status", "--porcelain")
    assert ears.synced() == []


def test_a_file_in_directories_just_made_is_seen(repo: Worktree, listen: Listen) -> None:
    """mkdir -p and a write at once: arm, then list, so that no file is in between."""
    ears = listen(repo)
    wanted = set()
    for n in range(50):
        repo.write(f"new{n}/b/c/file.py", "x = 1\n")
        wanted.add(b"new%d/b/c/file.py" % n)
    assert wanted <= ears.paths()
    repo.write("new7/b/c/file.py", "x = 2\n")
    assert ears.paths() == {b"new7/b/c/file.py"}


def test_a_populated_directory_moved_in_is_seen(repo: Worktree, listen: Listen, tmp_path: Path) -> None:
    """The files of a directory that comes by rename are hinted at one by one, and watched from then on."""
    ears = listen(repo)
    outside = Worktree(tmp_path / "outside")
    wanted = {b"in/d%d/f%d.py" % (n % 7, n) for n in range(400)}
    for path in wanted:
        outside.write(path.removeprefix(b"in/"), "x = 1\n")
    outside.root.rename(repo.root / "in")
    assert wanted <= ears.paths()
    repo.write("in/d3/f3.py", "x = 2\n")
    assert ears.paths() == {b"in/d3/f3.py"}


def test_a_large_directory_moved_in_is_a_rescan(repo: Worktree, listen: Listen, tmp_path: Path) -> None:
    """More files than the inbox would keep are not told one by one."""
    ears = listen(repo)
    outside = Worktree(tmp_path / "outside")
    for n in range(600):
        outside.write(f"f{n}.py", "x = 1\n")
    outside.root.rename(repo.root / "in")
    assert Hint(1, "rescan") in ears.synced()


def test_a_directory_moved_out_is_heard_of_no_more(repo: Worktree, listen: Listen, tmp_path: Path) -> None:
    """The move tells the directory's old path; edits outside then tell nothing."""
    ears = listen(repo)
    before = ears.watcher.watches
    (repo.root / "src" / "deep").rename(tmp_path / "deep")
    assert ears.paths() == {b"src/deep"}
    (tmp_path / "deep" / "er" / "b.py").write_text("b = 2\n")
    assert ears.synced() == []
    assert ears.watcher.watches == before - 2


def test_mkdir_write_rename_write_is_seen(repo: Worktree, listen: Listen) -> None:
    """A directory that is renamed right after it was made is followed to its last name."""
    ears = listen(repo)
    wanted = set()
    for n in range(300):
        first, second = repo.root / f"first{n}", repo.root / f"second{n}"
        first.mkdir()
        (first / "one.py").write_text("x = 1\n")
        first.rename(second)
        (second / "two.py").write_text("x = 1\n")
        wanted |= {b"second%d/one.py" % n, b"second%d/two.py" % n}
    assert wanted <= ears.paths()


def test_a_directory_renamed_inside_is_followed(repo: Worktree, listen: Listen) -> None:
    """A rename inside tells the old directory and every file under its new path."""
    ears = listen(repo)
    (repo.root / "src").rename(repo.root / "lib")
    assert ears.paths() == {b"src", b"lib/a.py", b"lib/deep/er/b.py"}
    repo.write("lib/deep/er/b.py", "b = 2\n")
    assert ears.paths() == {b"lib/deep/er/b.py"}


def test_a_directory_swapped_for_another_is_followed(repo: Worktree, listen: Listen) -> None:
    """Two directories that trade names are each heard of under the names they have now."""
    ears = listen(repo)
    repo.write("other/c.py", "c = 1\n")
    ears.synced()
    (repo.root / "src").rename(repo.root / "tmp")
    (repo.root / "other").rename(repo.root / "src")
    (repo.root / "tmp").rename(repo.root / "other")
    assert {b"src/c.py", b"other/a.py"} <= ears.paths()
    repo.write("src/c.py", "c = 2\n")
    assert ears.paths() == {b"src/c.py"}
    repo.write("other/a.py", "a = 2\n")
    assert ears.paths() == {b"other/a.py"}


def test_a_symlinked_directory_is_not_followed(repo: Worktree, listen: Listen, tmp_path: Path) -> None:
    """A link to a directory is a path of its own; what is behind it is not watched."""
    ears = listen(repo)
    (tmp_path / "outside").mkdir()
    (repo.root / "link").symlink_to(tmp_path / "outside")
    assert ears.paths() == {b"link"}
    (tmp_path / "outside" / "f.py").touch()
    assert ears.synced() == []


# -- ignore rules --------------------------------------------------------------------------------------------


def test_an_ignored_storm_costs_no_hints_and_no_watches(repo: Worktree, listen: Listen) -> None:
    """What an npm install writes below an ignored directory is never heard of."""
    ears = listen(repo)
    before = ears.watcher.watches
    for n in range(200):
        repo.write(f"node_modules/p{n}/lib/index.js", "x\n")
    assert ears.synced() == []
    assert ears.watcher.watches == before
    shutil.rmtree(repo.root / "node_modules")
    assert ears.synced() == []
    assert ears.watcher.lost == 0


def test_directories_are_judged_a_level_at_a_time(repo: Worktree, listen: Listen, tmp_path: Path) -> None:
    """A wide tree costs one question to git a level, not one a directory."""
    ears = listen(repo)
    outside = Worktree(tmp_path / "outside")
    for n in range(100):
        outside.write(f"d{n}/e/f.py", "x = 1\n")
    asked = ears.questions
    outside.root.rename(repo.root / "in")
    assert len(ears.paths()) == 100
    assert ears.questions == asked + 3


def test_a_log_that_git_ignores_falls_silent(repo: Worktree, listen: Listen) -> None:
    """An ignored file that is written again and again is asked about once and muted; others never are."""
    asked: list[bytes] = []

    def ignored_files(target: Target, files: Sequence[bytes]) -> set[bytes]:
        asked.extend(files)
        return {path for path in files if path.endswith(b".log")}

    ears = listen(repo, ignored_files=ignored_files)
    for n in range(6):
        repo.write("src/server.log", f"{n}\n")
        repo.write("src/a.py", f"a = {n}\n")
        heard = ears.paths()
        assert b"src/a.py" in heard
    assert heard == {b"src/a.py"}
    assert sorted(asked) == [b"src/a.py", b"src/server.log"]
    repo.git("add", "--force", "src/server.log")
    ears.synced()
    repo.write("src/server.log", "tracked\n")
    assert ears.paths() == {b"src/server.log"}


def test_a_git_that_fails_is_asked_again(
    repo: Worktree, listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While git cannot say what it ignores the worktree is degraded and polled; then it is watched wholly."""
    monkeypatch.setattr(upkeep, "RETRY_S", 0.3)
    broken = threading.Event()

    def perhaps(target: Target, directories: Sequence[bytes]) -> set[bytes]:
        if broken.is_set():
            raise HeadwatchError("git failed", hint="try again")
        return ignored(target, directories)

    ears = listen(repo, ignored_directories=perhaps)
    assert ears.watcher.degraded(1) is None
    broken.set()
    repo.write("new/er/f.py", "x = 1\n")
    ears.synced()
    assert "git" in (ears.watcher.degraded(1) or "")
    broken.clear()
    ears.until(lambda hint: hint.kind == "rescan" and ears.watcher.degraded(1) is None)
    repo.write("new/er/f.py", "x = 2\n")
    assert b"new/er/f.py" in ears.paths()


@pytest.mark.parametrize("rules", [".gitignore", ".git/info/exclude"])
def test_changed_rules_arm_and_disarm(repo: Worktree, listen: Listen, rules: str) -> None:
    """Rules that change are told, what they ignore now is dropped, what they no longer do is watched."""
    ears = listen(repo)
    repo.write("build/out/x.py", "x = 1\n")
    assert b"build/out/x.py" in ears.paths()
    watched = ears.watcher.watches
    repo.write(rules, "/build/\n*.log\n")
    hints = ears.synced()
    assert {hint.kind for hint in hints} == {"ignore"}
    assert ears.watcher.watches == watched - 2
    repo.write("build/out/x.py", "x = 2\n")
    assert ears.paths() == set()
    repo.write(rules, "# nothing\n")
    hints = ears.synced()
    assert {hint.kind for hint in hints} == {"path", "ignore"}
    assert hints[-1].kind == "ignore"
    repo.write("build/out/x.py", "x = 3\n")
    assert ears.paths() == {b"build/out/x.py"}


def test_a_nested_repository_is_a_boundary(repo: Worktree, listen: Listen) -> None:
    """Another repository below the root is left alone, whether it was there or comes later."""
    Worktree.init(repo.root / "vendor" / "early")
    ears = listen(repo)
    late = Worktree.init(repo.root / "vendor" / "late")
    ears.synced()
    before = ears.watcher.watches
    late.write("x/y.py", "x = 1\n")
    Worktree(repo.root / "vendor" / "early").write("x/y.py", "x = 1\n")
    late.commit("theirs")
    assert ears.synced() == []
    assert ears.watcher.watches == before


# -- git -----------------------------------------------------------------------------------------------------


def git_names(hints: list[Hint], number: int = 1) -> set[bytes]:
    return {h.path for h in hints if h.kind == "git" and h.worktree == number and h.path}


def test_a_plain_repository_takes_five_watches_for_git(tmp_path: Path, listen: Listen) -> None:
    """Git dir, info, refs, refs/heads, refs/tags; one more for the root, and the folders above it."""
    ears = listen(Worktree.init(tmp_path / "plain"))
    above = len(os.path.realpath(tmp_path).split("/")) - 1
    assert ears.watcher.watches == 5 + 1 + above


def test_a_commit_tells_index_and_ref(repo: Worktree, listen: Listen) -> None:
    """A commit never writes HEAD: its index and its branch tell it, and no more than a few hints."""
    repo.write("src/a.py", "a = 2\n")
    ears = listen(repo)
    repo.git("commit", "--quiet", "--all", "-m", "second")
    hints = ears.synced()
    assert git_names(hints) == {b"index", b"refs/heads/main"}
    assert len(hints) < 8


def test_a_switch_tells_head_after_the_files(repo: Worktree, listen: Listen) -> None:
    """switch: files, index, HEAD."""
    repo.git("switch", "--quiet", "--create", "other")
    repo.write("src/a.py", "a = 2\n")
    repo.commit("second")
    ears = listen(repo)
    repo.git("switch", "--quiet", "main")
    hints = ears.synced()
    assert git_names(hints) == {b"index", b"HEAD"}
    assert Hint(1, "path", b"src/a.py") in hints


def test_a_branch_with_slashes_is_seen(repo: Worktree, listen: Listen) -> None:
    """The directories of feat/a/b can outrun the watch; a listing finds the ref."""
    ears = listen(repo)
    for n in range(20):
        repo.git("branch", f"feat{n}/a/b")
    assert {b"refs/heads/feat%d/a/b" % n for n in range(20)} <= git_names(ears.synced())


def test_packed_refs_are_seen_and_refs_seen_after(repo: Worktree, listen: Listen) -> None:
    """pack-refs empties and removes directories; a ref that comes back there is still seen."""
    repo.git("branch", "feat/a/b")
    ears = listen(repo)
    repo.git("pack-refs", "--all", "--prune")
    assert b"packed-refs" in git_names(ears.synced())
    repo.git("commit", "--quiet", "--allow-empty", "-m", "second")
    repo.git("branch", "--force", "feat/a/b", "HEAD")
    assert {b"refs/heads/main", b"refs/heads/feat/a/b"} <= git_names(ears.synced())


def test_a_rebase_tells_its_steps_and_its_end(repo: Worktree, listen: Listen) -> None:
    """rebase-merge comes and goes, HEAD moves, the branch's ref is last."""
    repo.git("switch", "--quiet", "--create", "topic")
    for n in range(3):
        repo.write(f"t{n}.py", "x = 1\n")
        repo.commit(f"topic {n}")
    repo.git("switch", "--quiet", "main")
    repo.write("m.py", "x = 1\n")
    repo.commit("main moves")
    repo.git("switch", "--quiet", "topic")
    ears = listen(repo)
    repo.git("rebase", "--quiet", "main")
    hints = ears.synced()
    assert {b"HEAD", b"index", b"rebase-merge", b"refs/heads/topic"} <= git_names(hints)
    assert not {
        name for name in git_names(hints) if b"lock" in name or b"ORIG_HEAD" in name or b"logs" in name
    }


def test_a_fetch_of_nothing_is_no_hint(repo: Worktree, listen: Listen, tmp_path: Path) -> None:
    """FETCH_HEAD is written even when nothing came."""
    Worktree(tmp_path).git("clone", "--quiet", repo.root, tmp_path / "clone")
    clone = Worktree(tmp_path / "clone")
    clone.git("fetch", "--quiet")
    ears = listen(clone)
    clone.git("fetch", "--quiet")
    assert ears.synced() == []


def test_linked_worktrees_hear_what_is_theirs(repo: Worktree, listen: Listen, tmp_path: Path) -> None:
    """HEAD and index go to the worktree whose they are, refs to all; one worktree inside another is its own."""
    inside = Worktree(repo.root / ".claude" / "worktrees" / "w")
    outside = Worktree(tmp_path / "linked")
    repo.git("worktree", "add", "--quiet", "-b", "inside", inside.root)
    repo.git("worktree", "add", "--quiet", "-b", "outside", outside.root)
    ears = listen(repo, inside, outside)
    inside.write("src/a.py", "a = 5\n")
    outside.write("src/a.py", "a = 6\n")
    hints = ears.synced()
    assert set(hints) == {Hint(2, "path", b"src/a.py"), Hint(3, "path", b"src/a.py")}
    outside.git("switch", "--quiet", "--detach")
    assert b"HEAD" in git_names(hints := ears.synced(), 3)
    assert git_names(hints, 1) == git_names(hints, 2) == set()
    outside.git("commit", "--quiet", "--all", "-m", "detached")
    inside.git("commit", "--quiet", "--all", "-m", "theirs")
    hints = ears.synced()
    assert git_names(hints, 2) == {b"index", b"refs/heads/inside"}
    assert git_names(hints, 1) == {b"refs/heads/inside"}
    assert git_names(hints, 3) == {b"HEAD", b"index", b"refs/heads/inside"}


def test_the_list_of_worktrees_is_told_to_one(repo: Worktree, listen: Listen, tmp_path: Path) -> None:
    """A worktree that is added, moved or removed is told to the main worktree, once its files are there."""
    first = Worktree(tmp_path / "first")
    repo.git("worktree", "add", "--quiet", "--detach", first.root)
    ears = listen(first, repo)
    repo.git("worktree", "add", "--quiet", "--detach", tmp_path / "second")
    assert {h.worktree for h in ears.synced() if h.kind == "worktrees"} == {2}
    repo.git("worktree", "move", tmp_path / "second", tmp_path / "third")
    assert Hint(2, "worktrees") in ears.synced()
    repo.git("worktree", "remove", "--force", tmp_path / "third")
    assert Hint(2, "worktrees") in ears.synced()
    repo.git("worktree", "remove", "--force", first.root)
    ears.until(lambda hint: hint == Hint(1, "gone"))


def test_each_worktree_has_its_own_cookies(repo: Worktree, listen: Listen, tmp_path: Path) -> None:
    """A cookie is told to the worktree in whose git dir it appears, once, and is nothing else."""
    linked = Worktree(tmp_path / "linked")
    repo.git("worktree", "add", "--quiet", "--detach", linked.root)
    ears = listen(repo, linked)
    name = ears.cookie(2)
    assert ears.synced(1) == [Hint(2, "cookie", name)]
    name = ears.cookie(1)
    assert ears.synced(2) == [Hint(1, "cookie", name)]


def test_a_cookie_comes_after_all_that_was_before(repo: Worktree, listen: Listen) -> None:
    """What was written before a cookie is hinted at before it, in directories just made as well."""
    ears = listen(repo)
    for n in range(40):
        repo.write(f"d{n}/e/f.py", "x = 1\n")
        repo.write("src/a.py", f"a = {n}\n")
        assert {b"d%d/e/f.py" % n, b"src/a.py"} <= ears.paths()


# -- loss ----------------------------------------------------------------------------------------------------


def test_a_root_deleted_and_made_again_is_followed(repo: Worktree, listen: Listen, tmp_path: Path) -> None:
    """The deletion is told, then the return, and later edits are seen."""
    shutil.copytree(repo.root, tmp_path / "copy", symlinks=True)
    ears = listen(repo)
    shutil.rmtree(repo.root)
    ears.until(lambda hint: hint == Hint(1, "gone"))
    shutil.copytree(tmp_path / "copy", repo.root, symlinks=True)
    ears.until(lambda hint: hint == Hint(1, "rescan"))
    ears.synced()
    repo.write("src/a.py", "a = 2\n")
    assert ears.paths() == {b"src/a.py"}


def test_a_root_swapped_by_rename_is_followed(repo: Worktree, listen: Listen, tmp_path: Path) -> None:
    """The new directory at the root's path is watched, the old one no more."""
    shutil.copytree(repo.root, tmp_path / "copy", symlinks=True)
    ears = listen(repo)
    repo.root.rename(tmp_path / "old")
    (tmp_path / "copy").rename(repo.root)
    assert [h.kind for h in ears.until(lambda hint: hint.kind == "rescan")] == ["gone", "rescan"]
    (tmp_path / "old" / "src" / "a.py").write_text("a = 3\n")
    repo.write("src/deep/er/b.py", "b = 2\n")
    assert ears.paths() == {b"src/deep/er/b.py"}


def test_a_folder_above_that_is_moved_is_noticed(tmp_path: Path, listen: Listen) -> None:
    """Moving a parent of the root takes the root away; moving it back brings it back."""
    repo = Worktree.init(tmp_path / "above" / "more" / "repo")
    ears = listen(repo)
    (tmp_path / "above").rename(tmp_path / "elsewhere")
    ears.until(lambda hint: hint == Hint(1, "gone"))
    (tmp_path / "elsewhere").rename(tmp_path / "above")
    ears.until(lambda hint: hint == Hint(1, "rescan"))
    repo.write("a.py", "a = 1\n")
    assert b"a.py" in ears.paths()


def test_a_git_dir_made_anew_is_followed(repo: Worktree, listen: Listen) -> None:
    """rm -rf .git and git init: gone, back, and its commits are seen."""
    ears = listen(repo)
    shutil.rmtree(repo.root / ".git")
    ears.until(lambda hint: hint == Hint(1, "gone"))
    Worktree.init(repo.root)
    ears.until(lambda hint: hint == Hint(1, "rescan"))
    ears.synced()
    repo.commit("first again")
    assert {b"index", b"refs/heads/main"} <= git_names(ears.synced())


def test_an_overflow_is_a_rescan_and_the_watch_goes_on(repo: Worktree, listen: Listen) -> None:
    """With its reader starved the kernel drops events: a rescan is told, a directory missed is found."""
    ears = listen(repo)
    backend = ears.watcher._backend
    assert isinstance(backend, LinuxBackend)
    queued = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    with backend._emitter.locked():
        with (
            open(repo.root / "src" / "a.py", "ab", 0) as one,
            open(repo.root / "src" / "b.py", "ab", 0) as two,
        ):
            for _ in range(queued // 2 + 100):  # in turn: the kernel merges an event with an equal last one
                one.write(b"#")
                two.write(b"#")
        (repo.root / "missed" / "deep").mkdir(parents=True)
        shutil.rmtree(repo.root / "src" / "deep")
    hints = ears.synced()
    assert Hint(1, "rescan") in hints
    assert ears.watcher.lost == 1
    repo.write("missed/deep/f.py", "x = 1\n")
    assert ears.paths() == {b"missed/deep/f.py"}


def test_a_cookie_never_overtakes_a_loss(repo: Worktree, listen: Listen) -> None:
    """While the pause between two rescans lasts, a cookie still waits for the rescan that is owed."""
    ears = listen(repo)
    backend = ears.watcher._backend
    assert isinstance(backend, LinuxBackend)
    for _ in range(3):
        with backend._emitter.locked():
            backend._upkeep.lose_events()
        assert Hint(1, "rescan") in ears.synced()
    assert ears.watcher.lost == 3


def test_a_slow_handler_loses_events_but_not_the_rescan(
    repo: Worktree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With nobody taking hints, memory stays bounded; then a rescan stands for all that was dropped."""
    monkeypatch.setattr(linux_backend, "QUEUE_MAX", 50)
    taking = threading.Event()
    heard: queue.Queue[Hint] = queue.Queue()

    def deliver(hint: Hint) -> None:
        taking.wait(LIMIT_S)
        heard.put(hint)

    watcher = Watcher(deliver, ignored)
    watcher.add(target_of(repo, 1))
    watcher.start()
    try:
        for n in range(200):
            (repo.root / "src" / f"f{n}.py").touch()
        end = time.monotonic() + LIMIT_S
        while not watcher.lost and time.monotonic() < end:
            taking.wait(0.01)
        taking.set()
        while heard.get(timeout=LIMIT_S).kind != "rescan":
            pass
        assert heard.qsize() <= 60
    finally:
        taking.set()
        watcher.stop()


def test_over_budget_is_degraded_and_polled(repo: Worktree, listen: Listen) -> None:
    """100 watches for 300 directories: the sysctl is named, rescans come by themselves, git is still seen."""
    for n in range(300):
        repo.write(f"d{n}/f.py", "x = 1\n")
    repo.commit("wide")
    ears = listen(repo, budget=100)
    reason = ears.watcher.degraded(1)
    assert reason is not None
    assert MAX_WATCHES_SYSCTL in reason
    assert ears.watcher.watches <= 110
    ears.until(lambda hint: hint == Hint(1, "rescan"))
    repo.git("commit", "--quiet", "--allow-empty", "-m", "more")
    ears.until(lambda hint: hint.path == b"refs/heads/main")


def test_room_that_comes_is_used(repo: Worktree, listen: Listen, tmp_path: Path) -> None:
    """When another worktree gives its watches back, the one that was short is watched wholly."""
    other = Worktree.init(tmp_path / "other")
    for n in range(60):
        other.write(f"d{n}/f.py", "x = 1\n")
        repo.write(f"e{n}/f.py", "x = 1\n")
    ears = listen(other, repo, budget=100)
    assert ears.watcher.degraded(1) is None
    assert ears.watcher.degraded(2) is not None
    ears.watcher.remove(1)
    ears.until(lambda hint: hint == Hint(2, "rescan"))
    assert ears.watcher.degraded(2) is None
    repo.write("e59/f.py", "x = 2\n")
    assert b"e59/f.py" in ears.paths(2)


def test_a_removed_target_is_silent(repo: Worktree, listen: Listen, tmp_path: Path) -> None:
    """After `remove` no hint of a worktree comes, and its watches are given back."""
    other = Worktree.init(tmp_path / "other")
    ears = listen(repo, other)
    ears.watcher.remove(1)
    assert ears.watcher.watches < 5 + 1 + 12
    repo.write("src/a.py", "a = 2\n")
    repo.commit("unheard")
    assert ears.synced(2) == []


def test_polling_only_tells_rescans(repo: Worktree) -> None:
    """Where watches are not wanted, rescans come by themselves and the reason is told."""
    heard: queue.Queue[Hint] = queue.Queue()
    watcher = Watcher(heard.put, ignored, polling=True)
    watcher.start()
    watcher.add(target_of(repo, 1))
    try:
        assert heard.get(timeout=LIMIT_S) == Hint(1, "rescan")
        assert watcher.watches == 0
        assert "watch.polling" in (watcher.degraded(1) or "")
    finally:
        watcher.stop()


def test_idle_is_blocked(repo: Worktree, listen: Listen) -> None:
    """With nothing to do the threads sleep in the kernel with no time-out."""
    ears = listen(repo)
    ears.synced()
    backend = ears.watcher._backend
    assert isinstance(backend, LinuxBackend)
    with backend._emitter.locked():
        assert backend._upkeep.next_at() is None


def test_an_error_is_told(repo: Worktree) -> None:
    """A watcher that cannot go on says so."""
    told: queue.Queue[BaseException] = queue.Queue()

    def refuse(hint: Hint) -> None:
        raise RuntimeError("no")

    watcher = Watcher(refuse, ignored, failed=told.put)
    watcher.add(target_of(repo, 1))
    quiet, threading.excepthook = threading.excepthook, lambda args: None
    try:
        watcher.start()
        repo.write("src/a.py", "a = 2\n")
        assert str(told.get(timeout=LIMIT_S)) == "no"
    finally:
        watcher.stop()
        threading.excepthook = quiet
