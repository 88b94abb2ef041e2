"""What must hold between the tables at every moment, counted again from scratch by SQL."""

from __future__ import annotations

from typing import Any

import psycopg

# Each query lists what is wrong: (what, recorded, recounted). Zero rows and no row mean the same for a count.
_WORKTREE = {
    "visible.n of a content": """
        with counted as (
            select c.content_id, count(*)::int as n
            from headwatch.file f join headwatch.chunk c on c.parse_id = f.parse_id
            where f.worktree_id = %(worktree)s group by c.content_id
        ), recorded as (select v.content_id, v.n from headwatch.visible v where v.worktree_id = %(worktree)s)
        select (select left(t.text, 80) from headwatch.content t where t.id = content_id), r.n, c.n
        from recorded r full join counted c using (content_id) where r.n is distinct from c.n
    """,
    "worktree.files": """
        select w.root, w.files, (select count(*) from headwatch.file f where f.worktree_id = w.id)
        from headwatch.worktree w
        where w.id = %(worktree)s and w.files <> (select count(*) from headwatch.file f where f.worktree_id = w.id)
    """,
    "worktree.symbols": """
        select w.root, w.symbols, l.n from headwatch.worktree w,
            lateral (select count(*) as n from headwatch.live_symbol s where s.worktree_id = w.id) l
        where w.id = %(worktree)s and w.symbols <> l.n
    """,
    "worktree.skipped": """
        select w.root, w.skipped, l.n from headwatch.worktree w,
            lateral (select count(*) as n from headwatch.skipped s where s.worktree_id = w.id) l
        where w.id = %(worktree)s and w.skipped <> l.n
    """,
    "a path that is both indexed and skipped": """
        select f.path, f.blob_oid, s.reason
        from headwatch.file f join headwatch.skipped s on s.worktree_id = f.worktree_id and s.path = f.path
            and s.path_bytes is not distinct from f.path_bytes
        where f.worktree_id = %(worktree)s
    """,
    "the parse of a file": """
        select f.path, f.blob_oid || ' in repository ' || w.repository_id, p.blob_oid || ' in ' || p.repository_id
            || ', ' || p.status
        from headwatch.file f join headwatch.worktree w on w.id = f.worktree_id
        join headwatch.parse p on p.id = f.parse_id
        where w.id = %(worktree)s and ((p.blob_oid, p.repository_id) <> (f.blob_oid, w.repository_id)
            or p.status not in ('ok', 'partial'))
    """,
}
_LIVE = """
    with live as (
        select t.id, t.terms, t.frequencies, t.length, left(t.text, 80) as text from headwatch.content t
        where t.repository_id = %(repository)s
            and exists (select from headwatch.visible v where v.content_id = t.id)
    )
"""
_REPOSITORY = {
    "term_stat.df": _LIVE
    + """
        , counted as (select t.term_id, count(*)::int as df from live l, unnest(l.terms) as t (term_id) group by 1
        ), recorded as (select s.term_id, s.df from headwatch.term_stat s where s.repository_id = %(repository)s)
        select (select t.text from headwatch.term t where t.id = term_id), coalesce(r.df, 0), coalesce(c.df, 0)
        from recorded r full join counted c using (term_id) where coalesce(r.df, 0) <> coalesce(c.df, 0)
    """,
    "repo_stat (contents, tokens)": _LIVE
    + """
        select 'all', coalesce(s.contents, 0) || ', ' || coalesce(s.tokens, 0), l.n || ', ' || l.tokens
        from (select count(*) as n, coalesce(sum(length), 0) as tokens from live) l
        left join headwatch.repo_stat s on s.repository_id = %(repository)s
        where (coalesce(s.contents, 0), coalesce(s.tokens, 0)) <> (l.n, l.tokens)
    """,
    "the length of a content": _LIVE
    + """
        select l.text, l.length, s.n from live l, lateral (
            select coalesce(sum(x.n), 0) as n from unnest(l.frequencies) as x (n)) s
        where l.length <> s.n or cardinality(l.terms) <> cardinality(l.frequencies)
    """,
    "postings (term, tf, length) of a content": _LIVE
    + """
        , packed as (
            select l.id, t.term_id, t.tf, l.length from live l, unnest(l.terms, l.frequencies) as t (term_id, tf)
        ), posted as (
            select p.content_id as id, p.term_id, p.tf, p.length from headwatch.posting p
            where p.repository_id = %(repository)s and exists (select from live l where l.id = p.content_id)
        ), wrong as (
            (select 'missing' as what, * from (select * from packed except all select * from posted) a)
            union all (select 'surplus', * from (select * from posted except all select * from packed) b)
        )
        select w.what || ' term ' || (select t.text from headwatch.term t where t.id = w.term_id),
            w.tf, (select l.text from live l where l.id = w.id) from wrong w
    """,
}


def check_internal(conn: psycopg.Connection[Any], worktree: int) -> None:
    """Recount what the rows of a worktree and of its repository say about each other.

    Raises AssertionError that names the first difference.
    """
    found = conn.execute("select repository_id from headwatch.worktree where id = %s", (worktree,)).fetchone()
    assert found is not None, f"no worktree {worktree}"
    _check(conn, _WORKTREE, {"worktree": worktree})
    check_repository(conn, found[0])


def check_repository(conn: psycopg.Connection[Any], repository: int) -> None:
    """Recount the statistics and postings of a repository, whatever worktrees it has left."""
    _check(conn, _REPOSITORY, {"repository": repository})


def _check(conn: psycopg.Connection[Any], queries: dict[str, str], values: dict[str, int]) -> None:
    for name, query in queries.items():
        wrong = conn.execute(query.encode(), values).fetchall()
        if wrong:
            what, recorded, recounted = wrong[0]
            raise AssertionError(
                f"{name}: {what!r} is recorded as {recorded!r}, recounted as {recounted!r} ({len(wrong)} in all)"
            )
