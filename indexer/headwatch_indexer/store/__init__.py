"""The only place that runs queries; one transaction a call."""

from headwatch_indexer.store.apply import Application, Applied, apply
from headwatch_indexer.store.catalog import (
    RepositoryRow,
    WorktreeRow,
    forget_worktree,
    is_registered,
    let_go,
    mark,
    register,
    rename_repository,
    repositories,
    set_let_go,
    worktree_at,
    worktrees,
)
from headwatch_indexer.store.connection import Connection, Refused, Unavailable, connect, translate
from headwatch_indexer.store.content import add_parses, known_parses
from headwatch_indexer.store.journal import events, record, transitions
from headwatch_indexer.store.membership import files, skipped
from headwatch_indexer.store.ownership import beat, own, release
from headwatch_indexer.store.vectors import VectorQueue, open_vector_queue

__all__ = [
    "Application",
    "Applied",
    "Connection",
    "Refused",
    "RepositoryRow",
    "Unavailable",
    "VectorQueue",
    "WorktreeRow",
    "add_parses",
    "apply",
    "beat",
    "connect",
    "events",
    "files",
    "forget_worktree",
    "is_registered",
    "known_parses",
    "let_go",
    "mark",
    "open_vector_queue",
    "own",
    "record",
    "register",
    "release",
    "rename_repository",
    "repositories",
    "set_let_go",
    "skipped",
    "transitions",
    "translate",
    "worktree_at",
    "worktrees",
]
