"""`run --once`: everything up to date, a report, and the end; a second time there is nothing to do."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwatch.postgres import Database, EmbeddedServer
from support import oracle
from support.daemon import Daemon, daemon, populate
from support.worktree import Worktree

NewDaemon = Callable[..., Daemon]
_WRITTEN = """
    select relname, n_tup_ins + n_tup_upd + n_tup_del from pg_stat_user_tables
    where schemaname = 'headwatch'
        and relname not in ('journal', 'owner', 'setting', 'tenant', 'model', 'repository', 'clone')
    order by 1
"""


@pytest.fixture
def repository(git_repo: Callable[..., Worktree]) -> Worktree:
    """A repository with a few files."""
    return populate(git_repo())


def once(home: Daemon, *arguments: str | Path) -> dict[str, Any]:
    """Run it, and return the report."""
    report: dict[str, Any] = json.loads(home.run("run", "--once", "--json", *map(str, arguments)).stdout)
    return report


def worktree(report: dict[str, Any]) -> dict[str, Any]:
    [entry] = [worktree for repository in report["repositories"] for worktree in repository["worktrees"]]
    return dict(entry)


def written(home: Daemon) -> list[tuple[Any, ...]]:
    """How often rows of each table were ever written, but for who is registered and what happened."""
    return home.sql(_WRITTEN)


def test_a_first_time(repository: Worktree) -> None:
    """A home is made where there is none; the report says what was read, and nothing is left running."""
    with daemon(None) as home:
        report = once(home, "--no-vectors", repository.root)
        assert EmbeddedServer(home.home).pid is None
        entry = worktree(report)
        assert entry["root"] == str(repository.root)
        assert (entry["state"], entry["generation"], entry["files"]) == ("fresh", 1, 6)
        assert entry["indexed_head"] == repository.git("rev-parse", "HEAD")
        assert report["counters"]["symbols_parsed"] == entry["symbols"] > 0
        oracle.assert_equal(home.dsn(), repository.root)
        assert not home.socket.exists()


def test_a_second_time_does_nothing(new_daemon: NewDaemon, repository: Worktree) -> None:
    """Without a change nothing is written, parsed or embedded, and the generation stays; dirty files are no change."""
    home = new_daemon()
    repository.write("pkg/draft.py", "def draft():\n    pass\n")
    repository.write("pkg/util.py", "def clamp(x):\n    return 'dirty'\n")
    home.dsn()  # keeps the server up, with its statistics
    first = worktree(once(home, "--no-vectors", repository.root))
    before = written(home)
    for arguments in ([], [repository.root]):
        report = once(home, "--no-vectors", *arguments)
        entry = worktree(report)
        assert (entry["generation"], entry["applied_at"]) == (first["generation"], first["applied_at"])
        counters = report["counters"]
        assert counters["reconciles"] == 1
        names = ("rows_written", "symbols_parsed", "chunks_embedded", "chunks_reused")
        assert [counters[name] for name in names] == [0, 0, 0, 0]
        again = {"worktree"} if arguments else set()  # a path that is named is registered once more
        assert {table for table, _ in set(written(home)) ^ set(before)} <= again
    oracle.assert_equal(home.dsn(), repository.root)


def test_a_change_between(new_daemon: NewDaemon, repository: Worktree) -> None:
    """The next time only what changed is read."""
    home = new_daemon()
    once(home, "--no-vectors", repository.root)
    repository.write("pkg/util.py", "def clamp(x):\n    return 'changed'\n")
    repository.delete("pkg/text.py")
    repository.commit("changed")
    report = once(home, "--no-vectors")
    assert (worktree(report)["generation"], report["counters"]["symbols_parsed"]) == (2, 1)
    oracle.assert_equal(home.dsn(), repository.root)


def test_where_a_daemon_runs(new_daemon: NewDaemon, repository: Worktree) -> None:
    """With a daemon in the same home the work is handed to it and waited for."""
    home = new_daemon().start()
    done = home.run("run", "--once", "--no-vectors", str(repository.root), "--json")
    assert "a daemon runs" in done.stderr
    report = json.loads(done.stdout)
    assert worktree(report)["state"] == "fresh"
    assert report["counters"]["symbols_parsed"] > 0
    oracle.assert_equal(home.dsn(), repository.root)
    assert home.health()["pid"] == home.pid
    again = once(home, "--no-vectors")
    assert (again["counters"]["rows_written"], worktree(again)["generation"]) == (0, 1)


def test_a_bad_path(new_daemon: NewDaemon, tmp_path: Path) -> None:
    """A folder that is no repository, and the home itself, are refused with the reason."""
    home = new_daemon(HOME=str(tmp_path / "me"))
    me = Worktree.init(tmp_path / "me")
    (tmp_path / "plain").mkdir()
    done = home.run("run", "--once", str(tmp_path / "plain"), code=1)
    assert str(tmp_path / "plain") in done.stderr
    done = home.run("run", "--once", str(me.root), code=2)
    assert str(me.root) in done.stderr


def test_started_by_a_hook(
    new_daemon: NewDaemon, repository: Worktree, git_repo: Callable[..., Worktree]
) -> None:
    """Variables that git sets for a hook of another repository change nothing."""
    other = git_repo("other")
    home = new_daemon(
        GIT_DIR=str(other.root / ".git"),
        GIT_INDEX_FILE=str(other.root / ".git/index"),
        GIT_WORK_TREE=str(other.root),
    )
    entry = worktree(once(home, "--no-vectors", repository.root))
    assert (entry["root"], entry["files"]) == (str(repository.root), 6)
    home.start()
    generation = home.settle(repository)["generation"]
    repository.write("pkg/util.py", "def clamp(x):\n    return 'hooked'\n")
    home.catches_up(repository, generation)


def test_on_another_server(new_daemon: NewDaemon, repository: Worktree, external_database: Database) -> None:
    """On a server that HEADWATCH_DATABASE_URL names all is the same, and no log or output has its password."""
    home = new_daemon(HEADWATCH_DATABASE_URL=external_database.dsn)
    once(home, "--no-vectors", repository.root)
    oracle.assert_equal(home.dsn(), repository.root)
    assert not (home.home / "postgres.lock").exists()
    found = json.loads(home.run("search", "clamp", "--mode", "lexical", "--json", cwd=repository.root).stdout)
    assert found["results"][0]["path"] == "pkg/util.py"
    home.start()
    before = home.settle(repository)
    repository.write("pkg/util.py", "def clamp(x):\n    return 'edited'\n")
    home.catches_up(repository, before["generation"])
    assert not home.status()["database"]["embedded"]
    home.sql(
        "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()"
        " and usename = current_user and datname = current_database()"
    )
    repository.write("pkg/util.py", "def clamp(x):\n    return 'once more'\n")
    home.settle(repository)
    assert home.stop() == 0
    password = external_database.dsn.split("@")[0].rsplit(":", 1)[1]
    assert len(password) > 8
    told = home.log() + home.run("status").stdout + home.run("doctor").stdout
    told += home.run("db", "stop", code=2).stderr
    assert password not in told


def test_a_server_that_is_away(new_daemon: NewDaemon, repository: Worktree) -> None:
    """A database that cannot be reached is exit 4, with its address and without its password."""
    home = new_daemon(HEADWATCH_DATABASE_URL="postgresql://me:geheim@127.0.0.1:1/nowhere")
    done = home.run("run", "--once", str(repository.root), code=4)
    assert "127.0.0.1" in done.stderr
    assert "hint: " in done.stderr
    assert "geheim" not in done.stderr


@pytest.mark.model
@pytest.mark.slow
def test_with_vectors(new_daemon: NewDaemon, repository: Worktree, tmp_path: Path) -> None:
    """Vectors are made once a text: not a second time, not for a commit, a rename, a switch or a new worktree."""
    home = new_daemon()
    first = once(home, repository.root)
    made = first["counters"]["chunks_embedded"]
    assert made > 0
    assert worktree(first)["vectors_fresh"]
    repository.git("switch", "--quiet", "-c", "feature")
    repository.git("mv", "pkg/util.py", "pkg/tools.py")
    repository.commit("renamed")
    repository.git("worktree", "add", "--quiet", tmp_path / "linked", "main")
    second = home.run("run", "--once", "--json")
    report = json.loads(second.stdout)
    assert report["counters"]["chunks_embedded"] == 0
    entries = [w for r in report["repositories"] for w in r["worktrees"]]
    assert [w["vectors_fresh"] for w in entries] == [True, True]
    assert {w["root"] for w in entries} == {str(repository.root), os.path.realpath(tmp_path / "linked")}
    assert "killed" not in second.stderr
    done = home.run(
        "search", "clamp a value between low and high", "--mode", "dense", "--json", cwd=repository.root
    )
    assert json.loads(done.stdout)["results"][0]["path"] == "pkg/tools.py"
