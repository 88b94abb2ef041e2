"""Wait for what another process does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_TICK = threading.Event()  # never set


def eventually(true: Callable[[], object], what: str, timeout_s: float = 90.0) -> None:
    """Return as soon as `true()` holds; fail with `what` when it does not in time."""
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end, f"still not: {what}"
        _TICK.wait(0.01)
