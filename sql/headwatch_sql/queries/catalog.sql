-- name: ensure_tenant
-- The session's tenant, so that foreign keys to it hold.
insert into tenant (id, name)
select headwatch.current_tenant(), 'local'
where headwatch.current_tenant() is not null
on conflict do nothing

-- name: register_repository
-- One row an identity; its name is kept when it is registered again.
insert into repository (name, identity, object_format)
values (%(name)s, %(identity)s, %(object_format)s)
on conflict (tenant_id, identity) do update set object_format = excluded.object_format
returning id

-- name: rename_repository
-- A display name, chosen by the user.
update repository set name = %(name)s where id = %(id)s and name <> %(name)s

-- name: repository_of
-- The repository that an object database was registered with.
select repository_id from clone where host = %(host)s and common_dir = %(common_dir)s

-- name: register_clone
-- One object database on one host.
insert into clone (repository_id, host, common_dir)
values (%(repository_id)s, %(host)s, %(common_dir)s)
on conflict (tenant_id, host, common_dir) do update set repository_id = clone.repository_id
returning id

-- name: make_way
-- Where a known worktree has moved, the one that lay there has moved too (or is gone): it is told by its git dir.
update worktree w set root = w.root || ' (moved, ' || w.id || ')'
where w.clone_id = %(clone_id)s and w.root = %(root)s and w.git_dir <> %(git_dir)s
    and exists (select from worktree o where o.clone_id = w.clone_id and o.git_dir = %(git_dir)s)

-- name: worktree_moved
-- The folder moved, the git dir tells that it is the same worktree.
update worktree set root = %(root)s
where clone_id = %(clone_id)s and git_dir = %(git_dir)s
returning id

-- name: register_worktree
-- A new worktree starts pending, without rows.
insert into worktree (repository_id, clone_id, root, git_dir, reason)
select c.repository_id, c.id, %(root)s, %(git_dir)s, 'not indexed yet'
from clone c where c.id = %(clone_id)s
on conflict (tenant_id, clone_id, root) do update set git_dir = excluded.git_dir

-- name: repositories
-- What is registered, by name.
select r.id, r.name, r.identity, r.object_format, r.default_branch
from repository r
where exists (select from worktree w where w.repository_id = r.id)
order by r.name, r.id

-- name: worktrees
-- Every worktree of a host with its proof.
select w.id, w.repository_id, w.clone_id, w.root, w.git_dir, c.common_dir, r.object_format, w.branch, w.live_head,
    w.indexed_head, w.dirty_digest, w.dirty_files, w.files, w.symbols, w.skipped, w.generation, w.state, w.reason,
    w.reflog_cursor, w.applied_at
from worktree w
join clone c on c.id = w.clone_id
join repository r on r.id = w.repository_id
where c.host = %(host)s
order by w.id

-- name: is_registered
-- A worktree may be retired between a look at it and the lock under which its rows are written.
select id from worktree where id = %(id)s

-- name: mark
-- State of a worktree between two applications; a no-op writes nothing.
update worktree
set state = %(state)s, reason = %(reason)s, live_head = coalesce(%(live_head)s, live_head)
where id = %(id)s
    and (state, reason, live_head) is distinct from (%(state)s, %(reason)s, coalesce(%(live_head)s, live_head))

-- name: lock_repository_of
-- As every writer of a repository's rows does, so that its statistics are counted one after the other.
select pg_advisory_xact_lock(26743, (w.repository_id & 2147483647)::int) from worktree w where w.id = %(id)s

-- name: retire
-- Rows go with the worktree; statistics first, while its contents are still known.
with gone as (
    select v.content_id from visible v
    where v.worktree_id = %(id)s
        and not exists (select from visible o where o.content_id = v.content_id and o.worktree_id <> %(id)s)
), lost as (
    select c.repository_id, t.term_id, count(*)::int as n
    from gone g join content c on c.id = g.content_id cross join lateral unnest(c.terms) as t (term_id)
    group by 1, 2
), stats as (
    update term_stat s set df = s.df - lost.n
    from lost where s.repository_id = lost.repository_id and s.term_id = lost.term_id
), totals as (
    update repo_stat s set contents = s.contents - x.n, tokens = s.tokens - x.tokens
    from (select c.repository_id, count(*) as n, sum(c.length) as tokens
          from gone g join content c on c.id = g.content_id group by 1) x
    where s.repository_id = x.repository_id
), removed as (
    delete from worktree w where w.id = %(id)s returning w.repository_id
)
select r.repository_id, (select count(*) from worktree w where w.repository_id = r.repository_id and w.id <> %(id)s)
from removed r

-- name: let_go_of
-- Git dirs of a clone that are not found by themselves, as their worktrees were removed by hand.
select let_go from clone where id = %(clone_id)s

-- name: set_let_go
-- Nothing is written when nothing changes.
update clone set let_go = %(git_dirs)s where id = %(clone_id)s and let_go <> %(git_dirs)s

-- name: let_worktree_go
-- In the transaction that removes it.
update clone c set let_go = array_append(array_remove(c.let_go, w.git_dir), w.git_dir)
from worktree w where w.id = %(id)s and c.id = w.clone_id
