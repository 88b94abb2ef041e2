"""The objects that a SQL script creates: a scanner of statements, since dialects differ more than a grammar allows."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from headwatch_indexer import chunks, headers, names
from headwatch_indexer.lines import Lines
from headwatch_indexer.records import Chunk, Symbol
from headwatch_indexer.structure import digest

MODULE: Final = "<module>"

_KINDS: Final = {
    "table": "class",
    "view": "class",
    "domain": "type",
    "type": "type",
    "function": "function",
    "procedure": "function",
    "aggregate": "function",
    "trigger": "function",
    "macro": "function",
}
_COMMENT: Final = r"--[^\n]*|/\*(?:[^*]|\*(?!/))*(?:\*/|\Z)"
_QUOTED: Final = r"'(?:[^']|'')*(?:'|\Z)|\"(?:[^\"]|\"\")*(?:\"|\Z)|`[^`\n]*`|\[[A-Za-z_][\w ]*\]"
_TOKEN = re.compile(
    rf"(?P<comment>{_COMMENT})|(?P<quoted>{_QUOTED})"
    r"|(?P<dollar>\$(?:[A-Za-z_]\w*)?\$)|(?P<word>[^\W\d]\w*)|(?P<end>;)|(?P<meta>^\\[^\n]*)|(?P<other>\S)",
    re.MULTILINE,
)
_NAME_PART: Final = r"(?:\"(?:[^\"]|\"\")+\"|`[^`]+`|\[[^\]]+\]|[\w$]+)"
_CREATE = re.compile(
    r"create\s+(?:or\s+(?:replace|alter)\s+)?"
    r"(?:(?:global|local|temp|temporary|unlogged|foreign|external|recursive|materialized|constraint|transient|virtual|"
    r"secure|definer\s*=\s*\S+|sql\s+security\s+\w+)\s+)*"
    rf"(?P<what>{'|'.join(_KINDS)})\s+(?:if\s+not\s+exists\s+)?"
    rf"(?P<name>{_NAME_PART}(?:\s*\.\s*{_NAME_PART})*)",
    re.IGNORECASE,
)
_WHITE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class _Statement:
    start: int  # code points: its first token that is no comment
    end: int  # after its semicolon


def read_statements(lines: Lines) -> tuple[list[Symbol], list[Chunk]]:
    """List what a script creates, and everything else as one module symbol at the end."""
    text = "\n".join(lines.texts)
    symbols: list[Symbol] = []
    found: list[Chunk] = []
    seen: dict[str, int] = {}
    covered: list[chunks.Run] = []
    outside: list[str] = []
    comments = _comment_lines(text, lines)
    for statement in _statements(text):
        body = text[statement.start : statement.end]
        match = _CREATE.match(_without_comments(body[:2_000]))
        if match is None:
            outside.append(_normal(body))
            continue
        first, last = _line(lines, statement.start), _line(lines, statement.end - 1)
        symbol = _symbol(len(symbols), match, body, (first, last), seen, lines)
        doc_first = chunks.comment_above(first, comments)
        if doc_first:
            symbol = replace(symbol, doc=headers.clean_comment(lines.slice(doc_first, first - 1)))
        symbols.append(symbol)
        parts = [chunks.Part([(first, last)])]
        if not chunks.fits(lines, first, last):
            parts = chunks.split(lines, [(first, last)], ())
        found += chunks.chunks_of(symbol.ordinal, symbol.qualname, symbol.signature, lines, parts, doc_first)
        covered.append((first, last))
    return _with_module(symbols, found, lines, covered, comments, outside)


def _statements(text: str) -> Iterable[_Statement]:
    """Cut at semicolons outside of quotes, comments, dollar quotes and begin atomic … end."""
    start, depth, atomic, last_word = -1, 0, False, ""
    at = 0
    while (match := _TOKEN.search(text, at)) is not None:
        at = match.end()
        kind = match.lastgroup
        if kind == "comment" or (kind == "meta" and start < 0):
            continue
        if start < 0:
            start = match.start()
        if kind == "dollar":
            closing = text.find(match[0], at)
            at = len(text) if closing < 0 else closing + len(match[0])
        elif kind == "word":
            word = match[0].lower()
            if word == "atomic" and last_word == "begin":
                atomic, depth = True, 1
            elif atomic and word == "case":
                depth += 1
            elif atomic and word == "end":
                depth -= 1
                atomic = depth > 0
            last_word = word
        elif kind == "end" and not atomic:
            yield _Statement(start, at)
            start = -1
    if start >= 0:
        yield _Statement(start, start + len(text[start:].rstrip()))


def _symbol(
    ordinal: int, match: re.Match[str], body: str, span: tuple[int, int], seen: dict[str, int], lines: Lines
) -> Symbol:
    parts = re.findall(_NAME_PART, match["name"])
    path = ".".join(part.strip('"`[]').replace('""', '"') for part in parts)
    start, end = lines.span(*span)
    normal = _normal(body)
    head = re.split(r"\bas\b|\bbegin\b|;", _without_comments(body[:600]), maxsplit=1, flags=re.IGNORECASE)[0]
    if match["what"].lower() == "table":
        head = match[0]
    return Symbol(
        ordinal=ordinal,
        name=path.rpartition(".")[2],
        qualname=names.numbered(path, seen),
        kind=_KINDS[match["what"].lower()],
        signature=_WHITE.sub(" ", head).strip()[: headers.SIGNATURE_LENGTH],
        doc="",
        start_line=span[0],
        end_line=span[1],
        start_offset=start,
        end_offset=end,
        structural_hash=digest(normal.encode()),
        body_hash=digest(normal.replace(_normal(match["name"]), "", 1).encode()),
    )


def _with_module(
    symbols: list[Symbol],
    found: list[Chunk],
    lines: Lines,
    covered: list[chunks.Run],
    comments: dict[int, int],
    outside: list[str],
) -> tuple[list[Symbol], list[Chunk]]:
    """Add what is outside of all objects as one symbol, in its place by first line."""
    runs = [chunks.trim(lines, run) for run in chunks.without(1, len(lines), covered)]
    trimmed = [run for run in runs if run is not None]
    if not trimmed:
        return symbols, found
    first, last = trimmed[0][0], trimmed[-1][1]
    start, end = lines.span(first, last)
    at = sum(symbol.start_line < first for symbol in symbols)
    hashed = digest(*(statement.encode() for statement in outside))
    opening = _opening(first, comments)
    doc = headers.clean_comment(lines.slice(first, opening)) if opening else ""
    module = Symbol(at, MODULE, MODULE, "module", "", doc, first, last, start, end, hashed, hashed)
    own = chunks.without(
        first, last, [(chunks.comment_above(run[0], comments) or run[0], run[1]) for run in covered]
    )
    if all(chunks.trim(lines, run) is None for run in own):
        own = trimmed
    texts = chunks.chunks_of(at, MODULE, "", lines, chunks.split(lines, own, ()))
    later = [replace(symbol, ordinal=symbol.ordinal + 1) for symbol in symbols[at:]]
    moved = [replace(c, symbol_ordinal=c.symbol_ordinal + 1) if c.symbol_ordinal >= at else c for c in found]
    return [*symbols[:at], module, *later], sorted([*moved, *texts], key=lambda c: (c.symbol_ordinal, c.n))


def _normal(statement: str) -> str:
    """Tokens of a statement without comments and white space; those inside dollar quotes count alike."""
    tokens = (m for m in _TOKEN.finditer(statement) if m.lastgroup != "comment")
    out: list[str] = []
    word = False
    for match in tokens:
        is_word = match.lastgroup == "word" or match[0].isalnum()
        if word and is_word:
            out.append(" ")
        out.append(match[0])
        word = is_word
    return "".join(out)


def _without_comments(text: str) -> str:
    return re.sub(_COMMENT, " ", text)


def _line(lines: Lines, offset: int) -> int:
    return bisect_right(lines.starts, offset)


def _comment_lines(text: str, lines: Lines) -> dict[int, int]:
    """Last line → first line of every comment that has its lines to itself."""
    found: dict[int, int] = {}
    for match in _TOKEN.finditer(text):
        if match.lastgroup == "comment":
            first, last = _line(lines, match.start()), _line(lines, match.end() - 1)
            if lines.slice(first, last).strip() == match[0].strip():
                found[last] = first
    return found


def _opening(first: int, comments: dict[int, int]) -> int:
    """Last line of the comment block that starts on a line, 0 when none does."""
    by_start = {start: end for end, start in comments.items()}
    last = 0
    while first in by_start:
        last = by_start[first]
        first = last + 1
    return last
