-- name: record
-- One event of the daemon.
insert into journal (event, worktree_id, detail) values (%(event)s, %(worktree_id)s, %(detail)s)

-- name: trim
-- The journal is a window, not an archive.
delete from journal where id <= (select max(id) from journal) - %(kept)s

-- name: events
-- The newest rows after a cursor, oldest first; transitions are events too.
select * from (
    select * from (
        (select 0 as source, j.id, j.at, j.event, w.root, j.detail
         from journal j left join worktree w on w.id = j.worktree_id
         where j.id > %(journal)s order by j.id desc limit %(limit)s)
        union all
        (select 1, t.id, t.at, 'transition', w.root,
             jsonb_build_object('action', t.action, 'old', t.old, 'new', t.new, 'message', t.message)
         from transition t join worktree w on w.id = t.worktree_id
         where t.id > %(transition)s order by t.id desc limit %(limit)s)
    ) x order by x.at desc, x.source, x.id desc limit %(limit)s
) y order by y.at, y.source, y.id

-- name: last_transitions
-- What moved each worktree last.
select w.id, t.action, t.old, t.new, t.at
from worktree w
cross join lateral (
    select * from transition t where t.worktree_id = w.id order by t.id desc limit 1
) t
