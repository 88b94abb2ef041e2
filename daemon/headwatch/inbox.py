"""When is a worktree quiet enough to look at: hints in, batches out. Pure: `now` is an argument."""

from __future__ import annotations

from dataclasses import dataclass, field

from headwatch.hints import Hint

MAX_PATHS = 512  # pending a worktree; one more and the batch is a rescan
QUIET_FILE_S = 0.060  # one file was saved
QUIET_BURST_S = 0.250  # a checkout's events come at most 11 ms apart, a rebase's 306 ms
FLUSH_S = 2.0  # after the first hint, whatever still happens
HELD_QUIET_S = 60.0  # a paused rebase is looked at after so much quiet
HELD_LIMIT_S = 600.0  # and at the latest so long after the first hint: a bisect may last for days
LOCK_LIMIT_S = 30.0  # a lock file unchanged for so long is passed by
LOCK_BACKOFF_S = 0.050
LOCK_BACKOFF_MAX_S = 1.0

_LONE_KINDS = frozenset({"path", "cookie"})  # kinds that need no more than a lone file's quiet
_RESCAN_KINDS = frozenset({"rescan", "ignore", "gone"})


@dataclass(frozen=True, slots=True)
class Batch:
    """Everything hinted at one worktree since its last batch."""

    worktree: int
    paths: frozenset[bytes] | None  # None: look at everything
    reasons: frozenset[str]  # kinds of the hints, and "held", "flush"
    first_at: float  # when the oldest hint of it was offered


@dataclass(slots=True)
class _Pending:
    """One worktree's side of the inbox."""

    paths: set[bytes] = field(default_factory=set)
    rescan: bool = False
    reasons: set[str] = field(default_factory=set)
    first_at: float | None = None  # None: nothing is pending
    limit_from: float = 0.0  # where FLUSH_S counts from: the first hint, or the release of a hold
    last_at: float = 0.0
    urgent: bool = False
    not_before: float = 0.0
    backoff_s: float = 0.0
    held: str | None = None
    flight: Batch | None = None  # handed out, not yet done

    def add(self, paths: frozenset[bytes] | None, reasons: frozenset[str], first_at: float) -> None:
        """Fold more into what is pending; keep it bounded."""
        if self.first_at is None:
            self.first_at = self.limit_from = first_at
        self.first_at = min(self.first_at, first_at)
        self.reasons |= reasons
        if paths is None:
            self.rescan = True
        elif not self.rescan:
            self.paths |= paths
        if self.rescan or len(self.paths) > MAX_PATHS:
            self.rescan = True
            self.paths.clear()

    def land(self, now: float) -> None:
        """Take the batch that was handed out back among the pending."""
        if self.flight is None:
            return
        fresh = self.first_at is None
        self.add(self.flight.paths, self.flight.reasons - {"held"}, self.flight.first_at)
        self.urgent |= "flush" in self.flight.reasons
        self.flight = None
        if fresh:
            self.limit_from = self.last_at = now

    def deadline(self) -> float | None:
        """When this is due; None while nothing is pending or a batch is being worked on."""
        if self.first_at is None or self.flight is not None:
            return None
        if self.held is not None:
            at = min(self.last_at + HELD_QUIET_S, self.limit_from + HELD_LIMIT_S)
        elif self.urgent:
            at = self.first_at
        else:
            lone = not self.rescan and len(self.paths) < 2 and self.reasons <= _LONE_KINDS
            quiet = QUIET_FILE_S if lone else QUIET_BURST_S
            at = min(self.last_at + quiet, self.limit_from + FLUSH_S)
        return max(at, self.not_before)


class Inbox:
    """Coalesces hints per worktree and says when to look.

    A batch that `due` hands out stays in flight: further hints of its worktree gather, and nothing more
    is due there until `done`. `hold`, `lock` and `failed` put the batch in flight back, so that
    no hint is lost whatever the caller meets.
    """

    def __init__(self) -> None:
        self._pending: dict[int, _Pending] = {}

    def offer(self, hint: Hint, now: float) -> None:
        """Take one hint."""
        pending = self._of(hint.worktree)
        paths: frozenset[bytes] | None = frozenset()
        if hint.kind in _RESCAN_KINDS or (hint.kind == "path" and hint.path is None):
            paths = None
        elif hint.kind == "path" and hint.path is not None:
            paths = frozenset((hint.path,))
        pending.add(paths, frozenset((hint.kind,)), now)
        pending.last_at = now

    def due(self, now: float) -> list[Batch]:
        """Hand out what has been quiet for long enough, oldest first."""
        ready = []
        for worktree, pending in self._pending.items():
            deadline = pending.deadline()
            if deadline is None or deadline > now:
                continue
            assert pending.first_at is not None
            reasons = frozenset(pending.reasons | ({"held"} if pending.held is not None else set()))
            paths = None if pending.rescan else frozenset(pending.paths)
            pending.flight = Batch(worktree, paths, reasons, pending.first_at)
            pending.paths, pending.rescan, pending.reasons = set(), False, set()
            pending.first_at, pending.urgent = None, False
            ready.append(pending.flight)
        return sorted(ready, key=lambda batch: batch.first_at)

    def next_deadline(self) -> float | None:
        """When `due` has something next, if nothing more is offered; None: not before another call."""
        deadlines = [at for pending in self._pending.values() if (at := pending.deadline()) is not None]
        return min(deadlines, default=None)

    def done(self, worktree: int) -> None:
        """The batch in flight is in the rows."""
        pending = self._of(worktree)
        pending.flight = None
        pending.not_before = pending.backoff_s = 0.0

    def failed(self, worktree: int, now: float, retry_s: float) -> None:
        """The batch in flight could not be applied: due again, not before `retry_s` from now."""
        pending = self._of(worktree)
        pending.land(now)
        pending.not_before = now + retry_s

    def lock(self, worktree: int, since: float, now: float) -> bool:
        """Git's lock was seen, unchanged since `since`: back off?

        True: the batch in flight was put back and is due again soon. False: the lock has not changed for
        30 s; pass by it, and report it.
        """
        pending = self._of(worktree)
        if now - since >= LOCK_LIMIT_S:
            return False
        pending.land(now)
        pending.backoff_s = min(max(pending.backoff_s * 2, LOCK_BACKOFF_S), LOCK_BACKOFF_MAX_S)
        pending.not_before = min(now + pending.backoff_s, since + LOCK_LIMIT_S)
        return True

    def hold(self, worktree: int, reason: str, now: float) -> None:
        """A git operation (`reason`: rebase, merge …) is under way: put back, only collect, until `release`.

        A batch that is due all the same, after 60 s of quiet, has the reason "held": apply it and call
        `done`, not `hold` again.
        """
        pending = self._of(worktree)
        pending.land(now)
        pending.limit_from = now
        if pending.held is None:
            pending.last_at = now
        pending.held = reason

    def release(self, worktree: int, now: float) -> None:
        """The operation ended."""
        pending = self._of(worktree)
        if pending.held is None:
            return
        pending.held = None
        pending.add(None, frozenset(("rescan",)), now)
        pending.limit_from = now

    def held(self, worktree: int) -> str | None:
        """The operation that is waited for."""
        pending = self._pending.get(worktree)
        return None if pending is None else pending.held

    def flush(self, worktree: int, now: float) -> None:
        """Skip the quiet time; a batch comes even if nothing is pending. Holds and locks stay."""
        pending = self._of(worktree)
        pending.add(frozenset(), frozenset(("flush",)), now)
        pending.urgent = True

    def forget(self, worktree: int) -> None:
        """Drop everything about a worktree that is no longer registered."""
        self._pending.pop(worktree, None)

    def __len__(self) -> int:
        """How many paths and rescans are pending."""
        return sum(
            max(1, len(pending.paths)) for pending in self._pending.values() if pending.first_at is not None
        )

    def _of(self, worktree: int) -> _Pending:
        return self._pending.setdefault(worktree, _Pending())
