"""What every error of headwatch has: what was attempted, on what, and what to do."""

from __future__ import annotations


class HeadwatchError(Exception):
    """Base of all errors that a user may see; `hint` says what to do next."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class WrongUsage(HeadwatchError):
    """The caller asked for something that cannot be meant (exit 2)."""

    exit_code = 2


class NotFresh(HeadwatchError):
    """Rows did not match the disk in time (exit 3)."""

    exit_code = 3


class Unreachable(HeadwatchError):
    """The daemon or the database is out of reach (exit 4)."""

    exit_code = 4
