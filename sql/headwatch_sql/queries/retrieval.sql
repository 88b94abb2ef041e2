-- name: search
-- The same function that any other reader calls.
select rank, path, path_bytes, qualname, kind, language, start_line, end_line, signature, content, blob_oid, score,
    similarity, bm25, parts
from search_code(%(query)s, %(vector)s::halfvec, %(worktree)s, %(k)s, %(mode)s, %(path)s, %(language)s, %(kind)s, %(tests)s)
order by rank

-- name: show
-- One live symbol by its name.
select path, path_bytes, qualname, kind, language, start_line, end_line, signature, content, blob_oid
from live_symbol
where worktree_id = %(worktree)s and path = %(path)s and qualname = %(qualname)s

-- name: similar_names
-- The same file's symbols, or the same name elsewhere.
select f.path, s.qualname
from file f join symbol s on s.parse_id = f.parse_id
where f.worktree_id = %(worktree)s and (s.name = %(name)s or f.path = %(path)s)
order by (s.name = %(name)s) desc, (f.path = %(path)s) desc, f.path, s.ordinal limit 5
