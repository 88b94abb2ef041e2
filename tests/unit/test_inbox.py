"""The inbox coalesces, waits for quiet, and loses nothing."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headwatch.hints import Hint
from headwatch.inbox import (
    FLUSH_S,
    HELD_QUIET_S,
    LOCK_LIMIT_S,
    MAX_PATHS,
    QUIET_BURST_S,
    QUIET_FILE_S,
    Batch,
    Inbox,
)


def path(name: bytes, worktree: int = 1) -> Hint:
    return Hint(worktree, "path", name)


def only(batches: list[Batch]) -> Batch:
    assert len(batches) == 1
    return batches[0]


def test_a_lone_file_waits_60_ms() -> None:
    """One saved file is due 60 ms after its last event, not earlier."""
    inbox = Inbox()
    inbox.offer(path(b"a"), 10.0)
    inbox.offer(path(b"a"), 10.02)
    assert inbox.next_deadline() == pytest.approx(10.02 + QUIET_FILE_S)
    assert inbox.due(10.07) == []
    batch = only(inbox.due(10.081))
    assert batch == Batch(1, frozenset({b"a"}), frozenset({"path"}), 10.0)


@pytest.mark.parametrize("second", [path(b"b"), Hint(1, "git", b"HEAD"), Hint(1, "rescan")])
def test_bursts_and_git_signals_wait_250_ms(second: Hint) -> None:
    """Two paths, a git signal or a rescan need the longer quiet time."""
    inbox = Inbox()
    inbox.offer(path(b"a"), 0.0)
    inbox.offer(second, 0.01)
    assert inbox.next_deadline() == pytest.approx(0.01 + QUIET_BURST_S)


def test_continuous_writes_flush_after_two_seconds() -> None:
    """A writer that never pauses is looked at 2 s after its first hint, and again 2 s later."""
    inbox = Inbox()
    now, flushed = 0.0, []
    while now < 10.0:
        inbox.offer(path(b"log"), now)
        for batch in inbox.due(now):
            flushed.append(now - batch.first_at)
            inbox.done(batch.worktree)
        now += 0.03
    assert len(flushed) == 4
    assert max(flushed) < FLUSH_S + 0.031


def test_more_than_512_paths_become_a_rescan() -> None:
    """The inbox keeps 512 paths a worktree; one more makes the batch a rescan, in bounded memory."""
    inbox = Inbox()
    for n in range(MAX_PATHS):
        inbox.offer(path(b"%d" % n), 0.0)
    assert len(inbox) == MAX_PATHS
    inbox.offer(path(b"one more"), 0.0)
    assert len(inbox) == 1
    assert only(inbox.due(1.0)).paths is None


def test_worktrees_do_not_wait_for_each_other() -> None:
    """A burst in one worktree does not delay a lone save in another."""
    inbox = Inbox()
    for n in range(10):
        inbox.offer(path(b"%d" % n, worktree=1), 0.0)
    inbox.offer(path(b"a", worktree=2), 0.0)
    assert only(inbox.due(0.1)).worktree == 2
    assert only(inbox.due(0.3)).worktree == 1


def test_hints_during_a_pass_make_the_next_batch() -> None:
    """While a batch is in flight its worktree gathers; nothing is due there before it is done."""
    inbox = Inbox()
    inbox.offer(path(b"a"), 0.0)
    only(inbox.due(1.0))
    inbox.offer(path(b"b"), 1.1)
    assert inbox.next_deadline() is None
    assert inbox.due(9.0) == []
    inbox.done(1)
    assert only(inbox.due(9.0)).paths == {b"b"}


def test_a_failed_pass_comes_again_with_what_it_carried() -> None:
    """A batch that could not be applied is due again after the pause, joined with newer hints."""
    inbox = Inbox()
    inbox.offer(path(b"a"), 0.0)
    only(inbox.due(1.0))
    inbox.offer(path(b"b"), 1.1)
    inbox.failed(1, 1.2, retry_s=5.0)
    assert inbox.due(6.1) == []
    batch = only(inbox.due(6.3))
    assert batch.paths == {b"a", b"b"}
    assert batch.first_at == 0.0


def test_a_held_lock_backs_off_and_is_passed_by_after_30_s() -> None:
    """Under git's lock the batch is put back with growing pauses; a lock that never changes is passed by."""
    inbox = Inbox()
    inbox.offer(Hint(1, "git", b"index"), 100.0)
    now, tries = 100.0, []
    while True:
        deadline = inbox.next_deadline()
        assert deadline is not None
        now = max(now, deadline)
        only(inbox.due(now))
        tries.append(now)
        if not inbox.lock(1, 100.0, now):
            break
    assert tries[-1] == pytest.approx(100.0 + LOCK_LIMIT_S)
    assert 25 < len(tries) < 60
    inbox.done(1)
    assert inbox.next_deadline() is None


def test_a_rebase_becomes_one_batch() -> None:
    """Hints of an operation under way are collected and come as one batch at its release."""
    inbox = Inbox()
    inbox.offer(Hint(1, "git", b"rebase-merge"), 0.0)
    only(inbox.due(0.3))
    inbox.hold(1, "rebase", 0.3)
    assert inbox.held(1) == "rebase"
    now = 0.3
    for n in range(200):
        now = 0.3 + n * 0.1
        inbox.offer(path(b"f%d" % n), now)
        assert inbox.due(now) == []
    inbox.release(1, now + 0.1)
    assert inbox.held(1) is None
    assert inbox.due(now + 0.1) == []
    batch = only(inbox.due(now + 0.3))
    assert batch.paths is None
    assert batch.reasons == {"git", "path", "rescan"}


def test_a_paused_rebase_is_looked_at_after_a_minute_of_quiet() -> None:
    """A hold that lasts gives one batch after 60 s without a hint, and then no other for nothing."""
    inbox = Inbox()
    inbox.hold(1, "rebase", 0.0)
    inbox.offer(path(b"a"), 30.0)
    assert inbox.due(30.0 + HELD_QUIET_S - 1) == []
    batch = only(inbox.due(30.0 + HELD_QUIET_S))
    assert "held" in batch.reasons
    assert batch.paths == {b"a"}
    inbox.done(1)
    assert inbox.next_deadline() is None


def test_edits_during_an_endless_bisect_are_seen_within_ten_minutes() -> None:
    """A hold with a save every ten seconds is looked at all the same, now and then."""
    inbox = Inbox()
    inbox.hold(1, "bisect", 0.0)
    seen = 0
    for n in range(300):
        inbox.offer(path(b"a"), n * 10.0)
        for _ in inbox.due(n * 10.0):
            seen += 1
            inbox.done(1)
    assert 3 <= seen <= 5


def test_flush_skips_the_quiet_time() -> None:
    """Someone who waits is not kept waiting for quiet, and gets a pass even when nothing is pending."""
    inbox = Inbox()
    inbox.offer(path(b"a"), 0.0)
    inbox.flush(1, 0.001)
    batch = only(inbox.due(0.001))
    assert (batch.paths, batch.reasons) == ({b"a"}, {"path", "flush"})
    inbox.done(1)
    inbox.flush(1, 5.0)
    assert only(inbox.due(5.0)).paths == frozenset()


def test_flush_does_not_break_a_hold() -> None:
    """A rebase under way is waited for, by `flush` too."""
    inbox = Inbox()
    inbox.hold(1, "rebase", 0.0)
    inbox.offer(path(b"a"), 0.5)
    inbox.flush(1, 1.0)
    assert inbox.due(1.0) == []
    inbox.release(1, 2.0)
    assert only(inbox.due(2.0)).paths is None


def test_a_forgotten_worktree_is_never_due() -> None:
    """What was pending for a removed worktree is gone with it."""
    inbox = Inbox()
    inbox.offer(path(b"a"), 0.0)
    inbox.forget(1)
    assert inbox.next_deadline() is None
    assert inbox.due(100.0) == []


WORKTREES = st.integers(1, 3)
HINTS = st.builds(
    Hint,
    WORKTREES,
    st.sampled_from(["path", "git", "rescan", "ignore", "cookie", "worktrees", "gone"]),
    st.binary(min_size=1, max_size=1),
)


class Coverage(RuleBasedStateMachine):
    """Whatever is offered and however a pass ends, every hint is covered by a pass that began after it."""

    @initialize()
    def begin(self) -> None:
        self.inbox = Inbox()
        self.now = 0.0
        self.owed: dict[int, list[tuple[float, Hint]]] = {}  # offered, not yet in an applied batch
        self.flight: dict[int, tuple[Batch, list[tuple[float, Hint]]]] = {}

    @rule(hint=HINTS, pause=st.floats(0, 0.4))
    def offer(self, hint: Hint, pause: float) -> None:
        self.now += pause
        before = self.deadline()
        self.inbox.offer(hint, self.now)
        self.owed.setdefault(hint.worktree, []).append((self.now, hint))
        after = self.deadline()
        assert before is None or after is not None

    @rule(count=st.integers(500, 600), worktree=WORKTREES)
    def burst(self, count: int, worktree: int) -> None:
        for n in range(count):
            hint = Hint(worktree, "path", b"burst%d" % n)
            self.inbox.offer(hint, self.now)
            self.owed.setdefault(worktree, []).append((self.now, hint))

    @rule(pause=st.floats(0, 70))
    def look(self, pause: float) -> None:
        self.now += pause
        for batch in self.inbox.due(self.now):
            assert batch.worktree not in self.flight
            covered = self.owed.pop(batch.worktree, [])
            for at, hint in covered:
                assert at >= batch.first_at
                assert batch.paths is None or hint.kind != "path" or hint.path in batch.paths
                assert batch.paths is None or hint.kind in batch.reasons
                assert batch.paths is None or hint.kind not in ("rescan", "ignore", "gone")
            assert batch.paths is None or len(batch.paths) <= MAX_PATHS
            self.flight[batch.worktree] = (batch, covered)

    def back(self, worktree: int) -> None:
        flight = self.flight.pop(worktree, None)
        if flight is not None:
            self.owed.setdefault(worktree, []).extend(flight[1])

    @precondition(lambda self: self.flight)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        worktree = data.draw(st.sampled_from(sorted(self.flight)))
        del self.flight[worktree]
        self.inbox.done(worktree)

    @rule(worktree=WORKTREES, retry_s=st.floats(0, 5))
    def failed(self, worktree: int, retry_s: float) -> None:
        self.inbox.failed(worktree, self.now, retry_s)
        self.back(worktree)

    @rule(worktree=WORKTREES, age_s=st.floats(0, 40))
    def lock(self, worktree: int, age_s: float) -> None:
        if self.inbox.lock(worktree, self.now - age_s, self.now):
            assert age_s < LOCK_LIMIT_S
            self.back(worktree)

    @rule(worktree=WORKTREES)
    def hold(self, worktree: int) -> None:
        self.inbox.hold(worktree, "rebase", self.now)
        self.back(worktree)

    @rule(worktree=WORKTREES)
    def release(self, worktree: int) -> None:
        self.inbox.release(worktree, self.now)
        assert self.inbox.held(worktree) is None

    @rule(worktree=WORKTREES)
    def flush(self, worktree: int) -> None:
        self.inbox.flush(worktree, self.now)

    def deadline(self) -> float | None:
        return self.inbox.next_deadline()

    @invariant()
    def what_is_owed_has_a_deadline(self) -> None:
        """Nothing offered lies there without a time at which it is due, and that time is near."""
        if not hasattr(self, "inbox"):
            return
        idle = [worktree for worktree, hints in self.owed.items() if hints and worktree not in self.flight]
        deadline = self.deadline()
        if idle:
            assert deadline is not None
            assert deadline <= self.now + HELD_QUIET_S
        assert len(self.inbox) <= 3 * MAX_PATHS

    def teardown(self) -> None:
        """Every operation ends in the end, every pass too: then everything offered was handed out."""
        if not hasattr(self, "inbox"):
            return
        for worktree in (1, 2, 3):
            self.release(worktree)
            self.failed(worktree, 0.0)
        self.look(LOCK_LIMIT_S + FLUSH_S)
        assert not any(self.owed.values())


TestCoverage = Coverage.TestCase
TestCoverage.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
