"""What integration tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from headwatch.config import LOCAL_TENANT
from headwatch.postgres import Database, with_tenant
from support.daemon import QUIET, Daemon, daemon, populate, prepared_home
from support.databases import DatabaseServer
from support.indexed import Index, open_index, purge
from support.worktree import Worktree


@pytest.fixture(scope="session")
def shared_database(server: DatabaseServer, template: str) -> Iterator[Database]:
    """One migrated database for all tests that leave no repository behind: making one takes a second."""
    with server.fresh("hw_shared", template) as database:
        yield database


@pytest.fixture
def index(shared_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """An index without repositories; git reads the settings of an empty home."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    dsn = with_tenant(shared_database.dsn, str(LOCAL_TENANT))
    try:
        with open_index(dsn, home) as opened:
            yield opened
    finally:
        purge(dsn)


@pytest.fixture(scope="session")
def prepared() -> Iterator[Path]:
    """A home with an empty database, to be copied."""
    with prepared_home() as home:
        yield home


@pytest.fixture
def new_daemon(prepared: Path) -> Iterator[Callable[..., Daemon]]:
    """Make daemons of this test alone: new_daemon("--set", "watch.token_s=1", vectors=True, GIT_DIR="/x")."""
    with ExitStack() as stack:
        yield lambda *options, **more: stack.enter_context(daemon(prepared, *options, **more))


@pytest.fixture(scope="module")
def running(prepared: Path) -> Iterator[Daemon]:
    """One daemon for a module's tests, without the jobs that would hide a missed event."""
    with daemon(prepared, *QUIET) as one:
        yield one.start()
        assert one.stop() == 0
        assert "Traceback" not in one.log(), one.log()[one.log().index("Traceback") :]


@pytest.fixture
def tree(running: Daemon, git_repo: Callable[..., Worktree]) -> Iterator[Worktree]:
    """A repository with a few files that the module's daemon follows, all of it indexed."""
    tree = populate(git_repo())
    running.add(tree.root)
    running.settle(tree)
    yield tree
    for root in [root for root in running.worktrees() if root.startswith(str(tree.root.parent))]:
        running.remove(Path(root))
