from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from headwatch.child import Child, ChildDied, ChildSilent, RequestFailed, backoff_s
from support.eventually import eventually

TESTS = str(Path(__file__).parents[1])


@pytest.fixture(autouse=True)
def child_finds_support(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", TESTS)


@pytest.fixture
def child() -> Iterator[Child]:
    with Child("support.child_process") as child:
        yield child


def test_requests_are_answered(child: Child) -> None:
    """A request comes back with its own answer, large ones too."""
    assert child.request({"op": "echo", "what": "x"}, timeout_s=60) == {"echo": "x"}
    large = "y" * 5_000_000
    assert child.request({"op": "echo", "what": large}, timeout_s=60)["echo"] == large


def test_threads_get_their_own_answers(child: Child) -> None:
    """Many threads may ask at once; answers are matched by number."""
    with ThreadPoolExecutor(16) as threads:
        answers = threads.map(lambda n: child.request({"op": "echo", "what": n}, 60)["echo"], range(400))
    assert list(answers) == list(range(400))


def test_urgent_requests_overtake(child: Child) -> None:
    """An urgent request is answered while a long one is under way."""
    slow = child.submit({"op": "wait_for_urgent"})
    assert child.request({"op": "any", "urgent": True}, timeout_s=60) == {"urgent": True}
    assert slow.result(60) == {"opened": True}


def test_notices_reach_the_callback() -> None:
    """What the child tells unasked comes in order, before the answer that follows it."""
    told: queue.SimpleQueue[dict[str, object]] = queue.SimpleQueue()
    with Child("support.child_process", on_notice=told.put) as child:
        for n in range(3):
            child.request({"op": "tell", "what": n}, timeout_s=60)
        assert [told.get_nowait() for _ in range(3)] == [{"told": 0}, {"told": 1}, {"told": 2}]


def test_errors_of_the_child_keep_message_and_hint(child: Child) -> None:
    """A HeadwatchError arrives with its message, hint and exit code; the child goes on."""
    with pytest.raises(RequestFailed, match="could not") as failed:
        child.request({"op": "refuse"}, timeout_s=60)
    assert (failed.value.kind, failed.value.hint, failed.value.exit_code) == ("NotFresh", "do this", 3)
    assert child.request({"op": "echo", "what": 1}, timeout_s=60) == {"echo": 1}


@pytest.mark.parametrize(
    ("op", "problem"), [("break_down", "KeyError: 'a defect'"), ("dance", "no such request")]
)
def test_defects_are_answers_too(child: Child, op: str, problem: str) -> None:
    """An unexpected error or an unknown request fails that request alone."""
    with pytest.raises(RequestFailed, match=problem):
        child.request({"op": op}, timeout_s=60)
    assert child.request({"op": "echo", "what": 1}, timeout_s=60) == {"echo": 1}


def test_late_answers_are_dropped(child: Child) -> None:
    """A request that is not answered in time fails; its answer never reaches another request."""
    with pytest.raises(ChildSilent, match="wait_for_urgent"):
        child.request({"op": "wait_for_urgent"}, timeout_s=0.0)
    child.request({"op": "any", "urgent": True}, timeout_s=60)
    assert child.request({"op": "echo", "what": 2}, timeout_s=60) == {"echo": 2}


def test_death_fails_what_is_pending() -> None:
    """kill -9: pending requests fail with ChildDied, the callback gets the signal, new ones fail at once."""
    deaths: queue.SimpleQueue[int] = queue.SimpleQueue()
    with Child("support.child_process", on_death=deaths.put) as child:
        child.request({"op": "echo", "what": 1}, timeout_s=60)
        pending = child.submit({"op": "hang"})
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        with pytest.raises(ChildDied):
            pending.result(60)
        assert deaths.get(timeout=60) == -signal.SIGKILL
        assert not child.alive
        assert child.rss_bytes() == 0
        with pytest.raises(ChildDied):
            child.request({"op": "echo", "what": 1})


def test_stop_lets_the_child_end_by_itself() -> None:
    """A child that listens ends with 0."""
    child = Child("support.child_process")
    child.start()
    child.request({"op": "echo", "what": 1}, timeout_s=60)
    assert child.rss_bytes() > 0
    child.stop(grace_s=60)
    child.stop()
    assert child.returncode == 0


def test_stop_kills_a_child_that_hangs_with_its_children() -> None:
    """After the grace period a hanging child is killed, and so is what it had started."""
    child = Child("support.child_process")
    child.start()
    grandchild = child.request({"op": "spawn"}, timeout_s=60)["pid"]
    child.submit({"op": "hang"})
    child.stop(grace_s=0.1)
    assert child.returncode == -signal.SIGKILL
    eventually(lambda: _gone(grandchild), "grandchild gone")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_are_left_to_the_parent(child: Child, number: int) -> None:
    """Ctrl-C and a service manager's SIGTERM do not end a child behind its parent's back."""
    child.request({"op": "echo", "what": 1}, timeout_s=60)
    assert child.pid is not None
    os.kill(child.pid, number)
    assert child.request({"op": "echo", "what": 1}, timeout_s=60) == {"echo": 1}


def test_child_does_not_outlive_a_killed_parent() -> None:
    """kill -9 of the parent ends the child, even one that hangs, started by a thread that has ended."""
    owner = subprocess.Popen([sys.executable, "-m", "support.child_owner"], stdout=subprocess.PIPE, text=True)
    with owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert not _gone(pid)
        owner.kill()
    eventually(lambda: _gone(pid), "child gone")


def test_environment_comes_without_git(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """GIT_* variables do not reach children, others do, and the working directory shadows no module."""
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("HW_SOMETHING", "1")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "headwatch.py").write_text("raise SystemExit('shadowed')")
    with Child("support.child_process", environment={"HW_OTHER": "2"}) as child:
        answer = child.request({"op": "environment"}, timeout_s=60)
    assert {"HW_SOMETHING", "HW_OTHER"} <= set(answer["names"])
    assert "GIT_DIR" not in answer["names"]


def test_a_child_that_cannot_start_dies_at_once() -> None:
    """A module that does not exist is a death, not a hang."""
    with Child("headwatch.no_such_module") as child, pytest.raises(ChildDied):
        child.request({"op": "echo", "what": 1}, timeout_s=60)


def test_backoff_doubles_up_to_a_minute() -> None:
    """No failure, no wait; then 1, 2, 4 … 60 seconds."""
    assert [backoff_s(n) for n in (0, 1, 2, 3, 7, 1000)] == [0, 1, 2, 4, 60, 60]


def test_threads_leave_nothing_behind() -> None:
    """A stopped child leaves no thread."""
    with Child("support.child_process"):
        pass
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("child ")]


def _gone(pid: int) -> bool:
    """Whether a process has ended; nobody may reap it here, so a zombie has."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
