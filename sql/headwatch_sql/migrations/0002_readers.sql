-- What any reader in any language uses: views and functions, all SECURITY INVOKER with a pinned search path.

create function headwatch.tokens(source text) returns text[]
language sql immutable parallel safe set search_path = headwatch, public, pg_temp as $$
    -- Fixed-length patterns without alternation, so that every regular-expression engine splits alike.
    with word as (
        select x.n, trim(both '_' from x.found[1]) as whole
        from regexp_matches(source, '[^\x01-\x2f\x3a-\x40\x5b-\x5e\x60\x7b-\x7f]+', 'g') with ordinality as x (found, n)
    ), split as (
        select w.n, w.whole, array_remove(string_to_array(
            regexp_replace(regexp_replace(regexp_replace(regexp_replace(w.whole,
                '([a-z])([A-Z])', '\1_\2', 'g'),
                '([A-Z])([A-Z][a-z])', '\1_\2', 'g'),
                '([A-Za-z])([0-9])', '\1_\2', 'g'),
                '([0-9])([A-Za-z])', '\1_\2', 'g'), '_'), '') as parts
        from word w
        where w.whole <> ''
    )
    select coalesce(array_agg(lower(t.token collate "C") order by s.n, t.m) filter (where length(t.token) <= 64), '{}')
    from split s, unnest(case when cardinality(s.parts) > 1 then array_prepend(s.whole, s.parts) else s.parts end)
        with ordinality as t (token, m);
$$;
comment on function headwatch.tokens(text) is
    'Lexical tokens of a text: each identifier of several parts whole, then every camelCase, snake_case and digit part.';

-- Functions of one expression, and with their names resolved when they are made: the planner puts them into the query.

create function headwatch.path_role(path text) returns text
language sql immutable parallel safe
return case
    when path ~* '(^|/)(tests?|testing|__tests__|testdata|spec|specs|fixtures?)/'
        or path ~ '(^|/)(test_[^/]*|conftest|[^/]*(_test|[._-]test|[._-]spec|_spec))\.[A-Za-z0-9]+$'
        or path ~ '[a-z0-9]Tests?\.[A-Za-z]+$' then 'test'
    when path ~* '(^|/)(examples?|demos?|samples?|tutorials?|benchmarks?|bench)/' then 'example'
    when path ~* '(^|/)(vendor|vendored|third_party|node_modules|dist|_vendor)/' then 'vendored'
    when path ~* '(^|/)docs?/' or path ~* '\.(md|rst|txt|adoc)$' then 'document'
    when path ~* '(^|/)(legacy|deprecated|compat|locales?)/' then 'legacy'
    else 'source'
end;
comment on function headwatch.path_role(text) is
    'What a path is for: source, test, example, vendored, document or legacy. All but source are demoted.';

create function headwatch.glob_pattern(glob text) returns text
language sql immutable parallel safe
return '^' || case when strpos(glob, '/') = 0 then '(.*/)?' else '' end
    || replace(replace(replace(replace(replace(replace(
        regexp_replace(rtrim(ltrim(glob, '/'), '/'), '([.+^$()\[\]{}|\\])', '\\\1', 'g'),
        '**/', E'\x01'), '**', E'\x02'), '*', '[^/]*'), '?', '[^/]'), E'\x01', '(.*/)?'), E'\x02', '.*')
    || '(/.*)?$';
comment on function headwatch.glob_pattern(text) is
    'Regular expression of a path glob: * and ? stay inside a folder, ** crosses folders, a folder covers what is below.';

create function headwatch.name_parts(name text) returns text[]
language sql immutable parallel safe
return string_to_array(
    case when name ~ '^[a-z_]*$' then name
    else lower(regexp_replace(regexp_replace(regexp_replace(regexp_replace(regexp_replace(name,
        '[\x01-\x2f\x3a-\x40\x5b-\x5e\x60\x7b-\x7f]+', '_', 'g'),
        '([a-z])([A-Z])', '\1_\2', 'g'),
        '([A-Z])([A-Z][a-z])', '\1_\2', 'g'),
        '([A-Za-z])([0-9])', '\1_\2', 'g'),
        '([0-9])([A-Za-z])', '\1_\2', 'g') collate "C") end, '_');
comment on function headwatch.name_parts(text) is
    'The camelCase, snake_case and digit parts of a name, in ASCII lower case; empty strings between separators.';

create function headwatch.name_overlap(name text, words text[]) returns float8
language plpgsql immutable parallel safe set search_path = headwatch, public, pg_temp as $$
declare
    parts text[] := array_remove(name_parts(name), '');
    part text;
    all_parts int := cardinality(parts);
    wanted int := 0;
begin
    foreach part in array parts loop
        if part = any(words) then wanted := wanted + 1; end if;
    end loop;
    if all_parts > 1 then
        if lower(name collate "C") = any(words) then wanted := wanted + 1; end if;
        all_parts := all_parts + 1;
    end if;
    return case when all_parts = 0 then 0 else wanted / all_parts::float8 end;
end $$;
comment on function headwatch.name_overlap(text, text[]) is
    'Share of a name''s tokens (its parts, and itself where it has several) that are among words, 0 to 1.';

create view headwatch.live_symbol with (security_invoker = true) as
select f.worktree_id, f.path, s.qualname, s.kind, s.language, s.start_line, s.end_line, s.signature,
    convert_from(substr(b.source, s.start_byte + 1, s.end_byte - s.start_byte), 'UTF8') as content,
    f.blob_oid, null::text as last_commit, null::int as age_commits,
    case when w.live_head is not distinct from w.indexed_head then 0 end as commit_distance,
    s.doc, s.name, s.structural_hash, s.body_hash, s.ordinal, f.path_bytes, f.parse_id, f.tenant_id
from headwatch.file f
join headwatch.worktree w on w.tenant_id = f.tenant_id and w.id = f.worktree_id
join headwatch.symbol s on s.tenant_id = f.tenant_id and s.parse_id = f.parse_id
join headwatch.blob b on b.tenant_id = f.tenant_id and b.repository_id = s.repository_id and b.oid = s.blob_oid;
comment on view headwatch.live_symbol is
    'Every symbol that is live in a worktree, with its whole lines as on disk; join worktree for the freshness proof.';
comment on column headwatch.live_symbol.commit_distance is
    'First-parent commits between indexed and live head that touch the path; 0 when up to date, NULL when not counted yet.';

create view headwatch.worktree_now with (security_invoker = true) as
select w.id as worktree_id, w.root, w.branch,
    case when o.alive then w.state else 'unknown' end as state,
    case
        when o.alive then w.reason
        when o.pid is null then 'no daemon has kept this worktree'
        when not o.held then 'its daemon is not running'
        else 'its daemon has been silent since ' || to_char(o.heartbeat_at at time zone 'utc', 'YYYY-MM-DD HH24:MI:SS "UTC"')
    end as reason,
    w.live_head, w.indexed_head, w.dirty_digest, w.dirty_files, w.generation, w.applied_at,
    o.pid as owner_pid, o.heartbeat_at, w.repository_id, w.state as written_state
from headwatch.worktree w
left join lateral (
    select x.pid, x.heartbeat_at, l.held, l.held and x.heartbeat_at > clock_timestamp() - interval '30 seconds' as alive
    from headwatch.owner x
    cross join lateral (
        select exists (
            select from pg_locks k
            where k.locktype = 'advisory' and k.granted and k.objsubid = 1
                and k.database = (select d.oid from pg_database d where d.datname = current_database())
                and k.classid = ((x.lock_key >> 32) & 4294967295)::oid and k.objid = (x.lock_key & 4294967295)::oid
        ) as held) l
    where x.tenant_id = w.tenant_id and x.clone_id = w.clone_id
) o on true;
comment on view headwatch.worktree_now is
    'worktree with a state that a dead or silent daemon cannot leave behind: unknown unless its lock is held and its '
    'heartbeat is younger than 30 s.';

create function headwatch.worktree_state(root text)
returns setof headwatch.worktree_now
language sql stable set search_path = headwatch, public, pg_temp as $$
    select * from worktree_now w where w.root = worktree_state.root;
$$;
comment on function headwatch.worktree_state(text) is
    'The freshness proof of the worktree at an absolute path; state is unknown when its daemon is dead or silent.';

create function headwatch.active_model() returns table (id int, name text, revision text, dim int)
language sql stable set search_path = headwatch, public, pg_temp as $$
    select m.id, m.name, m.revision, m.dim from model m where m.active;
$$;
comment on function headwatch.active_model() is 'The model whose vectors search_code compares with.';

create function headwatch.compare_worktrees(a bigint, b bigint)
returns table (path text, qualname text, difference text)
language sql stable set search_path = headwatch, public, pg_temp as $$
    with x as (select f.path, s.qualname, substr(t.source, s.start_byte + 1,
                   s.end_byte - s.start_byte) as content
               from file f join symbol s using (tenant_id, parse_id)
               join blob t on t.tenant_id = s.tenant_id and t.repository_id = s.repository_id and t.oid = s.blob_oid
               where f.worktree_id = a and not exists (select from file o where o.worktree_id = b and o.path = f.path
                   and o.parse_id = f.parse_id)),
        y as (select f.path, s.qualname, substr(t.source, s.start_byte + 1,
                   s.end_byte - s.start_byte) as content
               from file f join symbol s using (tenant_id, parse_id)
               join blob t on t.tenant_id = s.tenant_id and t.repository_id = s.repository_id and t.oid = s.blob_oid
               where f.worktree_id = b and not exists (select from file o where o.worktree_id = a and o.path = f.path
                   and o.parse_id = f.parse_id))
    select coalesce(x.path, y.path), coalesce(x.qualname, y.qualname),
        case when y.path is null then 'only in a' when x.path is null then 'only in b' else 'differs' end
    from x full join y on x.path = y.path and x.qualname = y.qualname
    where x.content is distinct from y.content
    order by 1, 2;
$$;
comment on function headwatch.compare_worktrees(bigint, bigint) is
    'Symbols that differ between two worktrees, and how: only in a, only in b, differs.';

select headwatch.grant_to_roles('headwatch.live_symbol, headwatch.worktree_now', 'select', 'select');
