"""What tests share: a clean environment, real repositories, and a fresh database for each test that asks."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headwatch.postgres import Database, EmbeddedServer
from support import external_server as external
from support.databases import FAST, DatabaseServer, migrate, name_of
from support.worktree import ISOLATED, Worktree

_TEST_DATABASE_URL = os.environ.get("HEADWATCH_TEST_DATABASE_URL")  # read before the environment is cleaned


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep the developer's git settings, headwatch settings and network out of every test."""
    for name in list(os.environ):
        if name.startswith(("GIT_", "HEADWATCH_")):
            monkeypatch.delenv(name)
    for name, value in ISOLATED.items():
        monkeypatch.setenv(name, value)
    # Git reads $XDG_CONFIG_HOME/git/ignore whatever GIT_CONFIG_GLOBAL says.
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.getbasetemp() / "no-config"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def git_repo(tmp_path: Path) -> Callable[..., Worktree]:
    """Make a repository in the test's folder: git_repo(), git_repo("name", "--object-format=sha256")."""

    def make(name: str = "repo", *options: str) -> Worktree:
        return Worktree.init(tmp_path / name, *options)

    return make


@pytest.fixture
def home() -> Iterator[Path]:
    """A HEADWATCH_HOME outside pytest's folder, whose mode another run of pytest resets under a running server."""
    with tempfile.TemporaryDirectory(prefix="hw-home-") as folder:
        yield Path(folder).resolve()
        EmbeddedServer(Path(folder)).stop()


@pytest.fixture(scope="session")
def server() -> Iterator[DatabaseServer]:
    """The server of this test run: HEADWATCH_TEST_DATABASE_URL, or an embedded one in a temporary folder."""
    if _TEST_DATABASE_URL:
        yield DatabaseServer(_TEST_DATABASE_URL, None)
        return
    with tempfile.TemporaryDirectory(prefix="hw-test-") as folder:
        embedded = EmbeddedServer(Path(folder), settings=FAST)
        embedded.start()
        try:
            yield DatabaseServer(embedded.administrator_dsn(), embedded)
        finally:
            embedded.stop()


@pytest.fixture(scope="session")
def template(server: DatabaseServer) -> Iterator[str]:
    """Name a migrated database that nobody connects to."""
    with server.fresh("hw_template") as database:
        migrate(database)
        yield name_of(database)


@pytest.fixture
def database(server: DatabaseServer, template: str) -> Iterator[Database]:
    """A migrated, empty database of this test alone."""
    with server.fresh("hw_test", template) as database:
        yield database


@pytest.fixture(scope="session")
def external_server() -> Iterator[str]:
    """The DSN of a second server: TCP, password, a login that is no superuser but may create databases."""
    with external.external_server() as dsn:
        yield dsn


@pytest.fixture
def external_database(external_server: str) -> Iterator[Database]:
    """An empty database (but for pgvector) on that second server, owned by its login."""
    with DatabaseServer(external_server, None).fresh("hw_test") as database:
        yield database
