-- name: roles
-- The three logins of the embedded server. None is a superuser: row-level security does not bind one.
do $$
declare
    login text;
begin
    foreach login in array array['headwatch_owner', 'headwatch_writer', 'headwatch_reader'] loop
        if not exists (select from pg_catalog.pg_roles where rolname = login) then
            execute format('create role %I login nosuperuser nobypassrls nocreatedb nocreaterole noreplication', login);
        end if;
    end loop;
end
$$;

-- name: database_exists
-- Whether the embedded server was set up before.
select exists (select from pg_catalog.pg_database where datname = 'headwatch');

-- name: create_database
-- Cannot run in a transaction; template0 keeps out what a site adds to template1.
create database headwatch owner headwatch_owner encoding 'UTF8' template template0;

-- name: privileges
-- Run in the database itself, by its administrator. The writer needs temporary tables for COPY.
do $$
begin
    execute format('revoke all on database %I from public', current_database());
    execute format('grant connect, temporary on database %I to headwatch_writer', current_database());
    execute format('grant connect on database %I to headwatch_reader', current_database());
    revoke create on schema public from public;
    grant usage on schema public to headwatch_owner, headwatch_writer, headwatch_reader;
end
$$;

-- name: create_vector
-- pgvector is not a trusted extension: only a superuser may do this.
create extension if not exists vector with schema public;

-- name: server_info
-- What headwatch must know of a server before it uses it.
select current_setting('server_version') as server_version,
       current_setting('server_version_num')::int as version_num,
       current_database()::text as database,
       (select rolsuper from pg_catalog.pg_roles where rolname = current_user) as superuser,
       (select extversion from pg_catalog.pg_extension where extname = 'vector') as vector_version,
       exists (select from pg_catalog.pg_available_extensions where name = 'vector') as vector_available;
