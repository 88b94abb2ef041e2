"""The frozen values that modules hand to each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

KINDS = ("function", "method", "class", "interface", "type", "constant", "module", "section")


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a snapshot that is in scope by its path."""

    path: bytes  # repository-relative, as on disk
    blob_oid: str  # 40 or 64 hex: what git names, or would name, this content
    mode: int  # 0o100644 or 0o100755
    dirty: bool  # differs from HEAD, or untracked
    size: int | None = None  # bytes; None for content known only to git


@dataclass(frozen=True, slots=True)
class Skipped:
    """One listed file that is not indexed, and why."""

    path: bytes
    reason: str
    size: int | None  # bytes; None where nothing was looked at


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one worktree holds: path → blob, taken between two equal tokens of git's state."""

    head: str | None  # commit id; None on an unborn branch
    branch: str | None  # short name; None when detached
    entries: Mapping[bytes, Entry]
    skipped: Mapping[bytes, Skipped]
    unknown: frozenset[bytes]  # listed, but could not be looked at: their rows stay
    contents: Mapping[str, bytes]  # blob id → content, for what was read from disk in this pass
    dirty_digest: str  # hex digest over the dirty entries; "" when clean
    dirty_files: int = 0  # dirty entries, and files that HEAD has but the disk has not


@dataclass(frozen=True, slots=True)
class Symbol:
    """One definition found in a blob."""

    ordinal: int  # order in the file, from 0
    name: str
    qualname: str  # path inside the file, joined by "."; a repeated one ends in #2, #3 …
    kind: str  # function, method, class, interface, type, constant, module or section
    signature: str
    doc: str
    start_line: int  # from 1; decorators and attributes included
    end_line: int  # inclusive
    start_offset: int  # code points of the decoded text: start of start_line
    end_offset: int  # code points: end of end_line, without its newline
    structural_hash: str  # hex; the same when only comments, docstrings or layout differ
    body_hash: str  # hex; the same, without the symbol's own name


@dataclass(frozen=True, slots=True)
class Chunk:
    """The text of a symbol, or of a part of a long one, that is embedded and searched."""

    symbol_ordinal: int
    n: int  # part number inside the symbol, from 0
    start_line: int
    end_line: int
    text: str  # qualified name, newline, source lines; never the path


@dataclass(frozen=True, slots=True)
class Parsed:
    """Everything that (blob, language, parser version) determines."""

    language: str
    status: str  # "ok"; "partial" when the tree has errors; else the reason why it is skipped ("binary", …)
    text: str  # decoded content, "" when skipped
    symbols: tuple[Symbol, ...] = ()
    chunks: tuple[Chunk, ...] = ()


@dataclass(frozen=True, slots=True)
class Transition:
    """One line of a worktree's HEAD reflog."""

    old: str
    new: str
    action: str  # commit, checkout, rebase, reset, merge, …
    message: str
    at: float  # seconds since the epoch, from the log line


@dataclass(frozen=True, slots=True)
class Location:
    """Where one worktree lives, as git itself says."""

    root: str
    git_dir: str
    common_dir: str
    object_format: str  # sha1 or sha256
    bare: bool = False


@dataclass(frozen=True, slots=True)
class RepositoryRules:
    """What a repository's .headwatch.toml says; defaults when there is none."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    languages: Mapping[str, str] = field(default_factory=dict)  # glob → language
    only_languages: tuple[str, ...] = ()  # files of other languages are left out; () means all
    immutable_core: tuple[str, ...] = ()
    transient_diff: tuple[str, ...] = ()
    problem: str | None = None  # "path:line: what" when the file is malformed; then all else is default
