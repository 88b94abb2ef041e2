"""What a repository says about itself in .headwatch.toml, and how its globs match."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from headwatch_indexer.records import RepositoryRules

FILE_NAME = ".headwatch.toml"

_AT_LINE = re.compile(r"\(at line (\d+), column \d+\)")
_SIZE_LIMIT = 1 << 20
_MUTABILITY = ("immutable_core", "transient_diff")


class _Malformed(Exception):
    """A key that cannot be meant; `key` tells where to look for its line."""

    def __init__(self, key: str, what: str) -> None:
        super().__init__(what)
        self.key = key
        self.what = what


def load_rules(root: str) -> RepositoryRules:
    """Read the rules of the worktree at `root`; a malformed file gives the defaults with `problem` set."""
    path = os.path.join(root, FILE_NAME)
    try:
        data = _read(path)
    except FileNotFoundError:
        return RepositoryRules()
    except (OSError, ValueError) as exc:
        return RepositoryRules(problem=f"{path}:1: cannot be read: {getattr(exc, 'strerror', None) or exc}")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = data.count(b"\n", 0, exc.start) + 1
        return RepositoryRules(problem=f"{path}:{line}: not UTF-8")
    try:
        return _interpret(tomllib.loads(text))
    except tomllib.TOMLDecodeError as exc:
        match = _AT_LINE.search(str(exc))
        line = int(match[1]) if match else text.count("\n") + 1
        return RepositoryRules(problem=f"{path}:{line}: {_AT_LINE.sub('', str(exc)).strip()}")
    except _Malformed as exc:
        return RepositoryRules(problem=f"{path}:{_line_of(text, exc.key)}: {exc.what}")


def matches(globs: Iterable[str], path: bytes | str) -> bool:
    """Tell whether any glob covers the path, by itself or by one of the folders it lies in.

    `*` and `?` stay inside one name, `**` does not; a glob without an inner slash fits at any depth; a leading
    slash ties it to the root.
    """
    matcher = _matcher(tuple(globs))
    return matcher is not None and matcher(os.fsdecode(path)) is not None


@lru_cache(maxsize=64)
def _matcher(globs: tuple[str, ...]) -> Callable[[str], object] | None:
    parts = [_regex(glob) for glob in globs if glob.strip("/")]
    return re.compile("|".join(parts), re.S).match if parts else None


def _regex(glob: str) -> str:
    """Translate one glob into a regular expression for a whole path."""
    body = glob.strip("/")
    anchored = glob.startswith("/") or "/" in body
    out = [] if anchored else ["(?:.*/)?"]
    i = 0
    while i < len(body):
        if body.startswith("**/", i) and (i == 0 or body[i - 1] == "/"):
            out.append("(?:.*/)?")
            i += 3
        elif body.startswith("**", i):
            out.append(".*")
            i += 2
        elif body[i] == "[" and (end := body.find("]", i + 2)) > 0:
            members = body[i + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
            out.append("[^/" + members[1:] + "]" if members[0] in "!^" else f"(?!/)[{members}]")
            i = end + 1
        else:
            out.append({"*": "[^/]*", "?": "[^/]"}.get(body[i]) or re.escape(body[i]))
            i += 1
    # A glob that ends in a slash names folders only: something must lie below.
    return "(?:" + "".join(out) + ("/.*" if glob.endswith("/") else "(?:/.*)?") + r")\Z"


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a fifo must not stop us
    with open(descriptor, "rb") as file:
        data = file.read(_SIZE_LIMIT + 1)
    if len(data) > _SIZE_LIMIT:
        raise ValueError("larger than 1 MiB")
    return data


def _interpret(table: Mapping[str, object]) -> RepositoryRules:
    mutability = table.get("mutability", {})
    if not isinstance(mutability, dict):
        raise _Malformed("mutability", "mutability must be a table")
    for name in mutability:
        if name not in _MUTABILITY:
            raise _Malformed(name, f"unknown key mutability.{name}; known are {' and '.join(_MUTABILITY)}")
    for name in table:
        if name not in {"include", "exclude", "languages", "mutability"}:
            raise _Malformed(
                name, f"unknown key {name}; known are include, exclude, languages and [mutability]"
            )
    languages, only = _languages(table.get("languages", {}))
    return RepositoryRules(
        include=_globs(table, "include"),
        exclude=_globs(table, "exclude"),
        languages=languages,
        only_languages=only,
        immutable_core=_globs(mutability, "immutable_core"),
        transient_diff=_globs(mutability, "transient_diff"),
    )


def _globs(table: Mapping[str, object], name: str) -> tuple[str, ...]:
    values = table.get(name, [])
    if not isinstance(values, list) or not all(isinstance(value, str) and value for value in values):
        raise _Malformed(name, f"{name} must be a list of globs")
    for glob in values:
        try:
            re.compile(_regex(glob))
        except re.error as exc:
            raise _Malformed(name, f"{glob!r} is no glob: {exc.msg}") from exc
    return tuple(values)


def _languages(value: object) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """Take a table glob → language, or a list of the only languages to index."""
    if isinstance(value, list) and all(isinstance(name, str) and name for name in value):
        return {}, tuple(value)
    if isinstance(value, dict) and all(isinstance(name, str) and name for name in value.values()):
        return dict(value), ()
    raise _Malformed("languages", "languages must be a table of glob = language, or a list of languages")


def _line_of(text: str, key: str) -> int:
    named = re.compile(rf"^\s*(?:\[+\s*)?(?:[\w-]+\s*\.\s*)*[\"']?{re.escape(key)}[\"']?\s*(?:[=.\]])")
    for number, line in enumerate(text.splitlines(), 1):
        if named.match(line):
            return number
    return 1
