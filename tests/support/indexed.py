"""An index that a test keeps in its own process: register, reconcile, compare with the oracle."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from headwatch_indexer import pipeline, registry, store
from headwatch_indexer.pipeline import Report, Workspace
from headwatch_indexer.store.catalog import ensure_tenant
from headwatch_indexer.store.content import Terms
from support import oracle
from support.worktree import Worktree

HOST = "here"


@dataclass(slots=True)
class Index:
    """One connection with the caches of an indexer; roots are worktrees of the test."""

    dsn: str  # with its tenant
    conn: store.Connection
    home: Path
    terms: Terms = field(default_factory=Terms)
    workspaces: dict[str, Workspace] = field(default_factory=dict)  # by common dir

    def reconnect(self) -> None:
        """Go on with another connection."""
        self.conn.close()
        self.conn = store.connect(self.dsn)

    def add(self, tree: Worktree, name: str | None = None) -> store.WorktreeRow:
        """Register a worktree and those of the same repository."""
        return registry.add(self.conn, str(tree.root), host=HOST, user_home=str(self.home), name=name)[0]

    def discover(self) -> registry.Discovery:
        return registry.discover(self.conn, host=HOST)

    def rows(self) -> list[store.WorktreeRow]:
        return store.worktrees(self.conn, host=HOST)

    def row(self, tree: Worktree) -> store.WorktreeRow:
        found = store.worktree_at(self.conn, os.path.realpath(tree.root), host=HOST)
        assert found is not None, f"{tree.root} is not registered"
        return found

    def reconcile(self, tree: Worktree, *, full: bool = False) -> Report:
        """Run one pass."""
        row = self.row(tree)
        workspace = self.workspaces.setdefault(row.common_dir, Workspace())
        return pipeline.reconcile(self.conn, row, workspace, self.terms, full=full)

    def update(self, tree: Worktree, *, full: bool = False) -> Report:
        """Run one pass and compare all rows with the oracle."""
        report = self.reconcile(tree, full=full)
        oracle.assert_equal(self.conn, tree.root)
        return report

    def forget_caches(self) -> None:
        """Be as a process that was started anew."""
        for workspace in self.workspaces.values():
            workspace.close()
        self.workspaces.clear()
        self.terms = Terms()

    def paths(self, tree: Worktree) -> set[str]:
        """Paths with a live symbol."""
        return {row.path for row in oracle.live_rows(self.conn, tree.root)}

    def skipped(self, tree: Worktree) -> dict[str, str]:
        """Paths as bytes show them that are listed but not indexed, with the reason."""
        rows = store.skipped(self.conn, self.row(tree).id)
        return {path.decode(errors="backslashreplace"): skipped.reason for path, skipped in rows.items()}


@contextmanager
def open_index(dsn: str, home: Path) -> Iterator[Index]:
    """Open an index; the DSN carries the tenant."""
    index = Index(dsn, store.connect(dsn), home)
    ensure_tenant(index.conn)
    try:
        yield index
    finally:
        index.forget_caches()
        index.conn.close()


def purge(dsn: str) -> None:
    """Forget every worktree with its repository; fails when rows are left."""
    conn = store.connect(dsn)
    try:
        conn.execute("select headwatch.drop_repository(id) from headwatch.repository")
        for table in (
            "repository",
            "worktree",
            "file",
            "visible",
            "blob",
            "symbol",
            "content",
            "posting",
            "term_stat",
        ):
            left = conn.execute(f"select count(*) from headwatch.{table}".encode()).fetchone()
            assert left == (0,), f"{table} keeps {left} rows"
    finally:
        conn.close()
