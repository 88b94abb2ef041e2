"""What integration tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwatch.config import LOCAL_TENANT
from headwatch.postgres import Database, with_tenant
from support.databases import DatabaseServer
from support.indexed import Index, open_index, purge


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
