"""How close embedding comes to the bare model: the same model, number type, threads and texts."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.conftest import Board
from headwatch.drain import Drain
from headwatch_indexer import embed
from support.stdlib_code import functions
from support.vector_queue import SqliteQueue

_TEXTS = 300
_ROUNDS = 3
_BARE_BATCH = 32  # the library's default


def test_embedding_rate(tmp_path: Path, board: Board) -> None:
    """Encoder and queue keep 90 % of the rate of sentence-transformers on length-sorted batches."""
    encoder = embed.load()
    assert isinstance(encoder, embed.SentenceEncoder)
    model = encoder._model
    texts = functions(_TEXTS)
    by_length = sorted(texts, key=len, reverse=True)
    drains = iter(range(_ROUNDS + 1))

    def bare() -> None:
        for start in range(0, _TEXTS, _BARE_BATCH):
            batch = by_length[start : start + _BARE_BATCH]
            model.encode(batch, batch_size=_BARE_BATCH, normalize_embeddings=True, show_progress_bar=False)

    def packed() -> None:
        encoder.encode(texts)

    def drained() -> None:
        queue = SqliteQueue.create(tmp_path / f"queue-{next(drains)}", texts)
        drain = Drain(encoder, queue)
        while not drain.step().drained:
            pass
        assert len(queue.saved()) == _TEXTS

    bare_s, packed_s, drained_s = _best_of(bare, packed, drained)
    goal = 0.9 * _TEXTS / bare_s
    board.tell(f"bare sentence-transformers, {encoder.device}", _TEXTS / bare_s, "texts/s")
    board.put("encoder, same texts", _TEXTS / packed_s, goal, "texts/s", higher_is_better=True)
    board.put("encoder and queue (SQLite)", _TEXTS / drained_s, goal, "texts/s", higher_is_better=True)


def test_query_latency(board: Board) -> None:
    """A query's vector leaves most of the 25 ms of a search to the database."""
    encoder = embed.load()
    queries = [text.partition("\n")[0].replace("_", " ").replace(".", " ") for text in functions(60)]
    encoder.encode_query(queries[0])
    times_ms = [_seconds(lambda query=query: encoder.encode_query(query)) * 1000 for query in queries]  # type: ignore[misc]
    board.put("query embedding, median", statistics.median(times_ms), 12.5, "ms")
    board.tell("query embedding, p95", statistics.quantiles(times_ms, n=20)[-1], "ms")


def _best_of(*ways: Callable[[], None]) -> list[float]:
    """The least seconds of each way over some rounds, taken in turns so that other load hits all alike."""
    for way in ways:
        way()
    rounds = [[_seconds(way) for way in ways] for _ in range(_ROUNDS)]
    return [min(times) for times in zip(*rounds, strict=True)]


def _seconds(way: Callable[[], object]) -> float:
    began = time.perf_counter()
    way()
    return time.perf_counter() - began
