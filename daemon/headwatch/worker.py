"""The indexer process: git, tree-sitter and rows, one job at a time."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from typing import Any

from headwatch.parent import serve
from headwatch.parsing import ParserProcess
from headwatch_indexer import git, pipeline, store
from headwatch_indexer.pipeline import Workspace
from headwatch_indexer.snapshot import RootMissing, require
from headwatch_indexer.store.content import Terms

Message = dict[str, Any]


class Indexer:
    """Runs passes on one connection, with caches that can be lost at any time."""

    def __init__(self, dsn: str, host: str) -> None:
        self._dsn = dsn
        self._host = host
        self._conn: store.Connection | None = None
        self._workspaces: dict[str, Workspace] = {}  # by common dir
        self._terms = Terms()
        self._parser = ParserProcess()

    def reconcile(self, job: Message) -> Message:
        """Make one worktree's rows equal to its disk."""
        conn = self._connection()
        worktree = next((w for w in store.worktrees(conn, host=self._host) if w.id == job["worktree"]), None)
        if worktree is None:
            return {"retired": True}
        before = git.processes
        workspace = self._workspaces.setdefault(worktree.common_dir, Workspace(prepare=self._parser))
        try:
            report = pipeline.reconcile(
                conn,
                worktree,
                workspace,
                self._terms,
                full=job.get("full", False),
                degraded=job.get("degraded"),
            )
        except pipeline.Retired:
            return {"retired": True}
        except RootMissing as exc:
            store.mark(conn, worktree.id, state="missing", reason=exc.message)
            return {"missing": exc.message}
        except git.GitFailed as exc:
            try:
                require(worktree.location)
            except RootMissing as gone:  # in the middle of the pass
                store.mark(conn, worktree.id, state="missing", reason=gone.message)
                return {"missing": gone.message}
            store.mark(conn, worktree.id, state="degraded", reason=exc.message)
            raise
        finally:
            self._parser.close()
        return asdict(report) | {"git_processes": git.processes - before}

    def close(self) -> None:
        self._parser.close()
        for workspace in self._workspaces.values():
            workspace.close()
        if self._conn is not None:
            self._conn.close()

    def _connection(self) -> store.Connection:
        if self._conn is None or self._conn.closed or self._conn.broken:
            self._conn = store.connect(self._dsn, name="headwatch indexer")
            self._terms.ids.clear()  # another server may have been put in its place
        return self._conn


def main(fd: int) -> None:
    """Serve jobs over an inherited socket until the parent is gone. The first message opens the database."""
    indexer: list[Indexer] = []

    def opened(message: Message) -> Message:
        indexer.append(Indexer(message["dsn"], message["host"]))
        return {"pid": os.getpid()}

    try:
        serve(fd, {"open": opened, "reconcile": lambda message: indexer[0].reconcile(message)})
    finally:
        for one in indexer:
            one.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
