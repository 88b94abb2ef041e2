-- The first schema: every table under its contract name, with a tenant and a forced policy from the start.
-- Runs as the objects' owner, which must not be a superuser (FORCE does not bind one).

do $$
begin
    if to_regnamespace('headwatch') is null and not has_database_privilege(current_database(), 'create') then
        raise exception 'login % may not create a schema in database %', current_user, current_database()
            using hint = format('as an administrator of this server run: grant create on database %I to %I',
                                current_database(), current_user), errcode = 'insufficient_privilege';
    end if;
    if not exists (select from pg_extension where extname = 'vector') then
        raise exception 'extension "vector" is not installed in database %', current_database()
            using hint = 'as an administrator of this server, in this database, run: create extension vector';
    end if;
end $$;

create schema if not exists headwatch;

-- Reader and writer roles; a login without CREATEROLE goes on without them and grants nothing.
do $$
declare
    wanted text;
begin
    foreach wanted in array array['headwatch_reader', 'headwatch_writer'] loop
        if not exists (select from pg_roles where rolname = wanted) then
            begin
                execute format('create role %I nologin', wanted);
            exception
                when insufficient_privilege or duplicate_object or unique_violation then null;
            end;
        end if;
        if exists (select from pg_roles where rolname = wanted) then
            execute format('grant usage on schema headwatch to %I', wanted);
        end if;
    end loop;
end $$;

create function headwatch.grant_to_roles(target text, rights_of_reader text, rights_of_writer text) returns void
language plpgsql set search_path = headwatch, public, pg_temp as $$
begin
    if exists (select from pg_roles where rolname = 'headwatch_reader') then
        execute format('grant %s on %s to headwatch_reader', rights_of_reader, target);
    end if;
    if exists (select from pg_roles where rolname = 'headwatch_writer') then
        execute format('grant %s on %s to headwatch_writer', rights_of_writer, target);
    end if;
end $$;
comment on function headwatch.grant_to_roles(text, text, text) is
    'Grant rights on an object to headwatch_reader and headwatch_writer where those roles exist.';
revoke all on function headwatch.grant_to_roles(text, text, text) from public;

create table headwatch.tenant (
    id uuid primary key,
    tenant_id uuid not null generated always as (id) stored,
    name text not null
);
comment on table headwatch.tenant is 'Who owns rows; every table carries a tenant under row-level security.';

-- A tenant with rows here is open to those login roles alone: what isolates tenants on a shared server.
create table headwatch.tenant_access (
    tenant_id uuid not null references headwatch.tenant (id) on delete cascade,
    login name not null,
    primary key (tenant_id, login)
);
comment on table headwatch.tenant_access is
    'Login roles that may use a tenant; a tenant without rows here is open to every login of this database.';

create function headwatch.tenant_open() returns boolean
language plpgsql stable parallel safe set search_path = headwatch, public, pg_temp as $$
begin
    return not exists (select from tenant_access)
        or exists (select from tenant_access a where a.login = session_user);
end $$;
comment on function headwatch.tenant_open() is 'Whether this session''s login may use the tenant it has set.';

-- A partition belongs to one tenant: its policy asks once a statement, not once a row, which keeps scans of postings
-- index-only.
create function headwatch.protect(target regclass, only_tenant uuid default null) returns void
language plpgsql set search_path = headwatch, public, pg_temp as $$
declare
    mine text := 'nullif(current_setting(''app.current_tenant_id'', true), '''')::uuid';
    open text := case when target <> to_regclass('headwatch.tenant_access') then ' where headwatch.tenant_open()' end;
begin
    execute format('alter table %s enable row level security', target);
    execute format('alter table %s force row level security', target);
    if only_tenant is null then
        execute format('create policy tenant on %s using (tenant_id = (select %s%s))', target, mine, open);
    else
        execute format('alter table %s add check (tenant_id = %L::uuid)', target, only_tenant);
        execute format('create policy tenant on %s using ((select %s = %L::uuid%s))', target, mine, only_tenant, open);
    end if;
    perform grant_to_roles(target::text, 'select',
                           case when open is null then 'select' else 'select, insert, update, delete' end);
end $$;
comment on function headwatch.protect(regclass, uuid) is
    'Put a table under the tenant policy, forced for its owner too, and grant it to the roles.';
revoke all on function headwatch.protect(regclass, uuid) from public;

create function headwatch.current_tenant() returns uuid
language sql stable parallel safe
return nullif(current_setting('app.current_tenant_id', true), '')::uuid;
comment on function headwatch.current_tenant() is 'The tenant that this session has set, or NULL.';

create table headwatch.repository (
    id bigint generated always as identity,
    tenant_id uuid not null default headwatch.current_tenant() references headwatch.tenant (id) on delete cascade,
    name text not null,
    identity text not null,
    object_format text not null default 'sha1',
    default_branch text,
    created_at timestamptz not null default now(),
    primary key (tenant_id, id),
    unique (tenant_id, identity)
);
comment on table headwatch.repository is 'One project, by an identity that is stable across clones and machines.';

create table headwatch.clone (
    id bigint generated always as identity,
    tenant_id uuid not null default headwatch.current_tenant(),
    repository_id bigint not null,
    host text not null,
    common_dir text not null,
    primary key (tenant_id, id),
    unique (tenant_id, host, common_dir),
    foreign key (tenant_id, repository_id) references headwatch.repository (tenant_id, id) on delete cascade
);
comment on table headwatch.clone is 'One object database of a repository on one host.';

create table headwatch.owner (
    tenant_id uuid not null default headwatch.current_tenant(),
    clone_id bigint not null,
    pid int not null,
    lock_key bigint not null,
    heartbeat_at timestamptz not null default now(),
    primary key (tenant_id, clone_id),
    foreign key (tenant_id, clone_id) references headwatch.clone (tenant_id, id) on delete cascade
);
comment on table headwatch.owner is
    'The daemon that keeps a clone: alive while its advisory lock is held and its heartbeat is young.';

create table headwatch.worktree (
    id bigint generated always as identity,
    tenant_id uuid not null default headwatch.current_tenant(),
    repository_id bigint not null,
    clone_id bigint not null,
    root text not null,
    git_dir text not null,
    branch text,
    live_head text check (live_head ~ '^([0-9a-f]{40}|[0-9a-f]{64})$'),
    indexed_head text check (indexed_head ~ '^([0-9a-f]{40}|[0-9a-f]{64})$'),
    dirty_digest text not null default '',
    dirty_files int not null default 0,
    files int not null default 0,
    symbols int not null default 0,
    skipped int not null default 0,
    contents int not null default 0,
    generation bigint not null default 0,
    state text not null default 'pending'
        check (state in ('fresh', 'pending', 'held', 'degraded', 'missing', 'unknown')),
    reason text,
    reflog_cursor jsonb,
    applied_at timestamptz,
    primary key (tenant_id, id),
    unique (tenant_id, clone_id, root),
    foreign key (tenant_id, repository_id) references headwatch.repository (tenant_id, id) on delete cascade,
    foreign key (tenant_id, clone_id) references headwatch.clone (tenant_id, id) on delete cascade
);
comment on table headwatch.worktree is
    'The freshness proof of one checked-out tree: read it in the transaction that reads its rows. '
    'Ask worktree_state() for a state that a dead daemon cannot leave behind.';

create table headwatch.transition (
    id bigint generated always as identity,
    tenant_id uuid not null default headwatch.current_tenant(),
    worktree_id bigint not null,
    old text not null,
    new text not null,
    action text not null,
    message text not null default '',
    at timestamptz not null,
    primary key (tenant_id, id),
    foreign key (tenant_id, worktree_id) references headwatch.worktree (tenant_id, id) on delete cascade
);
create index on headwatch.transition (tenant_id, worktree_id, id desc);
comment on table headwatch.transition is 'What the reflogs recorded, one row a move of HEAD.';

create table headwatch.journal (
    id bigint generated always as identity,
    tenant_id uuid not null default headwatch.current_tenant(),
    worktree_id bigint,
    at timestamptz not null default now(),
    event text not null,
    detail jsonb not null default '{}',
    primary key (tenant_id, id)
);
comment on table headwatch.journal is 'What the daemon did, newest last; `headwatch events` prints it.';

create table headwatch.blob (
    tenant_id uuid not null default headwatch.current_tenant(),
    repository_id bigint not null,
    oid text not null check (oid ~ '^([0-9a-f]{40}|[0-9a-f]{64})$'),
    size_bytes int not null,
    source bytea not null,
    primary key (tenant_id, repository_id, oid),
    foreign key (tenant_id, repository_id) references headwatch.repository (tenant_id, id) on delete cascade
);
-- Stored as it is: a symbol is then read by its bytes alone, whatever the size of its file.
alter table headwatch.blob alter column source set storage external;
comment on table headwatch.blob is
    'File content by git object id: source is the decoded text in UTF-8, empty where it is not indexed.';

create table headwatch.parse (
    id bigint generated always as identity,
    tenant_id uuid not null default headwatch.current_tenant(),
    repository_id bigint not null,
    blob_oid text not null,
    language text not null,
    parser_version int not null,
    status text not null,
    symbols int not null,
    primary key (tenant_id, id),
    unique (tenant_id, repository_id, blob_oid, language, parser_version),
    foreign key (tenant_id, repository_id, blob_oid)
        references headwatch.blob (tenant_id, repository_id, oid) on delete cascade
);
comment on table headwatch.parse is
    'One parse of a blob in one language; status is ok, partial, or the reason why the content is not indexed.';

create table headwatch.symbol (
    tenant_id uuid not null default headwatch.current_tenant(),
    parse_id bigint not null,
    ordinal int not null,
    repository_id bigint not null,
    blob_oid text not null,
    language text not null,
    name text not null,
    name_key text collate "C" not null generated always as (lower(name collate "C")) stored,
    qualname text not null,
    kind text not null
        check (kind in ('function', 'method', 'class', 'interface', 'type', 'constant', 'module', 'section')),
    signature text not null,
    doc text not null,
    start_line int not null,
    end_line int not null,
    start_byte int not null,
    end_byte int not null,
    structural_hash text not null,
    body_hash text not null,
    primary key (tenant_id, parse_id, ordinal),
    foreign key (tenant_id, parse_id) references headwatch.parse (tenant_id, id) on delete cascade
);
-- A column, not an expression: lower() is not leakproof, so the policy would keep such an index from being used.
create index symbol_name on headwatch.symbol (tenant_id, repository_id, name_key);
comment on table headwatch.symbol is
    'A definition found in a blob; its whole lines are blob.source from start_byte (the first is 0) to before end_byte.';

create table headwatch.content (
    id bigint generated always as identity,
    tenant_id uuid not null default headwatch.current_tenant(),
    repository_id bigint not null,
    hash bytea not null,
    text text not null,
    length int not null,
    terms int[] not null,
    frequencies smallint[] not null,
    primary key (tenant_id, id),
    unique (tenant_id, repository_id, hash),
    foreign key (tenant_id, repository_id) references headwatch.repository (tenant_id, id) on delete cascade
);
comment on table headwatch.content is
    'Every distinct chunk text once a repository, as it is embedded; length is its number of tokens.';

create table headwatch.chunk (
    tenant_id uuid not null default headwatch.current_tenant(),
    parse_id bigint not null,
    symbol_ordinal int not null,
    n int not null,
    content_id bigint not null,
    start_line int not null,
    end_line int not null,
    primary key (tenant_id, parse_id, symbol_ordinal, n),
    foreign key (tenant_id, parse_id, symbol_ordinal)
        references headwatch.symbol (tenant_id, parse_id, ordinal) on delete cascade,
    foreign key (tenant_id, content_id) references headwatch.content (tenant_id, id) on delete cascade
);
create index chunk_content on headwatch.chunk (tenant_id, content_id);
comment on table headwatch.chunk is 'Which content a symbol has: one row, or several where it is long.';

create table headwatch.file (
    tenant_id uuid not null default headwatch.current_tenant(),
    worktree_id bigint not null,
    path text not null,
    path_bytes bytea,
    blob_oid text not null,
    mode int not null,
    parse_id bigint not null,
    unique nulls not distinct (tenant_id, worktree_id, path, path_bytes),
    foreign key (tenant_id, worktree_id) references headwatch.worktree (tenant_id, id) on delete cascade,
    foreign key (tenant_id, parse_id) references headwatch.parse (tenant_id, id)
);
create index file_parse on headwatch.file (tenant_id, parse_id, worktree_id);
comment on table headwatch.file is
    'Thin membership of one worktree: all that a branch switch rewrites. path_bytes is set where path is not UTF-8.';

create table headwatch.skipped (
    tenant_id uuid not null default headwatch.current_tenant(),
    worktree_id bigint not null,
    path text not null,
    path_bytes bytea,
    reason text not null,
    size bigint,
    unique nulls not distinct (tenant_id, worktree_id, path, path_bytes),
    foreign key (tenant_id, worktree_id) references headwatch.worktree (tenant_id, id) on delete cascade
);
comment on table headwatch.skipped is 'Files that are listed but not indexed, each with its reason.';

create table headwatch.visible (
    tenant_id uuid not null default headwatch.current_tenant(),
    worktree_id bigint not null,
    content_id bigint not null,
    n int not null check (n > 0),
    primary key (tenant_id, worktree_id, content_id),
    foreign key (tenant_id, worktree_id) references headwatch.worktree (tenant_id, id) on delete cascade,
    foreign key (tenant_id, content_id) references headwatch.content (tenant_id, id) on delete cascade
);
create index visible_content on headwatch.visible (tenant_id, content_id);
comment on table headwatch.visible is 'How many chunks of a worktree have a content: the filter of every search.';

create table headwatch.term (
    id int generated always as identity,
    tenant_id uuid not null default headwatch.current_tenant() references headwatch.tenant (id) on delete cascade,
    text text not null collate "C",
    primary key (tenant_id, id),
    unique (tenant_id, text)
);
comment on table headwatch.term is 'Identifiers and their parts, lower case.';

create table headwatch.term_stat (
    tenant_id uuid not null default headwatch.current_tenant(),
    repository_id bigint not null,
    term_id int not null,
    df int not null,
    primary key (tenant_id, repository_id, term_id),
    foreign key (tenant_id, repository_id) references headwatch.repository (tenant_id, id) on delete cascade
) with (fillfactor = 70);
comment on table headwatch.term_stat is 'In how many live contents of a repository a term occurs.';

create table headwatch.repo_stat (
    tenant_id uuid not null default headwatch.current_tenant(),
    repository_id bigint not null,
    contents bigint not null,
    tokens bigint not null,
    primary key (tenant_id, repository_id),
    foreign key (tenant_id, repository_id) references headwatch.repository (tenant_id, id) on delete cascade
);
comment on table headwatch.repo_stat is 'Live contents of a repository and the sum of their lengths (BM25).';

create table headwatch.posting (
    tenant_id uuid not null default headwatch.current_tenant(),
    repository_id bigint not null,
    term_id int not null,
    content_id bigint not null,
    tf smallint not null,
    length int not null
) partition by list (repository_id);
comment on table headwatch.posting is 'Term → contents, one partition a repository (posting_r<id>); read index-only.';

create table headwatch.model (
    id int generated always as identity,
    tenant_id uuid not null default headwatch.current_tenant() references headwatch.tenant (id) on delete cascade,
    name text not null,
    revision text not null,
    dim int not null check (dim between 1 and 16000),
    active boolean not null default false,
    primary key (tenant_id, id),
    unique (tenant_id, name, revision)
);
create unique index model_active on headwatch.model (tenant_id) where active;
comment on table headwatch.model is 'Embedding models; exactly one of a tenant is active. Vectors: code_vector_m<id>.';

create table headwatch.dead_letter (
    id bigint generated always as identity,
    tenant_id uuid not null default headwatch.current_tenant(),
    kind text not null,
    repository_id bigint not null,
    content_id bigint,
    model_id int,
    reason text not null,
    attempts int not null,
    at timestamptz not null default now(),
    primary key (tenant_id, id),
    foreign key (tenant_id, repository_id) references headwatch.repository (tenant_id, id) on delete cascade,
    foreign key (tenant_id, content_id) references headwatch.content (tenant_id, id) on delete cascade
);
create unique index dead_letter_embed on headwatch.dead_letter (tenant_id, model_id, content_id)
    where kind = 'embed';
comment on table headwatch.dead_letter is 'What failed for good, why, and how often it was tried.';

create table headwatch.setting (
    tenant_id uuid not null default headwatch.current_tenant() references headwatch.tenant (id) on delete cascade,
    key text not null,
    value jsonb not null,
    primary key (tenant_id, key)
);
comment on table headwatch.setting is 'Configuration keys that the SQL functions read; the daemon fills it.';

select headwatch.protect(format('headwatch.%I', relname)::regclass)
from pg_class where relnamespace = 'headwatch'::regnamespace and relkind in ('r', 'p');

create function headwatch.one_at_a_time(name text) returns void
language sql set search_path = headwatch, public, pg_temp as $$
    select pg_advisory_xact_lock(0x6876, hashtext(name));
$$;
comment on function headwatch.one_at_a_time(text) is 'Let one transaction at a time make the object of a name.';

-- Partitions are made standalone, get their policy, and are attached when their index is built.

create function headwatch.provision_repository(repository bigint) returns text
language plpgsql security definer set search_path = headwatch, public, pg_temp as $$
declare
    partition text := format('posting_r%s', repository);
begin
    if not exists (select from repository r where r.id = repository) then
        raise exception 'repository % does not exist in this tenant', repository
            using hint = 'select id, name from headwatch.repository';
    end if;
    perform one_at_a_time(partition);
    if to_regclass('headwatch.' || partition) is not null then
        return null;
    end if;
    execute format('create table %I (like posting including defaults, check (repository_id = %s))', partition, repository);
    execute format('alter table %I set (autovacuum_vacuum_insert_scale_factor = 0.05)', partition);
    execute format('comment on table %I is %L', partition, format('Postings of repository %s.', repository));
    perform protect(format('headwatch.%I', partition)::regclass, current_tenant());
    return partition;
end $$;
comment on function headwatch.provision_repository(bigint) is
    'Make a repository''s posting partition, not yet attached, and return its name; NULL when it exists.';

create function headwatch.attach_repository(repository bigint) returns void
language plpgsql security definer set search_path = headwatch, public, pg_temp as $$
declare
    partition text := format('posting_r%s', repository);
begin
    if not exists (select from repository r where r.id = repository) then
        raise exception 'repository % does not exist in this tenant', repository
            using hint = 'select id, name from headwatch.repository';
    end if;
    execute format('create index on %I (term_id, content_id) include (tf, length)', partition);
    execute format('alter table posting attach partition %I for values in (%s)', partition, repository);
    execute format('analyze %I, parse, symbol, chunk, content, term', partition);
end $$;
comment on function headwatch.attach_repository(bigint) is
    'Index a filled posting partition and attach it (first index: fill, then build).';

create function headwatch.provision_model(model_name text, model_revision text, model_dim int) returns int
language plpgsql security definer set search_path = headwatch, public, pg_temp as $$
declare
    model_id int;
    parent text;
begin
    perform one_at_a_time('model');
    select m.id into model_id from model m where m.name = model_name and m.revision = model_revision;
    if model_id is null then
        insert into model (name, revision, dim, active)
        values (model_name, model_revision, model_dim, not exists (select from model m where m.active))
        returning id into model_id;
        parent := format('code_vector_m%s', model_id);
        execute format(
            'create table %I (tenant_id uuid not null default headwatch.current_tenant(), '
            'repository_id bigint not null, content_id bigint not null, embedding halfvec(%s) not null) '
            'partition by list (repository_id)', parent, model_dim);
        execute format('comment on table %I is %L', parent,
                       format('Vectors of model %s (%s), one partition a repository.', model_name, model_revision));
        perform protect(format('headwatch.%I', parent)::regclass);
    elsif (select m.dim from model m where m.id = model_id) <> model_dim then
        raise exception 'model % revision % has % dimensions, not %', model_name, model_revision,
            (select m.dim from model m where m.id = model_id), model_dim;
    end if;
    return model_id;
end $$;
comment on function headwatch.provision_model(text, text, int) is
    'Register a model and its vector table; the first model of a tenant is active at once.';

create function headwatch.provision_vectors(model int, repository bigint) returns void
language plpgsql security definer set search_path = headwatch, public, pg_temp as $$
declare
    parent text := format('code_vector_m%s', model);
    partition text := format('code_vector_m%s_r%s', model, repository);
    dimensions int := (select m.dim from model m where m.id = model);
begin
    if dimensions is null or not exists (select from repository r where r.id = repository) then
        raise exception 'model % or repository % does not exist in this tenant', model, repository
            using hint = 'select * from headwatch.model; select id, name from headwatch.repository';
    end if;
    perform one_at_a_time(partition);
    if to_regclass('headwatch.' || partition) is not null then
        return;
    end if;
    execute format('create table %I (like %I including defaults, primary key (content_id, tenant_id), '
                   'check (repository_id = %s))', partition, parent, repository);
    execute format('comment on table %I is %L', partition,
                   format('Vectors of model %s for repository %s.', model, repository));
    execute format('alter table %I add foreign key (tenant_id, content_id) '
                   'references content (tenant_id, id) on delete cascade', partition);
    perform protect(format('headwatch.%I', partition)::regclass, current_tenant());
    execute format('alter table %I attach partition %I for values in (%s)', parent, partition, repository);
end $$;
comment on function headwatch.provision_vectors(int, bigint) is
    'Make a repository''s partition of a model''s vectors; it is searched exactly until index_vectors has indexed it.';

-- Filled first, indexed then: an HNSW index takes vectors in bulk five times faster than one by one.
create function headwatch.index_vectors(model int, repository bigint) returns boolean
language plpgsql security definer set search_path = headwatch, public, pg_temp as $$
declare
    partition text := format('code_vector_m%s_r%s', model, repository);
    enough boolean;
begin
    if not exists (select from repository r where r.id = repository)
        or not exists (select from model m where m.id = model and m.dim <= 4000)
        or to_regclass('headwatch.' || partition) is null then
        return false;
    end if;
    perform one_at_a_time(partition);
    if to_regclass(format('headwatch.%s_hnsw', partition)) is not null then
        return false;
    end if;
    execute format('select count(*) >= 5000 from (select from %I limit 5000) x', partition) into enough;
    if enough then
        execute format('create index %I on %I using hnsw (embedding halfvec_cosine_ops) '
                       'with (m = 16, ef_construction = 64)', partition || '_hnsw', partition);
    end if;
    execute format('analyze %I', partition);
    return enough;
end $$;
comment on function headwatch.index_vectors(int, bigint) is
    'Build the HNSW index of a repository''s vectors, once there are so many that it is faster than an exact search.';

create function headwatch.drop_repository(repository bigint) returns void
language plpgsql security definer set search_path = headwatch, public, pg_temp as $$
declare
    partition text;
begin
    if not exists (select from repository r where r.id = repository) then
        return;
    end if;
    for partition in
        select relname from pg_class
        where relnamespace = 'headwatch'::regnamespace and relkind = 'r'
            and (relname = format('posting_r%s', repository) or relname ~ format('^code_vector_m\d+_r%s$', repository))
    loop
        execute format('drop table %I', partition);
    end loop;
    delete from repository r where r.id = repository;
end $$;
comment on function headwatch.drop_repository(bigint) is 'Remove a repository with all its rows and partitions.';

revoke all on function headwatch.provision_repository(bigint), headwatch.attach_repository(bigint),
    headwatch.provision_model(text, text, int), headwatch.provision_vectors(int, bigint),
    headwatch.index_vectors(int, bigint), headwatch.drop_repository(bigint) from public;
do $$
begin
    if exists (select from pg_roles where rolname = 'headwatch_writer') then
        grant execute on function headwatch.provision_repository(bigint), headwatch.attach_repository(bigint),
            headwatch.provision_model(text, text, int), headwatch.provision_vectors(int, bigint),
            headwatch.index_vectors(int, bigint), headwatch.drop_repository(bigint) to headwatch_writer;
    end if;
end $$;
