"""The indexer process: git, tree-sitter and rows, one job at a time."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from headwatch_indexer import git, pipeline, registry, store
from headwatch_indexer.errors import HeadwatchError
from headwatch_indexer.pipeline import Workspace
from headwatch_indexer.snapshot import Moving, RootMissing
from headwatch_indexer.store.content import Terms

Message = dict[str, Any]


class Indexer:
    """Runs jobs on one connection; every answer is a plain dict, every failure one with "error"."""

    def __init__(self, dsn: str, host: str, user_home: str) -> None:
        self._dsn = dsn
        self._host = host
        self._user_home = user_home
        self._conn: store.Connection | None = None
        self._workspaces: dict[str, Workspace] = {}  # by common dir
        self._terms = Terms()

    def add(self, job: Message) -> Message:
        """Register the worktree at "path"."""
        rows = registry.add(
            self._connection(), job["path"], host=self._host, user_home=self._user_home, name=job.get("name")
        )
        return {"worktrees": [row.id for row in rows]}

    def discover(self, _job: Message) -> Message:
        """Look at git's lists of linked worktrees."""
        return asdict(registry.discover(self._connection(), host=self._host))

    def forget(self, job: Message) -> Message:
        """Retire a worktree; with "purge" its repository too."""
        store.forget_worktree(self._connection(), job["worktree"], purge=job.get("purge", False))
        return {}

    def reconcile(self, job: Message) -> Message:
        """Make one worktree's rows equal to its disk."""
        conn = self._connection()
        worktree = next((w for w in store.worktrees(conn, host=self._host) if w.id == job["worktree"]), None)
        if worktree is None:
            return {"retired": True}
        before = git.processes
        workspace = self._workspaces.setdefault(worktree.common_dir, Workspace())
        try:
            report = pipeline.reconcile(
                conn,
                worktree,
                workspace,
                self._terms,
                full=job.get("full", False),
                degraded=job.get("degraded"),
            )
        except RootMissing as exc:
            store.mark(conn, worktree.id, state="missing", reason=exc.message)
            return {"missing": exc.message}
        except git.GitFailed as exc:
            store.mark(conn, worktree.id, state="degraded", reason=exc.message)
            raise
        return asdict(report) | {"git_processes": git.processes - before}

    def jobs(self) -> dict[str, Callable[[Message], Message]]:
        """The jobs by name, each answering instead of raising."""
        return {
            job.__name__: _answering(job) for job in (self.add, self.discover, self.forget, self.reconcile)
        }

    def close(self) -> None:
        for workspace in self._workspaces.values():
            workspace.close()
        if self._conn is not None:
            self._conn.close()

    def _connection(self) -> store.Connection:
        if self._conn is None or self._conn.closed or self._conn.broken:
            self._conn = store.connect(self._dsn, name="headwatch indexer")
            self._terms.ids.clear()  # another server may have been put in its place
        return self._conn


def _answering(job: Callable[[Message], Message]) -> Callable[[Message], Message]:
    def answer(message: Message) -> Message:
        try:
            return job(message)
        except HeadwatchError as exc:
            return {
                "error": exc.message,
                "hint": exc.hint,
                "exit_code": exc.exit_code,
                "again": isinstance(exc, (Moving, store.Unavailable)),
            }

    return answer


def main(fd: int) -> None:
    """Serve jobs over an inherited socket until the parent is gone. The first message opens the database."""
    from headwatch.child import serve

    indexer: list[Indexer] = []
    jobs: dict[str, Callable[[Message], Message]] = {}

    def opened(message: Message) -> Message:
        indexer.append(Indexer(message["dsn"], message["host"], message["user_home"]))
        jobs.update(indexer[0].jobs())
        return {"pid": os.getpid()}

    def run(name: str) -> Callable[[Message], Message]:
        return lambda message: jobs[name](message)

    try:
        serve(
            fd, {"open": opened, **{name: run(name) for name in ("add", "discover", "forget", "reconcile")}}
        )
    finally:
        for one in indexer:
            one.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
