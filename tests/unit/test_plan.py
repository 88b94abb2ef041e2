"""The plan is the difference between rows and snapshot, and nothing that nobody looked at is removed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from headwatch_indexer.plan import Difference, FileRow, Wanted, compare, doubtful
from headwatch_indexer.records import Entry, Skipped, Snapshot

VERSION = 3
A = "a" * 40
B = "b" * 40
NOTHING = Difference((), (), (), ())


def row(
    path: bytes, oid: str = A, mode: int = 0o100644, language: str = "python", version: int = VERSION
) -> FileRow:
    return FileRow(path, oid, mode, language, parse_id=1, parser_version=version)


def want(path: bytes, oid: str = A, mode: int = 0o100644, language: str = "python") -> Wanted:
    return Wanted(Entry(path, oid, mode, dirty=False), language)


def snapshot(
    wanted: Iterable[Wanted] = (), skipped: Iterable[Skipped] = (), unknown: Iterable[bytes] = ()
) -> Snapshot:
    return Snapshot(
        head=A,
        branch="main",
        entries={w.entry.path: w.entry for w in wanted},
        skipped={s.path: s for s in skipped},
        unknown=frozenset(unknown),
        contents={},
        dirty_digest="",
    )


def difference(
    rows: Iterable[FileRow] = (),
    wanted: Iterable[Wanted] = (),
    *,
    was_skipped: Iterable[Skipped] = (),
    skipped: Iterable[Skipped] = (),
    unknown: Iterable[bytes] = (),
) -> Difference:
    wanted = list(wanted)
    return compare(
        {r.path: r for r in rows},
        {s.path: s for s in was_skipped},
        wanted,
        snapshot(wanted, skipped, unknown),
        VERSION,
    )


def test_equal_is_empty() -> None:
    """Rows that are as the snapshot has them need nothing."""
    skip = Skipped(b"c", "binary", 2)
    found = difference([row(b"a"), row(b"b")], [want(b"b"), want(b"a")], was_skipped=[skip], skipped=[skip])
    assert found == NOTHING
    assert found.empty


def test_what_makes_a_file_be_written() -> None:
    """It is new, or its content, mode, language or parser changed."""
    assert difference([], [want(b"a")]).write == (want(b"a"),)
    for change in ({"oid": B}, {"mode": 0o100755}, {"language": "text"}):
        found = difference([row(b"a")], [want(b"a", **change)])
        assert found == replace(NOTHING, write=(want(b"a", **change),))
        assert not found.empty
    assert difference([row(b"a", version=VERSION - 1)], [want(b"a")]).write == (want(b"a"),)


def test_rename_is_a_write_and_a_removal() -> None:
    """Paths are told apart by their bytes."""
    found = difference([row(b"old")], [want(b"new")])
    assert found == replace(NOTHING, write=(want(b"new"),), remove=(b"old",))
    found = difference([row(b"\xe9")], [want("é".encode())])
    assert found == replace(NOTHING, write=(want("é".encode()),), remove=(b"\xe9",))


def test_skipped_files_come_change_and_go() -> None:
    """A skipped file has a row of its own, and none as a file."""
    big, binary = Skipped(b"a", "too large", 9), Skipped(b"a", "binary", 3)
    assert difference([row(b"a")], skipped=[big]) == replace(NOTHING, remove=(b"a",), skip=(big,))
    assert difference(was_skipped=[big], skipped=[binary]) == replace(NOTHING, skip=(binary,))
    assert difference(was_skipped=[big]) == replace(NOTHING, unskip=(b"a",))
    assert difference([], [want(b"a")], was_skipped=[big]) == replace(
        NOTHING, write=(want(b"a"),), unskip=(b"a",)
    )


def test_unknown_files_keep_their_rows() -> None:
    """What could not be looked at is neither removed nor listed anew."""
    skip = Skipped(b"c", "binary", 2)
    assert difference([row(b"a")], was_skipped=[skip], unknown=[b"a", b"c"]) == NOTHING


def test_unknown_folders_keep_all_beneath() -> None:
    """A path that ends in "/" stands for everything in that folder, and for nothing beside it."""
    rows = [row(b"d/a"), row(b"d/e/b"), row(b"d"), row(b"dd/a")]
    skip = Skipped(b"d/c", "binary", 2)
    found = difference(rows, was_skipped=[skip, Skipped(b"c", "binary", 2)], unknown=[b"d/"])
    assert found == replace(NOTHING, remove=(b"d", b"dd/a"), unskip=(b"c",))


def test_unknown_root_keeps_everything() -> None:
    """Git names the root itself when it cannot list it."""
    assert difference([row(b"a"), row(b"d/b")], unknown=[b"./"]) == NOTHING


def test_doubt_begins_above_a_third_of_many() -> None:
    """A scan that lost much is doubted once; small worktrees may lose everything."""
    gone = replace(NOTHING, remove=tuple(b"%d" % n for n in range(31)))
    assert doubtful(100, gone)
    assert not doubtful(100, replace(gone, remove=gone.remove[:30]))
    assert not doubtful(19, replace(gone, remove=gone.remove[:19]))
    assert doubtful(20, replace(gone, remove=gone.remove[:20]))


paths = st.sampled_from([b"a", b"b", b"d/a", b"d/b", b"d/e/f", b"\xff"])
rows_by_path = st.dictionaries(paths, st.tuples(st.sampled_from([A, B]), st.sampled_from([VERSION, 1])))
wanted_by_path = st.dictionaries(paths, st.sampled_from([A, B]))
skipped_by_path = st.dictionaries(paths, st.sampled_from(["binary", "secret"]))


def applied(
    rows: Mapping[bytes, FileRow], skipped: Mapping[bytes, Skipped], found: Difference
) -> tuple[dict[bytes, FileRow], dict[bytes, Skipped]]:
    """Do what a difference says."""
    new_rows = {path: r for path, r in rows.items() if path not in found.remove}
    new_rows |= {w.entry.path: row(w.entry.path, w.entry.blob_oid) for w in found.write}
    new_skipped = {path: s for path, s in skipped.items() if path not in found.unskip}
    return new_rows, new_skipped | {s.path: s for s in found.skip}


@given(rows_by_path, skipped_by_path, wanted_by_path, skipped_by_path, st.sets(paths))
def test_applied_differences_converge(
    old: Mapping[bytes, tuple[str, int]],
    old_skipped: Mapping[bytes, str],
    new: Mapping[bytes, str],
    new_skipped: Mapping[bytes, str],
    unknown: set[bytes],
) -> None:
    """After a difference is applied, rows are the snapshot plus what nobody could look at; then there is none."""
    unknown -= {*new, *new_skipped}
    rows = {path: row(path, oid, version=version) for path, (oid, version) in old.items()}
    skipped = {path: Skipped(path, reason, None) for path, reason in old_skipped.items()}
    wanted = [want(path, oid) for path, oid in new.items() if path not in new_skipped]
    seen = snapshot(wanted, [Skipped(path, reason, None) for path, reason in new_skipped.items()], unknown)
    found = compare(rows, skipped, wanted, seen, VERSION)
    assert not {*found.remove} & unknown
    rows_after, skipped_after = applied(rows, skipped, found)
    assert {p: r.blob_oid for p, r in rows_after.items()} == {
        **{p: r.blob_oid for p, r in rows.items() if p in unknown},
        **{w.entry.path: w.entry.blob_oid for w in wanted},
    }
    assert skipped_after == {**{p: s for p, s in skipped.items() if p in unknown}, **seen.skipped}
    kept = [w for w in wanted if w.entry.path not in unknown]
    assert compare(rows_after, skipped_after, kept, seen, VERSION) == NOTHING
