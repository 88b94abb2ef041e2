"""What a git dir says to a plain look at its files, without a process."""

from __future__ import annotations

import os
import re

Signature = tuple[int, int, int]  # inode, mtime in ns, size; all 0 where there is no file

_OID = re.compile(rb"(?:[0-9a-f]{40}|[0-9a-f]{64})\s*\Z")
_OWN_REFS = (b"refs/bisect/", b"refs/worktree/", b"refs/rewritten/")  # kept per worktree
_SYMREFS = 5  # git's own limit on a chain of symbolic refs

# Looked at in this order: a rebase that stops at a conflict also leaves CHERRY_PICK_HEAD.
_OPERATIONS = (
    ("rebase-merge", "rebase"),
    ("rebase-apply/applying", "am"),
    ("rebase-apply", "rebase"),
    ("MERGE_HEAD", "merge"),
    ("CHERRY_PICK_HEAD", "cherry-pick"),
    ("REVERT_HEAD", "revert"),
    ("sequencer", "cherry-pick"),  # between two picks there is no CHERRY_PICK_HEAD
    ("BISECT_START", "bisect"),
)


class AskGit(Exception):
    """The files do not tell for certain (reftable, odd refs, no permission): the git command must."""


def operation(git_dir: str) -> str | None:
    """Name the operation that is under way: rebase, am, merge, cherry-pick, revert or bisect."""
    for name, word in _OPERATIONS:
        if os.path.lexists(f"{git_dir}/{name}"):
            return "revert" if name == "sequencer" and _reverting(git_dir) else word
    return None


def locks(git_dir: str, common_dir: str) -> list[tuple[str, float]]:
    """List the locks that tell of git at work here, as (path, mtime): index, HEAD and HEAD's branch."""
    paths = [f"{git_dir}/index.lock", f"{git_dir}/HEAD.lock"]
    target = _symref(_read(os.fsencode(f"{git_dir}/HEAD")) or b"")
    if target is not None:
        paths.append(f"{common_dir}/{os.fsdecode(target)}.lock")
    found = []
    for path in paths:
        try:
            found.append((path, os.lstat(path).st_mtime))
        except OSError:
            continue
    return found


def has_reftable(common_dir: str) -> bool:
    """Tell whether refs are kept as reftable, which only the git command reads."""
    return os.path.isdir(f"{common_dir}/reftable")


def head(git_dir: str, common_dir: str) -> tuple[str | None, str | None]:
    """Resolve HEAD to (commit id, branch): no id on an unborn branch, no branch when detached.

    Raises AskGit where files alone do not give git's answer.
    """
    if has_reftable(common_dir) or os.path.islink(f"{git_dir}/HEAD"):
        raise AskGit
    content = _read(os.fsencode(f"{git_dir}/HEAD"))
    if content is None:
        raise AskGit
    target = _symref(content)
    if target is None:
        return _oid(content), None
    base = os.fsencode(common_dir)
    for _ in range(_SYMREFS):
        if target.startswith(_OWN_REFS) or not target.startswith(b"refs/"):
            raise AskGit
        loose = _read(base + b"/" + target)
        if loose is None:
            return _packed(base, target), _branch(target)
        further = _symref(loose)
        if further is None:
            return _oid(loose), _branch(target)
        target = further
    raise AskGit


def signature(path: str) -> Signature:
    """Read (inode, mtime, size) of a file; zeros where it is absent or out of reach."""
    try:
        stat = os.stat(path)
    except OSError:
        return (0, 0, 0)
    return (stat.st_ino, stat.st_mtime_ns, stat.st_size)


def tail(path: str, size_bytes: int = 32) -> bytes:
    """Read the end of a file: git closes its index with a checksum, which no clock can blur."""
    try:
        with open(path, "rb", buffering=0) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - size_bytes))
            return file.read(size_bytes) or b""
    except OSError:
        return b""


def content(path: str) -> bytes:
    """Read a small file whole; empty where it is absent or out of reach."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""


def gitfile(path: str) -> str | None:
    """Resolve the git dir that `<worktree>/.git` is or points to; None where there is none."""
    if os.path.isdir(path):
        return os.path.realpath(path)
    data = content(path)
    if not data.startswith(b"gitdir: "):
        return None
    target = os.path.join(os.path.dirname(path), os.fsdecode(data[8:].rstrip(b"\r\n")))
    return os.path.realpath(target) if os.path.isdir(target) else None


def _reverting(git_dir: str) -> bool:
    return content(f"{git_dir}/sequencer/todo").startswith(b"revert")


def _read(path: bytes) -> bytes | None:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as exc:
        raise AskGit from exc


def _symref(content: bytes) -> bytes | None:
    return content[4:].strip() if content.startswith(b"ref:") else None


def _branch(ref: bytes) -> str | None:
    return os.fsdecode(ref[11:]) if ref.startswith(b"refs/heads/") else None


def _oid(content: bytes) -> str:
    if not _OID.match(content):
        raise AskGit
    return content.strip().decode()


def _packed(common_dir: bytes, ref: bytes) -> str | None:
    packed = _read(common_dir + b"/packed-refs") or b""
    end = packed.find(b" " + ref + b"\n")
    if end < 0:
        return None
    return _oid(packed[packed.rfind(b"\n", 0, end) + 1 : end])
