"""What parsing does with content that is not what it says: bytes of any kind, broken, huge or machine-made."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwatch_indexer import symbols
from headwatch_indexer.grammars import LANGUAGES
from headwatch_indexer.languages import language_of
from headwatch_indexer.records import Parsed, RepositoryRules

FIXTURES = Path(__file__).parent.parent / "fixtures" / "languages"
EVERY = sorted(LANGUAGES | {"sql", "markdown", "text", "unheard-of"})
SOURCES = {path.stem: path.read_bytes() for path in FIXTURES.glob("*.*")}
PIECES = [b"(", b")", b"{", b"}", b'"', b"'", b"\n", b"\t", b"/*", b"#", b"\xe2\x82\xac", b"`", b"<", b"\r\n", b"\x01",
          b"\x02", b"$$", b'"""', b"end", b"\x0c", b"\xff", b"---\n", b"def f():\n", b"class A {\n"]  # fmt: skip


def check(parsed: Parsed) -> None:
    """The promises that every Parsed keeps."""
    lines = parsed.text.split("\n")
    assert len({s.qualname for s in parsed.symbols}) == len(parsed.symbols)
    assert [s.ordinal for s in parsed.symbols] == list(range(len(parsed.symbols)))
    assert [s.start_line for s in parsed.symbols] == sorted(s.start_line for s in parsed.symbols)
    for symbol in parsed.symbols:
        assert 1 <= symbol.start_line <= symbol.end_line <= len(lines)
        assert parsed.text[symbol.start_offset : symbol.end_offset] == "\n".join(
            lines[symbol.start_line - 1 : symbol.end_line]
        )
        assert symbol.name or parsed.language == "markdown"
        assert len(symbol.structural_hash) == len(symbol.body_hash) == 32
        assert len(symbol.signature) <= 200
        assert "\n" not in symbol.signature
    parts: dict[int, list[int]] = {}
    for chunk in parsed.chunks:
        symbol = parsed.symbols[chunk.symbol_ordinal]
        assert symbol.start_line <= chunk.start_line <= chunk.end_line <= symbol.end_line
        assert chunk.text.split("\n")[0] == symbol.qualname.split("\n")[0]
        parts.setdefault(chunk.symbol_ordinal, []).append(chunk.n)
    assert set(parts) == set(range(len(parsed.symbols)))
    assert all(numbers == list(range(len(numbers))) for numbers in parts.values())


@given(st.binary(max_size=400), st.sampled_from(EVERY))
@settings(max_examples=300, deadline=None)
def test_any_bytes(content: bytes, language: str) -> None:
    """No bytes make parsing raise, and its promises hold for what it finds; the same call gives the same again."""
    parsed = symbols.parse(content, language)
    check(parsed)
    assert symbols.parse(content, language) == parsed


@given(st.sampled_from(sorted(SOURCES)), st.randoms(use_true_random=False))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_broken_sources(language: str, rnd: random.Random) -> None:
    """Sources cut, joined and littered anywhere keep the promises too."""
    content = bytearray(SOURCES[language])
    for _ in range(rnd.randrange(1, 9)):
        at = rnd.randrange(len(content) + 1)
        if rnd.random() < 0.5:
            del content[at : at + rnd.randrange(60)]
        else:
            content[at:at] = rnd.choice(PIECES)
    check(symbols.parse(bytes(content), language))


@pytest.mark.parametrize("language", sorted(SOURCES))
def test_windows_line_ends(language: str) -> None:
    """Carriage returns change no name and no line, and stay in the text."""
    content = SOURCES[language]
    plain, windows = (
        symbols.parse(content, language),
        symbols.parse(content.replace(b"\n", b"\r\n"), language),
    )
    assert windows.text == plain.text.replace("\n", "\r\n")
    rows = [[(s.qualname, s.kind, s.start_line, s.end_line) for s in p.symbols] for p in (plain, windows)]
    assert rows[0] == rows[1]
    check(windows)


def test_file_that_does_not_parse_is_indexed_as_far_as_the_tree_goes() -> None:
    """A broken function leaves its neighbours whole; the status says that the tree has errors."""
    parsed = symbols.parse(
        b"def f():\n    return 1\n\ndef g(:\n    return (\n\ndef h():\n    return 2\n", "python"
    )
    assert parsed.status == "partial"
    assert "f" in {s.qualname for s in parsed.symbols}
    parsed = symbols.parse(b"func a() {\n}\n\nfunc b() {\n  if (\n}\n\nfunc c() {\n}\n", "go")
    assert parsed.status == "partial"
    assert {"a", "c"} <= {s.qualname for s in parsed.symbols}


ENCODINGS = [
    ("é = 1\n".encode(), "é = 1\n"),
    ("\ufeffé = 1\n".encode(), "é = 1\n"),
    ("é = 1\n".encode("utf-16"), "é = 1\n"),
    ("\ufeffé = 1\n".encode("utf-16-be"), "é = 1\n"),
    ("é = 1\n".encode("latin-1"), "é = 1\n"),
    (b"\x93quoted\x94", "\x93quoted\x94"),
    (b"", ""),
]


@pytest.mark.parametrize(("content", "text"), ENCODINGS)
def test_encodings(content: bytes, text: str) -> None:
    """UTF-8 with and without BOM, UTF-16 with BOM, else Latin-1; a BOM is no part of the text."""
    assert symbols.decode(content) == text
    assert symbols.parse(content, "python").text == text


@pytest.mark.parametrize(
    "content", [b"a\0b", b"\xff\xfea\0\0\0", b"x" * 9000 + b"\0", "a\0b".encode("utf-16")]
)
def test_binaries(content: bytes) -> None:
    """A NUL in the first 8 KiB or in the decoded text makes a binary."""
    assert symbols.decode(content) is None
    assert symbols.parse(content, "text") == Parsed("text", "binary", "")


def test_offsets_are_code_points() -> None:
    """Characters of several bytes count once."""
    parsed = symbols.parse("s = '𝄞é'\n\ndef f():\n    return 'ß'\n".encode(), "python")
    (f,) = [s for s in parsed.symbols if s.qualname == "f"]
    assert parsed.text[f.start_offset : f.end_offset] == "def f():\n    return 'ß'"


SKIPPED = [
    ("// Code generated by protoc. DO NOT EDIT.\npackage a\n", "go", "generated"),
    ("#!/bin/sh\n# This file is @generated by a tool\n", "bash", "generated"),
    ("/*\n * AUTOGENERATED FILE. DO NOT EDIT.\n */\n", "c", "generated"),
    ("# This file is automatically @generated by Cargo.\nversion = 3\n", "text", "generated"),
    ("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "text", "lfs pointer"),
    ("var a=1;" * 1000, "javascript", "minified"),
    ('{"a": 1, ' * 1000, "text", "minified"),
    (("a" * 600 + "\n") * 30, "javascript", "minified"),
]


@pytest.mark.parametrize(("source", "language", "reason"), SKIPPED)
def test_reasons_to_skip(source: str, language: str, reason: str) -> None:
    """Generated files, LFS pointers and lines that no person wrote are skipped, with the reason for status."""
    assert symbols.parse(source.encode(), language) == Parsed(language, reason, "")


KEPT = [
    ('MARK = "Code generated by x. DO NOT EDIT."\n', "python"),
    ("x = 1\n" * 5 + "# Code generated by x. DO NOT EDIT.\n", "python"),
    ("word " * 3000 + "\n", "markdown"),
    ("x = '" + "a" * 4900 + "'\n", "python"),
]


@pytest.mark.parametrize(("source", "language"), KEPT)
def test_no_reason_to_skip(source: str, language: str) -> None:
    """A marker in code or further down, prose on one line and a long literal are no reasons."""
    assert symbols.parse(source.encode(), language).status == "ok"


def rows(text: str, width: int = 400) -> bytes:
    return "\n".join(text[at : at + width] for at in range(0, len(text), width)).encode()


DEEP = {
    "parentheses": ("python", rows("x = " + "(" * 100_000 + "1" + ")" * 100_000)),
    "never closed": ("python", rows("(" * 200_000)),
    "operators": ("javascript", rows("x = " + "a + " * 100_000 + "a")),
    "strings": ("javascript", rows('x = "' + '" + "' * 100_000 + '"')),
    "calls": ("rust", rows("fn f() { a" + "(1)" * 100_000 + " }")),
    "functions": ("javascript", rows("function a(){" * 10_000 + "}" * 10_000)),
    "type arguments": ("java", rows("a<" * 100_000)),
    "markup": ("lua", rows("<a>" * 100_000)),
    "many": ("python", b"def f(): pass\n" * 70_000),
    "comments": ("go", b"// a\n" * 150_000),
    "brackets": ("sql", b"create table a (b int);\n" * 20_000),
    "headings": ("markdown", b"# a\n" * 100_000),
}


@pytest.mark.parametrize("name", DEEP)
def test_deep_and_wide_sources_take_bounded_time(name: str) -> None:
    """A megabyte of nesting, of rubble or of tiny definitions takes seconds, and no stack overflows."""
    language, content = DEEP[name]
    started = time.process_time()
    parsed = symbols.parse(content, language)
    assert time.process_time() - started < 20
    assert parsed.status in ("ok", "partial")
    assert parsed.symbols


PATHS = [
    (b"a/b.py", "python"), (b"a.pyi", "python"), (b"x.mjs", "javascript"), (b"x.cjs", "javascript"),
    (b"x.jsx", "javascript"), (b"x.ts", "typescript"), (b"x.tsx", "tsx"), (b"x.h", "c"), (b"x.hpp", "cpp"),
    (b"x.cc", "cpp"), (b"x.cs", "csharp"), (b"x.kt", "kotlin"), (b"x.rs", "rust"), (b"x.SQL", "sql"),
    (b"README.md", "markdown"), (b"Makefile", "text"), (b"Rakefile", "ruby"), (b"x", "text"), (b".py", "text"),
    (b"x.json", "text"), (b"a.b/c", "text"), (b"\xff.py", "python"), (b"build.sbt", "scala"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "language"), PATHS)
def test_language_of_a_path(path: bytes, language: str) -> None:
    """Names and extensions decide, in any case and in any bytes."""
    assert language_of(path) == language


@pytest.mark.parametrize(
    ("head", "language"),
    [
        (b"#!/usr/bin/env python3\n", "python"),
        (b"#!/usr/bin/env -S uv run python3.12\n", "python"),
        (b"#! /bin/bash -e\n", "bash"),
        (b"#!/usr/bin/node\n", "javascript"),
        (b"#!/opt/none\n", "text"),
        (b"plain", "text"),
    ],
)
def test_language_by_first_line(head: bytes, language: str) -> None:
    """A file without an extension is what its interpreter line says."""
    assert language_of(b"bin/tool", head=head) == language
    assert language_of(b"bin/tool.txt", head=head) == "text"


def test_language_by_rule() -> None:
    """A repository's globs win over names, the first that matches first."""
    rules = RepositoryRules(
        languages={"*.tpl": "php", "vendor/**/*.h": "cpp", "/x.py": "text", "[a-c].q": "sql"}
    )
    assert language_of(b"a/b.tpl", rules) == "php"
    assert language_of(b"vendor/a/b/c.h", rules) == "cpp"
    assert language_of(b"vendor/c.h", rules) == "cpp"
    assert language_of(b"src/c.h", rules) == "c"
    assert language_of(b"x.py", rules) == "text"
    assert language_of(b"a/x.py", rules) == "python"
    assert language_of(b"z/b.q", rules) == "sql"
    assert language_of(b"z/d.q", rules) == "text"
