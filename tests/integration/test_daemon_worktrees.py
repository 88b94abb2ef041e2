"""Linked worktrees, nested ones, and roots that come and go, followed by a running daemon."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from support.daemon import Daemon, Refused, populate
from support.eventually import eventually
from support.worktree import Worktree


def link(tree: Worktree, root: Path, *options: str) -> Worktree:
    """Make a linked worktree."""
    tree.git("worktree", "add", "--quiet", *options, root)
    return Worktree(root)


def known(daemon: Daemon, root: Path) -> bool:
    return os.path.realpath(root) in daemon.worktrees()


def rows(daemon: Daemon, root: Path) -> tuple[int, ...]:
    """How many worktree, file and visible rows there are for a root."""
    [found] = daemon.sql(
        "select count(distinct w.id), count(distinct f.path), count(distinct v.content_id)"
        " from headwatch.worktree w left join headwatch.file f on f.worktree_id = w.id"
        " left join headwatch.visible v on v.worktree_id = w.id where w.root = %s",
        str(root),
    )
    return found


def test_a_linked_worktree(running: Daemon, tree: Worktree, tmp_path: Path) -> None:
    """A new worktree is found by itself, computes nothing, is followed on its own, and is gone when it is removed."""
    parsed = running.counters()["symbols_parsed"]
    linked = link(tree, tmp_path / "linked", "-b", "side")
    eventually(lambda: known(running, linked.root), "the worktree is found", 20)
    entry = running.settle(linked)
    assert (entry["branch"], entry["state"]) == ("side", "fresh")
    assert running.counters()["symbols_parsed"] == parsed
    main = running.worktree(tree.root)

    linked.write("pkg/util.py", "def clamp(x):\n    return 'linked'\n")
    edited = running.catches_up(linked, entry["generation"])
    tree.write("pkg/util.py", "def clamp(x):\n    return 'main'\n")
    running.catches_up(tree, main["generation"])
    assert running.worktree(linked.root)["generation"] == edited["generation"]
    for one, word in ((tree, "main"), (linked, "linked")):
        assert f"'{word}'" in running.search("clamp", one.root)[0]["content"]

    tree.git("worktree", "remove", "--force", linked.root)
    eventually(lambda: not known(running, linked.root), "the worktree is gone from status", 15)
    assert rows(running, linked.root) == (0, 0, 0)
    running.settle(tree)
    with pytest.raises(Refused, match="no registered worktree"):
        running.search("clamp", linked.root)


def test_a_commit_elsewhere(running: Daemon, tree: Worktree, tmp_path: Path) -> None:
    """A commit in one worktree leaves the rows of the others alone, and does not have them looked at."""
    linked = link(tree, tmp_path / "linked", "-b", "side")
    eventually(lambda: known(running, linked.root), "the worktree is found", 20)
    before = running.settle(linked)
    main = running.settle(tree)
    passes = running.counters()["reconciles"]
    head = linked.commit("on side")
    assert running.catches_up(linked, before["generation"])["indexed_head"] == head
    tree.git("branch", "nobody/is/on/it")
    running.wait(linked.root)
    assert running.counters()["reconciles"] - passes == 3  # the commit's, that of `settle` and that of `wait`
    after = running.settle(tree)
    assert (after["generation"], after["applied_at"]) == (main["generation"], main["applied_at"])


def test_removed_by_hand_stays_removed(running: Daemon, tree: Worktree, tmp_path: Path) -> None:
    """A worktree that its user removes from headwatch, not from git, is not found again but by hand."""
    linked = link(tree, tmp_path / "linked", "-b", "side")
    running.wait(linked.root)
    running.run("remove", str(linked.root))
    link(tree, tmp_path / "another", "-b", "other")
    eventually(lambda: known(running, tmp_path / "another"), "the list of worktrees was looked at", 20)
    with pytest.raises(Refused, match="no registered worktree"):
        running.wait(linked.root)  # it looks at the list too
    assert not known(running, linked.root)
    running.add(linked.root)
    running.settle(linked)


def test_a_worktree_inside_another(running: Daemon, tree: Worktree) -> None:
    """A linked worktree inside the main one is a worktree, not a part of the one around it."""
    before = running.worktree(tree.root)
    nested = link(tree, tree.root / ".claude" / "worktrees" / "one", "--detach")
    eventually(lambda: known(running, nested.root), "the worktree is found", 20)
    nested.write("pkg/only_here.py", "def only_here():\n    pass\n")
    running.settle(nested)
    assert running.settle(tree)["files"] == before["files"]
    assert "only_here" not in {r["qualname"] for r in running.search("only_here", tree.root)}
    assert running.search("only_here", nested.root)[0]["path"] == "pkg/only_here.py"
    shutil.rmtree(nested.root)
    tree.git("worktree", "prune")
    eventually(lambda: not known(running, nested.root), "the pruned worktree is gone from status", 15)


def test_a_nested_repository_is_not_answered_for(
    running: Daemon, tree: Worktree, git_repo: Callable[..., Worktree]
) -> None:
    """A question from a repository that is not registered is refused, though it lies in one that is."""
    stranger = populate(git_repo("repo/vendor/stranger"))
    for route, body in (
        ("/search", {"query": "clamp"}),
        ("/wait", {}),
        ("/show", {"symbol": "pkg/util.py#clamp"}),
    ):
        with pytest.raises(Refused, match="no registered worktree") as refused:
            running.call("POST", route, body | {"repo": str(stranger.root / "pkg")})
        assert f"headwatch add {stranger.root}" in refused.value.hint
        assert str(tree.root) in refused.value.hint
        assert refused.value.exit_code == 2
    done = running.run("search", "clamp", cwd=stranger.root, code=2)
    assert "hint: register it with: headwatch add" in done.stderr
    assert "vendor" not in str(running.search("clamp", tree.root))


def test_a_root_that_is_gone(running: Daemon, tree: Worktree, tmp_path: Path) -> None:
    """A deleted root is `missing` and keeps its rows; made again, it is followed again."""
    before = running.worktree(tree.root)
    shown = rows(running, tree.root)
    tree.git("clone", "--quiet", tree.root, tmp_path / "copy")
    shutil.rmtree(tree.root)
    eventually(lambda: running.worktree(tree.root)["state"] == "missing", "the root is missing")
    missing = running.worktree(tree.root)
    assert str(tree.root) in missing["reason"]
    assert missing["generation"] == before["generation"]
    assert not missing["text_fresh"]
    assert rows(running, tree.root) == shown
    done = running.run("wait", str(tree.root), "--timeout", "30", code=1)
    assert "is not there" in done.stderr
    assert "headwatch remove" in done.stderr

    os.rename(tmp_path / "copy", tree.root)
    tree.write("pkg/back.py", "def back():\n    pass\n")
    eventually(lambda: running.worktree(tree.root)["state"] == "fresh", "the root is followed again")
    running.settle(tree)
    assert running.search("back", tree.root)[0]["path"] == "pkg/back.py"
    generation = running.worktree(tree.root)["generation"]
    tree.write("pkg/back.py", "def back_again():\n    pass\n")
    running.catches_up(tree, generation)


def test_a_root_that_is_swapped(running: Daemon, tree: Worktree, tmp_path: Path) -> None:
    """Another checkout that is renamed into the root's place is what the rows show, and it is followed."""
    generation = running.worktree(tree.root)["generation"]
    tree.git("clone", "--quiet", tree.root, tmp_path / "other")
    other = Worktree(tmp_path / "other")
    other.write("pkg/other.py", "def other():\n    pass\n")
    os.rename(tree.root, tmp_path / "aside")
    os.rename(other.root, tree.root)
    swapped = running.catches_up(tree, generation)
    assert running.search("other", tree.root)[0]["path"] == "pkg/other.py"
    tree.write("pkg/other.py", "def another():\n    pass\n")
    running.catches_up(tree, swapped["generation"])


def test_a_root_that_moves(running: Daemon, tree: Worktree, tmp_path: Path) -> None:
    """A linked worktree that git moves keeps its row under the new path."""
    linked = link(tree, tmp_path / "before", "-b", "side")
    eventually(lambda: known(running, linked.root), "the worktree is found", 20)
    running.settle(linked)
    parsed = running.counters()["symbols_parsed"]
    tree.git("worktree", "move", linked.root, tmp_path / "after")
    moved = Worktree(tmp_path / "after")
    eventually(lambda: known(running, moved.root), "the new path is known", 20)
    assert not known(running, linked.root)
    entry = running.settle(moved)
    assert running.counters()["symbols_parsed"] == parsed
    moved.write("pkg/util.py", "def clamp(x):\n    return 'moved'\n")
    running.catches_up(moved, entry["generation"])
