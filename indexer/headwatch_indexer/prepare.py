"""Parsing ahead: the next blobs are read while Postgres takes the rows of the last ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from headwatch_indexer import symbols
from headwatch_indexer.store.content import Source

Raw = tuple[str, str, bytes]  # blob id, language, content
Prepare = Callable[[list[Raw]], Callable[[], list[Source]]]  # begins at once; the call it returns waits

_AHEAD = 3  # batches under way: bounds memory


def prepare(batch: Iterable[Raw]) -> list[Source]:
    """Parse blobs and count the tokens of their chunks."""
    return [
        Source.of(oid, len(content), symbols.parse(content, language)) for oid, language, content in batch
    ]


def ahead(batches: Iterable[list[Raw]], begin: Prepare | None = None) -> Iterator[list[Source]]:
    """Yield batches in order, each prepared while the caller works on those before it.

    `begin` may hand a batch to another process; without it a thread does the work.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="parse") as pool:
        start = begin or (lambda batch: pool.submit(prepare, batch).result)
        under_way: deque[Callable[[], list[Source]]] = deque()
        for batch in batches:
            under_way.append(start(batch))
            if len(under_way) > _AHEAD:
                yield under_way.popleft()()
        while under_way:
            yield under_way.popleft()()
