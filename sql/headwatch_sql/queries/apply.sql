-- name: remove_files
-- Membership rows that go or are replaced.
delete from file f
using (select distinct * from unnest(%(paths)s::text[], %(exact)s::bytea[])) as k (path, exact)
where f.worktree_id = %(worktree_id)s and f.path = k.path and f.path_bytes is not distinct from k.exact
returning f.parse_id

-- name: add_files
-- Membership rows that come.
insert into file (worktree_id, path, path_bytes, blob_oid, mode, parse_id)
select %(worktree_id)s, k.*
from unnest(%(paths)s::text[], %(exact)s::bytea[], %(oids)s::text[], %(modes)s::int[], %(parses)s::bigint[]) as k

-- name: remove_skipped
-- Skipped rows that go or are replaced.
delete from skipped s
using (select distinct * from unnest(%(paths)s::text[], %(exact)s::bytea[])) as k (path, exact)
where s.worktree_id = %(worktree_id)s and s.path = k.path and s.path_bytes is not distinct from k.exact
returning 0

-- name: add_skipped
-- Skipped rows that come.
insert into skipped (worktree_id, path, path_bytes, reason, size)
select %(worktree_id)s, k.*
from unnest(%(paths)s::text[], %(exact)s::bytea[], %(reasons)s::text[], %(sizes)s::bigint[]) as k

-- name: move_visibility
-- Reference counts of contents in this worktree; what came to it and what is gone from it.
with delta as materialized (
    select c.content_id, sum(p.n)::int as n
    from (select k.parse_id, sum(k.sign) as n
          from (select unnest(%(new)s::bigint[]) as parse_id, 1 as sign
                union all select unnest(%(old)s::bigint[]), -1) k
          group by k.parse_id having sum(k.sign) <> 0) p
    join chunk c on c.parse_id = p.parse_id
    group by c.content_id having sum(p.n) <> 0
), gone as (
    delete from visible v using delta d
    where v.worktree_id = %(worktree_id)s and v.content_id = d.content_id and v.n + d.n <= 0
    returning v.content_id
), kept as (
    update visible v set n = v.n + d.n from delta d
    where v.worktree_id = %(worktree_id)s and v.content_id = d.content_id and v.n + d.n > 0
    returning v.content_id
), came as (
    insert into visible (worktree_id, content_id, n)
    select %(worktree_id)s, d.content_id, d.n from delta d
    where d.n > 0
        and not exists (select from visible v where v.worktree_id = %(worktree_id)s and v.content_id = d.content_id)
    order by d.content_id
    returning content_id
)
select (select array_agg(content_id) from came), (select array_agg(content_id) from gone), (select count(*) from kept)

-- name: count_terms
-- Document frequencies over live contents, each counted once a repository, sorted so that writers cannot deadlock.
with flip as (
    select k.content_id, k.sign
    from (select unnest(%(came)s::bigint[]) as content_id, 1 as sign
          union all select unnest(%(gone)s::bigint[]), -1) k
    where not exists (select from visible v where v.content_id = k.content_id and v.worktree_id <> %(worktree_id)s)
)
insert into term_stat (repository_id, term_id, df)
select %(repository_id)s, t.term_id, sum(f.sign)::int
from flip f join content c on c.id = f.content_id cross join lateral unnest(c.terms) as t (term_id)
group by t.term_id having sum(f.sign) <> 0
order by t.term_id
on conflict (tenant_id, repository_id, term_id) do update set df = term_stat.df + excluded.df

-- name: count_contents
-- Live contents and their summed length.
with flip as (
    select k.content_id, k.sign
    from (select unnest(%(came)s::bigint[]) as content_id, 1 as sign
          union all select unnest(%(gone)s::bigint[]), -1) k
    where not exists (select from visible v where v.content_id = k.content_id and v.worktree_id <> %(worktree_id)s)
)
insert into repo_stat (repository_id, contents, tokens)
select %(repository_id)s, coalesce(sum(f.sign), 0), coalesce(sum(f.sign * c.length), 0)
from flip f join content c on c.id = f.content_id
on conflict (tenant_id, repository_id) do update
set contents = repo_stat.contents + excluded.contents, tokens = repo_stat.tokens + excluded.tokens

-- name: add_transitions
-- What the reflog recorded since the last pass.
insert into transition (worktree_id, old, new, action, message, at)
select %(worktree_id)s, k.old, k.new, k.action, k.message, to_timestamp(k.at)
from unnest(%(old)s::text[], %(new)s::text[], %(actions)s::text[], %(messages)s::text[], %(at)s::float8[])
    with ordinality as k (old, new, action, message, at, n)
order by k.n

-- name: move_baseline
-- The proof moves with the rows, and readers are told.
update worktree w
set branch = %(branch)s, live_head = %(head)s, indexed_head = %(head)s, dirty_digest = %(dirty_digest)s,
    dirty_files = %(dirty_files)s, files = w.files + %(files)s,
    symbols = w.symbols
        + (select coalesce(sum(p.symbols), 0) from unnest(%(new)s::bigint[]) as k (id) join parse p on p.id = k.id)
        - (select coalesce(sum(p.symbols), 0) from unnest(%(old)s::bigint[]) as k (id) join parse p on p.id = k.id),
    contents = w.contents + %(contents)s, skipped = (select count(*) from skipped s where s.worktree_id = w.id),
    generation = w.generation + 1, state = %(state)s, reason = %(reason)s,
    reflog_cursor = coalesce(%(cursor)s, w.reflog_cursor), applied_at = clock_timestamp()
where w.id = %(worktree_id)s
returning w.generation, pg_notify('headwatch', json_build_object('worktree', w.id, 'generation', w.generation,
    'indexed_head', w.indexed_head)::text)
