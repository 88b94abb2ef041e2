"""The sections of a Markdown text, by its headings."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from headwatch_indexer import chunks, names
from headwatch_indexer.lines import Lines
from headwatch_indexer.records import Chunk, Symbol
from headwatch_indexer.windows import section

PREAMBLE: Final = "<preamble>"
_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))??(?:[ \t]+#+)?[ \t]*$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)$")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*$")
# Lines that begin something other than a paragraph, so that a rule under them is no heading.
_NO_PARAGRAPH = re.compile(
    r" {0,3}(?:[-*+][ \t]|\d{1,9}[.)][ \t]|>|\||</?[A-Za-z!]|(?:[-*_][ \t]*){3,}$)|(?: {4}|\t)"
)
_MARKUP = (
    (re.compile(r"\{#[^}]*\}\s*$"), ""),
    (re.compile(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])?"), r"\1"),
    (re.compile(r"</?[A-Za-z][^>]*>"), ""),
    (re.compile(r"[`*]+"), ""),
    (re.compile(r"\\([^\w\s])"), r"\1"),
    (re.compile(r"\s+"), " "),
)


@dataclass(frozen=True, slots=True)
class _Heading:
    line: int  # where its section starts
    level: int
    name: str
    height: int  # lines of the heading itself


def read_sections(lines: Lines) -> tuple[list[Symbol], list[Chunk]]:
    """Cut a Markdown text at every heading; what comes before the first one is the preamble."""
    symbols: list[Symbol] = []
    found: list[Chunk] = []
    seen: dict[str, int] = {}
    around: list[_Heading] = []
    headings = list(_headings(lines))
    starts = [heading.line for heading in headings]
    begin = headings[0].line if headings else len(lines) + 1
    if chunks.trim(lines, (1, begin - 1)) is not None:
        headings.insert(0, _Heading(1, 0, PREAMBLE, 0))
        starts.insert(0, 1)
    for heading, following in zip(headings, [*starts[1:], len(lines) + 1], strict=True):
        trimmed = chunks.trim(lines, (heading.line, following - 1))
        if trimmed is None:
            continue
        first, last = trimmed
        while around and around[-1].level >= heading.level:
            around.pop()
        path = ".".join([*(outer.name for outer in around if outer.name), heading.name or "section"])
        if heading.level:
            around.append(heading)
        qualname = names.numbered(path, seen)
        symbols.append(section(len(symbols), heading.name, qualname, lines, first, last, heading.height))
        parts = [chunks.Part([(first, last)])]
        if not chunks.fits(lines, first, last):
            parts = chunks.split(lines, [(first, last)], _paragraphs(lines, first, last))
        found += chunks.chunks_of(len(symbols) - 1, qualname, symbols[-1].signature, lines, parts)
    return symbols, found


def _headings(lines: Lines) -> Iterable[_Heading]:
    """Scan for headings outside of code fences, comments and front matter."""
    front = _front_matter(lines)
    fence = ""
    comment = False
    paragraph = 0  # line where the current paragraph started
    for number, text in enumerate(lines.texts, 1):
        line = text.rstrip("\r")
        if number <= front:
            continue
        if comment:
            comment = "-->" not in line
            continue
        if fence:
            match = _FENCE.match(line)
            if match and match[1].startswith(fence) and not match[2].strip():
                fence = ""
            continue
        if (match := _FENCE.match(line)) and not (match[1][0] == "`" and "`" in match[2]):
            fence, paragraph = match[1], 0
        elif line.lstrip().startswith("<!--"):
            comment, paragraph = "-->" not in line, 0
        elif match := _ATX.match(line):
            yield _Heading(number, len(match[1]), _plain(match[2] or ""), 1)
            paragraph = 0
        elif paragraph and (match := _UNDERLINE.match(line)):
            name = " ".join(lines.texts[n - 1].strip() for n in range(paragraph, number))
            yield _Heading(paragraph, 1 if match[1][0] == "=" else 2, _plain(name), number - paragraph + 1)
            paragraph = 0
        elif not line.strip():
            paragraph = 0
        elif not paragraph and not _NO_PARAGRAPH.match(line) and _may_start(lines, number):
            paragraph = number


def _may_start(lines: Lines, number: int) -> bool:
    """A paragraph starts after a blank line or a heading, not inside a list item or a quote."""
    above = lines.texts[number - 2].strip() if number > 1 else ""
    if not above or above.endswith("-->"):
        return True
    return any(pattern.match(above) for pattern in (_ATX, _UNDERLINE, _FENCE))


def _front_matter(lines: Lines) -> int:
    """Last line of the YAML or TOML block that opens a file, 0 when there is none."""
    mark = lines.texts[0].rstrip() if lines.texts else ""
    if mark not in ("---", "+++"):
        return 0
    for number, text in enumerate(lines.texts[1:], 2):
        if text.rstrip() in (mark, "..."):
            return number
    return 0


def _plain(name: str) -> str:
    for pattern, replacement in _MARKUP:
        name = pattern.sub(replacement, name)
    return name.strip()


def _paragraphs(lines: Lines, first: int, last: int) -> set[int]:
    """Lines after a blank one, outside of code fences."""
    borders: set[int] = set()
    fence = ""
    for number in range(first, last + 1):
        match = _FENCE.match(lines.texts[number - 1].rstrip("\r"))
        if not fence and number > first and lines.is_blank(number - 1):
            borders.add(number)
        if match and not fence:
            fence = match[1]
        elif match and match[1].startswith(fence) and not match[2].strip():
            fence = ""
    return borders
