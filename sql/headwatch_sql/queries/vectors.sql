-- name: deactivate
-- At most one model of a tenant is active; one that is not there replaces none.
update model set active = false
where active and id <> %(model_id)s and exists (select from model m where m.id = %(model_id)s)

-- name: activate
-- Readers see the switch in the next statement.
update model set active = true where id = %(model_id)s and not active

-- name: model
-- What a vector of it must look like.
select name, dim from model where id = %(model_id)s

-- name: live_repositories
-- Repositories that show something.
select distinct w.repository_id from worktree w where w.generation > 0

-- name: next
-- Live contents without a vector, latest applied worktree first, short ones together.
select c.id, c.text
from (
    select v.content_id, max(w.applied_at) as applied_at
    from visible v join worktree w on w.id = v.worktree_id
    where not exists (select from {vectors} e where e.repository_id = w.repository_id and e.content_id = v.content_id)
        and not exists (select from dead_letter d
            where d.kind = 'embed' and d.model_id = %(model_id)s and d.content_id = v.content_id)
    group by v.content_id
    order by max(w.applied_at) desc, v.content_id limit %(limit)s
) x
join content c on c.id = x.content_id
order by length(c.text)

-- name: copy_known
-- The same text in another repository of the tenant has the same vector.
insert into {vectors} (repository_id, content_id, embedding)
select distinct on (c.id) c.repository_id, c.id, e.embedding
from content c
join content o on o.hash = c.hash and o.repository_id = any(%(repositories)s::bigint[])
    and o.repository_id <> c.repository_id
join {vectors} e on e.repository_id = o.repository_id and e.content_id = o.id
where (%(contents)s::bigint[] is null or c.id = any(%(contents)s::bigint[]))
    and exists (select from visible v where v.content_id = c.id)
    and not exists (select from {vectors} x where x.repository_id = c.repository_id and x.content_id = c.id)
order by c.id
on conflict do nothing
returning content_id

-- name: save
-- The vectors of contents that still exist.
insert into {vectors} (repository_id, content_id, embedding)
select c.repository_id, c.id, %s from content c where c.id = %s
on conflict do nothing

-- name: bury
-- A content that cannot be embedded; kept with its reason, asked for no more.
insert into dead_letter (kind, repository_id, content_id, model_id, reason, attempts)
select 'embed', c.repository_id, c.id, %(model_id)s, %(reason)s, %(attempts)s from content c where c.id = %(content_id)s
on conflict (tenant_id, model_id, content_id) where kind = 'embed'
do update set reason = excluded.reason, attempts = dead_letter.attempts + excluded.attempts, at = now()

-- name: pending
-- How many contents of each worktree, or of one, wait for a vector.
select v.worktree_id, count(*)
from visible v join worktree w on w.id = v.worktree_id
where not exists (select from {vectors} e where e.repository_id = w.repository_id and e.content_id = v.content_id)
    and not exists (select from dead_letter d
        where d.kind = 'embed' and d.model_id = %(model_id)s and d.content_id = v.content_id)
    and (%(worktree)s::bigint is null or v.worktree_id = %(worktree)s)
group by v.worktree_id

-- name: pending_total
-- How many distinct contents wait for a vector.
select count(distinct v.content_id)
from visible v join worktree w on w.id = v.worktree_id
where not exists (select from {vectors} e where e.repository_id = w.repository_id and e.content_id = v.content_id)
    and not exists (select from dead_letter d
        where d.kind = 'embed' and d.model_id = %(model_id)s and d.content_id = v.content_id)
