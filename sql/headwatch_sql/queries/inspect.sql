-- name: table_sizes
-- What takes the room: every table and index of the schema; a partitioned one counts with its partitions.
with recursive tree as (
    select oid as top, oid from pg_class
    where relnamespace = 'headwatch'::regnamespace and relkind in ('r', 'p') and not relispartition
    union all
    select tree.top, child.inhrelid from tree join pg_inherits child on child.inhparent = tree.oid
)
select top.relname::text as name,
       sum(greatest(part.reltuples, 0))::bigint as rows,
       sum(pg_table_size(tree.oid))::bigint as table_bytes,
       sum(pg_indexes_size(tree.oid))::bigint as index_bytes
from tree
join pg_class top on top.oid = tree.top
join pg_class part on part.oid = tree.oid
group by top.relname
order by sum(pg_total_relation_size(tree.oid)) desc, top.relname;

-- name: database_size
-- The whole database, catalogs included.
select pg_database_size(current_database());

-- name: dead_letters
-- What failed for good, by kind and reason, the most frequent first.
select kind, reason, count(*) from headwatch.dead_letter group by kind, reason order by count(*) desc, kind, reason;

-- name: roots
-- Where the registered worktrees lie, to look at their own configuration.
select w.root from headwatch.worktree w join headwatch.clone c on c.id = w.clone_id where c.host = %(host)s order by w.root;
