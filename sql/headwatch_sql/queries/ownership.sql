-- name: own
-- Take the session lock once, then write who holds it.
with held as materialized (
    select exists (
        select from pg_locks k
        where k.locktype = 'advisory' and k.granted and k.objsubid = 1 and k.pid = pg_backend_pid()
            and k.database = (select d.oid from pg_database d where d.datname = current_database())
            and k.classid = ((%(key)s::bigint >> 32) & 4294967295)::oid and k.objid = (%(key)s::bigint & 4294967295)::oid
    ) as already
), taken as materialized (
    select case when already then true else pg_try_advisory_lock(%(key)s::bigint) end as ok from held
), written as (
    insert into owner (clone_id, pid, lock_key, heartbeat_at)
    select %(clone_id)s, %(pid)s, %(key)s::bigint, clock_timestamp() from taken where ok
    on conflict (tenant_id, clone_id) do update
    set pid = excluded.pid, lock_key = excluded.lock_key, heartbeat_at = excluded.heartbeat_at
)
select ok from taken

-- name: beat
-- One row a clone, every few seconds: it need not reach the disk at once.
with quick as (select set_config('synchronous_commit', 'off', true))
update owner o set heartbeat_at = clock_timestamp() from quick
where o.clone_id = any(%(clones)s::bigint[]) and o.pid = %(pid)s

-- name: release
-- Leave nothing that looks alive.
with gone as (delete from owner where clone_id = %(clone_id)s and pid = %(pid)s)
select pg_advisory_unlock(%(key)s::bigint)
