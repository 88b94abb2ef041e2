"""What moved HEAD: new lines of a reflog as transitions."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass

from headwatch_indexer.records import Transition

_LINE = re.compile(
    rb"(?P<old>[0-9a-f]{40}|[0-9a-f]{64}) (?P<new>[0-9a-f]{40}|[0-9a-f]{64}) "
    rb"(?:.* )?(?P<at>-?\d+) [+-]\d{4,}(?:\t(?P<message>.*))?\Z",
    re.S,
)
# `rebase -i (pick): …`, `commit (amend): …`, `merge topic: …`, `pull --rebase origin main (start): …`
_ACTION = re.compile(
    r"(?P<verb>[A-Za-z][\w-]*)(?P<arguments>[^:(]*)(?:\((?P<step>[^)]*)\))?[^:]*(?P<colon>:|\Z)"
)
# Git's own verbs; what a program hands to `git update-ref -m` may be any text.
_VERB = re.compile(
    r"am|branch|checkout|cherry-pick|clone|commit|fetch|merge|pull|push|rebase|reset|revert|switch"
)
_STEP = re.compile(
    r"abort|amend|break|cherry-pick|continue|drop|edit|exec|finish|fixup|initial|label|merge|noop|pick|reset|reword"
    r"|skip|squash|start"
)


@dataclass(frozen=True, slots=True)
class Cursor:
    """Up to where a reflog has been read."""

    inode: int
    offset: int  # bytes; just after the newline of the last line read
    last: str  # hex digest of that line; "" when none was read
    last_size: int  # bytes of that line, newline included
    at: float  # seconds since the epoch, the latest time read so far


def parse(line: bytes) -> Transition | None:
    """Read one reflog line; None when it is none.

    The action is git's verb with its step, as in `commit (amend)` or `rebase (pick)`; any other message gives
    `update`.
    """
    match = _LINE.match(line.rstrip(b"\n"))
    if match is None or len(match["old"]) != len(match["new"]):
        return None
    message = (match["message"] or b"").decode("utf-8", "replace")
    return Transition(
        match["old"].decode(), match["new"].decode(), _action(message), message, float(match["at"])
    )


def read_new(path: str, cursor: Cursor | None) -> tuple[list[Transition], Cursor | None]:
    """Read the lines that came since the cursor; all of them without one.

    A line still being written waits. Where the log was rewritten, the lines after the last one read are new; if
    that one is gone too, those with a later time are. A missing log gives nothing and leaves the cursor.
    """
    try:
        file = open(path, "rb")  # noqa: SIM115  closed below; `try` holds one call
    except (FileNotFoundError, NotADirectoryError):
        return [], cursor
    with file:
        stat = os.fstat(file.fileno())
        start = _resume(file.fileno(), stat.st_size, cursor)
        whole = start is None
        file.seek(start or 0)
        data = file.read()
    data = data[: data.rfind(b"\n") + 1]
    lines = [line + b"\n" for line in data.split(b"\n")[:-1]]
    new = _after(lines, cursor) if whole and cursor is not None else lines
    transitions = [found for line in new if (found := parse(line)) is not None]
    times = [t.at for t in transitions] + ([cursor.at] if cursor is not None else [])
    if lines:
        last, size = _digest(lines[-1]), len(lines[-1])
    elif not whole and cursor is not None:
        last, size = cursor.last, cursor.last_size
    else:
        last, size = "", 0
    end = (start or 0) + len(data)
    return transitions, Cursor(stat.st_ino, end, last, size, max(times, default=0.0))


def _resume(descriptor: int, size_bytes: int, cursor: Cursor | None) -> int | None:
    """Return the cursor's offset if the line that ends there is still the one read last."""
    if cursor is None or cursor.offset > size_bytes or not cursor.last:
        return None
    line = os.pread(descriptor, cursor.last_size, cursor.offset - cursor.last_size)
    return cursor.offset if _digest(line) == cursor.last else None


def _after(lines: list[bytes], cursor: Cursor) -> list[bytes]:
    for i in range(len(lines) - 1, -1, -1):
        if len(lines[i]) == cursor.last_size and _digest(lines[i]) == cursor.last:
            return lines[i + 1 :]
    return [line for line in lines if (found := parse(line)) is not None and found.at > cursor.at]


def _digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def _action(message: str) -> str:
    match = _ACTION.match(message)
    verb = match["verb"].lower() if match else ""
    if match is None or not _VERB.fullmatch(verb):
        return "update"
    if not match["colon"] and match["arguments"].strip():
        return "update"
    step = match["step"]
    if verb == "rebase" and step is None and match["arguments"].strip() in {"finished", "aborted"}:
        step = {"finished": "finish", "aborted": "abort"}[match["arguments"].strip()]
    return f"{verb} ({step})" if step and _STEP.fullmatch(step) else verb
