"""What git prints becomes records."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwatch_indexer.listing import parse_index, parse_status, parse_tree, quote, unreadable

OID = "a" * 40


def test_complaints_name_what_could_not_be_looked_at() -> None:
    """Folders end in a slash; anything else git says is kept apart."""
    paths, other = unreadable(
        "warning: could not open directory 'closed/': Permission denied\n"
        "warning: could not open directory 'it's: odd/': Permission denied\n"
        "closed/tracked: Permission denied\n"
        "warning: unable to access '.gitignore': Permission denied\n"
        "error: something else\n"
    )
    assert paths == {"closed/", "it's: odd/", "closed/tracked"}
    assert other == ["warning: unable to access '.gitignore': Permission denied", "error: something else"]
    assert unreadable("") == (set(), [])


def test_index_is_read_with_and_without_stat() -> None:
    """--debug may change its form; then there is no stat, and git is trusted."""
    plain = (
        f"H 100644 {OID} 0\ta\nb\0S 100755 {OID} 0\tc\0h 100644 {OID} 0\td\0M 100644 {OID} 2\te\0".encode()
    )
    index = parse_index(plain)
    assert list(index.entries) == [b"a\nb", b"c", b"d"]
    assert index.unmerged == {b"e"}
    assert (index.entries[b"c"].absent, index.entries[b"d"].unwatched) == (True, True)
    assert index.entries[b"c"].mode == 0o100755
    debug = (
        f"H 100644 {OID} 0\ta\0  ctime: 1:2\n  mtime: 3:4\n  dev: 1\tino: 5\n  uid: 0\tgid: 0\n"
        f"  size: 6\tflags: 0\nH 100644 {OID} 0\tb\0  something: new\n"
    ).encode()
    entries = parse_index(debug).entries
    assert entries[b"a"].stat == (b"1", b"2", b"3", b"4", b"5", b"6")


def test_status_and_tree_take_any_path() -> None:
    """Spaces and newlines are part of a path; a nested repository ends in a slash."""
    zero = "0" * 40
    status = parse_status(
        f"1 .M N... 100644 100644 100755 {OID} {OID} a b\nc\0"
        f"1 A. N... 000000 100644 100644 {zero} {OID} new\0"
        f"u UU N... 100644 100644 100644 100644 {OID} {OID} {OID} both\0? x y\0? nested/\0".encode()
    )
    assert status.untracked == (b"x y",)
    assert status.nested == (b"nested/",)
    assert (status.changes[b"a b\nc"].disk_mode, status.changes[b"a b\nc"].on_disk) == (0o100755, True)
    assert (status.changes[b"new"].head_oid, status.changes[b"new"].on_disk) == (None, False)
    assert status.changes[b"both"].head_oid == OID
    tree = f"100644 blob {OID}      12\ta b\n\x00160000 commit {OID}       -\tsub\0".encode()
    assert list(parse_tree(tree)) == [(b"a b\n", OID, 0o100644, 12), (b"sub", OID, 0o160000, None)]


@given(st.binary(min_size=1, max_size=30))
def test_quoted_paths_stay_on_their_line(path: bytes) -> None:
    """Whatever a name holds, git reads one line of plain characters."""
    quoted = quote(path)
    assert all(32 <= c < 127 for c in quoted)
    octal = quoted[1:-1].decode().encode().decode("unicode_escape").encode("latin-1")
    assert octal == path
