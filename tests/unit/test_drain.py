from __future__ import annotations

from pathlib import Path

import pytest

from headwatch.drain import ATTEMPTS, Drain, Step
from headwatch_indexer.errors import Unreachable
from support.encoders import DIM, FakeEncoder
from support.vector_queue import SqliteQueue


def test_everything_gets_one_vector(tmp_path: Path) -> None:
    """A drained queue has exactly one vector for each content."""
    queue = SqliteQueue.create(tmp_path / "q", (f"def f{n}(): pass" + " # x" * n for n in range(300)))
    done = _drain(Drain(FakeEncoder(), queue))
    assert done == Step(embedded=300, buried=0, drained=True)
    assert queue.saved() == dict.fromkeys(range(1, 301), 1)
    assert queue.shapes() == {(DIM, 1.0)}


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("POISON", "ValueError: cannot tokenize this"),
        ("NAN", "BadVector: the model gave a vector that is not finite"),
        ("ZERO", "BadVector: the model gave a vector of zero length"),
    ],
)
def test_a_bad_chunk_is_isolated_and_given_up(tmp_path: Path, kind: str, reason: str) -> None:
    """A chunk that fails three times is buried with its reason; its neighbours are embedded, once."""
    texts = [f"text {n}" for n in range(50)]
    texts[17] = f"the {kind} one"
    queue = SqliteQueue.create(tmp_path / "q", texts)
    assert _drain(Drain(FakeEncoder(), queue)) == Step(embedded=49, buried=1, drained=True)
    assert set(queue.saved().values()) == {1}
    assert list(queue.dead()) == [texts[17]]
    assert queue.dead()[texts[17]].startswith(reason)


def test_only_bad_chunks_come_to_an_end(tmp_path: Path) -> None:
    """A queue of nothing but bad chunks is emptied into the dead letters, without an endless retry."""
    queue = SqliteQueue.create(tmp_path / "q", [f"POISON {n}" for n in range(20)])
    assert _drain(Drain(FakeEncoder(), queue)).buried == 20
    assert queue.saved() == {}


def test_a_broken_model_buries_nothing(tmp_path: Path) -> None:
    """When the model fails on everything, that error rises and no chunk is blamed."""
    queue = SqliteQueue.create(tmp_path / "q", ["one", "two"])
    with pytest.raises(RuntimeError, match="device is lost"):
        _drain(Drain(FakeEncoder(broken=True), queue))
    assert queue.dead() == {}


def test_a_lost_database_loses_no_vector(tmp_path: Path) -> None:
    """Vectors that could not be saved are saved by a later step, and not computed again."""
    queue = SqliteQueue.create(tmp_path / "q", ["one", "two", "three"])
    announced: list[list[int]] = []

    def leave(ids: list[int]) -> None:
        announced.append(ids)
        queue.away.touch()

    drain = Drain(FakeEncoder(), queue, announce=leave)
    for _ in range(2):
        with pytest.raises(Unreachable):
            drain.step()
    queue.away.unlink()
    assert _drain(drain).embedded == 3
    assert [sorted(ids) for ids in announced if ids] == [[1, 2, 3]]
    assert set(queue.saved().values()) == {1}


def test_what_the_process_died_on_is_tried_alone(tmp_path: Path) -> None:
    """Suspects are embedded one by one, after the others; one that was deadly three times is buried untried."""
    queue = SqliteQueue.create(tmp_path / "q", ["one", "two", "three", "KILL"])
    announced: list[list[int]] = []
    drain = Drain(FakeEncoder(), queue, announce=announced.append, suspects={2: 0, 4: ATTEMPTS})
    assert _drain(drain) == Step(embedded=3, buried=1, drained=True)
    assert [sorted(ids) for ids in announced if ids] == [[1, 3], [2]]
    assert queue.dead() == {"KILL": "the process died while embedding it"}


def test_a_failed_content_that_vanished_is_forgotten(tmp_path: Path) -> None:
    """A suspect that the queue no longer lists does not keep the drain from ending."""
    queue = SqliteQueue.create(tmp_path / "q", ["one"])
    assert _drain(Drain(FakeEncoder(), queue, suspects={99: 1})).drained


def _drain(drain: Drain) -> Step:
    """Step until drained; adds the steps up."""
    embedded = buried = 0
    for _ in range(1000):
        step = drain.step()
        embedded, buried = embedded + step.embedded, buried + step.buried
        if step.drained:
            return Step(embedded, buried, drained=True)
    raise AssertionError("not drained after 1000 steps")
