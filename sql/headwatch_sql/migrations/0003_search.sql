-- Search inside the database: BM25 over postings, vectors, reciprocal rank fusion and explainable features.

-- Loads the library: only then may an ordinary login attach its settings to a function.
select '[1]'::halfvec(1);

create function headwatch.search_lexical(query text, worktree bigint, candidates int, only_path text default null,
    only_language text default null, only_kind text default null, no_tests boolean default false)
returns table (content_id bigint, bm25 float8)
language plpgsql stable set search_path = headwatch, public, pg_temp as $$
#variable_conflict use_column
declare
    repo bigint := (select w.repository_id from worktree w where w.id = worktree);
    n float8;
    mean float8;
    filtered boolean := only_path is not null or only_language is not null or only_kind is not null or no_tests;
begin
    select r.contents, greatest(r.tokens, 1)::float8 / greatest(r.contents, 1) into n, mean
    from repo_stat r where r.repository_id = repo;
    if n is null then
        return;
    end if;
    -- Okapi BM25, k1 1.2 and b 0.75, over the repository's live contents; exact.
    return query execute
        'with wanted as materialized ('
        '    select t.id, ln(1 + ($3 - coalesce(s.df, 0) + 0.5::float8) / (coalesce(s.df, 0) + 0.5::float8)) * 2.2::float8 as weight'
        '    from (select distinct unnest(headwatch.tokens($1)) as text) q'
        '    join term t on t.text = q.text'
        '    left join term_stat s on s.repository_id = $2 and s.term_id = t.id), '
        'scored as materialized ('
        '    select p.content_id, sum(w.weight * p.tf / (p.tf + 0.3::float8 + p.length * $4)) as bm25'
        '    from wanted w join posting p on p.term_id = w.id'
        '    where p.repository_id = $2 group by p.content_id) '
        'select s.content_id, s.bm25 from scored s where '
        || case when filtered then
            'exists (select from chunk c join file f on f.parse_id = c.parse_id and f.worktree_id = $5'
            '    join symbol y on y.parse_id = c.parse_id and y.ordinal = c.symbol_ordinal'
            '    where c.content_id = s.content_id and ($7 is null or f.path ~ glob_pattern($7))'
            '    and ($8 is null or y.language = $8) and ($9 is null or y.kind = $9)'
            '    and (not $10 or path_role(f.path) <> ''test''))'
        else 'exists (select from visible v where v.worktree_id = $5 and v.content_id = s.content_id)' end
        || ' order by s.bm25 desc, s.content_id limit $6'
    using query, repo, n, 0.9::float8 / mean, worktree, candidates, only_path, only_language, only_kind, no_tests;
end $$;
comment on function headwatch.search_lexical(text, bigint, int, text, text, text, boolean) is
    'The best contents of a worktree by Okapi BM25; any term may match.';

create function headwatch.search_dense(query_vec halfvec, worktree bigint, candidates int, only_path text default null,
    only_language text default null, only_kind text default null, no_tests boolean default false)
returns table (content_id bigint, similarity float8)
language plpgsql stable set search_path = headwatch, public, pg_temp
set hnsw.iterative_scan = 'relaxed_order' set hnsw.ef_search = 100 as $$
#variable_conflict use_column
declare
    repo bigint := (select w.repository_id from worktree w where w.id = worktree);
    model_id int;
    model_name text;
    dimensions int;
    live bigint;
    found bigint[];
    filtered boolean := only_path is not null or only_language is not null or only_kind is not null or no_tests;
begin
    select m.id, m.name, m.dim into model_id, model_name, dimensions from model m where m.active;
    if model_id is null or query_vec is null then
        return;
    end if;
    if vector_dims(query_vec) <> dimensions then
        raise exception 'the query vector has % dimensions, the active model % has %', vector_dims(query_vec), model_name, dimensions
            using hint = 'encode the query with the model that active_model() names', errcode = 'data_exception';
    end if;
    live := (select count(*) from (select from visible v where v.worktree_id = worktree limit 5000) x);
    if not filtered and live >= 5000 then
        -- Above the crossover: HNSW in the repository's partition, filtered to the worktree while it is walked.
        execute format(
            'select array_agg(x.content_id) from (select e.content_id from code_vector_m%s e where e.repository_id = %s'
            '    and exists (select from visible v where v.worktree_id = $2 and v.content_id = e.content_id)'
            '    order by e.embedding <=> $1 limit $3) x', model_id, repo)
        into found using query_vec, worktree, candidates;
        if cardinality(found) >= candidates then
            return query execute format(
                'select e.content_id, (1 - (e.embedding <=> $1))::float8 from code_vector_m%s e '
                'where e.repository_id = %s and e.content_id = any($2) order by 2 desc, 1', model_id, repo)
            using query_vec, found;
            return;
        end if;
    end if;
    -- Exact on purpose: few rows, a filter, or a walk that came back short.
    return query execute format(
        'select e.content_id, (1 - (e.embedding <=> $1))::float8 from code_vector_m%s e where e.repository_id = %s and ',
        model_id, repo)
        || case when filtered then
            'exists (select from chunk c join file f on f.parse_id = c.parse_id and f.worktree_id = $2'
            '    join symbol y on y.parse_id = c.parse_id and y.ordinal = c.symbol_ordinal'
            '    where c.content_id = e.content_id and ($4 is null or f.path ~ glob_pattern($4))'
            '    and ($5 is null or y.language = $5) and ($6 is null or y.kind = $6)'
            '    and (not $7 or path_role(f.path) <> ''test''))'
        else 'exists (select from visible v where v.worktree_id = $2 and v.content_id = e.content_id)' end
        || ' order by (e.embedding <=> $1) + 0, e.content_id limit $3'
    using query_vec, worktree, candidates, only_path, only_language, only_kind, no_tests;
end $$;
comment on function headwatch.search_dense(halfvec, bigint, int, text, text, text, boolean) is
    'The nearest contents of a worktree by cosine, never fewer than asked for when they exist; exact below 5,000.';

create function headwatch.search_code(query text, query_vec halfvec, worktree bigint, k int default 10,
    mode text default 'hybrid', only_path text default null, only_language text default null,
    only_kind text default null, tests text default 'demote', candidates int default 40, rrf_k int default 60)
returns table (rank int, path text, path_bytes bytea, qualname text, kind text, language text, start_line int,
    end_line int, signature text, content text, blob_oid text, score float8, similarity float8, bm25 float8, parts jsonb)
language plpgsql stable set search_path = headwatch, public, pg_temp as $$
#variable_conflict use_column
declare
    repo bigint := (select w.repository_id from worktree w where w.id = worktree);
    words text[] := tokens(query);
    unit float8 := 1.0 / (rrf_k + 1);
    width int := greatest(candidates, 2 * k);
    asks_for_tests boolean := words && array['test', 'tests', 'testing', 'spec', 'specs', 'fixture', 'fixtures', 'mock'];
    named text[];
begin
    if repo is null then
        raise exception 'worktree % is not known', worktree using hint = 'select id, root from headwatch.worktree';
    end if;
    if mode not in ('hybrid', 'lexical', 'dense') or tests not in ('demote', 'equal', 'exclude') then
        raise exception 'mode is hybrid, lexical or dense; tests is demote, equal or exclude';
    end if;
    -- Words that are written as a name, or that are all there is, may name a definition.
    named := array(
        select distinct lower(x.found[1] collate "C")
        from regexp_matches(query, '[A-Za-z_$][A-Za-z0-9_$]*', 'g') as x (found)
        where length(x.found[1]) > 2 and (x.found[1] ~ '[a-z][A-Z]|[A-Za-z0-9]_[A-Za-z0-9]|[A-Za-z][0-9]|^[A-Z]|^_'
            or query !~ '\s'));
    return query
    with lexical as materialized (
        select l.content_id, l.bm25, row_number() over (order by l.bm25 desc, l.content_id) as place
        from search_lexical(query, worktree, width, only_path, only_language, only_kind, tests = 'exclude') l
        where mode <> 'dense'
    ), dense as materialized (
        select d.content_id, d.similarity, row_number() over (order by d.similarity desc, d.content_id) as place
        from search_dense(query_vec, worktree, width, only_path, only_language, only_kind, tests = 'exclude') d
        where mode <> 'lexical'
    ), fused as materialized (
        select coalesce(l.content_id, d.content_id) as content_id, l.bm25, d.similarity,
            coalesce(1.0::float8 / (rrf_k + l.place), 0) as lexical, coalesce(1.0::float8 / (rrf_k + d.place), 0) as dense
        from lexical l full join dense d on d.content_id = l.content_id
    ), defined as materialized (
        select c.content_id
        from symbol s join file f on f.parse_id = s.parse_id and f.worktree_id = worktree
        join chunk c on c.parse_id = s.parse_id and c.symbol_ordinal = s.ordinal and c.n = 0
        where s.repository_id = repo and lower(s.name collate "C") = any(named) and s.kind <> 'section'
        limit 100
    ), every as (
        select u.content_id, u.bm25, u.similarity, u.lexical, u.dense from fused u
        union all
        select distinct d.content_id, null::float8, null::float8, 0::float8, 0::float8 from defined d
        where not exists (select from fused u where u.content_id = d.content_id)
    ), hit as materialized (
        select distinct on (f.path, f.path_bytes, s.ordinal)
            e.bm25, e.similarity, e.lexical, e.dense, f.path, f.path_bytes, f.blob_oid, f.parse_id, s.ordinal, s.name,
            s.qualname, s.kind, s.language, s.signature, s.start_offset, s.end_offset,
            case when s.kind = 'module' and s.name = '<module>' then c.start_line else s.start_line end as start_line,
            case when s.kind = 'module' and s.name = '<module>' then c.end_line else s.end_line end as end_line,
            path_role(f.path) as role
        from every e
        join chunk c on c.content_id = e.content_id
        join file f on f.parse_id = c.parse_id and f.worktree_id = worktree
        join symbol s on s.parse_id = c.parse_id and s.ordinal = c.symbol_ordinal
        where (only_path is null or f.path ~ glob_pattern(only_path))
            and (only_language is null or s.language = only_language) and (only_kind is null or s.kind = only_kind)
            and (tests <> 'exclude' or path_role(f.path) <> 'test')
        order by f.path, f.path_bytes, s.ordinal, e.lexical + e.dense desc, c.n
    ), featured as (
        select h.*,
            case when lower(h.name collate "C") = any(named) and h.kind <> 'section' then 2 * unit else 0 end as definition,
            0.6 * unit * overlap(tokens(h.name), words) as name_words,
            0.3 * unit * overlap(tokens(regexp_replace(h.path, '^.*/|\.[^./]*$', '', 'g')), words) as stem_words,
            0.1 * unit * least(count(*) over (partition by h.path) - 1, 4) as same_file,
            case when h.role = 'source' or tests = 'equal' and h.role = 'test' or h.role = 'test' and asks_for_tests then 1
                else 0.5 end as demotion
        from hit h
    ), summed as (
        select f.*, (f.lexical + f.dense + f.definition + f.name_words + f.stem_words + f.same_file) * f.demotion as plain
        from featured f
    ), spread as (
        select s.*, power(0.8::float8, row_number() over (partition by s.path order by s.plain desc, s.ordinal) - 1) as repeat
        from summed s
    ), best as (
        select s.*, s.plain * s.repeat as score from spread s
        order by s.plain * s.repeat desc, s.path, s.ordinal limit k
    )
    select (row_number() over (order by b.score desc, b.path, b.ordinal))::int, b.path, b.path_bytes, b.qualname, b.kind,
        b.language, b.start_line, b.end_line, b.signature,
        case when b.name = '<module>' then array_to_string((string_to_array(t.text, E'\n'))[b.start_line:b.end_line], E'\n')
            else substr(t.text, b.start_offset + 1, b.end_offset - b.start_offset) end,
        b.blob_oid, b.score, b.similarity, b.bm25,
        jsonb_build_object('lexical', b.lexical, 'dense', b.dense, 'definition', b.definition, 'name_words', b.name_words,
            'stem_words', b.stem_words, 'same_file', b.same_file, 'demotion', b.demotion, 'repeat', b.repeat)
    from best b join blob t on t.repository_id = repo and t.oid = b.blob_oid
    order by b.score desc, b.path, b.ordinal;
end $$;
comment on function headwatch.search_code(text, halfvec, bigint, int, text, text, text, text, text, int, int) is
    'Live code of one worktree, best first. query_vec may be NULL (lexical). '
    'score = (lexical + dense + definition + name_words + stem_words + same_file) * demotion * repeat, as parts shows.';

create function headwatch.overlap(words text[], wanted text[]) returns float8
language sql immutable parallel safe as $$
    select case when cardinality(words) = 0 then 0 else
        (select count(distinct w) filter (where w = any(wanted)) / count(distinct w)::float8 from unnest(words) w) end;
$$;
comment on function headwatch.overlap(text[], text[]) is 'Share of distinct words that are wanted, 0 to 1.';
