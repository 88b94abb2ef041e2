"""Keeps rows equal to worktrees: what `run --once` and the daemon share."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Self

import structlog

from headwatch import status
from headwatch.actions import host, process_state
from headwatch.config import Config
from headwatch.cookies import Cookies
from headwatch.database import Opened
from headwatch.dispatch import Dispatcher, Message
from headwatch.embedder import Embedder
from headwatch.hints import Hint, Target
from headwatch.indexing import IndexerHandle
from headwatch.schedule import Schedule
from headwatch.session import Session
from headwatch.watch import Watcher
from headwatch_indexer import git, registry, store
from headwatch_indexer.errors import HeadwatchError
from headwatch_indexer.models import model_info
from headwatch_indexer.store import WorktreeRow, journal, vectors

log = structlog.get_logger()

_COOKIE_S = 1.0  # how long the watcher may take to see a cookie
_POLL_S = 0.05


class Engine:
    """The dispatcher, the two children, and the session that owns the clones.

    Opened in order, closed in reverse. `watcher` and `schedule` are the daemon's alone.
    """

    def __init__(self, config: Config, opened: Opened, *, vectors: bool) -> None:
        self.config = config
        self.opened = opened
        self.vectors = vectors
        self.started_at = time.time()
        self.counters: Counter[str] = Counter()
        self.schedule: Schedule | None = None
        self.watcher: Watcher | None = None
        self.indexer = IndexerHandle(opened.dsn, host())
        self.embedder = Embedder(
            opened.dsn,
            model=config.model,
            model_id=opened.model_id,
            device=None if config.embedding.device == "auto" else config.embedding.device,
            idle_exit_s=config.embedding.idle_exit_s,
        )
        self.dispatcher = Dispatcher(self._pass, self._mark, self._passed)
        self._session = Session(opened.dsn, host())
        self._tokens: dict[int, object] = {}  # git's state before the last pass that succeeded
        self._problems: dict[int, str | None] = {}  # what the worktree's .headwatch.toml has wrong
        self._lists: dict[str, object] = {}  # common dir → identity of its list of worktrees
        self._cookies = Cookies()
        self._hints = 0
        self._news = threading.Condition()
        self._rows: dict[int, WorktreeRow] = {}
        self._adopting = threading.Lock()
        self._discovering = threading.Lock()
        self._gone: set[int] = set()  # removed; whoever read their rows before must not take them up
        self._recovering = threading.Lock()
        self._lost = False  # the database is away, and the log says so
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.callback(self._session.close)
        self._stack.callback(self.indexer.stop)
        self._stack.callback(self.embedder.stop)
        self._stack.callback(self.dispatcher.stop)
        self.indexer.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def load(self) -> None:
        """Take up every registered worktree."""
        for row in store.worktrees(self._session.conn(), host=host()):
            self._adopt(row)

    def worktrees(self) -> list[WorktreeRow]:
        """The worktrees that are kept, as they were taken up."""
        return list(self._rows.values())

    def add(self, path: str, name: str | None) -> list[int]:
        """Register a path and take its worktrees up."""
        with self._session.another() as conn:
            rows = registry.add(conn, path, host=host(), user_home=self.config.user_home, name=name)
        for row in rows:
            self._adopt(row)
        return [row.id for row in rows]

    def remove(self, worktree: int, purge: bool) -> None:
        """Let a worktree go, with its rows."""
        self._drop(worktree)
        if self.dispatcher.busy == worktree:
            self.indexer.interrupt()
        try:
            with self._session.another() as conn:
                store.forget_worktree(conn, worktree, purge=purge, by_hand=True)
        except HeadwatchError:
            self._gone.discard(worktree)  # it is taken up again with the next look at git's lists
            raise

    def discover(self) -> None:
        """Look for linked worktrees that came or went."""
        with self._discovering, self._session.another() as conn:
            for common_dir in {row.common_dir for row in self.worktrees()}:
                self._lists[common_dir] = _list_identity(common_dir)
            found = registry.discover(conn, host=host())
            for worktree in found.retired:
                gone = self._rows.get(worktree)
                self._drop(worktree)
                self.tell("retired", None, id=worktree, root=gone.root if gone else None)
            for row in store.worktrees(conn, host=host()):
                known = self._rows.get(row.id)
                if known is None or known.location != row.location:
                    self._adopt(row)

    def problem(self, worktree: int) -> str | None:
        """Why the last pass of a worktree failed, or what it waits for."""
        return self.dispatcher.problem(worktree)

    def look(self, worktree: int) -> int:
        """Ask for a pass; returns the dispatcher's ticket."""
        return self.dispatcher.request(worktree)

    def wait(self, worktree: WorktreeRow, timeout_s: float, vectors: bool) -> bool:
        """Wait until a worktree's rows match the disk as of now, and its vectors where asked for."""
        end = time.monotonic() + timeout_s
        if vectors and not self.vectors:
            raise HeadwatchError("this daemon runs without vectors", hint="restart it without --no-vectors")
        if self.watcher is not None and not self.watcher.degraded(worktree.id):
            self._cookies.wait(worktree.git_dir, min(_COOKIE_S, timeout_s))
        ticket = self.dispatcher.request(worktree.id)
        if not self.dispatcher.wait(worktree.id, ticket, max(0.0, end - time.monotonic())):
            return False
        return not vectors or self.wait_vectors(worktree.id, end)

    def wait_vectors(self, worktree: int, end: float) -> bool:
        """Wait until a worktree has all its vectors and the model answers queries; `end` is monotonic seconds."""
        if not self.waiting(worktree):
            self.embedder.ensure_started()
        else:
            self.embedder.work()
        while True:
            if not self.waiting(worktree) and self.embedder.ready.is_set():
                return True
            if (problem := self.embedder.state().get("error")) is not None:
                raise HeadwatchError(f"vectors cannot be made: {problem}", hint="try: headwatch doctor")
            if time.monotonic() >= end:
                return False
            time.sleep(_POLL_S)

    def waiting(self, worktree: int) -> int:
        """How many contents of a worktree wait for a vector."""
        return vectors.pending(self._session.conn(), self.opened.model_id, worktree).get(worktree, 0)

    def embed_query(self, text: str, *, patient: bool) -> list[float] | None:
        """Embed a query; an impatient reader gets None while the model is being loaded."""
        return self.embedder.embed_query(text, timeout_s=60.0 if patient else 0.3) if self.vectors else None

    def embed(self, texts: list[str], kind: str) -> list[list[float]]:
        return self.embedder.embed(texts, kind)

    def offer(self, hint: Hint) -> None:
        """Take a hint from the watcher."""
        if hint.kind == "cookie":
            self._cookies.see(hint.path or b"")
            return
        if hint.kind == "worktrees":
            threading.Thread(target=self._discover_quietly, name="discover", daemon=True).start()
            return
        if hint.kind == "git" and (hint.path or b"").startswith(b"refs/") and not self._moved(hint.worktree):
            return  # a ref that this worktree's HEAD does not name
        self._hints += 1
        drop = self.config.watch.drop
        if drop == "none" or (drop == "half" and self._hints % 2):
            self.dispatcher.offer(hint)

    def follow(self) -> Iterator[None]:
        """Yield at once, and after everything that the journal tells."""
        while True:
            yield
            with self._news:
                self._news.wait(15.0)

    def tell(self, event: str, worktree: int | None, **detail: Any) -> None:
        """Write one event into the journal; a database that is away loses it."""
        row = self._rows.get(worktree) if worktree is not None else None
        if row is not None:
            detail["root"] = row.root  # stands when the worktree is long removed
        with contextlib.suppress(HeadwatchError):
            store.record(self._session.conn(), event, worktree, **detail)
        with self._news:
            self._news.notify_all()

    def state(self) -> dict[str, Any]:
        """The daemon's parts of the status document."""
        embedding = self.embedder.state()
        hints, jobs = self.dispatcher.pending()
        counters = self.counters + self.dispatcher.counters
        counters["chunks_embedded"] = self.embedder.counters["chunks_embedded"]
        counters["events_lost"] = self.watcher.lost if self.watcher else 0
        counters["git_processes"] += git.processes
        info = model_info(self.config.model)
        return {
            "daemon": process_state(self.started_at, [p for p in (self.indexer.pid, self.embedder.pid) if p]),
            "model": {
                "name": info.name,
                "dim": info.dim,
                "device": embedding.get("device"),
                "loaded": bool(embedding.get("loaded")),
                "error": embedding.get("error"),
            },
            "queues": {"hints": hints, "jobs": jobs, "vectors": 0, "dead_letters": 0},
            "schedule": self.schedule.describe() if self.schedule else [],
            "counters": {name: counters[name] for name in status.COUNTERS},
        }

    def beat(self) -> None:
        """Say that this daemon lives; a lost database is revived, and everything is looked at again."""
        try:
            self._session.beat()
        except (store.Unavailable, store.Refused) as exc:
            self._recover(exc)

    def check_tokens(self) -> None:
        """Compare git's own state with what it was before the last pass, and the lists of worktrees."""
        self.dispatcher.check_holds()
        for row in self.worktrees():
            if row.id in self._tokens and self._moved(row.id):
                self.dispatcher.offer(Hint(row.id, "git", b"token"))
        for common_dir in {row.common_dir for row in self._rows.values()}:
            if self._lists.get(common_dir) != _list_identity(common_dir):
                self.discover()
                break

    def _moved(self, worktree: int) -> bool:
        """Tell whether git's own state of a worktree is another one than before its last pass."""
        row = self._rows.get(worktree)
        if row is None or worktree not in self._tokens:
            return True
        try:
            return git.token(row.location) != self._tokens[worktree]
        except HeadwatchError:
            return True

    def look_at_all(self, *, full: bool = False) -> None:
        """Ask for a pass over every worktree."""
        for row in self.worktrees():
            self.dispatcher.request(row.id, full=full)

    def embed_leftovers(self) -> None:
        """Go on with vectors that a failure left behind."""
        if self.vectors and any(vectors.pending(self._session.conn(), self.opened.model_id).values()):
            self.embedder.work()

    def trim(self) -> None:
        """Keep the journal a window."""
        journal.trim(self._session.conn())

    def _discover_quietly(self) -> None:
        try:
            self.discover()
        except HeadwatchError as exc:
            log.warning("worktrees not listed", error=exc.message)

    def _recover(self, problem: HeadwatchError) -> None:
        """Bring the database back; one that stays away is tried again with the next beat."""
        with self._recovering:
            with contextlib.suppress(store.Unavailable, store.Refused):
                self._session.beat()
                return  # it was the connection alone, or another thread was faster
            if not self._lost:
                self._lost = True
                log.warning("database lost", error=problem.message)
            with contextlib.suppress(store.Unavailable):
                self.opened.revive()
                self._session.beat()
                self._lost = False
                self._register_again()
                for row in self.worktrees():
                    self._doubt(row, "the database was away")
                    self.dispatcher.request(row.id, full=True)
                log.info("database back")
                self.tell("database back", None)

    def _register_again(self) -> None:
        """Register what the database does not know: it is not the one that it was."""
        with self._session.another() as conn:
            there = {(row.id, row.root) for row in store.worktrees(conn, host=host())}
        lost = [row for row in self.worktrees() if (row.id, row.root) not in there]
        for row in lost:
            self._drop(row.id)
        if lost:
            log.warning("another database is in the place of the one that was lost", worktrees=len(lost))
            self._gone.clear()  # its ids begin anew
        for row in lost:
            try:
                self.add(row.root, None)
            except HeadwatchError as exc:
                log.warning("not registered again", root=row.root, error=exc.message)

    def _doubt(self, row: WorktreeRow, reason: str) -> None:
        """Take back what the rows say of a worktree that has not been looked at for a while."""
        store.mark(self._session.conn(), row.id, state="pending", reason=reason)

    def _adopt(self, row: WorktreeRow) -> None:
        with self._adopting:
            known = self._rows.get(row.id)
            if row.id in self._gone:
                return
            if known is not None and known.location == row.location:
                self.dispatcher.request(row.id)
                return
            self._rows[row.id] = row
        if self.watcher is not None and row.state == "fresh":  # readers believe it once somebody keeps it
            self._doubt(row, "not looked at since the daemon started")
        self._session.own(row.clone_id, row.common_dir)
        self._lists.setdefault(row.common_dir, _list_identity(row.common_dir))
        self._cookies.clear(row.git_dir)
        target = Target(row.id, row.root, row.git_dir, row.common_dir)
        if self.watcher is not None:
            if known is not None:
                self.watcher.remove(row.id)
            self.watcher.add(target)
        self.dispatcher.add(target)
        self.tell("registered", row.id)

    def _drop(self, worktree: int) -> None:
        with self._adopting:
            self._gone.add(worktree)
            row = self._rows.pop(worktree, None)
            last = row is not None and all(other.clone_id != row.clone_id for other in self._rows.values())
        self._tokens.pop(worktree, None)
        self.dispatcher.remove(worktree)
        if self.watcher is not None:
            self.watcher.remove(worktree)
        if row is not None and last:
            self._session.release(row.clone_id)

    def _pass(self, worktree: int, full: bool) -> Message:
        row = self._rows.get(worktree)
        if row is None:
            return {"retired": True}
        token = git.token(row.location) if os.path.isdir(row.git_dir) else None
        degraded = self.watcher.degraded(worktree) if self.watcher else None
        answer = self.indexer.reconcile(worktree, full=full, degraded=degraded)
        if "error" not in answer:
            self._tokens[worktree] = token
        elif answer.get("away"):
            with contextlib.suppress(HeadwatchError):
                self.beat()
        return answer

    def _passed(self, worktree: int, answer: Message) -> None:
        self.counters["rows_written"] += answer.get("rows", 0)
        self.counters["symbols_parsed"] += answer.get("symbols_parsed", 0)
        self.counters["chunks_reused"] += answer.get("chunks_reused", 0)
        self.counters["git_processes"] += answer.get("git_processes", 0)
        self._report_problem(worktree, answer.get("problem"))
        if not answer.get("changed"):
            return
        told = ("generation", "files", "removed", "rows", "symbols_parsed", "seconds", "head")
        detail = {key: answer[key] for key in told}
        log.info("reconciled", root=self._rows[worktree].root if worktree in self._rows else None, **detail)
        self.tell("reconciled", worktree, **detail)
        if self.vectors and self.waiting(worktree):
            self.embedder.work()

    def _report_problem(self, worktree: int, problem: str | None) -> None:
        """Log what the repository's own settings have wrong, once."""
        if problem is not None and problem != self._problems.get(worktree):
            log.warning("settings of a repository not read", problem=problem)
        self._problems[worktree] = problem

    def _mark(self, target: Target, state: str, reason: str | None) -> None:
        row = self._rows.get(target.worktree)
        live_head = status.live(row)[0] if row else None
        store.mark(self._session.conn(), target.worktree, state=state, reason=reason, live_head=live_head)


def _list_identity(common_dir: str) -> object:
    """What changes whenever a linked worktree is added, moved or removed."""
    folder = os.path.join(common_dir, "worktrees")
    try:
        entries = sorted(os.listdir(folder))
    except OSError:
        return None
    found = []
    for entry in entries:
        with contextlib.suppress(OSError):
            found.append((entry, os.stat(os.path.join(folder, entry, "gitdir")).st_mtime_ns))
    return tuple(found)
