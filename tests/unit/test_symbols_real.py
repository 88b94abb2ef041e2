"""Released code of every language: nothing in it is lost, cut or named wrongly. Sources: fixtures/real/SOURCES.md."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from headwatch_indexer import symbols
from headwatch_indexer.grammars import LANGUAGES
from headwatch_indexer.languages import language_of
from headwatch_indexer.records import Parsed

REAL: Final = Path(__file__).parent.parent / "fixtures" / "real"
FILES: Final = {path.stem: path for path in sorted(REAL.glob("*.*")) if path.name != "SOURCES.md"}

# A macro without a comma after it (PyVarObject_HEAD_INIT) is no C before the preprocessor ran.
PARTIAL: Final = {"c"}

# Lines that start a definition, found without a grammar.
STARTS: Final = {
    "bash": r"^(?:function )?[\w:]+ ?\(\)",
    "c": r"^(?:static )?[\w ]+[ *]\w+\([^;]*\) ?\{$",
    "cpp": r"^(?:namespace |[\w:]+(?:::[~\w]+\(| [\w:~]+\().*\{$)",
    "csharp": r"^ *(?:(?:public|private|internal|protected|static|override)(?: static)? )?"
    r"(?:(?:class|struct|interface|delegate|namespace) |\w+\??(?:<\w+>)? \w+\([^;]*\)$)",
    "elixir": r"^ *def(?:p|macro|macrop|module|impl|protocol)? ",
    "go": r"^(?:func |type \w|const \w|var \w)",
    "haskell": r"^(?:data |newtype |class |instance |type (?!instance)|[a-z]\w*'? ::)",
    "java": r"^ *(?:(?:public|private|protected|static|final) )*(?:class \w+|[\w<>, ]+ \w+\([^;]*\))$",
    "javascript": r"^(?:function |  (?:get |set )?(?!if|for|while|switch)\w+ \([^)]*\) \{$)",
    "kotlin": r"^ *(?:(?:internal|private|open|inline) )*(?:class|interface|fun|constructor)\b",
    "lua": r"^(?:local )?function ",
    "markdown": r"^#{1,6} ",
    "php": r"^ *(?:(?:public|private|protected|static|final|abstract) )*(?:class|function|const) ",
    "python": r"^ *(?:async )?(?:def|class) ",
    "ruby": r"^ *(?:def|class|module) ",
    "rust": r"^ {0,4}(?:pub(?:\(crate\))? )?(?:const |unsafe )*(?:fn|struct|enum|trait|const|static) \w+",
    "scala": r"^ *(?:(?:@inline|final|sealed|abstract|case) )*(?:def|class|object|trait) ",
    "sql": r"^CREATE (?:TABLE|TYPE|FUNCTION|TRIGGER) ",
    "swift": r"^ *(?:(?:public|private|internal|static|final|override|convenience) )*"
    r"(?:func |init\(|deinit|class |enum |struct |protocol )",
    "tsx": r"^(?:export )?(?:default )?(?:function|class|interface|type|enum) \w|^(?:export )?const [A-Z]",
    "typescript": r"^(?:export )?(?:class|function|interface|type|enum) \w|^export const "
    r"|^  (?:static |protected |private )?(?!if|for|while|switch)\w+(?:<\w+>)?\([^()]*(?:\([^()]*\)[^()]*)*\).*\{$",
    "zig": r'^ *(?:pub )?(?:inline )?fn |^test "|^ *pub const |^const (?!std\b)',
}
_ATTACHED = re.compile(r"\s*(?:@|#\[|\[)")  # a line that belongs to the definition below it


@cache
def parsed(language: str) -> Parsed:
    return symbols.parse(FILES[language].read_bytes(), language)


def lines_of(language: str) -> list[str]:
    return FILES[language].read_text("utf-8").removesuffix("\n").split("\n")


def starts(language: str) -> list[int]:
    pattern = re.compile(STARTS[language])
    return [number for number, line in enumerate(lines_of(language), 1) if pattern.match(line)]


def test_every_language_has_a_released_file() -> None:
    """No language goes without real code, and its name alone says what it is read as."""
    assert set(FILES) == LANGUAGES | {"markdown", "sql"} == set(STARTS)
    for language, path in FILES.items():
        assert language_of(path.name.encode()) == language
        assert f"| `{path.name}` |" in (REAL / "SOURCES.md").read_text("utf-8")


@pytest.mark.parametrize("language", FILES)
def test_status(language: str) -> None:
    """Released code has no syntax errors, save what a preprocessor would still change."""
    assert parsed(language).status == ("partial" if language in PARTIAL else "ok")
    assert parsed(language).text == FILES[language].read_text("utf-8")


@pytest.mark.parametrize("language", FILES)
def test_definitions(language: str) -> None:
    """The definitions written down for a file are found, each with its kind and its lines."""
    found = {(s.qualname, s.kind, str(s.start_line), str(s.end_line)) for s in parsed(language).symbols}
    listed = (REAL / "expected" / f"{language}.tsv").read_text("utf-8").splitlines()
    expected = [tuple(line.split("\t")) for line in listed]
    assert len(expected) >= 12
    assert [row for row in expected if row not in found] == []


@pytest.mark.parametrize("language", FILES)
def test_every_start_has_its_symbol(language: str) -> None:
    """Each line that looks like a definition starts a symbol, or stands right below its attributes."""
    found = starts(language)
    assert len(found) >= 10
    lines = lines_of(language)
    first_lines = {s.start_line for s in parsed(language).symbols if s.qualname != symbols.sql.MODULE}
    lost = []
    before = 0
    for number in found:
        above = [n for n in range(before + 1, number) if n in first_lines and _ATTACHED.match(lines[n - 1])]
        if number not in first_lines and not above:
            lost.append((number, lines[number - 1]))
        before = number
    assert lost == []


@pytest.mark.parametrize("language", FILES)
def test_offsets_are_whole_lines(language: str) -> None:
    """A symbol's offsets cut exactly its lines out of the text."""
    lines = lines_of(language)
    for symbol in parsed(language).symbols:
        cut = parsed(language).text[symbol.start_offset : symbol.end_offset]
        assert cut.split("\n") == lines[symbol.start_line - 1 : symbol.end_line]


@pytest.mark.parametrize("language", FILES)
def test_no_line_is_lost(language: str) -> None:
    """Every line that is not blank is searchable: a chunk over it, or the one right below, holds its text."""
    lines = lines_of(language)
    held: set[int] = set()
    for chunk in parsed(language).chunks:
        texts = chunk.text.split("\n")[1:]
        held.update(n for n in range(chunk.start_line, chunk.end_line + 1) if lines[n - 1] in texts)
        # A comment above opens the first chunk of its symbol: these very lines, somewhere before it.
        doc = texts[: texts.index(lines[chunk.start_line - 1])]
        if chunk.n == 0 and doc:
            places = range(chunk.start_line - 1 - len(doc), -1, -1)
            at = next(n for n in places if lines[n : n + len(doc)] == doc)
            held.update(range(at + 1, at + 1 + len(doc)))
    assert [(n, line) for n, line in enumerate(lines, 1) if line.strip() and n not in held] == []


@pytest.mark.parametrize("language", FILES)
def test_chunks_lie_inside_their_symbols(language: str) -> None:
    """A chunk spans lines of its own symbol alone."""
    for chunk in parsed(language).chunks:
        symbol = parsed(language).symbols[chunk.symbol_ordinal]
        assert symbol.start_line <= chunk.start_line <= chunk.end_line <= symbol.end_line
