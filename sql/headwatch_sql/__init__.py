"""Migrations and named queries, shipped as .sql files and read as bytes."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_NAME = re.compile(rb"^-- name: (\w+)[^\n]*\n", re.M)
_MIGRATION = re.compile(r"^(\d{4})_\w+\.sql$")


@cache
def queries(group: str) -> dict[str, bytes]:
    """Load queries/<group>.sql: statement by name, as bytes (what psycopg takes without a cast).

    A statement starts at its `-- name: <name>` line and ends at the next one.
    """
    parts = _NAME.split((files(__name__) / "queries" / f"{group}.sql").read_bytes())
    return {parts[i].decode(): parts[i + 1].strip() for i in range(1, len(parts), 2)}


@cache
def migrations() -> tuple[tuple[int, bytes], ...]:
    """List every migration as (number, SQL), ascending; the numbers are 1, 2, 3, … without a gap."""
    found = sorted(
        (int(match[1]), entry.read_bytes())
        for entry in (files(__name__) / "migrations").iterdir()
        if (match := _MIGRATION.match(entry.name))
    )
    return tuple(found)
