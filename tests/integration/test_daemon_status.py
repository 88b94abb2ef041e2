"""What a running daemon tells: status, wait, events, and never more than it knows."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support.daemon import COMMAND, Daemon, Follower, Refused, populate
from support.eventually import eventually
from support.worktree import Worktree

NewDaemon = Callable[..., Daemon]

# The document of INTERFACES.md; a list shows one item.
STATUS: dict[str, Any] = {
    "version": str,
    "daemon": {"running": bool, "pid": int, "started_at": str, "rss_bytes": int, "cpu_s": float},
    "state": str,
    "database": {
        "embedded": bool,
        "server_version": str,
        "vector_version": str,
        "schema_version": int,
        "size_bytes": int,
    },
    "model": {"name": str, "dim": int, "device": (str, type(None)), "loaded": bool},
    "repositories": [{"name": str, "identity": str, "worktrees": [{
        "root": str, "branch": str, "state": str, "reason": type(None), "live_head": str, "indexed_head": str,
        "dirty_files": int, "generation": int, "files": int, "symbols": int, "skipped": int,
        "pending_vectors": int, "text_fresh": bool, "vectors_fresh": bool, "applied_at": str,
        "behind_default": (int, type(None)),
        "last_transition": {"action": str, "old": str, "new": str, "at": str},
    }]}],
    "queues": {"hints": int, "jobs": int, "vectors": int, "dead_letters": int},
    "schedule": [{
        "job": str, "next_run": str, "last_run": (str, type(None)), "last_duration_s": (float, type(None))
    }],
    "freshness": {"facts": int, "current": int, "stale": int, "unresolved": int, "unchecked": int},
    "counters": dict.fromkeys(
        ("hints", "reconciles", "rows_written", "symbols_parsed", "chunks_embedded", "chunks_reused", "events_lost",
         "git_processes"), int),
}  # fmt: skip


def check_shape(found: Any, shape: Any, at: str = "status") -> None:
    """Fail unless a document has every key of the shape, each of its type."""
    if isinstance(shape, dict):
        missing = shape.keys() - found.keys()
        assert not missing, f"{at} lacks {missing}"
        for key, inner in shape.items():
            check_shape(found[key], inner, f"{at}.{key}")
    elif isinstance(shape, list):
        assert found, f"{at} is empty"
        for item in found:
            check_shape(item, shape[0], f"{at}[]")
    else:
        assert isinstance(found, shape), f"{at} is {found!r}"


def test_the_status_document(running: Daemon, tree: Worktree) -> None:
    """The document has the keys that others parse, over the socket and from the command."""
    printed = json.loads(running.run("status", "--json").stdout)
    for document in (running.status(), printed):
        check_shape(document, STATUS)
    assert printed["daemon"]["pid"] == running.pid
    assert printed["daemon"]["rss_bytes"] > 0
    one = json.loads(running.run("status", str(tree.root / "pkg"), "--json").stdout)
    [[entry]] = [repository["worktrees"] for repository in one["repositories"]]
    assert entry["root"] == str(tree.root)
    assert entry["files"] == 6
    metrics = running.request("GET", "/metrics")
    with metrics as answer:
        assert b"headwatch_reconciles_total" in answer.read()


def test_nothing_is_registered(new_daemon: NewDaemon) -> None:
    """A daemon without a worktree starts, says so, and has nothing to do."""
    daemon = new_daemon("--set", "watch.token_s=0.05").start()
    eventually(lambda: "nothing is registered" in daemon.log(), "it says so")
    status = daemon.status()
    assert (status["state"], status["repositories"]) == ("fresh", [])
    assert json.loads(daemon.run("list", "--json").stdout) == {"repositories": []}
    assert "no registered worktree" in daemon.run("wait", "/", code=2).stderr


def test_an_idle_daemon_makes_no_pass(new_daemon: NewDaemon, git_repo: Callable[..., Worktree]) -> None:
    """The clock alone causes no pass but the scheduled ones: nothing that headwatch does is a change to it."""
    tree = populate(git_repo())
    daemon = new_daemon("--set", "watch.token_s=0.05", "--set", "watch.stat_s=3600").start(tree.root)
    daemon.settle(tree)
    before = daemon.counters()
    ticks = set[str]()

    def ticked() -> bool:
        [ran] = [job["last_run"] for job in daemon.status()["schedule"] if job["job"] == "tokens"]
        ticks.add(ran)
        return len(ticks) > 20

    eventually(ticked, "the clock ticked")
    after = daemon.counters()
    assert [after[name] - before[name] for name in ("hints", "reconciles", "rows_written")] == [0, 0, 0]


def test_a_pass_by_the_clock(new_daemon: NewDaemon, git_repo: Callable[..., Worktree]) -> None:
    """With every event lost the clock alone finds what changed."""
    tree = populate(git_repo())
    settings = ("--set", "watch.drop=all", "--set", "watch.stat_s=0.2", "--set", "watch.token_s=0.2")
    daemon = new_daemon(*settings).start(tree.root)
    before = daemon.settle(tree)
    tree.write("pkg/util.py", "def clamp(x):\n    return 'unseen'\n")
    edited = daemon.catches_up(tree, before["generation"])
    tree.commit("unseen")
    daemon.catches_up(tree, edited["generation"])
    assert daemon.counters()["hints"] <= 1


def test_wait(running: Daemon, tree: Worktree, tmp_path: Path) -> None:
    """`wait` is 0 when the rows are those of the disk, 3 when they are not in time, 1 when the root is gone."""
    tree.write("pkg/util.py", "def clamp(x):\n    return 'waited for'\n")
    running.run("wait", cwd=tree.root / "pkg")
    assert "waited for" in running.search("clamp", tree.root)[0]["content"]
    with psycopg.connect(running.dsn()) as conn:
        conn.execute("select pg_advisory_xact_lock(%s, r.id::int) from headwatch.repository r", (0x6877,))
        tree.write("pkg/util.py", "def clamp(x):\n    return 'too late'\n")
        done = running.run("wait", str(tree.root), "--timeout", "0.2", code=3)
        assert "is not fresh after 0.2 s" in done.stderr
        assert "hint: " in done.stderr
        assert "waited for" in running.search("clamp", tree.root)[0]["content"]
    running.run("wait", str(tree.root))
    assert "too late" in running.search("clamp", tree.root)[0]["content"]
    assert "no registered worktree" in running.run("wait", str(tmp_path), code=2).stderr
    assert "without vectors" in running.run("wait", str(tree.root), "--vectors", code=1).stderr


def test_a_new_linked_worktree_is_waited_for(running: Daemon, tree: Worktree, tmp_path: Path) -> None:
    """`wait` right after `git worktree add` knows the worktree already."""
    tree.git("worktree", "add", "--quiet", "--detach", tmp_path / "linked")
    assert running.wait(tmp_path / "linked")["state"] == "fresh"


def test_live_is_never_called_indexed(running: Daemon, tree: Worktree) -> None:
    """While a commit is not in the rows, status shows both heads, and the worktree is not fresh."""
    before = running.worktree(tree.root)
    lock = tree.root / ".git" / "index.lock"
    tree.write("pkg/util.py", "def clamp(x):\n    return 'committed'\n")
    head = tree.commit("committed")
    with psycopg.connect(running.dsn()) as conn:
        conn.execute("select pg_advisory_xact_lock(%s, r.id::int) from headwatch.repository r", (0x6877,))
        tree.write("pkg/util.py", "def clamp(x):\n    return 'and again'\n")
        head = tree.commit("and again")
        eventually(lambda: running.worktree(tree.root)["state"] == "pending", "it says that it is behind")
        seen = running.worktree(tree.root)
        assert seen["live_head"] == head
        assert seen["indexed_head"] != head
        assert not seen["text_fresh"]
        [proof] = running.sql("select state, indexed_head from headwatch.worktree_state(%s)", str(tree.root))
        assert proof[0] == "pending"
        assert proof[1] == seen["indexed_head"]
    assert running.catches_up(tree, before["generation"])["indexed_head"] == head
    assert not lock.exists()


def test_a_lock_of_git_is_respected(running: Daemon, tree: Worktree) -> None:
    """While git's index.lock is held headwatch waits, leaves it alone, and says what the rows are of."""
    before = running.worktree(tree.root)
    lock = tree.root / ".git" / "index.lock"
    lock.write_bytes(b"")
    tree.write("pkg/util.py", "def clamp(x):\n    return 'under lock'\n")
    eventually(lambda: running.worktree(tree.root)["state"] == "pending", "it says that it is behind")
    assert running.worktree(tree.root)["generation"] == before["generation"]
    with pytest.raises(Refused) as refused:
        running.wait(tree.root, timeout_s=0.3)
    assert refused.value.exit_code == 3
    assert lock.exists()
    lock.unlink()
    running.catches_up(tree, before["generation"])


def test_a_stale_lock_of_git(running: Daemon, tree: Worktree) -> None:
    """A lock that a dead git left more than 30 s ago is passed by, named in the log, and left alone."""
    before = running.worktree(tree.root)
    lock = tree.root / ".git" / "index.lock"
    lock.write_bytes(b"")
    os.utime(lock, (1_000_000_000, 1_000_000_000))
    tree.write("pkg/util.py", "def clamp(x):\n    return 'beside a lock'\n")
    running.catches_up(tree, before["generation"])
    assert str(lock) in {line.get("lock") for line in running.logged()}
    assert lock.exists()


def test_git_never_fails_because_of_us(running: Daemon, tree: Worktree) -> None:
    """Git that works as fast as it can while headwatch looks never meets a lock, and ends in the rows."""
    for n in range(25):
        tree.write("pkg/util.py", f"def clamp(x):\n    return {n}\n")
        running.call("POST", "/reconcile", {"repo": str(tree.root)})
        tree.commit(f"commit {n}")
        tree.git("status")
        if n % 5 == 4:
            tree.git("gc", "--quiet", "--prune=now")
    assert running.settle(tree)["last_transition"]["new"] == tree.git("rev-parse", "HEAD")


def test_events(running: Daemon, tree: Worktree) -> None:
    """Passes that changed something and moves of HEAD are told in order, and streamed while they come."""
    follower = Follower(running)
    eventually(lambda: follower.seen, "the stream begins with what was")
    head = tree.git("rev-parse", "HEAD")
    tree.write("pkg/util.py", "def clamp(x):\n    return 'told'\n")
    second = tree.commit("told")
    running.wait(tree.root)
    tree.git("switch", "--quiet", "-c", "side")
    running.wait(tree.root)

    def mine(events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        return [
            (event["action"], event["old"], event["new"])
            for event in events
            if event["event"] == "transition" and event["worktree"] == str(tree.root)
        ][-2:]

    moves = [("commit", head, second), ("checkout", second, second)]
    assert mine(running.events()) == moves
    eventually(lambda: mine(follower.seen) == moves, "the stream has told it too")
    told = [event for event in running.events() if event["worktree"] == str(tree.root)]
    assert [event["event"] for event in told].count("registered") == 1
    reconciled = [event for event in told if event["event"] == "reconciled"]
    assert reconciled[-1]["generation"] == running.worktree(tree.root)["generation"]
    assert all(one["at"] for one in told)
    printed = [json.loads(line) for line in running.run("events").stdout.splitlines()]
    assert mine(printed) == moves


def test_events_end_with_the_daemon(new_daemon: NewDaemon) -> None:
    """`events --follow` streams what comes, and exits 4 when the daemon stops."""
    daemon = new_daemon().start()
    command = [*COMMAND, "events", "--follow"]
    following = subprocess.Popen(
        command, env=daemon.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert following.stdout is not None
    assert json.loads(following.stdout.readline())["event"] == "started"
    assert daemon.stop() == 0
    told, problems = following.communicate(timeout=30)
    assert [json.loads(line)["event"] for line in told.splitlines()] in ([], ["stopped"])
    assert following.returncode == 4
    assert "Traceback" not in problems


def test_a_malformed_headwatch_toml(running: Daemon, tree: Worktree) -> None:
    """A malformed .headwatch.toml is named with its line, and the worktree is indexed by the defaults."""
    generation = running.worktree(tree.root)["generation"]
    tree.write(".headwatch.toml", 'include = ["pkg/**"]\nexclude = [\nnonsense\n')
    tree.write("pkg/new.py", "def new():\n    pass\n")
    eventually(lambda: running.worktree(tree.root)["generation"] > generation, "the file was read")
    entry = running.settle(tree)
    assert ".headwatch.toml" in entry["reason"]
    assert ":3" in entry["reason"]
    assert ".headwatch.toml" in running.run("status").stdout
    assert [line["problem"] for line in running.logged() if "problem" in line] == [entry["reason"]]
    tree.write(".headwatch.toml", 'exclude = ["cmd/**"]\n')
    eventually(lambda: running.worktree(tree.root)["reason"] is None, "the file is good again")
    entry = running.wait(tree.root)
    assert running.search("Run", tree.root, path="cmd/**") == []


def test_a_malformed_configuration(new_daemon: NewDaemon, tmp_path: Path) -> None:
    """A daemon with a configuration that cannot be read does not start, and names file and line."""
    file = tmp_path / "config.toml"
    file.write_text("[watch]\ntoken_s = 'often'\n")
    daemon = new_daemon(HEADWATCH_CONFIG=str(file))
    done = daemon.run("run", code=1)
    assert f"{file}:2" in done.stderr
    assert "token_s" in done.stderr


def test_others_in_a_first_index(running: Daemon, tree: Worktree, git_repo: Callable[..., Worktree]) -> None:
    """A first index keeps nobody waiting: others are registered, searched and shown meanwhile."""
    first, other = populate(git_repo("first")), populate(git_repo("other"))
    with psycopg.connect(running.dsn()) as conn:
        conn.execute(
            "lock table headwatch.visible in share mode"
        )  # the pass gets there when it has written most
        running.add(first.root)
        waiting = (
            "select count(*) from pg_locks where not granted and relation = 'headwatch.visible'::regclass"
        )
        eventually(lambda: running.sql(waiting) == [(1,)], "the first index is half done")
        running.run("add", str(other.root), timeout_s=20)
        for root in (first.root, other.root):
            entry = running.worktree(root)
            assert (entry["state"], entry["generation"], entry["reason"]) == ("pending", 0, "not indexed yet")
            with pytest.raises(Refused, match="not indexed yet"):
                running.search("clamp", root)
        assert running.search("clamp", tree.root)
        running.run("list", timeout_s=20)
    for one in (first, other, tree):
        running.settle(one)


def test_remove(running: Daemon, tree: Worktree) -> None:
    """A removed repository is gone from every answer; added again, it needs no parsing."""
    running.run("remove", str(tree.root))
    assert os.path.realpath(tree.root) not in running.worktrees()
    assert "no registered worktree" in running.run("search", "clamp", cwd=tree.root, code=2).stderr
    tree.write("pkg/util.py", "def clamp(x):\n    return 'unwatched'\n")
    parsed = running.counters()["symbols_parsed"]
    tree.git("checkout", "--quiet", "--", ".")
    running.run("add", str(tree.root))
    running.settle(tree)
    assert running.counters()["symbols_parsed"] == parsed
