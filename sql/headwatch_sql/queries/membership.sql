-- name: files
-- Membership of a worktree as the reconcile compares it.
select f.path, f.path_bytes, f.blob_oid, f.mode, p.language, f.parse_id, p.parser_version
from file f join parse p on p.id = f.parse_id
where f.worktree_id = %(worktree_id)s

-- name: skipped
-- What is listed but not indexed.
select path, path_bytes, reason, size from skipped where worktree_id = %(worktree_id)s
