"""The oracle: rows of a worktree against an index made from scratch, and the tables against each other."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from support.from_scratch import Expected, Row, expect
from support.invariants import check_internal, check_repository

__all__ = [
    "Row",
    "assert_equal",
    "check_internal",
    "check_repository",
    "difference",
    "expected_rows",
    "live_rows",
]

Root = str | os.PathLike[str]
Source = str | psycopg.Connection[Any]  # a DSN, or a connection outside of any transaction

_ROWS = b"""
    select s.path, s.qualname, s.kind, s.start_line, s.end_line, s.content, s.blob_oid, s.path_bytes
    from headwatch.live_symbol s join headwatch.worktree w on w.id = s.worktree_id
    where w.root = %s
"""
_FILES = b"""
    select coalesce(f.path_bytes, convert_to(f.path, 'utf8')), f.blob_oid
    from headwatch.file f join headwatch.worktree w on w.id = f.worktree_id
    where w.root = %s
"""
_CHUNKS = b"""
    select t.text, v.n from headwatch.visible v join headwatch.worktree w on w.id = v.worktree_id
    join headwatch.content t on t.id = v.content_id
    where w.root = %s
"""


def assert_equal(source: Source, root: Root) -> None:
    """Fail unless everything that readers see of a worktree is what is on its disk now.

    Compares symbols with their text, files, chunks and the proof (indexed head, branch) with an index made from
    scratch, then the tables with each other, all in one snapshot of the database.
    """
    expected = expect(root)
    with _reading(source) as conn:
        shown = os.path.realpath(root)
        proof = conn.execute(
            "select id, indexed_head, live_head, branch from headwatch.worktree where root = %s", (shown,)
        ).fetchone()
        assert proof is not None, f"{shown} is not registered"
        wrong = difference(live_rows(conn, root), expected.rows) or _other_difference(conn, shown, expected)
        assert wrong is None, f"{shown}: {wrong}"
        worktree, *baseline = proof
        assert baseline == [expected.head, expected.head, expected.branch], (
            f"{shown}: the proof says {baseline}"
        )
        check_internal(conn, worktree)


def expected_rows(root: Root) -> set[Row]:
    """List the symbols that a worktree's disk holds now, from scratch."""
    return expect(root).rows


def live_rows(source: Source, root: Root) -> set[Row]:
    """List the symbols that readers see in a worktree; fails when one is there twice."""
    with _reading(source) as conn:
        found = conn.execute(_ROWS, (os.path.realpath(root),)).fetchall()
    twice = [row for row, n in Counter(found).items() if n > 1]
    assert not twice, f"{twice[0]} is there more than once"
    return {Row(*row[:-1]) for row in found}


def difference(live: Collection[Row], expected: Collection[Row]) -> str | None:
    """Name the first difference between what readers see and what they should; None when there is none."""
    surplus, missing = sorted({*live} - {*expected}), sorted({*expected} - {*live})
    if not surplus and not missing:
        return None
    count = f"({len(surplus)} surplus, {len(missing)} missing)"
    for row in missing:
        same = next((s for s in surplus if (s.path, s.qualname) == (row.path, row.qualname)), None)
        if same is not None:
            field = next(name for name in Row._fields if getattr(same, name) != getattr(row, name))
            return f"{_name(row)}: {field} is {getattr(same, field)!r}, should be {getattr(row, field)!r} {count}"
    if missing:
        return f"{_name(missing[0])} is missing {count}"
    return f"{_name(surplus[0])} is there, and should not be {count}"


def _other_difference(conn: psycopg.Connection[Any], root: str, expected: Expected) -> str | None:
    files = dict(conn.execute(_FILES, (root,)).fetchall())
    for path in sorted(files.keys() | expected.files.keys()):
        if files.get(path) != expected.files.get(path):
            return f"file {path!r} has blob {files.get(path)}, should have {expected.files.get(path)}"
    chunks = Counter(dict(conn.execute(_CHUNKS, (root,)).fetchall()))
    if chunks != expected.chunks:
        text = min((chunks - expected.chunks) + (expected.chunks - chunks))
        return f"chunk {text[:80]!r} is visible {chunks[text]} times, should be {expected.chunks[text]}"
    return None


def _name(row: Row) -> str:
    return f"{row.path}#{row.qualname} ({row.kind}, lines {row.start_line}-{row.end_line})"


@contextmanager
def _reading(source: Source) -> Iterator[psycopg.Connection[Any]]:
    """Read in one snapshot; inside another `_reading` of the same connection, in that one's."""
    if isinstance(source, str):
        with psycopg.connect(source, autocommit=True) as conn, _reading(conn) as reading:
            yield reading
        return
    if source.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
        yield source
        return
    with source.transaction():
        source.execute("set transaction isolation level repeatable read, read only")
        yield source
