"""A repository of thousands of contents without files to parse: rows as the store would write them."""

from __future__ import annotations

from dataclasses import dataclass

from headwatch_indexer import store
from headwatch_indexer.records import Location

_ROWS = """
with content as (
    insert into content (repository_id, hash, text, length, terms, frequencies)
    select %(repository)s, decode(md5(%(salt)s || n), 'hex'), 'text ' || n, 1, '{}', '{}'
    from generate_series(1, %(count)s) n returning id
), place as (
    select id, row_number() over (order by id) as n from content
), blob as (
    insert into blob (repository_id, oid, size_bytes, source)
    select %(repository)s, md5(%(salt)s || n) || '00000000', 0, '' from generate_series(1, %(files)s) n returning oid
), parse as (
    insert into parse (repository_id, blob_oid, language, parser_version, status, symbols)
    select %(repository)s, oid, 'python', 1, 'ok', %(count)s / %(files)s from blob returning id, blob_oid
), parsed as (
    select id, blob_oid, row_number() over (order by id) as n from parse
), symbol as (
    insert into symbol (repository_id, parse_id, ordinal, blob_oid, language, name, qualname, kind, signature, doc,
        start_line, end_line, start_byte, end_byte, structural_hash, body_hash)
    select %(repository)s, p.id, c.n, p.blob_oid, 'python', 'f' || c.n, 'f' || c.n,
        case when c.n %% 500 = 0 then 'class' when c.n %% 2 = 0 then 'method' else 'function' end,
        '', '', 1, 1, 0, 0, '', ''
    from place c join parsed p on p.n = c.n %% %(files)s + 1
), chunk as (
    insert into chunk (parse_id, symbol_ordinal, n, content_id, start_line, end_line)
    select p.id, c.n, 0, c.id, 1, 1 from place c join parsed p on p.n = c.n %% %(files)s + 1
), file as (
    insert into file (worktree_id, path, blob_oid, mode, parse_id)
    select %(worktree)s, 'src/f' || n || '.py', blob_oid, 33188, id from parsed
), visible as (
    insert into visible (worktree_id, content_id, n) select %(worktree)s, id, 1 from content
)
select id from content order by id
"""


@dataclass(frozen=True, slots=True)
class Many:
    """What was made: the worktree, its repository, and its contents, oldest first."""

    worktree: int
    repository: int
    contents: list[int]


def register(conn: store.Connection, name: str) -> store.WorktreeRow:
    """Register a worktree that exists in the database only."""
    location = Location(f"/{name}", f"/{name}/.git", f"/{name}/.git", "sha1")
    return store.register(conn, location, f"path:{name}", host="here", name=name)


def add_many(conn: store.Connection, name: str, count: int, *, files: int = 40) -> Many:
    """Make a worktree that shows `count` contents of one symbol each, in `files` files."""
    row = register(conn, name)
    values = {
        "repository": row.repository_id,
        "worktree": row.id,
        "count": count,
        "files": files,
        "salt": name,
    }
    with conn.transaction():
        contents = [content for (content,) in conn.execute(_ROWS.encode(), values).fetchall()]
        conn.execute(
            "update worktree set generation = 1, applied_at = now(), symbols = %s, contents = %s where id = %s",
            (count, count, row.id),
        )
    return Many(row.id, row.repository_id, contents)


def show(conn: store.Connection, many: Many, name: str, count: int) -> int:
    """Add a worktree of the same repository that shows the first files' contents alone; returns its id."""
    row = register(conn, name)
    with conn.transaction():
        conn.execute("update worktree set repository_id = %s where id = %s", (many.repository, row.id))
        conn.execute(
            "insert into visible (worktree_id, content_id, n) select %s, unnest(%s::bigint[]), 1",
            (row.id, many.contents[:count]),
        )
        conn.execute(
            "insert into file (worktree_id, path, blob_oid, mode, parse_id)"
            " select distinct %s, f.path, f.blob_oid, f.mode, f.parse_id"
            " from file f join chunk c on c.parse_id = f.parse_id"
            " where f.worktree_id = %s and c.content_id = any(%s)",
            (row.id, many.worktree, many.contents[:count]),
        )
        conn.execute(
            "update worktree set generation = 1, applied_at = now(), symbols = %s, contents = %s where id = %s",
            (count, count, row.id),
        )
    return row.id
