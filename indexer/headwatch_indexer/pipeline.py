"""The recipe: snapshot → difference → parses → rows, for one worktree at a time."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from headwatch_indexer import languages, plan, reflog, store, symbols
from headwatch_indexer.errors import HeadwatchError
from headwatch_indexer.objects import Objects, open_objects
from headwatch_indexer.prepare import Prepare, Raw, ahead
from headwatch_indexer.records import Entry, RepositoryRules, Skipped, Snapshot, Transition
from headwatch_indexer.rules import load_rules
from headwatch_indexer.scan import read_again
from headwatch_indexer.snapshot import Moving, StatCache, require, take
from headwatch_indexer.store.apply import lock_repository
from headwatch_indexer.store.content import Key, ParseRow, Terms, add_postings

_BATCH_BYTES = 512 << 10  # source text parsed before its rows are sent; the next batch is parsed meanwhile
_NEWS = 512  # new content ids that a report carries
_MANY = 100  # unknown blobs that are worth another process


@dataclass(frozen=True, slots=True)
class Report:
    """What one pass over a worktree did."""

    worktree_id: int
    generation: int
    changed: bool
    files: int = 0  # files whose rows were written
    removed: int = 0
    rows: int = 0  # every row written or removed, parses included
    symbols_parsed: int = 0
    chunks_reused: int = 0  # contents that a new parse found in the database
    seconds: float = 0.0
    head: str | None = None
    branch: str | None = None
    transitions: tuple[str, ...] = ()
    new_contents: tuple[int, ...] = ()
    problem: str | None = None  # what the repository's .headwatch.toml has wrong


class Retired(HeadwatchError):
    """The worktree was let go while a pass looked at it; there is nothing to write."""


@dataclass(slots=True)
class Workspace:
    """What passes over one repository share: caches that can be lost at any time."""

    objects: Objects | None = None
    stats: dict[int, StatCache] = field(default_factory=dict)  # by worktree id
    prepare: Prepare | None = None  # where the blobs of a first index are parsed; None: in a thread

    def close(self) -> None:
        if self.objects is not None:
            self.objects.close()
            self.objects = None


def reconcile(
    conn: store.Connection,
    worktree: store.WorktreeRow,
    workspace: Workspace,
    terms: Terms,
    *,
    full: bool = False,
    degraded: str | None = None,
) -> Report:
    """Make the rows of a worktree equal to its disk, in one transaction.

    `full` forgets what earlier passes knew about files on disk and hashes all that git does not vouch for.
    `degraded` is why changes of this worktree may be noticed late; its state says so.
    Raises RootMissing, GitFailed, Moving, Retired or store.Unavailable; rows are then as they were.
    """
    began = time.monotonic()
    location = worktree.location
    require(location)  # before git, whose word would be that it failed
    rules = load_rules(location.root)
    if workspace.objects is None:
        workspace.objects = open_objects(location)
    if full:
        workspace.stats.pop(worktree.id, None)
    cache = workspace.stats.setdefault(worktree.id, StatCache())
    snapshot = take(location, rules, objects=workspace.objects, known=cache)
    log = f"{location.git_dir}/logs/HEAD"
    moves, cursor = reflog.read_new(log, _cursor(worktree.reflog_cursor))
    if worktree.reflog_cursor is None:
        moves = moves[-1:]  # what happened before headwatch came is git's to tell
    try:
        with store.translate(), conn.transaction():
            lock_repository(conn, worktree.repository_id)
            report = _write(conn, worktree, snapshot, rules, workspace, terms, moves, cursor, degraded)
    except BaseException:
        terms.ids.clear()  # ids of a rolled-back transaction do not exist
        raise
    return replace(report, seconds=time.monotonic() - began, problem=rules.problem)


def _write(
    conn: store.Connection,
    worktree: store.WorktreeRow,
    snapshot: Snapshot,
    rules: RepositoryRules,
    workspace: Workspace,
    terms: Terms,
    moves: Sequence[Transition],
    cursor: reflog.Cursor | None,
    degraded: str | None,
) -> Report:
    if not store.is_registered(conn, worktree.id):
        raise Retired(f"{worktree.root} was removed while it was read", hint="try: headwatch list")
    state, reason = ("degraded", degraded) if degraded else ("fresh", _reason(snapshot))
    rows = store.files(conn, worktree.id)
    skipped_rows = store.skipped(conn, worktree.id)
    wanted = [
        plan.Wanted(entry, languages.language_of(entry.path, rules)) for entry in snapshot.entries.values()
    ]
    difference = plan.compare(rows, skipped_rows, wanted, snapshot, symbols.PARSER_VERSION)
    if plan.doubtful(len(rows), difference):
        again = take(worktree.location, rules, objects=workspace.objects, known=StatCache())
        if again.entries.keys() != snapshot.entries.keys():
            raise Moving(
                f"{worktree.root} lost {len(difference.remove)} of {len(rows)} files, and looks different again",
                hint="headwatch looks again by itself",
            )
    written = _parse_unknown(conn, worktree, difference, snapshot, workspace, terms)
    unusable = {
        want.entry.path: Skipped(want.entry.path, reason_to_skip, want.entry.size)
        for want in difference.write
        if (reason_to_skip := written.problem(want))
    }
    write = [
        (
            want.entry.path,
            want.entry.blob_oid,
            want.entry.mode,
            written.parses[want.entry.blob_oid, want.language].id,
        )
        for want in difference.write
        if want.entry.path not in unusable
    ]
    gone = [*difference.remove, *(path for path in unusable if path in rows)]
    skip = [*difference.skip, *(s for path, s in unusable.items() if skipped_rows.get(path) != s)]
    unskip = [path for path in difference.unskip if path not in unusable]
    same_baseline = (
        worktree.indexed_head == snapshot.head
        and worktree.live_head == snapshot.head
        and worktree.branch == snapshot.branch
        and worktree.dirty_digest == snapshot.dirty_digest
        and worktree.generation > 0
    )
    if not (write or gone or skip or unskip or moves) and same_baseline:
        store.mark(conn, worktree.id, state=state, reason=reason)
        return Report(
            worktree.id, worktree.generation, changed=False, head=snapshot.head, branch=snapshot.branch
        )
    applied = store.apply(
        conn,
        store.Application(
            worktree_id=worktree.id,
            repository_id=worktree.repository_id,
            head=snapshot.head,
            branch=snapshot.branch,
            dirty_digest=snapshot.dirty_digest,
            dirty_files=snapshot.dirty_files,
            write=write,
            remove=gone,
            skip=skip,
            unskip=unskip,
            transitions=moves,
            reflog_cursor=asdict(cursor) if cursor else None,
            state=state,
            reason=reason,
        ),
    )
    return Report(
        worktree.id,
        applied.generation,
        changed=True,
        files=len(write),
        removed=len(gone),
        rows=applied.rows + written.rows,
        symbols_parsed=written.symbols,
        chunks_reused=written.reused,
        head=snapshot.head,
        branch=snapshot.branch,
        transitions=tuple(move.action for move in moves),
        new_contents=tuple(written.contents[:_NEWS]),
    )


@dataclass(slots=True)
class _Written:
    parses: dict[Key, ParseRow]
    contents: list[int] = field(default_factory=list)
    symbols: int = 0
    reused: int = 0
    rows: int = 0

    def problem(self, want: plan.Wanted) -> str | None:
        """Say why a file is not indexed; None when it is."""
        row = self.parses.get((want.entry.blob_oid, want.language))
        if row is None:
            return "missing object"
        return None if row.status in ("ok", "partial") else row.status


def _parse_unknown(
    conn: store.Connection,
    worktree: store.WorktreeRow,
    difference: plan.Difference,
    snapshot: Snapshot,
    workspace: Workspace,
    terms: Terms,
) -> _Written:
    """Parse what no worktree of the repository has shown before; everything else is there already."""
    entries = {(w.entry.blob_oid, w.language): w.entry for w in difference.write}
    known = store.known_parses(conn, worktree.repository_id, list(entries), symbols.PARSER_VERSION)
    written = _Written(parses=known)
    unknown = {key: entry for key, entry in entries.items() if key not in known}
    if not unknown:
        return written
    row = conn.execute("select provision_repository(%s)", (worktree.repository_id,)).fetchone()
    fresh = row is not None and row[0] is not None
    begin = workspace.prepare if len(unknown) >= _MANY else None
    for batch in ahead(_batches(unknown, worktree, snapshot, workspace), begin):
        added = store.add_parses(conn, worktree.repository_id, batch, symbols.PARSER_VERSION, terms)
        written.parses.update(added.parses)
        written.contents.extend(added.new_contents)
        written.symbols += sum(len(source.parsed.symbols) for source in batch)
        written.reused += sum(len(source.parsed.chunks) for source in batch) - len(added.new_contents)
        written.rows += added.rows
    add_postings(conn, worktree.repository_id, written.contents, fresh=fresh)
    return written


def _batches(
    unknown: Mapping[Key, Entry], worktree: store.WorktreeRow, snapshot: Snapshot, workspace: Workspace
) -> Iterator[list[Raw]]:
    batch: list[Raw] = []
    size = 0
    for (oid, language), entry in unknown.items():
        content = _content(entry, worktree, snapshot, workspace)
        if content is None:
            continue
        batch.append((oid, language, content))
        size += len(content)
        if size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _content(
    entry: Entry, worktree: store.WorktreeRow, snapshot: Snapshot, workspace: Workspace
) -> bytes | None:
    """Find an entry's content: read in this pass, in git, or else on disk.

    None for what git was promised and does not have. Raises Moving when uncommitted content is another by now.
    """
    content = snapshot.contents.get(entry.blob_oid)
    if content is None and workspace.objects is not None:
        content = workspace.objects.read(entry.blob_oid)
    if content is None and not worktree.location.bare:
        content = read_again(worktree.location, entry.path, entry.blob_oid)
        if content is None and entry.dirty:
            raise Moving(
                f"{os.fsdecode(entry.path)} in {worktree.root} changed while it was indexed",
                hint="it is looked at again by itself; just wait",
            )
    return content


def _cursor(stored: object) -> reflog.Cursor | None:
    return reflog.Cursor(**stored) if isinstance(stored, dict) else None


def _reason(snapshot: Snapshot) -> str | None:
    if not snapshot.unknown:
        return None
    first = min(snapshot.unknown).decode(errors="backslashreplace")
    return f"{len(snapshot.unknown)} files could not be read, their rows stay: {first}"
