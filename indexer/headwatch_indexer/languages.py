"""Which language a path is read as."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from headwatch_indexer.records import RepositoryRules

TEXT: Final = "text"

_EXTENSIONS: Final[dict[str, str]] = {
    extension: language
    for language, extensions in {
        "python": "py pyi pyw",
        "javascript": "js mjs cjs jsx",
        "typescript": "ts mts cts",
        "tsx": "tsx",
        "go": "go",
        "rust": "rs",
        "java": "java",
        "c": "c h",
        "cpp": "cpp cc cxx c++ hpp hh hxx h++ ipp tpp inl cppm ixx cu cuh",
        "csharp": "cs csx",
        "ruby": "rb rake gemspec ru podspec",
        "php": "php phtml php8 php7 inc",
        "kotlin": "kt kts",
        "swift": "swift",
        "scala": "scala sc sbt",
        "lua": "lua",
        "bash": "sh bash zsh ksh bats ebuild",
        "elixir": "ex exs",
        "haskell": "hs",
        "zig": "zig zon",
        "sql": "sql pgsql psql ddl",
        "markdown": "md markdown mdown mkd mdx",
    }.items()
    for extension in extensions.split()
}

_NAMES: Final[dict[str, str]] = {
    "rakefile": "ruby",
    "gemfile": "ruby",
    "vagrantfile": "ruby",
    "podfile": "ruby",
    "guardfile": "ruby",
    "brewfile": "ruby",
    "fastfile": "ruby",
    "sconstruct": "python",
    "sconscript": "python",
    "wscript": "python",
    "pkgbuild": "bash",
    ".bashrc": "bash",
    ".bash_profile": "bash",
    ".bash_aliases": "bash",
    ".profile": "bash",
    ".zshrc": "bash",
    ".zshenv": "bash",
    ".envrc": "bash",
}

KNOWN: Final = frozenset(
    {TEXT, *_EXTENSIONS.values(), *_NAMES.values()}
)  # every language that a file can have

_INTERPRETERS: Final[dict[str, str]] = {
    "python": "python",
    "pypy": "python",
    "node": "javascript",
    "nodejs": "javascript",
    "bun": "typescript",
    "deno": "typescript",
    "ruby": "ruby",
    "php": "php",
    "lua": "lua",
    "luajit": "lua",
    "sh": "bash",
    "bash": "bash",
    "dash": "bash",
    "zsh": "bash",
    "ksh": "bash",
    "bats": "bash",
    "elixir": "elixir",
    "runghc": "haskell",
    "runhaskell": "haskell",
    "scala": "scala",
    "swift": "swift",
    "kotlin": "kotlin",
}

_SHEBANG = re.compile(rb"#!([^\n]{1,200})")
_PROGRAM = re.compile(rb"(?:^|[\s/])([A-Za-z_+-]+)[\d.]*(?=\s|$)")


def language_of(path: bytes, rules: RepositoryRules | None = None, head: bytes = b"") -> str:
    """Name the language of a path; "text" when nothing better is known.

    A glob of the repository's rules wins, then the file's name, its extension, and last the interpreter in
    the first line of `head` (the file's first bytes, when the caller has them).
    """
    if rules is not None and rules.languages:
        shown = path.decode("utf-8", "surrogateescape")
        for glob, language in rules.languages.items():
            if _glob(glob).fullmatch(shown):
                return language
    name = path.rpartition(b"/")[2].decode("utf-8", "surrogateescape").lower()
    if name in _NAMES:
        return _NAMES[name]
    stem, dot, extension = name.rpartition(".")
    if dot and stem and extension in _EXTENSIONS:
        return _EXTENSIONS[extension]
    match = None if dot else _SHEBANG.match(head)
    if match is not None:
        for program in _PROGRAM.findall(match[1]):  # `env -S uv run python3`: the first word that is known
            known = _INTERPRETERS.get(program.decode("ascii").lower())
            if known is not None:
                return known
    return TEXT


@lru_cache(maxsize=256)
def _glob(pattern: str) -> re.Pattern[str]:
    """Compile a glob as .gitignore reads one: no slash means any folder, `**` spans folders."""
    anchored = "/" in pattern.rstrip("/")
    out = "" if anchored else "(?:.*/)?"
    rest = pattern.lstrip("/")
    while rest:
        if rest.startswith("**/"):
            out, rest = out + "(?:.*/)?", rest[3:]
        elif rest.startswith("**"):
            out, rest = out + ".*", rest[2:]
        elif rest[0] == "*":
            out, rest = out + "[^/]*", rest[1:]
        elif rest[0] == "?":
            out, rest = out + "[^/]", rest[1:]
        elif (bracket := re.match(r"\[([!^]?)([^\]/]+)\]", rest)) is not None:
            negated = "^" if bracket[1] else ""
            members = bracket[2].replace("\\", "\\\\").replace("[", "\\[").replace("^", "\\^")
            out, rest = f"{out}[{negated}{members}]", rest[bracket.end() :]
        else:
            out, rest = out + re.escape(rest[0]), rest[1:]
    try:
        return re.compile(out, re.DOTALL)
    except re.error:  # a class like [z-a] matches nothing
        return re.compile(r"(?!)")
