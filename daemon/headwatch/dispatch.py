"""From batches to passes: one thread that says when the indexer looks at which worktree, and who waits for it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import structlog

from headwatch.hints import Hint, Target
from headwatch.inbox import Batch, Inbox
from headwatch_indexer import git
from headwatch_indexer.errors import HeadwatchError

log = structlog.get_logger()
Message = dict[str, Any]

_RETRY_S = 0.2  # the disk moved under a pass
_RETRY_MAX_S = 30.0
_TRIES = 3  # failures in a row after which nobody who waits for one pass should go on


@dataclass(slots=True)
class _Worktree:
    """What the dispatcher knows of one worktree."""

    target: Target
    started: int = 0  # number of its last pass
    completed: int = 0  # number of its last pass that succeeded
    full: bool = False  # the next pass hashes everything
    pending: bool = False  # a hint came after the last pass
    retry_s: float = _RETRY_S
    missing: str | None = None
    problem: str | None = None  # why the last pass failed
    failures: int = 0  # in a row, of a kind that another try does not mend
    error: HeadwatchError | None = None


class Dispatcher:
    """Runs passes one at a time, in a thread of its own.

    `run(worktree, full)` makes one pass and returns the indexer's answer; `mark(worktree, state, reason)` writes a
    state between passes; `done(worktree, answer)` hears of each pass that succeeded.
    """

    def __init__(
        self,
        run: Callable[[int, bool], Message],
        mark: Callable[[Target, str, str | None], None],
        done: Callable[[int, Message], None],
    ) -> None:
        self._run = run
        self._mark = mark
        self._done = done
        self._inbox = Inbox()
        self._worktrees: dict[int, _Worktree] = {}
        self._changed = threading.Condition()
        self._passes = 0
        self._stopping = False
        self._dirty: set[int] = set()  # hinted at, not yet marked
        self._thread = threading.Thread(target=self._guarded, name="dispatcher", daemon=True)
        self.failed: Callable[[BaseException], None] | None = None  # is told what ended the thread
        self.counters: Counter[str] = Counter()
        self.busy: int | None = None  # the worktree of the pass under way

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Let the pass under way end, if it does so in time, and begin no other."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def add(self, target: Target) -> None:
        """Know a worktree and look at it."""
        with self._changed:
            self._worktrees.setdefault(target.worktree, _Worktree(target)).target = target
            self._inbox.flush(target.worktree, time.monotonic())
            self._changed.notify_all()

    def remove(self, worktree: int) -> None:
        """Forget a worktree; who waits for it hears that it is gone."""
        with self._changed:
            self._worktrees.pop(worktree, None)
            self._inbox.forget(worktree)
            self._changed.notify_all()

    def targets(self) -> list[Target]:
        with self._changed:
            return [known.target for known in self._worktrees.values()]

    def offer(self, hint: Hint) -> None:
        """Take a hint from the watcher."""
        self.counters["hints"] += 1
        with self._changed:
            known = self._worktrees.get(hint.worktree)
            if known is None:
                return
            now = time.monotonic()
            self._inbox.offer(hint, now)
            if self._inbox.held(hint.worktree) and git.operation(known.target.git_dir) is None:
                self._inbox.release(hint.worktree, now)
            if not known.pending:
                known.pending = True
                self._dirty.add(hint.worktree)
            self._changed.notify_all()

    def request(self, worktree: int, *, full: bool = False) -> int:
        """Ask for a pass that starts from now on; returns the ticket that `wait` takes."""
        with self._changed:
            known = self._worktrees.get(worktree)
            if known is not None:
                known.full = known.full or full
                self._inbox.flush(worktree, time.monotonic())
                self._changed.notify_all()
            return self._passes

    def wait(self, worktree: int, ticket: int, timeout_s: float) -> bool:
        """Wait until a pass that started after the ticket has succeeded; False when the time is up.

        Raises HeadwatchError when the worktree is gone.
        """
        end = time.monotonic() + timeout_s
        with self._changed:
            while True:
                known = self._worktrees.get(worktree)
                if known is None or self._stopping:
                    raise HeadwatchError(
                        "the worktree is no longer registered" if known is None else "the daemon is stopping",
                        hint="try: headwatch list",
                    )
                if known.completed > ticket:
                    return True
                if known.missing and known.started > ticket:
                    raise HeadwatchError(
                        known.missing, hint="was it moved? try: headwatch list, headwatch remove"
                    )
                left = end - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)

    def problem(self, worktree: int) -> str | None:
        """Why the last pass of a worktree failed, or what it waits for."""
        with self._changed:
            known = self._worktrees.get(worktree)
            held = self._inbox.held(worktree)
            return (known.problem if known else None) or (f"a {held} is under way" if held else None)

    def gives_up(self, worktree: int) -> str | None:
        """Why a worktree's passes fail again and again; None while another try may help."""
        with self._changed:
            known = self._worktrees.get(worktree)
            return known.problem if known is not None and known.failures >= _TRIES else None

    def check_holds(self) -> None:
        """Release holds whose operation ended without a hint."""
        with self._changed:
            for worktree, known in self._worktrees.items():
                if self._inbox.held(worktree) and git.operation(known.target.git_dir) is None:
                    self._inbox.release(worktree, time.monotonic())
                    self._changed.notify_all()

    def pending(self) -> tuple[int, int]:
        """Hints pending, and passes due or under way."""
        with self._changed:
            return len(self._inbox), int(self.busy is not None)

    def _guarded(self) -> None:
        try:
            self._loop()
        except BaseException as exc:
            log.exception("dispatcher ended")
            with self._changed:
                self._stopping = True
                self._changed.notify_all()
            if self.failed is not None:
                self.failed(exc)

    def _loop(self) -> None:
        while True:
            with self._changed:
                while not self._stopping and not self._dirty:
                    deadline = self._inbox.next_deadline()
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        break
                    self._changed.wait(left)
                if self._stopping:
                    return
                dirty = [self._worktrees[w].target for w in self._dirty if w in self._worktrees]
                self._dirty.clear()
                batches = self._inbox.due(time.monotonic())
            for target in dirty:
                self._say(target, "pending", "changes are being read")
            for batch in batches:
                self._work(batch)

    def _work(self, batch: Batch) -> None:
        with self._changed:
            known = self._worktrees.get(batch.worktree)
            if known is None:
                self._inbox.forget(batch.worktree)
                return
        if self._must_wait(known, batch):
            return
        with self._changed:
            self._passes += 1
            known.started = number = self._passes
            known.pending = False
            full, known.full = known.full, False
            self.busy = batch.worktree
        try:
            answer = self._run(batch.worktree, full)
        except Exception as exc:
            answer = {"error": str(exc) or type(exc).__name__, "hint": "", "again": True}
        finally:
            self.busy = None
        self._finish(known, batch, number, full, answer)

    def _must_wait(self, known: _Worktree, batch: Batch) -> bool:
        """Put a batch back while git is at work in its worktree."""
        target = known.target
        operation = git.operation(target.git_dir)
        if operation is not None and "held" not in batch.reasons:
            with self._changed:
                self._inbox.hold(batch.worktree, operation, time.monotonic())
            self._say(target, "held", f"a {operation} is under way")
            return True
        for path, modified in git.locks(target.git_dir, target.common_dir):
            now = time.monotonic()
            since = now - max(0.0, time.time() - modified)
            with self._changed:
                if self._inbox.lock(batch.worktree, since, now):
                    return True
            log.warning("stale lock passed by", lock=path, worktree=target.root)
        return False

    def _finish(self, known: _Worktree, batch: Batch, number: int, full: bool, answer: Message) -> None:
        now = time.monotonic()
        self.counters["reconciles"] += 1
        failed = "error" in answer
        with self._changed:
            if batch.worktree not in self._worktrees:  # removed meanwhile
                self._inbox.forget(batch.worktree)
                return
            known.problem = answer.get("error") or answer.get("missing")
            known.missing = answer.get("missing")
            known.failures = known.failures + 1 if failed and not answer.get("again") else 0
            if failed:
                known.full = known.full or full
                self._inbox.failed(batch.worktree, now, known.retry_s)
                known.retry_s = min(known.retry_s * (1.5 if answer.get("again") else 4), _RETRY_MAX_S)
            else:
                known.retry_s = _RETRY_S
                self._inbox.done(batch.worktree)
                if not known.missing:
                    known.completed = number
        if failed and not self._stopping:
            tell = (
                log.info if answer.get("kind") == "Moving" else log.warning
            )  # the user is at work, that is all
            tell("pass failed", worktree=known.target.root, error=answer["error"])
        elif not failed and not known.missing:
            self._tell_done(batch.worktree, answer)
            if "held" in batch.reasons and (operation := git.operation(known.target.git_dir)):
                self._say(known.target, "held", f"a {operation} is under way")
        with self._changed:
            self._changed.notify_all()

    def _tell_done(self, worktree: int, answer: Message) -> None:
        try:
            self._done(worktree, answer)
        except (
            HeadwatchError
        ) as exc:  # the rows are right; what follows from them is done after the next pass
            log.warning("pass not reported", worktree=worktree, error=exc.message)

    def _say(self, target: Target, state: str, reason: str) -> None:
        try:
            self._mark(target, state, reason)
        except HeadwatchError as exc:
            log.warning("state not written", worktree=target.root, error=exc.message)
