"""Every path of a git dir or root concerns the right worktrees, and most of a git dir nobody."""

from __future__ import annotations

import pytest

from headwatch.hints import Hint, Target
from headwatch.routes import Routes, git_folder, git_scope

MAIN = Target(1, "/r/main", "/r/main/.git", "/r/main/.git")
LINKED = Target(2, "/r/linked", "/r/main/.git/worktrees/linked", "/r/main/.git")
INSIDE = Target(3, "/r/main/.claude/w", "/r/main/.git/worktrees/w", "/r/main/.git")
SUBMODULE = Target(4, "/r/main/sub", "/r/main/.git/modules/sub", "/r/main/.git/modules/sub")
BARE = Target(5, "/r/bare.git", "/r/bare.git", "/r/bare.git")
ALL = Routes([MAIN, LINKED, INSIDE, SUBMODULE, BARE])


def told(path: bytes, *, created: bool = False) -> set[tuple[int, str]]:
    return {(hint.worktree, hint.kind) for hint in ALL.hints(path, created=created)}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (b"/r/main/src/a.py", {(1, "path")}),
        (b"/r/main/.claude/w/src/a.py", {(3, "path")}),
        (b"/r/main/sub/a.py", {(4, "path")}),
        (b"/r/linked/.gitignore", {(2, "ignore")}),
        (b"/r/linked/src/.gitattributes", {(2, "ignore")}),
        (b"/r/main/.headwatch.toml", {(1, "ignore")}),
        (b"/r/main/.git", set()),
        (b"/r/linked/.git", set()),
        (b"/r/main/.git/HEAD", {(1, "git")}),
        (b"/r/main/.git/index", {(1, "git")}),
        (b"/r/main/.git/rebase-merge", {(1, "git")}),
        (b"/r/main/.git/packed-refs", {(1, "git"), (2, "git"), (3, "git")}),
        (b"/r/main/.git/shallow", {(1, "git"), (2, "git"), (3, "git")}),
        (b"/r/main/.git/refs/heads/feat/a", {(1, "git"), (2, "git"), (3, "git")}),
        (b"/r/main/.git/refs/bisect/bad", {(1, "git")}),
        (b"/r/main/.git/config", {(1, "ignore"), (2, "ignore"), (3, "ignore")}),
        (b"/r/main/.git/info/exclude", {(1, "ignore"), (2, "ignore"), (3, "ignore")}),
        (b"/r/main/.git/info/sparse-checkout", {(1, "git")}),
        (b"/r/main/.git/reftable/tables.list", {(1, "git"), (2, "git"), (3, "git")}),
        (b"/r/main/.git/worktrees/linked/HEAD", {(2, "git")}),
        (b"/r/main/.git/worktrees/linked/index", {(2, "git")}),
        (b"/r/main/.git/worktrees/linked/reftable/tables.list", {(2, "git")}),
        (b"/r/main/.git/worktrees/linked/config.worktree", {(2, "ignore")}),
        (b"/r/main/.git/worktrees/linked/gitdir", {(1, "worktrees")}),
        (b"/r/main/.git/worktrees/new", {(1, "worktrees")}),
        (b"/r/main/.git/worktrees/new/gitdir", {(1, "worktrees")}),
        (b"/r/main/.git/worktrees/new/index", set()),
        (b"/r/main/.git/modules/sub/HEAD", {(4, "git")}),
        (b"/r/main/.git/modules/other/HEAD", set()),
        (b"/r/bare.git/HEAD", {(5, "git")}),
        (b"/r/bare.git/refs/heads/main", {(5, "git")}),
        (b"/r/main/vendor/theirs/.git/HEAD", set()),
        (b"/r/elsewhere/a.py", set()),
        (b"/r/main-too/a.py", set()),
    ],
)
def test_a_path_concerns_these(path: bytes, expected: set[tuple[int, str]]) -> None:
    """Per-worktree files go to one worktree, shared ones to all of the clone, the list of worktrees to one."""
    assert told(path) == expected


NOTHING = (
    b"index.lock refs/heads/main.lock FETCH_HEAD COMMIT_EDITMSG ORIG_HEAD AUTO_MERGE gc.pid sharedindex.12 "
    b"objects/ab/cd logs/HEAD hooks/pre-commit lfs/x description"
)


@pytest.mark.parametrize("name", NOTHING.split())
def test_most_of_a_git_dir_is_nothing(name: bytes) -> None:
    """What git writes on the way, and what no snapshot depends on, is no hint."""
    assert git_scope(name) is None
    assert told(b"/r/main/.git/" + name, created=True) == set()


def test_a_cookie_is_told_where_it_appears_and_only_then() -> None:
    """The worktree whose git dir it is hears of it, and not of its end."""
    path = b"/r/main/.git/worktrees/linked/headwatch-cookie-7"
    assert ALL.hints(path, created=True) == [Hint(2, "cookie", b"headwatch-cookie-7")]
    assert ALL.hints(path, created=False) == []


def test_without_the_main_worktree_another_hears_of_the_list() -> None:
    """A clone whose main worktree is not registered still learns of new worktrees."""
    routes = Routes([INSIDE, LINKED])
    assert routes.hints(b"/r/main/.git/worktrees/new", created=True) == [Hint(2, "worktrees")]


def test_which_folders_of_a_git_dir_are_watched() -> None:
    """Refs, info, worktrees and reftable; never objects, hooks, lfs, logs or modules."""
    watched = b"refs refs/heads/feat info worktrees worktrees/w worktrees/w/reftable reftable"
    assert all(git_folder(name) for name in (b"", *watched.split()))
    others = b"objects hooks lfs logs modules worktrees/w/logs worktrees/w/refs rebase-merge"
    assert not any(git_folder(name) for name in others.split())
