"""What one worktree holds right now, path → blob, as git sees it with its uncommitted files."""

from __future__ import annotations

import os

from headwatch_indexer import git, gitdir, listing
from headwatch_indexer.attributes import set_attributes
from headwatch_indexer.boundaries import Boundaries
from headwatch_indexer.disk import Disk, StatCache
from headwatch_indexer.errors import HeadwatchError
from headwatch_indexer.git import RootMissing
from headwatch_indexer.listing import Change, Index, IndexEntry, Status
from headwatch_indexer.objects import Objects
from headwatch_indexer.records import Entry, Location, RepositoryRules, Skipped, Snapshot
from headwatch_indexer.scan import Found, Place, Scan, look_at, settle_forms

__all__ = ["Moving", "RootMissing", "StatCache", "ignored_listing", "require", "take"]

_LS_FILES = ("ls-files", "-s", "-v", "-z", "--debug")
_STATUS = (
    *("status", "--porcelain=v2", "-z", "--untracked-files=all"),
    *("--no-renames", "--ignore-submodules=all"),
)
_NESTED = "nested repository"
_SUBMODULE = 0o160000
# A file no older than this when the index was written may have changed under the stat that git took.
_TICK_NS = 20_000_000


class Moving(HeadwatchError):
    """Git or the files kept moving; a later try will find them at rest."""


def take(
    location: Location,
    rules: RepositoryRules,
    objects: Objects | None = None,
    known: StatCache | None = None,
    attempts: int = 5,
) -> Snapshot:
    """Take a snapshot of a worktree between two equal tokens of git's state.

    `objects` tells sizes in a bare repository, `known` spares reading what has not changed since the last pass.
    Raises Moving after so many attempts, RootMissing, and GitFailed; what could
    not be looked at is in `unknown`, where a path that ends in "/" stands for all beneath it.
    """
    cache = StatCache() if known is None else known
    for _ in range(attempts):
        before = _token(location)
        head, branch = git.head(location)
        scan = Scan(location, rules, cache)
        complete = _bare(scan, head, objects) if location.bare else _worktree(scan)
        if complete and _token(location) == before:
            cache.keep_only(scan.entries)
            return scan.snapshot(head, branch)
    raise Moving(
        f"{location.root} kept changing during {attempts} looks at it",
        hint="it is looked at again by itself; just wait",
    )


def ignored_listing(location: Location) -> list[Skipped]:
    """List what git ignores; a folder that is ignored whole is one path that ends in "/"."""
    if location.bare:
        return []
    out = git.run(location.root, "ls-files", "-o", "-i", "--exclude-standard", "--directory", "-z")
    return [Skipped(path, "ignored", None) for path in out.split(b"\0")[:-1]]


def _worktree(scan: Scan) -> bool:
    """Fill the scan from index, status and disk; False when something moved meanwhile."""
    location = scan.location
    with _open(location.root) as disk:
        index, status, messages = _ask(location)
        _note_unreadable(scan, messages)
        scan.attributes = set_attributes(location, index, status, scan.cache)
        pending = look_at(scan, disk, _tracked(scan, disk, index, status))
        pending += _changed(scan, disk, index, status)
        pending += _untracked(scan, disk, status)
        settle_forms(scan, pending)
        try:
            root = os.stat(location.root)
        except OSError:
            return False
        return disk.identity() == (root.st_dev, root.st_ino)


def _bare(scan: Scan, head: str | None, objects: Objects | None) -> bool:
    """Fill the scan from the tree of HEAD."""
    if head is None:
        return True
    root = scan.location.root
    listed = list(listing.parse_tree(git.run(root, "ls-tree", "-r", "-l", "-z", "--full-tree", head)))
    missing = [oid for _, oid, mode, size in listed if size is None and mode != _SUBMODULE]
    sizes = objects.sizes(missing) if objects is not None and missing else {}
    for path, oid, mode, size in listed:
        known = sizes.get(oid) if size is None else size
        if reason := scan.reason(path, mode, known):
            scan.skip(path, reason, known)
        else:
            scan.entries[path] = Entry(path, oid, mode, dirty=False, size=known)
    return True


def _ask(location: Location) -> tuple[Index, Status, str]:
    """Run both git commands at the same time; the second one works while the first is read."""
    root = location.root
    status = git.start(root, *_STATUS)
    try:
        files = git.start(root, *_LS_FILES)
        index = listing.parse_index(git.finish(files, root, _LS_FILES)[0])
        out, messages = git.finish(status, root, _STATUS)
    finally:
        git.end(status)
    return index, listing.parse_status(out), messages


def _note_unreadable(scan: Scan, messages: str) -> None:
    paths, other = listing.unreadable(messages)
    scan.unknown |= {os.fsencode(path) for path in paths}
    # Rules that cannot be read would let ignored files in, keys among them.
    if refusal := next(
        (line for line in other if "unable to access" in line or line.startswith("error: ")), None
    ):
        raise git.GitFailed(scan.location.root, _STATUS, 0, refusal)


def _tracked(scan: Scan, disk: Disk, index: Index, status: Status) -> list[Place]:
    """Take what git says is unchanged; return the places where the disk makes that doubtful."""
    doubtful: list[Place] = []
    settled_ns = gitdir.signature(f"{scan.location.git_dir}/index")[1] - _TICK_NS
    hidden = tuple(path for path in scan.unknown if path.endswith(b"/"))
    for path, item in index.entries.items():
        change = status.changes.get(path)
        if item.mode == _SUBMODULE:
            scan.skip(path, "submodule")
            continue
        if item.absent or item.unwatched or (change is not None and change.on_disk) or path in scan.unknown:
            continue
        if hidden and path.startswith(hidden):
            continue
        try:
            found = disk.peek(path)
        except OSError:
            scan.unknown.add(path)
            continue
        if found is None or found.st_ctime_ns >= settled_ns or not item.agrees(found):
            doubtful.append(_place(item, change))
        elif reason := scan.reason(path, item.mode, found.st_size):
            scan.skip(path, reason, found.st_size)
        else:
            scan.entries[path] = Entry(path, item.oid, item.mode, change is not None, found.st_size)
    return doubtful


def _changed(scan: Scan, disk: Disk, index: Index, status: Status) -> list[Found]:
    """Look at what git says has changed, and at what git was told not to look at."""
    places = {
        path: _place(item, status.changes.get(path))
        for path, item in index.entries.items()
        if (item.absent or item.unwatched) and item.mode != _SUBMODULE
    }
    for path, change in status.changes.items():
        if path in places:
            continue
        if path not in index.entries and path not in index.unmerged:
            scan.gone(change.path, change.head_mode)  # staged as deleted
        elif change.on_disk:
            places[path] = Place(path, change.head_oid, change.head_mode, change.disk_mode)
    return look_at(scan, disk, (places[path] for path in sorted(places)))


def _untracked(scan: Scan, disk: Disk, status: Status) -> list[Found]:
    for path in status.nested:
        scan.skip(path, _NESTED)
    boundaries = Boundaries(disk, status.untracked)
    inside: list[Place] = []
    for path in sorted(status.untracked):
        if boundary := boundaries.around(path):
            scan.skip(boundary, _NESTED)
        else:
            inside.append(Place(path, None, 0, 0, tracked=False))
    return look_at(scan, disk, inside)


def _place(item: IndexEntry, change: Change | None) -> Place:
    """Build the place of an index entry that git itself did not compare with the disk."""
    oid, mode = (item.oid, item.mode) if change is None else (change.head_oid, change.head_mode)
    return Place(item.path, oid, mode, item.mode, index_oid=item.oid, required=not item.absent)


def _open(root: str) -> Disk:
    try:
        return Disk(root)
    except OSError as exc:
        raise _missing(root, f"cannot be opened: {exc.strerror}") from exc


def require(location: Location) -> None:
    """Raise RootMissing unless the worktree is where it was, with its git dir."""
    if not os.path.isdir(location.root):
        raise _missing(location.root, "is not there")
    if not location.bare and not os.path.lexists(f"{location.root}/.git"):
        raise _missing(location.root, "is no repository any more")
    if not os.path.isdir(location.git_dir):
        raise _missing(location.root, f"has lost its git dir {location.git_dir}")
    # Worktrees that change places must not lend each other their HEAD.
    if not location.bare and (own := gitdir.gitfile(f"{location.root}/.git")) != location.git_dir:
        raise _missing(location.root, f"belongs to the git dir {own} now, not to {location.git_dir}")


def _token(location: Location) -> tuple[object, ...]:
    require(location)
    return git.token(location)


def _missing(root: str, what: str) -> RootMissing:
    return RootMissing(f"the worktree {root} {what}", hint="bring it back, or: headwatch remove " + root)
