"""What `git ls-files`, `ls-tree` and `status` print, as records. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

# What --debug adds is there for the stat that git took; git's own documentation says that it may change.
_INDEX = re.compile(
    rb"(.) (\d{6}) ([0-9a-f]+) (\d)\t([^\0]+)\0"
    rb"(?:  ctime: (\d+):(\d+)\n  mtime: (\d+):(\d+)\n  dev: \d+\tino: (\d+)\n[^\n]*\n  size: (\d+)\t[^\n]*\n)?"
)
_TREE = re.compile(rb"(\d{6}) (\w+) ([0-9a-f]+) +(-|BAD|\d+)\t([^\0]+)\0")
_NO_FOLDER = re.compile(r"^warning: could not open directory '(?P<path>.*?)/?': (?P<why>[^:]*)$", re.S)
_NO_STAT = re.compile(r"^(?P<path>.+): (?P<why>[A-Z][^:]*)$", re.S)
_32_BITS = 0xFFFFFFFF  # the index keeps no more of inode, size and seconds
_SECOND = 1_000_000_000


class IndexEntry(NamedTuple):
    """One entry of the index at stage 0."""

    path: bytes
    oid: str
    mode: int
    absent: bool  # skip-worktree: not present here unless it lies on the disk all the same
    unwatched: bool  # assume-unchanged: git does not look at the disk
    stat: tuple[bytes, bytes, bytes, bytes, bytes, bytes]  # ctime s, ns, mtime s, ns, inode, size; or empty

    def agrees(self, found: os.stat_result) -> bool:
        """Tell whether git took this very stat, to the nanosecond, when it last knew the content.

        Git keeps nanoseconds but compares seconds as most distributions build it: an edit that keeps the size and
        restores the mtime passes as unchanged within the second. Zeros stand for what the writer of the index left
        out.
        """
        ctime_s, ctime_ns, mtime_s, mtime_ns, inode, size = self.stat
        if not inode:
            return True
        return (
            int(inode) in (found.st_ino & _32_BITS, 0)
            and int(size) == found.st_size & _32_BITS
            and _same_time(int(ctime_s), int(ctime_ns), found.st_ctime_ns)
            and _same_time(int(mtime_s), int(mtime_ns), found.st_mtime_ns)
        )


@dataclass(frozen=True, slots=True)
class Index:
    """The index: what is tracked, and what is unmerged."""

    entries: dict[bytes, IndexEntry]
    unmerged: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class Change:
    """One path whose HEAD, index and disk are not all the same."""

    path: bytes
    staged: bool  # HEAD and index differ
    on_disk: bool  # the disk differs from the index, or must be looked at
    head_oid: str | None  # None where HEAD has nothing
    head_mode: int  # 0 where HEAD has nothing
    disk_mode: int  # as git sees it (core.fileMode considered); 0 where it is gone


@dataclass(frozen=True, slots=True)
class Status:
    """What differs from HEAD and index, and what nobody tracks."""

    changes: dict[bytes, Change]
    untracked: tuple[bytes, ...]  # files
    nested: tuple[bytes, ...]  # folders that are repositories of their own, "/" at the end


def parse_index(output: bytes) -> Index:
    """Read `ls-files -s -v -z --debug`."""
    entries: dict[bytes, IndexEntry] = {}
    unmerged: set[bytes] = set()
    for tag, mode, oid, stage, path, *times in _INDEX.findall(output):
        if stage != b"0":
            unmerged.add(path)
        else:
            entries[path] = IndexEntry(
                path, oid.decode(), int(mode, 8), tag in b"Ss", tag.islower(), tuple(times)
            )
    return Index(entries, frozenset(unmerged))


def parse_tree(output: bytes) -> Iterator[tuple[bytes, str, int, int | None]]:
    """Read `ls-tree -r -l -z` as (path, id, mode, size); no size for what is no blob or not here."""
    for mode, _kind, oid, size, path in _TREE.findall(output):
        yield path, oid.decode(), int(mode, 8), int(size) if size.isdigit() else None


def parse_status(output: bytes) -> Status:
    """Read `status --porcelain=v2 -z` without renames."""
    changes: dict[bytes, Change] = {}
    untracked: list[bytes] = []
    nested: list[bytes] = []
    for record in output.split(b"\0"):
        kind = record[:2]
        if kind == b"? ":
            (nested if record.endswith(b"/") else untracked).append(record[2:])
        elif kind == b"1 ":
            _, xy, _, head_mode, _, disk_mode, head_oid, _, path = record.split(b" ", 8)
            changes[path] = _change(path, xy[:1] != b".", xy[1:] != b".", head_mode, head_oid, disk_mode)
        elif kind == b"u ":
            # Stage 2 is "ours": what HEAD has.
            _, _, _, _, mode, _, disk_mode, _, oid, _, path = record.split(b" ", 10)
            changes[path] = _change(path, True, True, mode, oid, disk_mode)
    return Status(changes, tuple(untracked), tuple(nested))


def unreadable(messages: str) -> tuple[set[str], list[str]]:
    """Split git's complaints into paths that it could not look at and lines that mean something else.

    A folder ends in "/": nothing below it was seen.
    """
    paths: set[str] = set()
    other: list[str] = []
    for line in messages.splitlines():
        if match := _NO_FOLDER.match(line):
            paths.add(match["path"] + "/")
        elif not line.startswith(("warning: ", "error: ", "fatal: ", "hint: ")) and (
            match := _NO_STAT.match(line)
        ):
            paths.add(match["path"])
        elif line.strip():
            other.append(line)
    return paths, other


def quote(path: bytes) -> bytes:
    """Quote a path the way git reads it from a line: C escapes between double quotes."""
    safe = b"".join(bytes([c]) if 32 < c < 127 and c not in b'"\\' else b"\\%03o" % c for c in path)
    return b'"' + safe + b'"'


def _same_time(seconds: int, nanoseconds: int, found_ns: int) -> bool:
    if nanoseconds:
        return (seconds, nanoseconds) == (found_ns // _SECOND & _32_BITS, found_ns % _SECOND)
    return seconds in (found_ns // _SECOND & _32_BITS, 0)


def _change(
    path: bytes, staged: bool, on_disk: bool, head_mode: bytes, head_oid: bytes, disk_mode: bytes
) -> Change:
    mode = int(head_mode, 8)
    return Change(path, staged, on_disk, head_oid.decode() if mode else None, mode, int(disk_mode, 8))
