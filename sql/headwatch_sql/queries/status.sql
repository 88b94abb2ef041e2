-- name: database
-- Versions and size of the database that is connected to.
select current_setting('server_version'), (select extversion from pg_extension where extname = 'vector'),
    headwatch.schema_version(), pg_database_size(current_database())

-- name: visible
-- Every content waits while no model is known.
select worktree_id, count(*) from visible group by worktree_id

-- name: dead_letters
-- What was given up.
select count(*) from dead_letter

-- name: set_setting
-- Configuration keys that the SQL functions read.
insert into setting (key, value) select * from unnest(%(keys)s::text[], %(values)s::jsonb[])
on conflict (tenant_id, key) do update set value = excluded.value where setting.value <> excluded.value
