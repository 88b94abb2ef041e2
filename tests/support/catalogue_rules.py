"""What the catalogue must say of every object of the schema, those of a repository and a model included."""

from __future__ import annotations

from typing import Any

import psycopg

RULES = {
    "tables without tenant_id": """
        select c.relname from pg_class c where c.relnamespace = 'headwatch'::regnamespace and c.relkind in ('r', 'p')
            and not exists (select from pg_attribute a
                where a.attrelid = c.oid and a.attname = 'tenant_id' and a.attnotnull)""",
    "tables without forced row-level security": """
        select c.relname from pg_class c where c.relnamespace = 'headwatch'::regnamespace and c.relkind in ('r', 'p')
            and not (c.relrowsecurity and c.relforcerowsecurity)""",
    "tables without a policy on the tenant, for reading and for writing": """
        select c.relname from pg_class c where c.relnamespace = 'headwatch'::regnamespace and c.relkind in ('r', 'p')
            and not exists (select from pg_policies p where p.schemaname = 'headwatch' and p.tablename = c.relname
                and p.cmd = 'ALL' and p.permissive = 'PERMISSIVE' and p.qual like '%app.current_tenant_id%')""",
    "tables with more than one policy": """
        select tablename from pg_policies where schemaname = 'headwatch' group by 1 having count(*) <> 1""",
    "unique keys without the tenant": """
        select i.indexrelid::regclass::text from pg_index i join pg_class c on c.oid = i.indrelid
        where c.relnamespace = 'headwatch'::regnamespace and c.relname <> 'tenant' and i.indisunique
            and not exists (select from pg_attribute a where a.attrelid = c.oid and a.attnum = any(i.indkey)
                and a.attname = 'tenant_id')""",
    "foreign keys without the tenant": """
        select k.conname || ' of ' || k.conrelid::regclass from pg_constraint k
        where k.connamespace = 'headwatch'::regnamespace and k.contype = 'f'
            and not exists (select from pg_attribute a where a.attrelid = k.conrelid and a.attnum = any(k.conkey)
                and a.attname = 'tenant_id')""",
    "views that run as their owner": """
        select c.relname from pg_class c where c.relnamespace = 'headwatch'::regnamespace and c.relkind in ('v', 'm')
            and not coalesce(c.reloptions @> '{security_invoker=true}', false)""",
    "functions whose names another schema could take": """
        select p.oid::regprocedure::text from pg_proc p where p.pronamespace = 'headwatch'::regnamespace
            and p.prosqlbody is null
            and not exists (select from unnest(p.proconfig) s where s = 'search_path=headwatch, public, pg_temp')""",
    "functions put into queries that read tables": """
        select p.oid::regprocedure::text from pg_proc p where p.pronamespace = 'headwatch'::regnamespace
            and p.prosqlbody is not null and (p.prosecdef or p.proconfig is not null
                or exists (select from pg_depend d where d.classid = 'pg_proc'::regclass and d.objid = p.oid
                    and d.refclassid = 'pg_class'::regclass))""",
    "functions with their owner's rights that anybody may call": """
        select p.oid::regprocedure::text from pg_proc p where p.pronamespace = 'headwatch'::regnamespace and p.prosecdef
            and (p.proacl is null or exists (select from aclexplode(p.proacl) a where a.grantee = 0))""",
    "functions with their owner's rights that the reader may call": """
        select p.oid::regprocedure::text from pg_proc p where p.pronamespace = 'headwatch'::regnamespace and p.prosecdef
            and has_function_privilege('headwatch_reader', p.oid, 'execute')""",
    "functions that the reader needs and may not call": """
        select p.oid::regprocedure::text from pg_proc p where p.pronamespace = 'headwatch'::regnamespace
            and p.proname in ('search_code', 'search_lexical', 'search_dense', 'worktree_state', 'compare_worktrees',
                'active_model', 'tokens', 'schema_version')
            and not has_function_privilege('headwatch_reader', p.oid, 'execute')""",
    "relations that the reader may change, or may not read": """
        select c.relname from pg_class c
        where c.relnamespace = 'headwatch'::regnamespace and c.relkind in ('r', 'p', 'v')
            and (has_table_privilege('headwatch_reader', c.oid, 'insert, update, delete, truncate, references, trigger')
                or not has_table_privilege('headwatch_reader', c.oid, 'select'))""",
    "relations without a comment": """
        select c.relname from pg_class c where c.relnamespace = 'headwatch'::regnamespace
            and c.relkind in ('r', 'p', 'v', 'm', 'c') and coalesce(obj_description(c.oid, 'pg_class'), '') = ''
            and not (c.relkind = 'c' and exists (select from pg_type t where t.typrelid = c.oid
                and obj_description(t.oid, 'pg_type') <> ''))""",
    "functions without a comment": """
        select p.oid::regprocedure::text from pg_proc p where p.pronamespace = 'headwatch'::regnamespace
            and coalesce(obj_description(p.oid, 'pg_proc'), '') = ''""",
    "our logins that row-level security does not bind": """
        select rolname from pg_roles where rolname like 'headwatch\\_%' and (rolsuper or rolbypassrls)""",
    "objects of a superuser": """
        select c.relname from pg_class c join pg_roles r on r.oid = c.relowner
        where c.relnamespace = 'headwatch'::regnamespace and (r.rolsuper or r.rolbypassrls)""",
    "mutable columns on rows under HNSW": """
        select a.attrelid::regclass || '.' || a.attname from pg_attribute a join pg_class c on c.oid = a.attrelid
        where c.relnamespace = 'headwatch'::regnamespace and c.relname like 'code\\_vector\\_m%' and a.attnum > 0
            and a.attname not in ('tenant_id', 'repository_id', 'content_id', 'embedding')""",
}  # fmt: skip


def broken(conn: psycopg.Connection[Any], rule: str) -> list[str]:
    """List the objects that break a rule."""
    return [row[0] for row in conn.execute(RULES[rule].encode()).fetchall()]
