"""The parser process: reads the blobs of a first index on another core than the one that writes rows."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from headwatch.child import Child
from headwatch.parent import serve
from headwatch_indexer.prepare import Raw, prepare
from headwatch_indexer.store.content import Source

Message = dict[str, Any]


class ParserProcess:
    """Parses batches in a child, which is started with the first one and ended by `close`."""

    def __init__(self) -> None:
        self._child: Child | None = None

    def __call__(self, batch: list[Raw]) -> Callable[[], list[Source]]:
        """Begin a batch; the call that is returned waits for it. Raises ChildDied when the process dies."""
        if self._child is None or not self._child.alive:
            self._child = Child("headwatch.parsing")
            self._child.start()
        answer = self._child.submit({"op": "parse", "batch": batch})
        return lambda: list(answer.result()["sources"])

    def close(self) -> None:
        if self._child is not None:
            self._child.stop(grace_s=1.0)
            self._child = None


def _parse(message: Message) -> Message:
    return {"sources": prepare(message["batch"])}


if __name__ == "__main__":
    serve(int(sys.argv[1]), {"parse": _parse})
