-- name: known_parses
-- Which (blob, language) pairs are parsed already.
select p.id, p.blob_oid, p.language, p.status, p.symbols
from unnest(%(oids)s::text[], %(languages)s::text[]) as k (oid, language)
join parse p on p.repository_id = %(repository_id)s and p.blob_oid = k.oid and p.language = k.language
    and p.parser_version = %(parser_version)s

-- name: add_blobs
-- Blob texts; one that was skipped under another language gets its text now.
insert into blob (repository_id, oid, size_bytes, source)
select distinct on (k.oid) %(repository_id)s, k.oid, k.size, k.source
from unnest(%(oids)s::text[], %(sizes)s::int[], %(sources)s::bytea[]) as k (oid, size, source)
order by k.oid, length(k.source) desc
on conflict (tenant_id, repository_id, oid) do update set source = excluded.source
where blob.source = '' and excluded.source <> ''

-- name: add_parses
-- One row a (blob, language, parser version).
insert into parse (repository_id, blob_oid, language, parser_version, status, symbols)
select %(repository_id)s, k.oid, k.language, %(parser_version)s, k.status, k.symbols
from unnest(%(oids)s::text[], %(languages)s::text[], %(statuses)s::text[], %(symbols)s::int[])
    as k (oid, language, status, symbols)
returning id, blob_oid, language, status, symbols

-- name: add_symbols
-- Symbols of new parses, in columns.
insert into symbol (repository_id, parse_id, ordinal, blob_oid, language, name, qualname, kind, signature, doc,
    start_line, end_line, start_byte, end_byte, structural_hash, body_hash)
select %s, k.* from unnest(%s::bigint[], %s::int[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[],
    %s::text[], %s::text[], %s::int[], %s::int[], %s::int[], %s::int[], %s::text[], %s::text[]) as k

-- name: content_ids
-- Contents that exist, by hash.
select hash, id from content where repository_id = %(repository_id)s and hash = any(%(hashes)s::bytea[])

-- name: add_terms
-- New terms, sorted so that two writers cannot wait for each other; known ones burn no id.
insert into term (text)
select k.text from unnest(%(terms)s::text[]) as k (text)
where not exists (select from term t where t.text = k.text)
order by k.text collate "C"
on conflict (tenant_id, text) do nothing

-- name: term_ids
-- Ids of terms.
select text, id from term where text = any(%(terms)s::text[])

-- name: add_contents
-- New chunk texts with their packed terms.
insert into content (repository_id, hash, text, length, terms, frequencies)
select %(repository_id)s, k.hash, k.text, k.length, k.terms::int[], k.frequencies::smallint[]
from unnest(%(hashes)s::bytea[], %(texts)s::text[], %(lengths)s::int[], %(terms)s::text[], %(frequencies)s::text[])
    as k (hash, text, length, terms, frequencies)
returning hash, id

-- name: add_chunks
-- Which content each symbol has.
insert into chunk (parse_id, symbol_ordinal, n, content_id, start_line, end_line)
select k.* from unnest(%s::bigint[], %s::int[], %s::int[], %s::bigint[], %s::int[], %s::int[]) as k

-- name: add_postings
-- Postings straight from the packed terms, in the order of the index.
insert into {partition} (repository_id, term_id, content_id, tf, length)
select c.repository_id, t.term_id, c.id, t.tf, c.length
from content c cross join lateral unnest(c.terms, c.frequencies) as t (term_id, tf)
where c.id = any(%(contents)s::bigint[])
order by t.term_id, c.id
