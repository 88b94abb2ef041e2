"""What a repository says about itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headwatch_indexer.records import RepositoryRules
from headwatch_indexer.rules import load_rules, matches


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    """No .headwatch.toml is no problem."""
    assert load_rules(str(tmp_path)) == RepositoryRules()


def test_every_key_is_read(tmp_path: Path) -> None:
    """Globs, languages and mutability, a byte order mark in front."""
    (tmp_path / ".headwatch.toml").write_bytes(
        b"\xef\xbb\xbf"
        + b"""
include = ["src/**"]
exclude = ["*.gen.py"]
[languages]
"*.tpl" = "html"
[mutability]
immutable_core = ["core/**"]
transient_diff = ["scratch/**"]
"""
    )
    assert load_rules(str(tmp_path)) == RepositoryRules(
        include=("src/**",),
        exclude=("*.gen.py",),
        languages={"*.tpl": "html"},
        immutable_core=("core/**",),
        transient_diff=("scratch/**",),
    )


def test_languages_may_be_a_list(tmp_path: Path) -> None:
    """A list names the only languages that are indexed."""
    (tmp_path / ".headwatch.toml").write_text('languages = ["python", "go"]\n')
    assert load_rules(str(tmp_path)) == RepositoryRules(only_languages=("python", "go"))


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ('include = ["a"]\nexclude = [\n  "b"\n\n[x', 5, ""),
        ("a = 1\na = 2\n", 2, ""),
        ('# first\ninclude = "src"\n', 2, "include must be a list"),
        ("exclude = [1]\n", 1, "exclude must be a list"),
        ('\n\n[mutability]\nimmutable_core = "x"\n', 4, "immutable_core must be a list"),
        ("languages = 3\n", 1, "languages must be"),
        ("[languages]\n'*.x' = 3\n", 1, "languages must be"),
        ("mutability = 1\n", 1, "mutability must be a table"),
        ("[mutability]\nimutable = []\n", 2, "unknown key"),
        ("inclde = []\n", 1, "unknown key"),
        ('exclude = ["[z-a]"]\n', 1, "no glob"),
    ],
)
def test_malformed_file_gives_defaults_and_names_the_line(
    tmp_path: Path, text: str, line: int, word: str
) -> None:
    """Broken TOML and wrong types alike: all defaults, one problem as path:line: what."""
    path = tmp_path / ".headwatch.toml"
    path.write_text(text)
    rules = load_rules(str(tmp_path))
    assert rules.problem is not None
    assert rules.problem.startswith(f"{path}:{line}: ")
    assert word in rules.problem
    assert rules == RepositoryRules(problem=rules.problem)


def test_what_cannot_be_read_is_a_problem_too(tmp_path: Path) -> None:
    """Not UTF-8, a folder, a fifo: the defaults, and said so."""
    path = tmp_path / ".headwatch.toml"
    path.write_bytes(b"# ok\ninclude = ['\xff']\n")
    assert load_rules(str(tmp_path)).problem == f"{path}:2: not UTF-8"
    path.unlink()
    path.mkdir()
    assert (load_rules(str(tmp_path)).problem or "").startswith(f"{path}:1: cannot be read")
    path.rmdir()
    os.mkfifo(path)
    assert load_rules(str(tmp_path)) == RepositoryRules()


@pytest.mark.parametrize(
    ("glob", "inside", "outside"),
    [
        ("*.py", ["a.py", "d/a.py"], ["a.pyc", "a.py2"]),
        ("/*.py", ["a.py"], ["d/a.py"]),
        ("src/*.py", ["src/a.py"], ["src/d/a.py", "x/src/a.py"]),
        ("src/**", ["src/a", "src/d/a"], ["src", "srcx/a"]),
        ("**/test/*.py", ["test/a.py", "x/y/test/a.py"], ["test/x/a.py"]),
        ("a/**/b", ["a/b", "a/x/y/b", "a/b/c"], ["ab", "xa/b"]),
        ("docs/", ["docs/a", "x/docs/a/b"], ["docs"]),
        ("docs", ["docs", "docs/a", "x/docs/a"], ["docs2/a"]),
        ("a?c[0-9].x", ["abc1.x"], ["a/c1.x", "abcd.x"]),
        ("[!a]b", ["xb"], ["ab", "/b"]),
        ("ä?.txt", ["äö.txt"], ["ä.txt"]),
        ("new\nline*", ["new\nline\nx"], []),
    ],
)
def test_globs_match_as_ignore_rules_do(glob: str, inside: list[str], outside: list[str]) -> None:
    """Slashes, anchors, stars, classes, folders."""
    assert [path for path in inside if not matches((glob,), os.fsencode(path))] == []
    assert [path for path in outside if matches((glob,), os.fsencode(path))] == []


def test_no_glob_and_no_utf8_match_nothing_and_do_not_fail() -> None:
    """An empty list covers nothing; a path may be any bytes."""
    assert not matches((), b"a")
    assert matches(("*.py",), b"\xff\xfe.py")
