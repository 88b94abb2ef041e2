"""Rows against a snapshot: the difference to write. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headwatch_indexer.records import Entry, Skipped, Snapshot

_SHRUNK = 0.3  # a scan that lost more than this share of the files is doubted once
_FEW = 20  # below so many rows any change is believed


@dataclass(frozen=True, slots=True)
class FileRow:
    """One membership row as the database has it."""

    path: bytes
    blob_oid: str
    mode: int
    language: str
    parse_id: int
    parser_version: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """One file that shall be a row: its entry and the language that its path has."""

    entry: Entry
    language: str


@dataclass(frozen=True, slots=True)
class Difference:
    """What turns the rows into the snapshot."""

    write: tuple[Wanted, ...]  # new files, and files whose content, mode or language changed
    remove: tuple[bytes, ...]  # paths that are gone from the snapshot, with proof
    skip: tuple[Skipped, ...]  # skipped rows to write
    unskip: tuple[bytes, ...]  # skipped rows to remove

    @property
    def empty(self) -> bool:
        return not (self.write or self.remove or self.skip or self.unskip)


def compare(
    rows: Mapping[bytes, FileRow],
    skipped: Mapping[bytes, Skipped],
    wanted: Iterable[Wanted],
    snapshot: Snapshot,
    parser_version: int,
) -> Difference:
    """Compare membership rows with a snapshot.

    Rows of paths that could not be looked at (`snapshot.unknown`) stay as they are. Files whose rows come
    from another parser version are written again.
    """
    unknown_folders = tuple(path for path in snapshot.unknown if path.endswith(b"/"))
    blind = b"./" in unknown_folders  # the root itself could not be listed

    def unknown(path: bytes) -> bool:
        return blind or path in snapshot.unknown or path.startswith(unknown_folders)

    write: list[Wanted] = []
    found: set[bytes] = set()
    for want in wanted:
        entry = want.entry
        found.add(entry.path)
        row = rows.get(entry.path)
        if (
            row is None
            or (row.blob_oid, row.mode, row.language) != (entry.blob_oid, entry.mode, want.language)
            or row.parser_version != parser_version
        ):
            write.append(want)
    return Difference(
        write=tuple(write),
        remove=tuple(path for path in rows if path not in found and not unknown(path)),
        skip=tuple(s for path, s in snapshot.skipped.items() if skipped.get(path) != s),
        unskip=tuple(path for path in skipped if path not in snapshot.skipped and not unknown(path)),
    )


def doubtful(rows: int, difference: Difference) -> bool:
    """Whether so much is gone that the scan deserves a second look before rows are removed."""
    return rows >= _FEW and len(difference.remove) > _SHRUNK * rows
