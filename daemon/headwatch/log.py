"""How the process speaks to its operator: structured lines on stderr, never a secret."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import MutableMapping
from typing import Any, TextIO, cast

import structlog

_PASSWORD = re.compile(r"(://[^:/@\s]*:)[^@/\s]+(@)|(\bpassword\s*=\s*)('[^']*'|\S+)", re.I)


def setup(level: str = "info", stream: TextIO | None = None) -> None:
    """Send structlog and the libraries' own logging to `stream` (stderr), from `level` up.

    At a terminal lines are for people, elsewhere each is one JSON object.
    """
    out = stream or sys.stderr
    number = logging.getLevelNamesMapping()[level.upper()]
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
        structlog.processors.format_exc_info,
        hide_secrets,
    ]
    last: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(timestamp_key="at")
        if out.isatty()
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[*shared, last],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(out),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, last],
            foreign_pre_chain=[*shared[:3], structlog.stdlib.ExtraAdder(), *shared[3:]],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(number, logging.WARNING))  # libraries say more than a user wants to know


def get(name: str) -> structlog.typing.FilteringBoundLogger:
    """Give the logger of one part of the daemon."""
    return cast("structlog.typing.FilteringBoundLogger", structlog.get_logger(part=name))


def hide_secrets(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Blank passwords in URLs and DSNs, wherever they stand in a line."""
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = without_password(value)
    return event


def without_password(text: str) -> str:
    """Replace the password of every URL or DSN in `text` by ***."""
    return _PASSWORD.sub(lambda m: f"{m[1] or m[3]}***{m[2] or ''}", text)
