"""Turn contents that have no vector into vectors, one short batch a step."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import structlog

from headwatch_indexer.embed import Encoder, batches, unit_rows

log = structlog.get_logger()
Row: TypeAlias = tuple[int, str]  # content id, text

ATTEMPTS = 3  # failures of a content on its own before it is given up
STEP_S = 0.2  # of work a batch: whatever else the process has to do waits no longer
FETCH_S = 2.0  # of work that is fetched at once, and sorted by length
_FIRST_RATE = 10_000.0  # tokens a second, before anything was measured
_CHARACTERS_PER_TOKEN = 3  # of code, about
_PROBE = "def add(left, right):\n    return left + right"


class VectorQueue(Protocol):
    """Contents without a vector. Any call may raise Unreachable; the same call may work later."""

    def next(self, limit: int) -> list[Row]:
        """List up to `limit` of them, nearest to the user's work first; what is saved is not listed again."""
        ...

    def save(self, rows: Sequence[tuple[int, Sequence[float]]]) -> int:
        """Store vectors of contents that the last `next` listed; returns how many are new."""
        ...

    def bury(self, content_id: int, why: str, attempts: int = ATTEMPTS) -> None:
        """Give a content up for good, with the reason."""
        ...

    def pending(self) -> int:
        """Count what has no vector and is not given up."""
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """What one step did."""

    embedded: int = 0
    buried: int = 0
    drained: bool = False  # nothing was left to do


class Drain:
    """Takes batches out of a queue, isolates contents that fail, and gives those up that fail three times.

    `announce` gets the ids of a batch before it is computed (and none after it), so that whoever watches
    this process knows what it died on; `suspects` are ids that it died on before, with how often each was
    alone then: they are tried one by one.
    """

    def __init__(
        self,
        encoder: Encoder,
        queue: VectorQueue,
        *,
        announce: Callable[[list[int]], None] = lambda ids: None,
        suspects: Mapping[int, int] | None = None,
    ) -> None:
        self._encoder = encoder
        self._queue = queue
        self._announce = announce
        self._suspects = dict(suspects or {})
        self._failures: Counter[int] = Counter(self._suspects)
        self._reasons: dict[int, str] = dict.fromkeys(self._suspects, "the process died while embedding it")
        self._planned: list[list[Row]] = []
        self._unsaved: list[tuple[int, list[float]]] = []
        self._rate = _FIRST_RATE  # tokens a second
        self._mean = 100.0  # tokens a content

    def step(self) -> Step:
        """Do one batch. Raises Unreachable with nothing lost: the next call goes on from there."""
        embedded = self._save()
        buried = self._bury()
        if not self._planned:
            rows = self._queue.next(max(16, min(int(self._rate * FETCH_S / self._mean), 8192)))
            if not rows:
                self._failures.clear()  # what failed before is gone
                return Step(embedded, buried, drained=True)
            self._planned = self._plan(rows)
        batch = self._planned.pop()
        self._announce([content_id for content_id, _ in batch])
        self._embed(batch)
        self._announce([])
        return Step(embedded + self._save(), buried + self._bury())

    def _plan(self, rows: list[Row]) -> list[list[Row]]:
        """Batches of STEP_S each, the last one to be done first; what failed before is alone, and done last."""
        costs = [self._cost(text) for _, text in rows]
        self._mean = sum(costs) / len(costs)
        usual = [n for n, (content_id, _) in enumerate(rows) if content_id not in self._failures]
        plan = batches([costs[n] for n in usual], len(rows), max(int(self._rate * STEP_S), 1))
        alone = [[row] for row in rows if row[0] in self._failures]
        return alone + [[rows[usual[n]] for n in batch] for batch in plan]

    def _embed(self, rows: list[Row]) -> None:
        """Compute a batch; halves it where it fails, down to the content that does."""
        started = time.monotonic()
        try:
            vectors = unit_rows(
                self._encoder.encode([text for _, text in rows]), len(rows), self._encoder.dim
            )
        except Exception as exc:  # whatever a model raises on a text must not stop the others
            if len(rows) > 1:
                self._embed(rows[: len(rows) // 2])
                self._embed(rows[len(rows) // 2 :])
            else:
                self._failed(rows[0][0], exc)
            return
        self._unsaved += zip((content_id for content_id, _ in rows), vectors.tolist(), strict=True)
        for content_id, _ in rows:
            self._failures.pop(content_id, None)
        self._learn(sum(self._cost(text) for _, text in rows), time.monotonic() - started)

    def _failed(self, content_id: int, exc: Exception) -> None:
        """Count a failure against a content, unless the model fails on everything: then let it rise."""
        self._announce([])
        self._encoder.encode([_PROBE])
        self._failures[content_id] += 1
        self._reasons[content_id] = f"{type(exc).__name__}: {exc}"
        log.warning("not embedded", content=content_id, reason=self._reasons[content_id])

    def _learn(self, tokens: int, seconds: float) -> None:
        if tokens >= self._rate * STEP_S / 4:  # less is too little to tell
            self._rate += 0.5 * (tokens / max(seconds, 1e-6) - self._rate)

    def _save(self) -> int:
        if not self._unsaved:
            return 0
        self._queue.save(self._unsaved)
        count, self._unsaved = len(self._unsaved), []
        return count

    def _bury(self) -> int:
        done = [content_id for content_id, count in self._failures.items() if count >= ATTEMPTS]
        for content_id in done:
            self._queue.bury(content_id, self._reasons[content_id])
            del self._failures[content_id]
            self._planned = [batch for batch in self._planned if batch[0][0] != content_id]
        return len(done)

    def _cost(self, text: str) -> int:
        """About how many tokens a text is."""
        return min(len(text) // _CHARACTERS_PER_TOKEN + 4, self._encoder.max_tokens)
