"""A child for tests: `python -m support.child_process <fd>`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

from headwatch.parent import Message, Parent
from headwatch_indexer.errors import NotFresh


def main(fd: int) -> None:
    parent = Parent(fd, urgent=lambda message: bool(message.get("urgent")))
    gate = threading.Event()

    def answer_urgent() -> None:
        while True:
            if (request := parent.take_urgent()) is not None:
                gate.set()
                request.reply({"urgent": True})

    def tell(message: Message) -> Message:
        parent.notify({"told": message["what"]})
        return {}

    def spawn(_message: Message) -> Message:
        """Start a process that would outlive this one."""
        return {"pid": subprocess.Popen(["sleep", "1000"], stdout=subprocess.DEVNULL).pid}

    def wait_for_urgent(_message: Message) -> Message:
        return {"opened": gate.wait(30)}

    def refuse(_message: Message) -> Message:
        raise NotFresh("could not", hint="do this")

    def break_down(_message: Message) -> Message:
        raise KeyError("a defect")

    def hang(_message: Message) -> Message:
        signal.pause()
        return {}

    threading.Thread(target=answer_urgent, daemon=True).start()
    parent.serve(
        {
            "echo": lambda message: {"echo": message["what"]},
            "environment": lambda _message: {"names": list(os.environ), "path": sys.path[0]},
            "tell": tell,
            "spawn": spawn,
            "wait_for_urgent": wait_for_urgent,
            "refuse": refuse,
            "break_down": break_down,
            "hang": hang,
        }
    )


if __name__ == "__main__":
    main(int(sys.argv[1]))
