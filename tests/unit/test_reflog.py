"""Reflog lines become transitions, once each."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwatch_indexer.reflog import Cursor, parse, read_new

A, B, C = "a" * 40, "b" * 40, "c" * 40


def line(old: str, new: str, at: int, message: str = "commit: x") -> bytes:
    return f"{old} {new} A U Thor <a@example.org> {at} +0100\t{message}\n".encode()


@pytest.mark.parametrize(
    ("message", "action"),
    [
        ("commit: fix: the (thing): now", "commit"),
        ("commit (initial): start", "commit (initial)"),
        ("commit (amend): better", "commit (amend)"),
        ("commit (merge): Merge branch 'x'", "commit (merge)"),
        ("checkout: moving from main to feat(x)", "checkout"),
        ("reset: moving to HEAD~1", "reset"),
        ("rebase (start): checkout main", "rebase (start)"),
        ("rebase -i (pick): one", "rebase (pick)"),
        ("rebase (finish): returning to refs/heads/topic", "rebase (finish)"),
        ("rebase finished: returning to refs/heads/topic", "rebase (finish)"),
        ("pull --rebase origin main (start): checkout aaaa", "pull (start)"),
        ("pull origin main: Fast-forward", "pull"),
        ("merge topic: Fast-forward", "merge"),
        ("merge feat(scope): Merge made by the 'ort' strategy.", "merge"),
        ("cherry-pick: one", "cherry-pick"),
        ('revert: Revert "one"', "revert"),
        ("clone: from https://example.org/x.git", "clone"),
        ("branch: Created from HEAD", "branch"),
        ("Branch: renamed refs/heads/a to refs/heads/b", "branch"),
        ("am: a patch", "am"),
        ("update by push", "update"),
        ("reset everything by hand", "update"),
        ("my tool: did it", "update"),
        ("", "update"),
    ],
)
def test_action_is_gits_verb_with_its_step(message: str, action: str) -> None:
    """The action is read from the message; foreign messages are an update."""
    found = parse(line(A, B, 5, message))
    assert found is not None
    assert (found.old, found.new, found.action, found.message, found.at) == (A, B, action, message, 5.0)


def test_line_without_message_or_name_and_with_sha256_ids_is_read() -> None:
    """Git writes no tab without a message; names may be empty, ids may have 64 digits, text may be Latin-1."""
    assert parse(f"{A} {B}  <> 7 -0000\n".encode()) is not None
    assert parse(f"{'a' * 64} {'b' * 64} N <e> 7 +0000\tcommit: x\n".encode()) is not None
    latin = parse(line(A, B, 5).replace(b"Thor", b"Th\xf6r").replace(b": x", b": \xf6"))
    assert latin is not None
    assert latin.message == "commit: \ufffd"


@given(st.binary(max_size=200))
def test_anything_else_is_no_transition_and_no_error(data: bytes) -> None:
    """Garbage in a log never raises."""
    found = parse(data)
    assert found is None or len(found.old) in (40, 64)


def test_missing_log_gives_nothing_and_leaves_the_cursor(tmp_path: Path) -> None:
    """Reflogs are optional."""
    cursor = Cursor(1, 2, "x", 3, 4.0)
    assert read_new(str(tmp_path / "HEAD"), None) == ([], None)
    assert read_new(str(tmp_path / "HEAD"), cursor) == ([], cursor)


def test_each_line_is_given_once(tmp_path: Path) -> None:
    """Only lines after the cursor are new."""
    log = tmp_path / "HEAD"
    log.write_bytes(line(A, B, 1) + line(B, C, 2))
    found, cursor = read_new(str(log), None)
    assert [t.new for t in found] == [B, C]
    assert read_new(str(log), cursor) == ([], cursor)
    with log.open("ab") as file:
        file.write(line(C, A, 3))
    found, cursor = read_new(str(log), cursor)
    assert [t.new for t in found] == [A]
    assert read_new(str(log), cursor)[0] == []


def test_half_written_line_waits(tmp_path: Path) -> None:
    """A line counts when its newline is there."""
    log = tmp_path / "HEAD"
    second = line(B, C, 2)
    log.write_bytes(line(A, B, 1) + second[:50])
    found, cursor = read_new(str(log), None)
    assert [t.new for t in found] == [B]
    log.write_bytes(line(A, B, 1) + second)
    assert [t.new for t in read_new(str(log), cursor)[0]] == [C]


def test_expiry_repeats_nothing(tmp_path: Path) -> None:
    """`reflog expire` drops old lines by writing a new file; what follows the last line read is new."""
    log = tmp_path / "HEAD"
    log.write_bytes(line(A, B, 1) + line(B, C, 2))
    _, cursor = read_new(str(log), None)
    rewritten = tmp_path / "new"
    rewritten.write_bytes(line(B, C, 2) + line(C, A, 2))
    os.replace(rewritten, log)
    assert [t.new for t in read_new(str(log), cursor)[0]] == [A]


def test_rewriting_gives_later_lines_only(tmp_path: Path) -> None:
    """Where the last line read is gone, a line is new by its time."""
    log = tmp_path / "HEAD"
    log.write_bytes(line(A, B, 1) + line(B, C, 5))
    _, cursor = read_new(str(log), None)
    log.write_bytes(line(A, C, 5) + line(C, B, 6))
    found, cursor = read_new(str(log), cursor)
    assert [(t.new, t.at) for t in found] == [(B, 6.0)]
    assert read_new(str(log), cursor)[0] == []


def test_emptied_log_starts_over_without_repeating(tmp_path: Path) -> None:
    """A truncated log gives nothing, then what comes after."""
    log = tmp_path / "HEAD"
    log.write_bytes(line(A, B, 5))
    _, cursor = read_new(str(log), None)
    log.write_bytes(b"")
    found, cursor = read_new(str(log), cursor)
    assert found == []
    log.write_bytes(line(A, B, 5) + line(B, C, 6))
    assert [t.new for t in read_new(str(log), cursor)[0]] == [C]


def test_lines_that_are_none_are_passed_by(tmp_path: Path) -> None:
    """A damaged line costs itself only, also as the last one."""
    log = tmp_path / "HEAD"
    log.write_bytes(line(A, B, 1) + b"garbage\rwith a return\n" + line(B, C, 2) + b"\n")
    found, cursor = read_new(str(log), None)
    assert [t.new for t in found] == [B, C]
    with log.open("ab") as file:
        file.write(line(C, A, 3))
    assert [t.new for t in read_new(str(log), cursor)[0]] == [A]
