"""Every process of headwatch dies at some time: the daemon goes on by itself, and nothing is lost or doubled."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import psycopg
import pytest

from headwatch.postgres import EmbeddedServer
from support import oracle
from support.daemon import Daemon, Refused, populate
from support.eventually import eventually
from support.worktree import Worktree

NewDaemon = Callable[..., Daemon]


@pytest.fixture
def repository(git_repo: Callable[..., Worktree]) -> Worktree:
    """A repository with a few files."""
    return populate(git_repo())


def grow(tree: Worktree, files: int) -> Worktree:
    """Commit so many files of twenty functions each."""
    for n in range(files):
        text = "".join(f"def grown_{n}_{m}(x):\n    return x * {n} + {m}\n\n" for m in range(20))
        tree.write(f"grown/part{n % 7}/file{n}.py", text)
    tree.commit("grown")
    return tree


@contextmanager
def blocked(daemon: Daemon) -> Iterator[None]:
    """Let no pass write, as the lock that a pass takes first is held."""
    conn = psycopg.connect(daemon.dsn())
    try:
        conn.execute("select pg_advisory_xact_lock(%s, r.id::int) from headwatch.repository r", (0x6877,))
        yield
    finally:
        conn.close()


def kill(process: psutil.Process | None) -> None:
    assert process is not None
    process.kill()


def postgres(daemon: Daemon) -> int | None:
    """The postmaster's process id."""
    return EmbeddedServer(daemon.home).pid


def state(daemon: Daemon, tree: Worktree) -> str:
    """What a reader without headwatch is told."""
    [(found,)] = daemon.sql("select state from headwatch.worktree_state(%s)", str(tree.root))
    return str(found)


def test_the_daemon_is_killed(new_daemon: NewDaemon, repository: Worktree) -> None:
    """After kill -9 readers see `unknown` at once; a new daemon takes socket and database over, and catches up."""
    daemon = new_daemon().start(repository.root)
    daemon.settle(repository)
    server = postgres(daemon)
    assert state(daemon, repository) == "fresh"
    indexer = daemon.child("headwatch.worker")
    daemon.kill()
    assert indexer is not None
    eventually(lambda: state(daemon, repository) == "unknown", "readers are told", 5)
    eventually(lambda: not alive(indexer), "the indexer is gone too", 5)
    assert daemon.socket.exists()
    assert "no daemon runs" in daemon.run("status").stderr

    repository.write("pkg/util.py", "def clamp(x):\n    return 'while it was down'\n")
    repository.delete("pkg/text.py")
    repository.commit("while it was down")
    repository.write("pkg/draft.py", "def draft():\n    pass\n")
    daemon.start()
    assert postgres(daemon) == server
    eventually(lambda: daemon.worktree(repository.root)["text_fresh"], "it catches up by itself")
    caught_up = daemon.worktree(repository.root)
    assert daemon.settle(repository)["generation"] == caught_up["generation"]
    eventually(lambda: state(daemon, repository) == "fresh", "it keeps the worktree", 15)
    assert daemon.stop() == 0
    assert not daemon.socket.exists()
    assert postgres(daemon) is None


def alive(process: psutil.Process) -> bool:
    """A zombie is not: nobody may be there to reap it."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_the_daemon_is_killed_in_a_first_index(new_daemon: NewDaemon, repository: Worktree) -> None:
    """A first index that is cut off leaves nothing behind; the next daemon does it again."""
    daemon = new_daemon().start(grow(repository, 150).root)
    eventually(lambda: daemon.status()["queues"]["jobs"] == 1, "the pass runs")
    daemon.kill()
    assert daemon.sql("select count(*) from headwatch.file, headwatch.parse") == [(0,)]
    daemon.start()
    assert daemon.settle(repository)["generation"] == 1


def test_the_indexer_is_killed(new_daemon: NewDaemon, repository: Worktree) -> None:
    """A pass whose process dies is done again by a new one, whether it was idle or at work."""
    daemon = new_daemon().start(repository.root)
    daemon.settle(repository)
    kill(daemon.child("headwatch.worker"))
    generation = daemon.worktree(repository.root)["generation"]
    repository.write("pkg/util.py", "def clamp(x):\n    return 'after'\n")
    daemon.catches_up(repository, generation)
    with blocked(daemon):
        grow(repository, 3)
        eventually(lambda: daemon.status()["queues"]["jobs"] == 1, "the pass runs")
        kill(daemon.child("headwatch.worker"))
        eventually(lambda: daemon.child("headwatch.worker"), "there is a new one")
    daemon.settle(repository)
    assert daemon.search("grown_1_2", repository.root)[0]["qualname"] == "grown_1_2"


def test_postgres_is_killed(new_daemon: NewDaemon, repository: Worktree) -> None:
    """While the database is away requests wait, or fail with a reason; the daemon brings it back and misses nothing."""
    daemon = new_daemon().start(repository.root)
    daemon.settle(repository)
    server = postgres(daemon)
    assert server is not None
    os.kill(server, signal.SIGKILL)
    repository.write("pkg/util.py", "def clamp(x):\n    return 'meanwhile'\n")
    head = repository.commit("meanwhile")

    def back() -> bool:
        try:
            return bool(daemon.worktree(repository.root)["indexed_head"] == head)
        except Refused as refused:
            refusals.append(refused)
            return False

    refusals: list[Refused] = []
    eventually(back, "the rows are those of the disk again", 60)
    assert {(one.status, one.exit_code, bool(one.hint)) for one in refusals} <= {(503, 4, True)}
    assert postgres(daemon) not in (None, server)
    daemon.settle(repository)
    eventually(lambda: state(daemon, repository) == "fresh", "readers trust it again", 15)
    assert daemon.stop() == 0
    assert "Traceback" not in daemon.log()


def test_the_database_is_replaced(new_daemon: NewDaemon, repository: Worktree) -> None:
    """A database that is lost with its files is made anew, and filled from the worktrees."""
    daemon = new_daemon().start(repository.root)
    daemon.settle(repository)
    server = postgres(daemon)
    assert server is not None
    os.kill(server, signal.SIGKILL)
    eventually(lambda: postgres(daemon) != server, "Postgres is gone")
    shutil.rmtree(daemon.home / "postgres", ignore_errors=True)
    repository.write("pkg/util.py", "def clamp(x):\n    return 'meanwhile'\n")

    def there() -> bool:
        try:
            return str(repository.root) in daemon.worktrees()
        except Refused:
            return False

    eventually(there, "the worktree is registered again", 60)
    assert daemon.settle(repository)["state"] == "fresh"
    eventually(lambda: state(daemon, repository) == "fresh", "readers trust it", 15)
    generation = daemon.worktree(repository.root)["generation"]
    repository.write("pkg/util.py", "def clamp(x):\n    return 'new database'\n")
    daemon.catches_up(repository, generation)
    assert daemon.stop() == 0
    assert "Traceback" not in daemon.log()


def test_a_start_is_not_believed_before_a_look(new_daemon: NewDaemon, repository: Worktree) -> None:
    """What the rows said when the last daemon ended is not `fresh` until the new one has looked."""
    daemon = new_daemon().start(repository.root)
    daemon.settle(repository)
    assert daemon.stop() == 0
    assert state(daemon, repository) == "unknown"
    repository.write("pkg/util.py", "def clamp(x):\n    return 'while it was down'\n")
    with blocked(daemon):
        daemon.start()
        assert state(daemon, repository) == "pending"
        assert not daemon.worktree(repository.root)["text_fresh"]
    daemon.settle(repository)


def test_a_lost_session_is_no_lost_lock(new_daemon: NewDaemon, repository: Worktree) -> None:
    """A daemon whose connections are cut keeps its worktrees: readers trust it again, and it follows."""
    daemon = new_daemon().start(repository.root)
    before = daemon.settle(repository)
    daemon.sql(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where pid <> pg_backend_pid() and application_name like 'headwatch%%' and datname = current_database()"
    )
    repository.write("pkg/util.py", "def clamp(x):\n    return 'cut'\n")
    eventually(lambda: state(daemon, repository) == "fresh", "readers trust it again", 15)
    daemon.catches_up(repository, before["generation"])
    assert daemon.health()["pid"] == daemon.pid


def test_a_start_in_the_middle_of_things(new_daemon: NewDaemon, repository: Worktree, tmp_path: Path) -> None:
    """A daemon starts with what it finds: a root that is gone, a rebase under way."""
    gone = populate(Worktree.init(tmp_path / "gone"))
    daemon = new_daemon().start(repository.root, gone.root)
    daemon.settle(repository)
    daemon.settle(gone)
    assert daemon.stop() == 0
    shutil.rmtree(gone.root)
    with pytest.raises(AssertionError):
        repository.git("rebase", "--quiet", "--root", "--exec", "false")
    daemon.start()
    eventually(lambda: daemon.worktree(gone.root)["state"] == "missing", "the root is missed")
    eventually(lambda: daemon.worktree(repository.root)["state"] == "held", "the rebase is seen")
    repository.git("rebase", "--abort")
    daemon.settle(repository)
    assert daemon.worktree(repository.root)["state"] == "fresh"


def test_a_silent_daemon_is_unknown(new_daemon: NewDaemon, repository: Worktree) -> None:
    """A daemon that hangs is believed for 30 s more; then its worktrees are `unknown`, until it goes on."""
    daemon = new_daemon().start(repository.root)
    daemon.settle(repository)
    os.kill(daemon.pid, signal.SIGSTOP)
    assert state(daemon, repository) == "fresh"
    back = "update headwatch.owner set heartbeat_at = now() - %s::interval returning true"
    assert daemon.sql(back, "29 s") == [(True,)]
    assert state(daemon, repository) == "fresh"
    assert daemon.sql(back, "31 s") == [(True,)]
    [(found, reason)] = daemon.sql(
        "select state, reason from headwatch.worktree_state(%s)", str(repository.root)
    )
    assert found == "unknown"
    assert reason.startswith("its daemon has been silent since")
    os.kill(daemon.pid, signal.SIGCONT)
    eventually(lambda: state(daemon, repository) == "fresh", "readers trust it again", 15)


def test_a_second_daemon(new_daemon: NewDaemon, repository: Worktree) -> None:
    """In one home there is one daemon: a second names the first, exits 1, and leaves it alone."""
    daemon = new_daemon().start(repository.root)
    done = daemon.run("run", "--no-vectors", code=1)
    assert f"pid {daemon.pid}" in done.stderr
    assert "hint: " in done.stderr
    assert daemon.health()["pid"] == daemon.pid
    daemon.settle(repository)


def test_a_stale_socket(new_daemon: NewDaemon) -> None:
    """A socket that nobody listens on is replaced; a file that is no socket is left alone, with exit 1."""
    daemon = new_daemon()
    daemon.socket.parent.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(daemon.socket))
    daemon.start()
    assert daemon.stop() == 0
    daemon.socket.write_text("mine")
    assert "is not a socket" in daemon.run("run", "--no-vectors", code=1).stderr
    assert daemon.socket.read_text() == "mine"


def test_a_stop_in_a_first_index(new_daemon: NewDaemon, repository: Worktree) -> None:
    """SIGTERM ends a daemon in good order whatever it is doing; what was not done is done by the next one."""
    daemon = new_daemon().start(grow(repository, 150).root)
    eventually(lambda: daemon.status()["queues"]["jobs"] == 1, "the pass runs")
    assert daemon.stop() == 0
    assert "Traceback" not in daemon.log()
    daemon.start()
    assert daemon.settle(repository)["generation"] == 1


def test_a_stop_while_a_pass_hangs(new_daemon: NewDaemon, repository: Worktree) -> None:
    """A pass that does not end is cut off after a few seconds, and nothing of it is in the rows."""
    daemon = new_daemon().start(repository.root)
    daemon.settle(repository)
    rows = oracle.live_rows(daemon.dsn(), repository.root)
    with blocked(daemon):
        repository.write("pkg/util.py", "def clamp(x):\n    return 'hanging'\n")
        eventually(lambda: daemon.status()["queues"]["jobs"] == 1, "the pass runs")
        assert daemon.stop() == 0
    assert oracle.live_rows(daemon.dsn(), repository.root) == rows
    assert "Traceback" not in daemon.log()


def test_a_stop_before_it_is_ready(new_daemon: NewDaemon, repository: Worktree) -> None:
    """SIGTERM while the database is being started ends the daemon in good order too, and the database with it."""
    daemon = new_daemon()
    daemon.launch(repository.root)
    eventually(lambda: postgres(daemon), "Postgres is being started")
    assert daemon.stop() == 0
    assert "Traceback" not in daemon.log()
    assert postgres(daemon) is None


@pytest.mark.model
@pytest.mark.slow
def test_the_embedder_is_killed(new_daemon: NewDaemon, repository: Worktree) -> None:
    """Vectors that a killed embedder did not make are made by the next one, each once."""
    daemon = new_daemon(vectors=True).start(grow(repository, 40).root)
    eventually(lambda: daemon.counters()["chunks_embedded"] > 0, "the embedder is at work")
    kill(daemon.child("headwatch.embedder"))
    entry = daemon.wait(repository.root, vectors=True, timeout_s=120)
    assert entry["vectors_fresh"]
    oracle.assert_equal(daemon.dsn(), repository.root)
    [(contents, vectors)] = daemon.sql(
        "select (select count(*) from headwatch.content), (select count(*) from headwatch.code_vector_m1)"
    )
    assert vectors == contents > 0
    assert daemon.counters()["chunks_embedded"] == contents
    found = daemon.search("multiply by 17 and add 3", repository.root, mode="dense")
    assert found[0]["similarity"] > 0


def test_a_cookie_of_a_killed_daemon(new_daemon: NewDaemon, repository: Worktree) -> None:
    """A cookie that a killed daemon left in a git dir is removed by the next one."""
    cookie = repository.root / ".git" / "headwatch-cookie-1-1"
    cookie.touch()
    os.utime(cookie, (1_000_000_000, 1_000_000_000))
    daemon = new_daemon().start(repository.root)
    daemon.settle(repository)
    assert not cookie.exists()
