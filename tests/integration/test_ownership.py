"""Who keeps a clone, and what readers are told of a worktree whose daemon is gone or silent."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headwatch_indexer import store
from headwatch_indexer.store.ownership import lock_key
from support.eventually import eventually
from support.indexed import HOST, Index
from support.worktree import Worktree


@pytest.fixture
def tree(tmp_path: Path, index: Index) -> Worktree:
    """A worktree that is indexed, and kept by nobody."""
    tree = Worktree.init(tmp_path / "repo")
    tree.write("a.py", "def one():\n    return 1\n\n\ndef two():\n    return 2\n")
    tree.commit("a")
    index.add(tree)
    index.reconcile(tree)
    return tree


@contextmanager
def session(index: Index) -> Iterator[store.Connection]:
    """Open a connection of another daemon."""
    conn = store.connect(index.dsn)
    try:
        yield conn
    finally:
        conn.close()


def own(conn: store.Connection, row: store.WorktreeRow) -> bool:
    return store.own(conn, row.clone_id, host=HOST, common_dir=row.common_dir)


def release(conn: store.Connection, row: store.WorktreeRow) -> None:
    store.release(conn, row.clone_id, host=HOST, common_dir=row.common_dir)


def state(index: Index, tree: Worktree) -> tuple[str, str | None]:
    """What a reader is told; it takes one statement and no daemon."""
    rows = index.conn.execute("select state, reason from worktree_state(%s)", (str(tree.root),)).fetchall()
    assert len(rows) == 1
    return rows[0]


def silence(index: Index, row: store.WorktreeRow, seconds: float) -> None:
    """Set the heartbeat back."""
    index.conn.execute(
        "update owner set heartbeat_at = clock_timestamp() - make_interval(secs => %s) where clone_id = %s",
        (seconds, row.clone_id),
    )


def test_written_state_while_its_daemon_lives(index: Index, tree: Worktree) -> None:
    """With the lock held and a young heartbeat, readers get the state and the reason that were written."""
    row = index.row(tree)
    with session(index) as daemon:
        assert own(daemon, row)
        assert state(index, tree) == ("fresh", None)
        for written in ("held", "degraded", "pending", "missing"):
            store.mark(index.conn, row.id, state=written, reason=f"because {written}")
            assert state(index, tree) == (written, f"because {written}")


def test_nobody_ever_kept_it(index: Index, tree: Worktree) -> None:
    """Rows without an owner prove nothing."""
    assert state(index, tree) == ("unknown", "no daemon has kept this worktree")


def test_dead_daemon(index: Index, tree: Worktree) -> None:
    """The lock dies with its session: what it wrote is unknown from that moment on, however young."""
    row = index.row(tree)
    with session(index) as daemon, session(index) as other:
        assert own(daemon, row)
        other.execute("select pg_advisory_lock(%s)", (lock_key(HOST, row.common_dir) ^ 1,))  # does not count
        assert state(index, tree)[0] == "fresh"
        daemon.close()
        eventually(lambda: state(index, tree) == ("unknown", "its daemon is not running"), "unknown")


def test_killed_daemon(index: Index, tree: Worktree) -> None:
    """A daemon that was killed left its rows and its heartbeat, and is not believed."""
    row = index.row(tree)
    program = (
        "import sys, time; from headwatch_indexer import store; conn = store.connect(sys.argv[1]);"
        f"assert store.own(conn, {row.clone_id}, host={HOST!r}, common_dir=sys.argv[2]); print('owns', flush=True);"
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, index.dsn, row.common_dir],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as daemon:
        assert daemon.stdout is not None
        assert daemon.stdout.readline() == b"owns\n"
        assert state(index, tree)[0] == "fresh"
        assert not own(index.conn, row)
        daemon.kill()
    eventually(lambda: state(index, tree) == ("unknown", "its daemon is not running"), "unknown")
    assert own(index.conn, row)
    release(index.conn, row)
    assert state(index, tree)[0] == "unknown"


@pytest.mark.parametrize(("seconds", "alive"), [(1, True), (25, True), (31, False), (3600, False)])
def test_silent_daemon(index: Index, tree: Worktree, seconds: float, alive: bool) -> None:
    """A heartbeat older than 30 s makes a held lock worthless; the next beat makes it good again."""
    row = index.row(tree)
    with session(index) as daemon:
        assert own(daemon, row)
        silence(index, row, seconds)
        told, reason = state(index, tree)
        assert told == ("fresh" if alive else "unknown")
        if not alive:
            assert reason is not None
            assert reason.startswith("its daemon has been silent since 2")
            assert reason.endswith("UTC")
        store.beat(daemon, [row.clone_id])
        assert state(index, tree) == ("fresh", None)


def test_one_owner_at_a_time(index: Index, tree: Worktree) -> None:
    """The second daemon is refused, and does not become the one that is named; then it takes over."""
    row = index.row(tree)
    with session(index) as first, session(index) as second:
        assert own(first, row)
        silence(index, row, 20)
        before = index.conn.execute("select * from owner").fetchall()
        assert not own(second, row)
        assert index.conn.execute("select * from owner").fetchall() == before
        release(first, row)
        assert state(index, tree) == ("unknown", "no daemon has kept this worktree")
        assert own(second, row)
        assert state(index, tree) == ("fresh", None)
        assert not own(first, row)


def test_owning_twice_is_owning_once(index: Index, tree: Worktree) -> None:
    """Asking again from the same session is harmless: one release lets go."""
    row = index.row(tree)
    with session(index) as daemon, session(index) as other:
        assert own(daemon, row)
        assert own(daemon, row)
        release(daemon, row)
        assert own(other, row)


def test_clones_are_owned_apart(index: Index, tree: Worktree, tmp_path: Path) -> None:
    """A lock names one object database on one host: linked worktrees share it, another clone does not."""
    tree.git("clone", "--quiet", str(tree.root), str(tmp_path / "clone"))
    clone = Worktree(tmp_path / "clone")
    linked = Worktree(tmp_path / "linked")
    tree.git("worktree", "add", "--quiet", "--detach", str(linked.root))
    index.add(clone)
    index.discover()
    for each in (tree, clone, linked):
        index.reconcile(each)
    with session(index) as daemon, session(index) as other:
        assert own(daemon, index.row(tree))
        assert not own(other, index.row(linked))
        assert own(other, index.row(clone))
        assert [state(index, each)[0] for each in (tree, linked, clone)] == ["fresh"] * 3
        release(other, index.row(clone))
        assert [state(index, each)[0] for each in (tree, linked, clone)] == ["fresh", "fresh", "unknown"]
    assert lock_key("a", "/x") != lock_key("b", "/x")


def test_beat_is_the_owners(index: Index, tree: Worktree) -> None:
    """A process that does not own a clone cannot keep it looking alive."""
    row = index.row(tree)
    with session(index) as daemon:
        assert own(daemon, row)
        silence(index, row, 60)
        program = (
            "import sys; from headwatch_indexer import store;"
            f" store.beat(store.connect(sys.argv[1]), [{row.clone_id}])"
        )
        subprocess.run([sys.executable, "-W", "ignore", "-c", program, index.dsn], check=True)
        assert state(index, tree)[0] == "unknown"


def test_state_of_a_root_that_is_not_there(index: Index) -> None:
    """No row is no claim."""
    assert index.conn.execute("select * from worktree_state('/nowhere')").fetchall() == []


def test_compare_worktrees(index: Index, tree: Worktree, tmp_path: Path) -> None:
    """Symbols that differ, and how; what only moved, or is the same under another blob, does not."""
    linked = Worktree(tmp_path / "linked")
    tree.git("worktree", "add", "--quiet", "--detach", str(linked.root))
    index.discover()
    index.reconcile(linked)

    def compare() -> list[tuple[str, str, str]]:
        return index.conn.execute(
            "select * from compare_worktrees(%s, %s)", (index.row(tree).id, index.row(linked).id)
        ).fetchall()

    assert compare() == []
    linked.write("a.py", "# moved down\n\n\ndef one():\n    return 1\n\n\ndef two():\n    return 22\n")
    linked.write("only.py", "def three():\n    return 3\n")
    tree.write("mine.py", "class Mine:\n    def ours(self):\n        return 'é' * 3\n")
    index.reconcile(linked)
    index.reconcile(tree)
    found = [row for row in compare() if row[1] != "<module>"]
    assert found == [
        ("a.py", "two", "differs"),
        ("mine.py", "Mine", "only in a"),
        ("mine.py", "Mine.ours", "only in a"),
        ("only.py", "three", "only in b"),
    ]
