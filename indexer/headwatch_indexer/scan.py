"""What one look at a worktree has found so far, and how files on disk come into it."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from headwatch_indexer import git, listing
from headwatch_indexer.disk import Disk, Look, StatCache, blob_oid
from headwatch_indexer.records import Entry, Location, RepositoryRules, Skipped, Snapshot
from headwatch_indexer.scope import skip_reason

_LINK = 0o120000
_NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Place:
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
class Found:
    """A file read from disk, on its way into the scan."""

    place: Place
    mode: int
    look: Look


class Contents(Mapping[str, bytes]):
    """Content by blob id: what this pass read, and, on demand, what it knew by its stat alone.

    Iteration gives the former. The latter is read when asked for, and missing if it has changed since.
    """

    def __init__(self, location: Location) -> None:
        self._location = location
        self._held: dict[str, bytes] = {}
        self._on_disk: dict[str, bytes] = {}  # blob id → path

    def __getitem__(self, oid: str) -> bytes:
        if oid not in self._held:
            content = read_again(self._location, self._on_disk[oid], oid)
            if content is None:
                raise KeyError(oid)
            return content
        return self._held[oid]

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, oid: str, content: bytes) -> None:
        self._held[oid] = content

    def find(self, oid: str, path: bytes) -> None:
        self._on_disk[oid] = path


@dataclass(slots=True)
class Scan:
    """One look at a worktree, as far as it has come."""

    location: Location
    rules: RepositoryRules
    cache: StatCache
    attributes: dict[bytes, frozenset[str]] = field(default_factory=dict)
    entries: dict[bytes, Entry] = field(default_factory=dict)
    skipped: dict[bytes, Skipped] = field(default_factory=dict)
    unknown: set[bytes] = field(default_factory=set)
    deleted: set[bytes] = field(default_factory=set)  # HEAD has it, nothing is there now
    contents: Contents = field(init=False)

    def __post_init__(self) -> None:
        self.contents = Contents(self.location)

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

    def add(self, place: Place, oid: str, mode: int, size: int) -> None:
        dirty = not place.tracked or (oid, mode) != (place.head_oid, place.head_mode)
        self.deleted.discard(place.path)
        self.entries[place.path] = Entry(place.path, oid, mode, dirty, size)

    def take_in(self, found: Found, content: bytes) -> None:
        """Add what was read from disk; `content` is what git would store of it."""
        oid = blob_oid(content, self.location.object_format)
        self.cache.remember(found.place.path, found.look, oid)
        if oid != found.place.index_oid:
            self.contents.hold(oid, content)
        self.add(found.place, oid, found.mode, found.look.stat.st_size)

    def take_as_stored(self, found: Found, oid: str) -> None:
        """Add a file that git stores in another form than the disk's: by its id, its content is git's to give."""
        self.cache.remember(found.place.path, found.look, oid)
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


def look_at(scan: Scan, disk: Disk, places: Iterable[Place]) -> list[Found]:
    """Read files from disk into the scan; return those that git might store in another form."""
    pending: list[Found] = []
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
                scan.contents.find(oid, path)
                scan.add(place, oid, mode, found.st_size)
                continue
            look = disk.read(path)
        except OSError:
            scan.unknown.add(path)
            continue
        if look is None:  # gone, or something else by now: what this pass saw does not hold together
            scan.unknown.add(path)
        elif b"\r\n" in look.content or _may_be_filtered(scan, place, look.content):
            pending.append(Found(place, mode, look))
        else:
            scan.take_in(Found(place, mode, look), look.content)
    return pending


def read_again(location: Location, path: bytes, oid: str) -> bytes | None:
    """Read a file of the worktree if it still has the content that `oid` names."""
    try:
        with Disk(location.root) as disk:
            look = disk.read(path)
    except OSError:
        return None
    if look is not None:
        for content in (look.content, look.content.replace(b"\r\n", b"\n")):
            if blob_oid(content, location.object_format) == oid:
                return content
    return None


def settle_forms(scan: Scan, pending: list[Found]) -> None:
    """Name content as git would: with LF where it converts line ends, by the index where a filter gives just that."""
    ids = _hash_as_git(scan.location, [found.place.path for found in pending])
    for found, oid in zip(pending, ids, strict=True):
        content = found.look.content
        if oid is not None and oid != blob_oid(content, scan.location.object_format):
            converted = content.replace(b"\r\n", b"\n")
            if oid == blob_oid(converted, scan.location.object_format):
                content = converted
            elif oid == found.place.index_oid:  # unchanged as git sees it, and git has what it stores
                scan.take_as_stored(found, oid)
                continue
        scan.take_in(found, content)


def _may_be_filtered(scan: Scan, place: Place, content: bytes) -> bool:
    """Tell whether a file that git takes for unchanged is not what the index has: seldom more than one or two."""
    return place.index_oid is not None and blob_oid(content, scan.location.object_format) != place.index_oid


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
