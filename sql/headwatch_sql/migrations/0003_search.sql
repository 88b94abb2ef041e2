-- Search inside the database: BM25 over postings, vectors, reciprocal rank fusion and explainable features.
-- Statements that name a partition are written for each call: so a scan of postings is index-only, and vectors come
-- from one HNSW index. What is asked of a candidate's files is a sub-select over a sorted list, answered row by row
-- until enough have passed; a join would ask for all of them.

-- Loads the library: only then may an ordinary login attach its settings to a function.
select '[1]'::halfvec(1);

create function headwatch.candidate_filter(filtered boolean) returns text
language sql immutable parallel safe
return case when filtered then
    '(select true from chunk c join file f on f.parse_id = c.parse_id and f.worktree_id = $2'
    ' join symbol y on y.parse_id = c.parse_id and y.ordinal = c.symbol_ordinal'
    ' where c.content_id = x.content_id and ($4 is null or f.path ~ $4) and ($5 is null or y.language = $5)'
    ' and ($6 is null or y.kind = $6) and (not $7 or path_role(f.path) <> ''test'') limit 1)'
else '(select true from visible v where v.worktree_id = $2 and v.content_id = x.content_id)' end;
comment on function headwatch.candidate_filter(boolean) is
    'A piece of search_lexical and search_dense: whether content x is live in worktree $2, under path pattern $4, '
    'language $5, kind $6 and without tests $7.';

create function headwatch.contents_below(worktree bigint, pattern text, only_language text) returns bigint[]
language plpgsql stable set search_path = headwatch, public, pg_temp as $$
declare
    parses bigint[];
    symbols bigint;
begin
    select array_agg(f.parse_id), sum(p.symbols) into parses, symbols
    from file f join parse p on p.id = f.parse_id
    where f.worktree_id = worktree and (pattern is null or f.path ~ pattern)
        and (only_language is null or p.language = only_language);
    if symbols > 2000 then
        return null;
    end if;
    return array(select distinct c.content_id from chunk c where c.parse_id = any(parses));
end $$;
comment on function headwatch.contents_below(bigint, text, text) is
    'Contents of the files that a path pattern and a language leave; NULL when they are too many to list.';

create function headwatch.search_lexical(query text, worktree bigint, candidates int, only_path text default null,
    only_language text default null, only_kind text default null, no_tests boolean default false)
returns table (content_id bigint, bm25 float8)
language plpgsql stable rows 40 set search_path = headwatch, public, pg_temp as $$
#variable_conflict use_column
declare
    repo bigint := (select w.repository_id from worktree w where w.id = worktree);
    pattern text := glob_pattern(only_path);
    filtered boolean := only_path is not null or only_language is not null or only_kind is not null or no_tests;
    few bigint[];
    n float8;
    mean float8;
begin
    select r.contents, greatest(r.tokens, 1)::float8 / greatest(r.contents, 1) into n, mean
    from repo_stat r where r.repository_id = repo;
    if n is null or to_regclass(format('headwatch.posting_r%s', repo)) is null then
        return;
    end if;
    if only_path is not null or only_language is not null then
        few := contents_below(worktree, pattern, only_language);
    end if;
    -- Okapi BM25, k1 1.2 and b 0.75, over the repository's live contents; exact.
    return query execute format(
        'with wanted as materialized ('
        '    select t.id, ln(1 + ($8 - coalesce(s.df, 0) + 0.5::float8) / (coalesce(s.df, 0) + 0.5::float8)) * 2.2::float8'
        '        as weight'
        '    from (select distinct unnest($1) as text) q'
        '    join term t on t.text = q.text'
        '    left join term_stat s on s.repository_id = $11 and s.term_id = t.id), '
        'scored as materialized ('
        '    select p.content_id, sum(w.weight * p.tf / (p.tf + 0.3::float8 + p.length * $9)) as bm25'
        '    from wanted w join posting_r%s p on p.term_id = w.id %s group by p.content_id) '
        'select x.content_id, x.bm25'
        '    from (select s.content_id, s.bm25 from scored s order by s.bm25 desc, s.content_id offset 0) x'
        '    where %s order by x.bm25 desc, x.content_id limit $3',
        repo, case when few is not null then 'where p.content_id = any($10)' end, candidate_filter(filtered))
    using tokens(query), worktree, candidates, pattern, only_language, only_kind, no_tests, n, 0.9::float8 / mean, few, repo;
end $$;
comment on function headwatch.search_lexical(text, bigint, int, text, text, text, boolean) is
    'The best contents of a worktree by Okapi BM25; any term may match.';

create function headwatch.search_dense(query_vec halfvec, worktree bigint, candidates int, only_path text default null,
    only_language text default null, only_kind text default null, no_tests boolean default false)
returns table (content_id bigint, similarity float8)
language plpgsql stable rows 40 set search_path = headwatch, public, pg_temp
set hnsw.iterative_scan = 'relaxed_order' set hnsw.ef_search = 100 set enable_sort = off as $$
#variable_conflict use_column
declare
    pattern text := glob_pattern(only_path);
    filtered boolean := only_path is not null or only_language is not null or only_kind is not null or no_tests;
    repo bigint;
    live int;
    model_id int;
    model_name text;
    dimensions int;
    vectors text;
    few bigint[];
    found bigint[];
    similarities float8[];
begin
    select m.id, m.name, m.dim into model_id, model_name, dimensions from model m where m.active;
    if model_id is null or query_vec is null then
        return;
    end if;
    if vector_dims(query_vec) <> dimensions then
        raise exception 'the query vector has % dimensions, the active model % has %', vector_dims(query_vec), model_name, dimensions
            using hint = 'encode the query with the model that active_model() names', errcode = 'data_exception';
    end if;
    select w.repository_id, w.contents into repo, live from worktree w where w.id = worktree;
    vectors := format('code_vector_m%s_r%s', model_id, repo);
    if repo is null or to_regclass('headwatch.' || vectors) is null then
        return;
    end if;
    if only_path is not null or only_language is not null then
        few := contents_below(worktree, pattern, only_language);
    end if;
    if few is null and live >= 5000 and to_regclass(format('headwatch.%s_hnsw', vectors)) is not null then
        -- Above the crossover: HNSW, filtered while it is walked.
        execute format(
            'select array_agg(y.content_id), array_agg(y.similarity) from ('
            '    select x.content_id, (1 - (x.embedding <=> $1))::float8 as similarity from %I x'
            '    where %s order by x.embedding <=> $1 limit $3) y', vectors, candidate_filter(filtered))
        into found, similarities using query_vec, worktree, candidates, pattern, only_language, only_kind, no_tests;
        if cardinality(found) >= candidates then
            return query select * from unnest(found, similarities) as y (content_id, similarity)
                order by y.similarity desc, y.content_id;
            return;
        end if;
    end if;
    -- Exact on purpose: few rows, or a walk that came back short.
    return query execute format(
        'select x.content_id, (1 - x.distance)::float8 from ('
        '    select e.content_id, e.embedding <=> $1 as distance from %s order by (e.embedding <=> $1) + 0, e.content_id %s) x'
        '    where %s order by x.distance, x.content_id limit $3',
        case when few is not null then format('%I e where e.content_id = any($8)', vectors)
        else format('visible v join %I e on e.content_id = v.content_id where v.worktree_id = $2', vectors) end,
        case when filtered then 'offset 0' else 'limit $3' end,
        case when filtered then candidate_filter(true) else 'true' end)
    using query_vec, worktree, candidates, pattern, only_language, only_kind, no_tests, few;
end $$;
comment on function headwatch.search_dense(halfvec, bigint, int, text, text, text, boolean) is
    'The nearest contents of a worktree by cosine, never fewer than asked for when they exist; exact below 5,000.';

create type headwatch.code as (rank int, path text, path_bytes bytea, qualname text, kind text, language text,
    start_line int, end_line int, signature text, content text, blob_oid text, score float8, similarity float8, bm25 float8,
    parts jsonb);
comment on type headwatch.code is 'One result of search_code.';

create function headwatch.search_code(query text, query_vec halfvec, worktree bigint, k int default 10,
    mode text default 'hybrid', only_path text default null, only_language text default null,
    only_kind text default null, tests text default 'demote', candidates int default 40, rrf_k int default 60)
returns setof headwatch.code
language plpgsql stable rows 10 set search_path = headwatch, public, pg_temp set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
    repo bigint := (select w.repository_id from worktree w where w.id = worktree);
    words text[] := tokens(query);
    pattern text := glob_pattern(only_path);
    unit float8 := 1.0 / (rrf_k + 1);
    width int := greatest(candidates, 2 * k);
    asks_for_tests boolean := words && array['test', 'tests', 'testing', 'spec', 'specs', 'fixture', 'fixtures', 'mock'];
    named text[];
    qualified text[];
    found code[];
    more boolean;
begin
    if repo is null then
        raise exception 'worktree % is not known', worktree using hint = 'select id, root from headwatch.worktree';
    end if;
    if k is null or k not between 1 and 1000 then
        raise exception 'k is 1 to 1000, not %', k using errcode = 'data_exception';
    end if;
    if mode not in ('hybrid', 'lexical', 'dense') or tests not in ('demote', 'equal', 'exclude') then
        raise exception 'mode is hybrid, lexical or dense; tests is demote, equal or exclude'
            using errcode = 'data_exception';
    end if;
    -- Words that are written as a name, or that are all there is, may name a definition.
    select array_agg(distinct lower(x.found[1] collate "C")) into named
    from regexp_matches(query, '[A-Za-z_$][A-Za-z0-9_$]*', 'g') as x (found)
    where length(x.found[1]) > 2 and (x.found[1] ~ '[a-z][A-Z]|[A-Za-z0-9]_[A-Za-z0-9]|[A-Za-z][0-9]|^[A-Z]|^_'
        or query !~ '\s');
    select array_agg(distinct lower(replace(x.found[1], '::', '.') collate "C")) into qualified
    from regexp_matches(query, '([A-Za-z_$][A-Za-z0-9_$]*(?:(?:\.|::)[A-Za-z_$][A-Za-z0-9_$]*)+)', 'g') as x (found);
    loop
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
            where s.repository_id = repo and s.name_key = any(named) and s.kind <> 'section'
            limit 100
        ), every as (
            select u.content_id, u.bm25, u.similarity, u.lexical, u.dense from fused u
            union all
            select distinct d.content_id, null::float8, null::float8, 0::float8, 0::float8 from defined d
            where not exists (select from fused u where u.content_id = d.content_id)
        ), hit as materialized (
            select distinct on (l.path, l.path_bytes, l.ordinal)
                e.bm25, e.similarity, e.lexical, e.dense, l.*, path_role(l.path) as role
            from every e
            cross join lateral (
                select f.path, f.path_bytes, f.blob_oid, s.ordinal, s.name, s.name_key, s.qualname, s.kind, s.language, s.signature,
                    s.start_byte, s.end_byte, s.start_line, s.end_line, c.start_line as chunk_start, c.end_line as chunk_end
                from chunk c
                join file f on f.parse_id = c.parse_id and f.worktree_id = worktree
                join symbol s on s.parse_id = c.parse_id and s.ordinal = c.symbol_ordinal
                where c.content_id = e.content_id and (pattern is null or f.path ~ pattern)
                    and (only_language is null or s.language = only_language) and (only_kind is null or s.kind = only_kind)
                    and (tests <> 'exclude' or path_role(f.path) <> 'test')
                limit 200
            ) l
            order by l.path, l.path_bytes, l.ordinal, e.lexical + e.dense desc, l.chunk_start
        ), featured as (
            select h.*,
                case when h.kind = 'section' then 0
                    when lower(h.qualname collate "C") = any(qualified) then 3 * unit
                    when h.name_key = any(named) then 2 * unit else 0 end as definition,
                0.6 * unit * name_overlap(h.name, words) as name_words,
                0.3 * unit * name_overlap(regexp_replace(h.path, '^.*/|\.[^./]*$', '', 'g'), words) as stem_words,
                0.1 * unit * least(count(*) over (partition by h.path) - 1, 4) as same_file,
                case when h.role = 'source' or tests = 'equal' and h.role = 'test' or h.role = 'test' and asks_for_tests then 1
                    else 0.4 end as demotion
            from hit h
        ), summed as (
            select f.*, (f.lexical + f.dense + f.definition + f.name_words + f.stem_words + f.same_file) * f.demotion as plain
            from featured f
        ), spread as (
            select s.*, power(0.5::float8, row_number() over (partition by s.path order by s.plain desc, s.ordinal) - 1) as repeat
            from summed s
        ), best as (
            select s.*, s.plain * s.repeat as score, row_number() over (order by s.plain * s.repeat desc, s.path, s.ordinal) as rank
            from spread s
            order by s.plain * s.repeat desc, s.path, s.ordinal limit k
        )
        select
            array_agg(row(b.rank, b.path, b.path_bytes, b.qualname, b.kind, b.language,
                case when b.name = '<module>' then b.chunk_start else b.start_line end,
                case when b.name = '<module>' then b.chunk_end else b.end_line end,
                b.signature,
                case when b.name = '<module>' then array_to_string(
                    (string_to_array(convert_from(t.source, 'UTF8'), E'\n'))[b.chunk_start:b.chunk_end], E'\n')
                else convert_from(substr(t.source, b.start_byte + 1, b.end_byte - b.start_byte), 'UTF8') end,
                b.blob_oid, b.score, b.similarity, b.bm25,
                jsonb_build_object('lexical', b.lexical, 'dense', b.dense, 'definition', b.definition,
                    'name_words', b.name_words, 'stem_words', b.stem_words, 'same_file', b.same_file,
                    'demotion', b.demotion, 'repeat', b.repeat))::code order by b.rank),
            (select count(*) from lexical) = width or (select count(*) from dense) = width
        into found, more
        from best b join blob t on t.repository_id = repo and t.oid = b.blob_oid;
        -- Parts of one long symbol are one result: where they took the places of others, look further.
        exit when cardinality(found) >= k or not more;
        width := width * 4;
    end loop;
    return query select * from unnest(found);
end $$;
comment on function headwatch.search_code(text, halfvec, bigint, int, text, text, text, text, text, int, int) is
    'Live code of one worktree, best first. query_vec may be NULL (lexical). '
    'score = (lexical + dense + definition + name_words + stem_words + same_file) * demotion * repeat, as parts shows.';
