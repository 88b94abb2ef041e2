from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headwatch.child import RequestFailed
from headwatch.embedder import Embedder, EmbedderNotReady
from support.encoders import DIM
from support.eventually import eventually
from support.stdlib_code import functions
from support.vector_queue import SqliteQueue

TESTS = str(Path(__file__).parents[1])
Start = Callable[..., Embedder]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Make embedders on the queue in tmp_path / "q", with the fake model unless another loader is named."""
    made: list[Embedder] = []

    def make(
        loader: str = "support.encoders:load_fake", model: str | None = None, **options: float
    ) -> Embedder:
        embedder = Embedder(
            str(tmp_path / "q"),
            model=model,
            model_id=1,
            loader=loader,
            queue="support.vector_queue:open_queue",
            environment={"PYTHONPATH": TESTS},
            **options,  # type: ignore[arg-type]  # idle_exit_s, rss_limit_bytes
        )
        made.append(embedder)
        return embedder

    yield make
    for embedder in made:
        embedder.stop()


def test_work_drains_the_queue(start: Start, tmp_path: Path) -> None:
    """One nudge starts the process and embeds everything; a later one takes what has come since."""
    queue = SqliteQueue.create(tmp_path / "q", [f"text {n}" for n in range(500)])
    embedder = start()
    assert embedder.pid is None
    embedder.work()
    eventually(lambda: not embedder.state()["working"], "drained")
    assert len(queue.saved()) == embedder.counters["chunks_embedded"] == 500
    assert embedder.ready.is_set()
    queue.add("one more")
    embedder.work()
    eventually(lambda: len(queue.saved()) == 501, "the new one embedded")
    state = embedder.state()
    assert (state["loaded"], state["device"], state["pending"], state["error"]) == (True, "cpu", 0, None)
    assert state["rss_bytes"] > 0


def test_query_starts_the_process_and_is_not_waited_for(start: Start, tmp_path: Path) -> None:
    """A query finds no process: no answer now, and one soon after."""
    SqliteQueue.create(tmp_path / "q", [])
    embedder = start()
    asked = time.monotonic()
    assert embedder.embed_query("where is it", timeout_s=0.01) is None
    assert time.monotonic() - asked < 0.3
    assert embedder.ready.wait(60)
    vector = embedder.embed_query("where is it", timeout_s=30)
    assert vector is not None
    assert len(vector) == DIM
    assert embedder.embed(["where is it"], "query") == [vector]
    assert len(embedder.embed(["a", "b", "c"], "document")) == 3
    assert embedder.embed([]) == []


def test_a_query_that_fails_does_not_end_the_process(start: Start, tmp_path: Path) -> None:
    """A query that the model cannot embed has no vector; texts tell the reason."""
    SqliteQueue.create(tmp_path / "q", [])
    embedder = start()
    with pytest.raises(RequestFailed, match="cannot tokenize this"):
        embedder.embed(["POISON"])
    assert embedder.embed_query("POISON", timeout_s=30) is None
    assert embedder.embed_query("fine", timeout_s=30) is not None


def test_a_deadly_chunk_is_found_and_given_up(start: Start, tmp_path: Path) -> None:
    """A chunk that kills the process is isolated over restarts and buried; all others are embedded."""
    queue = SqliteQueue.create(tmp_path / "q", ["one", "two", "KILL", "three"])
    embedder = start()
    embedder.work()
    eventually(lambda: queue.dead(), "buried")
    eventually(lambda: not embedder.state()["working"], "drained")
    assert queue.dead() == {"KILL": "the process died while embedding it"}
    assert set(queue.saved()) == {1, 2, 4}
    assert embedder.counters["deaths"] == 4  # once in a batch, three times alone
    assert embedder.state()["error"] is None


def test_a_missing_model_is_reported_and_not_tried_in_a_loop(start: Start, tmp_path: Path) -> None:
    """A model that cannot be loaded shows in the state, with its hint; askers learn it at once."""
    SqliteQueue.create(tmp_path / "q", ["text"])
    embedder = start(model="missing")
    embedder.work()
    eventually(lambda: embedder.state()["error"], "reported")
    assert (embedder.state()["error"], embedder.state()["hint"]) == (
        "cannot load model missing",
        "name another one",
    )
    eventually(lambda: embedder.pid is None, "gone")
    assert embedder.embed_query("x", timeout_s=30) is None
    with pytest.raises(EmbedderNotReady, match="cannot load model missing"):
        embedder.embed(["x"], timeout_s=30)
    assert embedder.pid is None
    assert embedder.counters["starts"] == embedder.counters["deaths"] == 0


def test_a_broken_model_blames_no_chunk(start: Start, tmp_path: Path) -> None:
    """A model that fails on everything ends the process again and again; after three times the state says so."""
    queue = SqliteQueue.create(tmp_path / "q", ["one", "two"])
    embedder = start(model="broken")
    embedder.work()
    eventually(lambda: embedder.state()["error"], "reported")
    assert "died 3 times in a row" in embedder.state()["error"]
    assert queue.dead() == {}


def test_process_exits_when_idle_and_comes_back(start: Start, tmp_path: Path) -> None:
    """Unused, the process ends by itself; the next work starts it again."""
    queue = SqliteQueue.create(tmp_path / "q", ["text"])
    embedder = start(idle_exit_s=0.2)
    embedder.work()
    eventually(lambda: queue.saved(), "embedded")
    eventually(lambda: embedder.pid is None and not embedder.ready.is_set(), "idle exit")
    assert embedder.state()["loaded"] is False
    queue.add("another")
    embedder.work()
    eventually(lambda: len(queue.saved()) == 2, "embedded again")
    assert (embedder.counters["starts"], embedder.counters["deaths"]) == (2, 0)


def test_process_is_recycled_when_it_grew(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond its memory limit the process ends between two batches, and another one goes on."""
    monkeypatch.setenv("HW_TEST_GROW_BYTES", str(600 * 2**20))
    queue = SqliteQueue.create(tmp_path / "q", [f"text {n}" for n in range(250)])
    embedder = start(loader="support.encoders:load_growing", rss_limit_bytes=0)
    embedder.work()
    eventually(lambda: not embedder.state()["working"], "drained")
    assert set(queue.saved().values()) == {1}
    assert len(queue.saved()) == 250
    assert embedder.counters["starts"] > 1
    assert embedder.counters["deaths"] == 0


def test_work_waits_for_a_database_that_is_away(start: Start, tmp_path: Path) -> None:
    """Without its database the process waits, answers queries, and goes on when it is back."""
    queue = SqliteQueue.create(tmp_path / "q", ["text"])
    queue.away.touch()
    embedder = start()
    embedder.work()
    assert embedder.embed_query("still here", timeout_s=60) is not None
    queue.away.unlink()
    eventually(lambda: queue.saved(), "embedded")
    assert embedder.counters["deaths"] == 0


def test_stop_ends_the_process_at_any_time(start: Start, tmp_path: Path) -> None:
    """Stopped while it starts, or never started: stop returns, and nothing starts again."""
    SqliteQueue.create(tmp_path / "q", ["text"])
    never, starting = start(), start()
    never.stop()
    starting.work()
    starting.stop()
    starting.work()
    starting.ensure_started()
    assert starting.embed_query("x", timeout_s=0.05) is None
    assert starting.pid is None


@pytest.mark.model
def test_kill_resumes_and_queries_are_answered_meanwhile(start: Start, tmp_path: Path) -> None:
    """kill -9 amid the work costs the batch in flight and no more; a query waits little beside a batch."""
    texts = functions(500)
    queue = SqliteQueue.create(tmp_path / "q", texts)
    record = tmp_path / "embedded"
    embedder = start("support.encoders:load_recording", str(record))
    embedder.work()
    eventually(lambda: len(queue.saved()) > 40, "some are embedded")
    waits = []
    for n in range(5):
        asked = time.monotonic()
        assert embedder.embed_query(f"open file number {n}", timeout_s=30) is not None
        waits.append(time.monotonic() - asked)
    assert embedder.state()["working"], "the work was over before the queries were: give it more texts"
    assert sorted(waits)[2] < 0.5, waits
    assert embedder.pid is not None
    os.kill(embedder.pid, signal.SIGKILL)
    eventually(lambda: not embedder.state()["working"], "drained")
    assert len(queue.saved()) == len(texts)
    assert queue.shapes() == {(384, 1.0)}
    assert embedder.counters["deaths"] == 1
    assert embedder.counters["starts"] == 2
    times = Counter(record.read_text().splitlines())
    twice = sum(count - 1 for count in times.values())
    assert max(times.values()) <= 2
    assert twice <= 64, "more than one batch was computed again"
    assert embedder.counters["dead_letters"] == 0


@pytest.mark.model
def test_the_real_process_names_its_model(start: Start, tmp_path: Path) -> None:
    """With the default loader, the packaged model answers; queries and texts land near each other."""
    SqliteQueue.create(tmp_path / "q", [])
    embedder = start("headwatch_indexer.embed:load")
    near, far = embedder.embed(
        ["def read_file(path): return open(path).read()", "class Colour(Enum): RED = 1"]
    )
    query = embedder.embed_query("read a file", timeout_s=60)
    assert query is not None
    state = embedder.state()
    assert (state["name"], state["dim"]) == ("all-MiniLM-L6-v2", 384)
    assert sum(map(float.__mul__, query, near)) > sum(map(float.__mul__, query, far)) + 0.2
