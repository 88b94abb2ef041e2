"""When passes are made, one after the other, and what those hear who wait for one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headwatch.dispatch import Dispatcher
from headwatch.hints import Hint, Target
from headwatch_indexer.errors import HeadwatchError
from support.eventually import eventually

Message = dict[str, Any]


class Stage:
    """A dispatcher whose passes are the test's: `answers` are theirs, in order, the last one again and again."""

    def __init__(self, folder: Path) -> None:
        self.target = Target(1, str(folder), str(folder / "git"), str(folder / "git"))
        (folder / "git").mkdir()
        self.answers: list[Message] = [{}]
        self.passes: list[bool] = []  # full?
        self.marks: list[tuple[str, str | None]] = []
        self.done: Callable[[int, Message], None] = lambda _worktree, _answer: None
        self.gate = threading.Event()  # passes wait for it
        self.gate.set()
        self.failures: list[BaseException] = []
        self.dispatcher = Dispatcher(
            self._run, self._mark, lambda worktree, answer: self.done(worktree, answer)
        )
        self.dispatcher.failed = self.failures.append

    def _run(self, _worktree: int, full: bool) -> Message:
        self.passes.append(full)
        self.gate.wait(30)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def _mark(self, _target: Target, state: str, reason: str | None) -> None:
        self.marks.append((state, reason))

    def wait(self) -> bool:
        return self.dispatcher.wait(1, self.dispatcher.request(1), 30)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    stage.dispatcher.add(stage.target)
    stage.dispatcher.start()
    yield stage
    stage.gate.set()
    stage.dispatcher.stop()


def test_a_request_is_a_pass_that_starts_later(stage: Stage) -> None:
    """A pass that is under way when it is asked for is no answer: it may have looked already."""
    assert stage.wait()
    stage.gate.clear()
    before = len(stage.passes)
    stage.dispatcher.offer(Hint(1, "path", b"a"))
    eventually(lambda: len(stage.passes) == before + 1, "a pass is under way")
    ticket = stage.dispatcher.request(1)
    assert not stage.dispatcher.wait(1, ticket, 0.01)
    stage.gate.set()
    assert stage.dispatcher.wait(1, ticket, 30)
    assert len(stage.passes) == before + 2


def test_a_failed_pass_is_made_again(stage: Stage) -> None:
    """A pass that fails is due again soon, as full as it was, and says why it waits."""
    assert stage.wait()
    stage.passes.clear()
    stage.answers = [{"error": "moving", "again": True}, {"error": "moving", "again": True}, {}]
    assert stage.dispatcher.wait(1, stage.dispatcher.request(1, full=True), 30)
    assert stage.passes == [True, True, True]
    assert stage.dispatcher.problem(1) is None


def test_who_waits_hears_of_a_removal(stage: Stage) -> None:
    """A worktree that is removed ends every wait for it; the pass under way is nobody's."""
    stage.gate.clear()
    heard: list[str] = []

    def wait() -> None:
        try:
            stage.wait()
        except HeadwatchError as exc:
            heard.append(exc.message)

    thread = threading.Thread(target=wait)
    thread.start()
    eventually(lambda: stage.passes, "a pass is under way")
    stage.dispatcher.remove(1)
    thread.join(30)
    assert heard == ["the worktree is no longer registered"]


def test_a_missing_root_ends_a_wait(stage: Stage) -> None:
    """A root that is gone is an error at once, not a time-out."""
    stage.answers = [{"missing": "it is not there"}]
    with pytest.raises(HeadwatchError, match="it is not there"):
        stage.wait()
    stage.answers = [{}]
    assert stage.wait()


def test_a_hint_is_marked_once(stage: Stage) -> None:
    """The first hint after a pass takes `fresh` back; more hints write nothing."""
    assert stage.wait()
    stage.gate.clear()
    stage.marks.clear()
    for path in (b"a", b"b", b"c"):
        stage.dispatcher.offer(Hint(1, "path", path))
    eventually(lambda: stage.marks, "it is marked")
    assert stage.marks == [("pending", "changes are being read")]


def test_a_pass_that_cannot_be_reported(stage: Stage) -> None:
    """A database that goes between a pass and its report ends nothing: passes go on."""

    def away(_worktree: int, _answer: Message) -> None:
        raise HeadwatchError("the database is away", hint="wait")

    stage.done = away
    assert stage.wait()
    assert stage.wait()
    assert stage.failures == []


def test_a_defect_ends_the_daemon(stage: Stage) -> None:
    """An error that nobody expects is told to the daemon, and whoever waits hears of the end."""

    def defect(_worktree: int, _answer: Message) -> None:
        raise KeyError("a defect")

    assert stage.wait()
    stage.done = defect
    stage.dispatcher.request(1)
    eventually(lambda: stage.failures, "the daemon is told")
    with pytest.raises(HeadwatchError, match="the daemon is stopping"):
        stage.wait()
