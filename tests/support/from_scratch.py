"""What a worktree holds, found out from scratch: git's lists, the disk's bytes, and rules of its own.

Shares nothing with the indexer but the parser, so that both cannot be wrong in the same way.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from headwatch_indexer.languages import language_of
from headwatch_indexer.records import Parsed, RepositoryRules
from headwatch_indexer.symbols import parse as _parse  # bound here: a test may patch the module's own

_MIB = 1024 * 1024
_CONVERTED = ("filter", "ident", "working-tree-encoding")  # attributes that make git store other bytes
_LINGUIST = ("linguist-generated", "linguist-vendored")
_SECRET_NAMES = (
    *(
        "id_rsa",
        "id_dsa",
        "id_ecdsa",
        "id_ed25519",
        "*.pem",
        "*.key",
        "*.p12",
        "*.pfx",
        "*.jks",
        "*.keystore",
    ),
    *(".env", ".env.*", ".envrc", "*.env", ".netrc", ".pgpass", ".git-credentials", ".npmrc", ".pypirc"),
)
_HARMLESS_ENV = re.compile(r"example|sample|template|dist|defaults")


class Row(NamedTuple):
    """One symbol as readers see it."""

    path: str  # as shown: UTF-8, other bytes as \xHH
    qualname: str
    kind: str
    start_line: int
    end_line: int
    content: str
    blob_oid: str


@dataclass(slots=True)
class Expected:
    """Everything that the rows of a worktree shall say."""

    head: str | None
    branch: str | None
    rows: set[Row] = field(default_factory=set)
    files: dict[bytes, str] = field(default_factory=dict)  # exact path → blob id, without symbols too
    chunks: Counter[str] = field(default_factory=Counter)  # text of every chunk → how often


def expect(root: str | os.PathLike[str]) -> Expected:
    """Read a worktree, or the HEAD tree of a bare repository, from scratch."""
    tree = _Tree.open(os.fsencode(os.path.realpath(root)))
    expected = Expected(
        head=tree.ask("rev-parse", "-q", "--verify", "HEAD^{commit}") or None,
        branch=tree.ask("symbolic-ref", "-q", "--short", "HEAD") or None,
    )
    rules = _rules(tree.root)
    for path, oid, content in tree.bare_files(rules) if tree.bare else tree.files(rules):
        language = language_of(path, RepositoryRules(languages=rules.languages))
        text = _decode(content)
        if text is None or _unwanted(content, text, language):
            continue
        shown = path.decode(errors="backslashreplace")
        lines = text.split("\n")
        parsed = _parsed(content, language)
        expected.files[path] = oid
        expected.chunks.update(chunk.text for chunk in parsed.chunks)
        expected.rows.update(
            Row(shown, s.qualname, s.kind, s.start_line, s.end_line,
                "\n".join(lines[s.start_line - 1 : s.end_line]), oid)
            for s in parsed.symbols
        )  # fmt: skip
    return expected


@lru_cache(maxsize=4096)
def _parsed(content: bytes, language: str) -> Parsed:
    return _parse(content, language)


@dataclass(frozen=True, slots=True)
class _Rules:
    """What .headwatch.toml says about scope."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    languages: dict[str, str] = field(default_factory=dict)

    def refuse(self, path: bytes) -> bool:
        parts = os.fsdecode(path).split("/")
        if any(_covers(glob, parts) for glob in self.exclude):
            return True
        return bool(self.include) and not any(_covers(glob, parts) for glob in self.include)


@dataclass(frozen=True, slots=True)
class _Tree:
    """One repository on disk and the git command in it."""

    root: bytes
    object_format: str
    bare: bool

    @classmethod
    def open(cls, root: bytes) -> _Tree:
        tree = cls(root, "sha1", False)
        object_format, bare = tree.ask("rev-parse", "--show-object-format", "--is-bare-repository").split()
        return cls(root, object_format, bare == "true")

    def git(self, *args: str | bytes, ok: tuple[int, ...] = (0,)) -> bytes:
        env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        env |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
        done = subprocess.run(["git", *args], cwd=self.root, env=env, capture_output=True)
        assert done.returncode in ok, f"git {args!r} in {self.root!r}: {done.stderr!r}"
        return done.stdout

    def ask(self, *args: str) -> str:
        return os.fsdecode(self.git(*args, ok=(0, 1))).strip()

    def files(self, rules: _Rules) -> Iterator[tuple[bytes, str, bytes]]:
        """Every regular file in scope on disk: path, blob id, and content as git would store it."""
        indexed: dict[bytes, str | None] = {}
        for line in self.git("ls-files", "-s", "-z").split(b"\0")[:-1]:
            head, path = line.split(b"\t", 1)
            mode, oid, stage = head.split(b" ")
            if mode != b"160000":
                indexed[path] = oid.decode() if stage == b"0" else None
        others = self.git("ls-files", "-o", "--exclude-standard", "-z").split(b"\0")[:-1]
        attributes = self._attributes([*indexed, *others])
        for path in sorted({*indexed, *others}):
            if path.endswith(b"/") or (path not in indexed and self._in_another_repository(path)):
                continue
            size = self._regular_size(path)
            if size is None or size > _MIB or _secret(path) or rules.refuse(path):
                continue
            if attributes[path] & {*_LINGUIST}:
                continue
            raw = Path(os.fsdecode(self.root + b"/" + path)).read_bytes()
            yield path, *self._stored(path, raw, indexed.get(path), bool(attributes[path]))

    def bare_files(self, rules: _Rules) -> Iterator[tuple[bytes, str, bytes]]:
        """Every regular file in scope of HEAD."""
        listing = (
            self.git("ls-tree", "-r", "-z", "HEAD")
            if self.ask("rev-parse", "-q", "--verify", "HEAD")
            else b""
        )
        for line in listing.split(b"\0")[:-1]:
            head, path = line.split(b"\t", 1)
            mode, _, oid = head.split(b" ")
            if mode not in (b"100644", b"100755") or _secret(path) or rules.refuse(path):
                continue
            content = self.git("cat-file", "blob", oid)
            if len(content) <= _MIB:
                yield path, oid.decode(), content

    def _stored(self, path: bytes, raw: bytes, indexed: str | None, converted: bool) -> tuple[str, bytes]:
        own = self._oid(raw)
        if own == indexed or not (converted or b"\r\n" in raw):
            return own, raw
        said = self.git("hash-object", "--", path).decode().strip()
        unix = raw.replace(b"\r\n", b"\n")
        if said == self._oid(unix):
            return said, unix
        if said == indexed:
            return said, self.git("cat-file", "blob", said)
        return own, raw

    def _oid(self, content: bytes) -> str:
        return hashlib.new(self.object_format, b"blob %d\0%b" % (len(content), content)).hexdigest()

    def _regular_size(self, path: bytes) -> int | None:
        """Size of a regular file that no symlink leads to."""
        at = self.root
        names = path.split(b"/")
        for name in names[:-1]:
            at += b"/" + name
            if not os.path.isdir(at) or os.path.islink(at):
                return None
        try:
            found = os.lstat(at + b"/" + names[-1])
        except FileNotFoundError:
            return None
        return found.st_size if stat.S_ISREG(found.st_mode) else None

    def _in_another_repository(self, path: bytes) -> bool:
        """A worktree that its repository has forgotten, or a bare repository: git lists what is in them."""
        folder = path
        while folder := os.path.dirname(folder):
            full = self.root + b"/" + folder
            if os.path.isfile(full + b"/.git"):
                return True
            if all(os.path.exists(full + b"/" + name) for name in (b"HEAD", b"objects", b"refs")):
                return True
        return False

    def _attributes(self, paths: list[bytes]) -> dict[bytes, set[str]]:
        found: dict[bytes, set[str]] = {path: set() for path in paths}
        names = (*_CONVERTED, *_LINGUIST)
        for some in (paths[i : i + 500] for i in range(0, len(paths), 500)):
            fields = self.git("check-attr", "-z", *names, "--", *some).split(b"\0")
            for path, name, value in zip(fields[0::3], fields[1::3], fields[2::3], strict=False):
                if value not in (b"unspecified", b"unset", b"false"):
                    found[path].add(name.decode())
        return found


def _rules(root: bytes) -> _Rules:
    try:
        table = tomllib.loads(Path(os.fsdecode(root), ".headwatch.toml").read_text())
    except (OSError, ValueError):  # a malformed file means the defaults
        return _Rules()
    return _Rules(
        tuple(table.get("include", ())), tuple(table.get("exclude", ())), table.get("languages", {})
    )


def _covers(glob: str, parts: list[str]) -> bool:
    wanted = glob.strip("/").split("/")
    starts = range(1) if "/" in glob.rstrip("/") else range(len(parts))
    return any(_fits(wanted, parts[i:]) for i in starts)


def _fits(glob: list[str], parts: list[str]) -> bool:
    if not glob:
        return True  # a folder covers what is below
    if not parts:
        return False
    if glob[0] == "**":
        return any(_fits(glob[1:], parts[i:]) for i in range(len(parts)))
    return fnmatchcase(parts[0], glob[0]) and _fits(glob[1:], parts[1:])


def _secret(path: bytes) -> bool:
    names = os.fsdecode(path).lower().split("/")
    if any((folder, name) == (".aws", "credentials") for folder, name in pairwise(names)):
        return True
    name = names[-1]
    if "env" in name and _HARMLESS_ENV.search(name):
        return False
    return any(fnmatchcase(name, pattern) for pattern in _SECRET_NAMES)


def _decode(content: bytes) -> str | None:
    """Text of a file: UTF-16 by its mark, UTF-8, else Latin-1; None for a binary."""
    encodings = (
        ["utf-16", "latin-1"] if content[:2] in (b"\xff\xfe", b"\xfe\xff") else ["utf-8-sig", "latin-1"]
    )
    if encodings[0] != "utf-16" and b"\0" in content:
        return None
    for encoding in encodings:
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError:
            continue
        return None if "\0" in text else text
    return None


def _unwanted(content: bytes, text: str, language: str) -> bool:
    """LFS pointers, generated files by their own word, minified ones."""
    if content.startswith(b"version https://git-lfs.github.com/spec/"):
        return True
    for line in text.split("\n")[:5]:
        low = line.lower()
        comment = re.match(r"\W{0,4}(//|/\*|\*|#|--|;|<!--|%)", line)
        if comment and (
            "@generated" in low or ("generated" in low and re.search("do not (edit|modify)", low))
        ):
            return True
    lines = text.split("\n")
    longest = max(len(line) for line in lines)
    if language == "markdown":
        return longest > 50_000
    return longest > 5_000 or (len(text) > 10_000 and len(text) / len(lines) > 500)
