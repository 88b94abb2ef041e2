"""What can go wrong with the embedded server, said with the fix that fits."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headwatch_indexer.errors import HeadwatchError, Unreachable

_FULL = (errno.ENOSPC, errno.EDQUOT)


def failure(attempted: str, said: str, folder: Path) -> Unreachable:
    """Turn what Postgres said into an error; it logs no statements, so nothing secret is in it."""
    lines = [line for line in said.splitlines() if line.strip()][-8:]
    hint = f"read {folder}/start.log and {folder}/data/log"
    if "No space left on device" in said:
        hint = f"free some space on the disk of {folder}, then start again"
    elif "Permission denied" in said or "permissions" in said:
        hint = f"{folder} and all in it must belong to the user that headwatch runs as"
    elif "shared memory" in said or "semaphore" in said:
        hint = "raise the kernel's limits: sysctl kernel.shmmax, kernel.shmall, kernel.sem"
    return Unreachable(attempted + ("; it said:\n" + "\n".join(lines) if lines else ""), hint=hint)


@contextmanager
def said_plainly(home: Path) -> Iterator[None]:
    """Turn the system's refusals into errors with a hint."""
    try:
        yield
    except OSError as error:
        hint = "set HEADWATCH_HOME to a folder that belongs to the user that headwatch runs as"
        if error.errno in _FULL:
            hint = f"free some space on the disk of {home}, or set HEADWATCH_HOME to another folder"
        raise HeadwatchError(
            f"cannot use {error.filename or home} for the embedded Postgres: {error.strerror or error}",
            hint=hint,
        ) from error
