"""Actions with set answers: what stands behind a route or a command where the answers are not the point."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from headwatch.protocol import SearchRequest, UnknownWorktree
from headwatch_indexer.errors import NotFresh

COMMIT = "1234567890123456789012345678901234567890"


class SetActions:
    """Fulfils headwatch.protocol.Actions for one worktree at `root`; notes what it was asked."""

    def __init__(self, root: str = "/r", state: str = "fresh") -> None:
        self.root = root
        self.state = state
        self.asked: list[tuple[Any, ...]] = []
        self.release = threading.Event()  # ends a wait and an endless stream
        self.streaming = threading.Event()
        self.waiting = threading.Event()

    def proof(self) -> dict[str, Any]:
        return {
            "root": self.root,
            "branch": "main",
            "state": self.state,
            "reason": None if self.state == "fresh" else "indexing",
            "live_head": COMMIT,
            "indexed_head": COMMIT,
            "generation": 3,
            "pending_vectors": 0 if self.state == "fresh" else 7,
        }

    def status(self, repo: str | None) -> dict[str, Any]:
        self.asked.append(("status", repo))
        return {
            "version": "0.1.0",
            "daemon": {"running": True, "pid": 1, "started_at": "now", "rss_bytes": 1000, "cpu_s": 0.5},
            "state": self.state,
            "database": {"embedded": True, "server_version": "18.4", "vector_version": "0.8.5", "schema_version": 1,
                         "size_bytes": 10},
            "model": {"name": "m", "dim": 3, "device": "cpu", "loaded": False},
            "repositories": [{"name": "r", "identity": "i", "worktrees": [self.proof()]}],
            "queues": {"hints": 0, "jobs": 0, "vectors": 0, "dead_letters": 0},
            "schedule": [],
            "freshness": {},
            "counters": {"reconciles": 1},
        }  # fmt: skip

    def result(self) -> dict[str, Any]:
        content = (
            "    def b(self):\n"
            + "".join(f"        x{n} = 1\n" for n in range(30))
            + "        return '\x1b[31m'\n"
        )
        return {"rank": 1, "path": "a.py", "qualname": "A.b", "kind": "method", "language": "python", "start_line": 1,
                "end_line": 32, "signature": "def b(self)", "content": content, "blob_oid": COMMIT, "score": 0.5,
                "verified": True, "freshness": "current", "commit_distance": 0}  # fmt: skip

    def search(self, request: SearchRequest) -> dict[str, Any]:
        self.asked.append(("search", request))
        results = [] if request.query == "nothing" else [self.result()]
        context = None
        if request.budget:
            context = {"text": "packed", "tokens": 2, "packed": 1, "truncated": False}
        return {"query": request.query, "mode": request.mode, "worktree": self.proof(), "results": results,
                "context": context}  # fmt: skip

    def show(self, symbol: str, repo: str | None, cwd: str) -> dict[str, Any]:
        self.asked.append(("show", symbol, repo, cwd))
        if repo is not None and not repo.startswith(self.root):
            raise UnknownWorktree(f"no worktree at {repo}", hint="headwatch list shows those that are")
        return self.result()

    def add(self, paths: list[str], name: str | None) -> dict[str, Any]:
        self.asked.append(("add", paths, name))
        return self.list_()

    def remove(self, path: str, purge: bool) -> dict[str, Any]:
        self.asked.append(("remove", path, purge))
        return {"removed": [path]}

    def list_(self) -> dict[str, Any]:
        return {
            "repositories": [
                {"name": "r", "identity": "i", "worktrees": [{"root": self.root, "branch": "main"}]}
            ]
        }

    def skipped(self, repo: str | None, cwd: str) -> dict[str, Any]:
        return {"skipped": [{"path": "big.bin", "reason": "binary", "size": 5000}]}

    def wait(self, repo: str | None, timeout_s: float, vectors: bool, cwd: str) -> dict[str, Any]:
        self.asked.append(("wait", repo, timeout_s, vectors, cwd))
        self.waiting.set()
        if self.state != "fresh" and not self.release.wait(timeout_s):
            raise NotFresh(f"{self.root} is still {self.state}", hint="wait longer")
        return self.proof()

    def reconcile(self, repo: str | None) -> dict[str, Any]:
        self.asked.append(("reconcile", repo))
        if repo == "/boom":
            raise RuntimeError("postgresql://u:secret@h/d broke")
        return {"worktrees": [self.root]}

    def events(self, follow: bool) -> Iterator[dict[str, Any]]:
        for n in range(3):
            yield {"at": "now", "event": f"e{n}", "worktree": self.root}
        if follow:
            self.streaming.set()
            self.release.wait()
            yield {"at": "now", "event": "last", "worktree": self.root}

    def embed(self, texts: list[str], kind: str) -> dict[str, Any]:
        return {"model": "m", "dim": 1, "vectors": [[float(len(text))] for text in texts]}

    def health(self) -> dict[str, Any]:
        return {"state": self.state}

    def metrics(self) -> str:
        return "headwatch_reconciles_total 1\n"
