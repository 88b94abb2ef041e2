"""What one worktree holds right now, path → blob, as git sees it with its uncommitted files."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field

from headwatch_indexer import git, gitdir, listing
from headwatch_indexer.attributes import set_attributes
from headwatch_indexer.boundaries import Boundaries
from headwatch_indexer.disk import Disk, Look, StatCache, blob_oid
from headwatch_indexer.errors import HeadwatchError
from headwatch_indexer.git import RootMissing
from headwatch_indexer.listing import Change, Index, IndexEntry, Status
from headwatch_indexer.objects import Objects
from headwatch_indexer.records import Entry, Location, RepositoryRules, Skipped, Snapshot
from headwatch_indexer.scope import skip_reason

__all__ = ["Moving", "RootMissing", "StatCache", "ignored_listing", "read", "take"]

_LS_FILES = ("ls-files", "-s", "-v", "-z", "--debug")
_STATUS = (
    *("status", "--porcelain=v2", "-z", "--untracked-files=all"),
    *("--no-renames", "--ignore-submodules=all"),
)
_NESTED = "nested repository"
_SUBMODULE = 0o160000
_TICK_NS = (
    20_000_000  # a file no older than this at the index's own writing may have changed under the same stat
)
_LINK = 0o120000
_NOTHING: frozenset[str] = frozenset()


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

    `objects` tells sizes in a bare repository, `known` spares reading what has not changed since the last pass: then
    `contents` lacks it (see `read`). Raises Moving after so many attempts, RootMissing, and GitFailed; what could
    not be looked at is in `unknown`, where a path that ends in "/" stands for all beneath it.
    """
    cache = StatCache() if known is None else known
    for _ in range(attempts):
        before = _token(location)
        head, branch = git.head(location)
        scan = _Scan(location, rules, cache)
        complete = _bare(scan, head, objects) if location.bare else _worktree(scan)
        if complete and _token(location) == before:
            cache.keep_only(scan.entries)
            return scan.snapshot(head, branch)
    raise Moving(
        f"{location.root} kept changing during {attempts} looks at it",
        hint="it is looked at again by itself; just wait",
    )


def read(location: Location, entry: Entry) -> bytes | None:
    """Read an uncommitted file again; None unless it still has the content that the entry names."""
    with _open(location.root) as disk:
        try:
            look = disk.read(entry.path)
        except OSError:
            return None
    if look is None:
        return None
    for content in (look.content, look.content.replace(b"\r\n", b"\n")):
        if blob_oid(content, location.object_format) == entry.blob_oid:
            return content
    return None


def ignored_listing(location: Location) -> list[Skipped]:
    """List what git ignores; a folder that is ignored whole is one path that ends in "/"."""
    if location.bare:
        return []
    out = git.run(location.root, "ls-files", "-o", "-i", "--exclude-standard", "--directory", "-z")
    return [Skipped(path, "ignored", None) for path in out.split(b"\0")[:-1]]


@dataclass(frozen=True, slots=True)
class _Place:
    """One path that must be looked at on disk."""

    path: bytes
    head_oid: str | None  # None where HEAD has nothing
    head_mode: int
    git_mode: int  # as git sees it; 0 where git does not say
    index_oid: str | None = None  # what the index has, where the disk is likely to have the same
    tracked: bool = True
    required: bool = True  # False: sparse-absent, likely not on disk

    def mode_of(self, found: os.stat_result) -> int:
        """Combine the kind that lstat saw with the executable bit that git sees (core.fileMode)."""
        if not stat.S_ISREG(found.st_mode):
            return found.st_mode
        if self.git_mode:  # a symlink is a plain file on disk where core.symlinks is off
            return self.git_mode
        return 0o100755 if found.st_mode & 0o100 else 0o100644


@dataclass(frozen=True, slots=True)
class _Found:
    """A file read from disk, on its way into the scan."""

    place: _Place
    mode: int
    look: Look


@dataclass(slots=True)
class _Scan:
    """One look at a worktree, as far as it has come."""

    location: Location
    rules: RepositoryRules
    cache: StatCache
    attributes: dict[bytes, frozenset[str]] = field(default_factory=dict)
    entries: dict[bytes, Entry] = field(default_factory=dict)
    skipped: dict[bytes, Skipped] = field(default_factory=dict)
    unknown: set[bytes] = field(default_factory=set)
    contents: dict[str, bytes] = field(default_factory=dict)
    deleted: set[bytes] = field(default_factory=set)  # HEAD has it, nothing is there now

    def reason(self, path: bytes, mode: int, size: int | None) -> str | None:
        return skip_reason(
            path,
            mode=mode,
            size=size,
            is_link=False,
            attributes=self.attributes.get(path, _NOTHING),
            rules=self.rules,
        )

    def skip(self, path: bytes, reason: str, size: int | None = None) -> None:
        self.skipped[path] = Skipped(path, reason, size)

    def gone(self, path: bytes, head_mode: int) -> None:
        """Note that a file of HEAD is not there now."""
        if self.reason(path, head_mode or _LINK, None) is None:
            self.deleted.add(path)

    def add(self, place: _Place, oid: str, mode: int, size: int) -> None:
        dirty = not place.tracked or (oid, mode) != (place.head_oid, place.head_mode)
        self.deleted.discard(place.path)
        self.entries[place.path] = Entry(place.path, oid, mode, dirty, size)

    def take_in(self, found: _Found, content: bytes) -> None:
        """Add what was read from disk; `content` is what git would store of it."""
        oid = blob_oid(content, self.location.object_format)
        self.cache.remember(found.place.path, found.look, oid)
        if oid != found.place.index_oid:
            self.contents[oid] = content
        self.add(found.place, oid, found.mode, found.look.stat.st_size)

    def snapshot(self, head: str | None, branch: str | None) -> Snapshot:
        dirty = sorted((e.path, e.blob_oid, e.mode) for e in self.entries.values() if e.dirty)
        lines = [b"%s %o %s\0" % (oid.encode(), mode, path) for path, oid, mode in dirty]
        lines += [b"gone %s\0" % path for path in sorted(self.deleted)]
        return Snapshot(
            head=head,
            branch=branch,
            entries=self.entries,
            skipped=self.skipped,
            unknown=frozenset(self.unknown),
            contents=self.contents,
            dirty_digest=hashlib.sha256(b"".join(lines)).hexdigest() if lines else "",
            dirty_files=len(lines),
        )


def _worktree(scan: _Scan) -> bool:
    """Fill the scan from index, status and disk; False when something moved meanwhile."""
    location = scan.location
    with _open(location.root) as disk:
        index, status, messages = _ask(location)
        _note_unreadable(scan, messages)
        scan.attributes = set_attributes(location, index, status, scan.cache)
        pending = _look_at(scan, disk, _tracked(scan, disk, index, status))
        pending += _changed(scan, disk, index, status)
        pending += _untracked(scan, disk, status)
        _settle_line_ends(scan, pending)
        try:
            root = os.stat(location.root)
        except OSError:
            return False
        return disk.identity() == (root.st_dev, root.st_ino)


def _bare(scan: _Scan, head: str | None, objects: Objects | None) -> bool:
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


def _note_unreadable(scan: _Scan, messages: str) -> None:
    paths, other = listing.unreadable(messages)
    scan.unknown |= {os.fsencode(path) for path in paths}
    # Rules that cannot be read would let ignored files in, keys among them.
    if refusal := next(
        (line for line in other if "unable to access" in line or line.startswith("error: ")), None
    ):
        raise git.GitFailed(scan.location.root, _STATUS, 0, refusal)


def _tracked(scan: _Scan, disk: Disk, index: Index, status: Status) -> list[_Place]:
    """Take what git says is unchanged; return the places where the disk makes that doubtful."""
    doubtful: list[_Place] = []
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


def _changed(scan: _Scan, disk: Disk, index: Index, status: Status) -> list[_Found]:
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
            places[path] = _Place(path, change.head_oid, change.head_mode, change.disk_mode)
    return _look_at(scan, disk, (places[path] for path in sorted(places)))


def _untracked(scan: _Scan, disk: Disk, status: Status) -> list[_Found]:
    for path in status.nested:
        scan.skip(path, _NESTED)
    boundaries = Boundaries(disk, status.untracked)
    inside: list[_Place] = []
    for path in sorted(status.untracked):
        if boundary := boundaries.around(path):
            scan.skip(boundary, _NESTED)
        else:
            inside.append(_Place(path, None, 0, 0, tracked=False))
    return _look_at(scan, disk, inside)


def _look_at(scan: _Scan, disk: Disk, places: Iterable[_Place]) -> list[_Found]:
    """Read files from disk into the scan; return those whose line ends git might convert."""
    pending: list[_Found] = []
    for place in places:
        path = place.path
        if path in scan.unknown:
            continue
        try:
            found = disk.stat(path) if place.required else disk.peek(path)
            if found is None or stat.S_ISDIR(found.st_mode):
                if place.required:
                    scan.gone(path, place.head_mode)
                continue
            mode = place.mode_of(found)
            if reason := scan.reason(path, mode, found.st_size):
                scan.skip(path, reason, found.st_size)
                continue
            if oid := scan.cache.oid(path, found):
                scan.add(place, oid, mode, found.st_size)
                continue
            look = disk.read(path)
        except OSError:
            scan.unknown.add(path)
            continue
        if look is None:  # gone, or something else by now: what this pass saw does not hold together
            scan.unknown.add(path)
        elif b"\r\n" in look.content:
            pending.append(_Found(place, mode, look))
        else:
            scan.take_in(_Found(place, mode, look), look.content)
    return pending


def _settle_line_ends(scan: _Scan, pending: list[_Found]) -> None:
    """Name content with CRLF as git would: with LF where git says that it converts."""
    ids = _hash_as_git(scan.location, [found.place.path for found in pending])
    for found, oid in zip(pending, ids, strict=True):
        content = found.look.content
        if oid is not None and oid != blob_oid(content, scan.location.object_format):
            converted = content.replace(b"\r\n", b"\n")
            if oid == blob_oid(converted, scan.location.object_format):
                content = converted
        scan.take_in(found, content)


def _hash_as_git(location: Location, paths: list[bytes]) -> list[str | None]:
    """Ask git for the ids it would give files on disk; None where it cannot tell."""
    if not paths:
        return []
    feed = b"".join(listing.quote(path) + b"\n" for path in paths)
    try:
        return [*git.run(location.root, "hash-object", "--stdin-paths", input=feed).decode().split()]
    except git.GitFailed as exc:
        if exc.returncode != 128:
            raise
        if len(paths) == 1:  # vanished meanwhile, or its filter fails: its own content stands
            return [None]
        half = len(paths) // 2
        return _hash_as_git(location, paths[:half]) + _hash_as_git(location, paths[half:])


def _place(item: IndexEntry, change: Change | None) -> _Place:
    """Build the place of an index entry that git itself did not compare with the disk."""
    oid, mode = (item.oid, item.mode) if change is None else (change.head_oid, change.head_mode)
    return _Place(item.path, oid, mode, item.mode, index_oid=item.oid, required=not item.absent)


def _open(root: str) -> Disk:
    try:
        return Disk(root)
    except OSError as exc:
        raise _missing(root, f"cannot be opened: {exc.strerror}") from exc


def _token(location: Location) -> tuple[object, ...]:
    if not os.path.isdir(location.root):
        raise _missing(location.root, "is not there")
    if not location.bare and not os.path.lexists(f"{location.root}/.git"):
        raise _missing(location.root, "is no repository any more")
    if not os.path.isdir(location.git_dir):
        raise _missing(location.root, f"has lost its git dir {location.git_dir}")
    return git.token(location)


def _missing(root: str, what: str) -> RootMissing:
    return RootMissing(f"the worktree {root} {what}", hint="bring it back, or: headwatch remove " + root)
