"""The objects that a SQL script creates: a scanner of statements, since dialects differ more than a grammar allows."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
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
_BODY = re.compile(r"\bas\b|\bbegin\b|;", re.IGNORECASE)
_HEAD: Final = 2_000  # characters in which the name of what is created stands


@dataclass(frozen=True, slots=True)
class _Statement:
    start: int  # code points: its first token that is no comment
    end: int  # after its semicolon


@dataclass(frozen=True, slots=True)
class _Object:
    """A statement that creates something."""

    head: re.Match[str]
    body: str
    span: chunks.Run
    comment_first: int  # first line of the comment right above, 0 for none
    doc: chunks.Run | None  # the lines of it that are read with the statement


def read_statements(lines: Lines) -> tuple[Sequence[Symbol], Sequence[Chunk]]:
    """List what a script creates, and everything else as one module symbol, in file order."""
    text = "\n".join(lines.texts)
    comments = _comment_lines(text, lines)
    objects: list[_Object] = []
    others: list[str] = []
    for statement in _statements(text):
        body = text[statement.start : statement.end]
        head = _CREATE.match(_without_comments(body[:_HEAD]))
        if head is None:
            others.append(_normal(body))
            continue
        span = _line(lines, statement.start), _line(lines, statement.end - 1)
        first = chunks.comment_above(span[0], comments)
        objects.append(_Object(head, body, span, first, chunks.doc_lines(lines, first, span[0])))
    symbols: list[Symbol] = []
    found: list[Chunk] = []
    seen: dict[str, int] = {}
    runs = (chunks.trim(lines, run) for run in chunks.without(1, len(lines), [o.span for o in objects]))
    outside = [run for run in runs if run is not None]
    for created in objects:
        if outside and outside[0][0] <= created.span[0]:
            _add_module(symbols, found, lines, outside, objects, comments, others)
            outside = []
        _add(symbols, found, created, seen, lines)
    if outside:
        _add_module(symbols, found, lines, outside, objects, comments, others)
    return symbols, found


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


def _add(
    symbols: list[Symbol], found: list[Chunk], created: _Object, seen: dict[str, int], lines: Lines
) -> None:
    """Append an object's symbol and its chunks."""
    what = created.head["what"].lower()
    parts = [_unquoted(part) for part in re.findall(_NAME_PART, created.head["name"])]
    path = ".".join(parts)
    head = created.head[0]
    if what != "table":
        head = _BODY.split(_without_comments(created.body[:_HEAD]), maxsplit=1)[0]
    first, last = created.span
    start, end = lines.span(first, last)
    normal = _normal(created.body)
    symbol = Symbol(
        ordinal=len(symbols),
        name=parts[-1],
        qualname=names.numbered(path, seen),
        kind=_KINDS[what],
        signature=" ".join(head.split())[: headers.SIGNATURE_LENGTH],
        doc=headers.clean_comment(lines.slice(created.comment_first, first - 1))
        if created.comment_first
        else "",
        start_line=first,
        end_line=last,
        start_offset=start,
        end_offset=end,
        structural_hash=digest(normal.encode()),
        body_hash=digest(normal.replace(_normal(created.head["name"]), "", 1).encode()),
    )
    symbols.append(symbol)
    texts = [chunks.Part([created.span])]
    if not chunks.fits(lines, first, last):
        texts = chunks.split(lines, [created.span], ())
    found += chunks.chunks_of(symbol.ordinal, symbol.qualname, symbol.signature, lines, texts, created.doc)


def _add_module(
    symbols: list[Symbol],
    found: list[Chunk],
    lines: Lines,
    outside: Sequence[chunks.Run],
    objects: Sequence[_Object],
    comments: Mapping[int, int],
    others: Sequence[str],
) -> None:
    """Append the symbol of what creates nothing, and its chunks."""
    first, last = outside[0][0], outside[-1][1]
    start, end = lines.span(first, last)
    ordinal = len(symbols)
    hashed = digest(*(statement.encode() for statement in others))
    opening = _opening(first, comments)
    doc = headers.clean_comment(lines.slice(first, opening)) if opening else ""
    symbols.append(
        Symbol(ordinal, MODULE, MODULE, "module", "", doc, first, last, start, end, hashed, hashed)
    )
    read_elsewhere = [o.span for o in objects] + [o.doc for o in objects if o.doc is not None]
    runs = chunks.without(first, last, read_elsewhere)
    if all(chunks.trim(lines, run) is None for run in runs):
        runs = list(outside)
    found += chunks.chunks_of(ordinal, MODULE, "", lines, chunks.split(lines, runs, ()))


def _unquoted(name: str) -> str:
    return " ".join(name.strip('"`[]').replace('""', '"').split()) or "?"


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


def _opening(first: int, comments: Mapping[int, int]) -> int:
    """Last line of the comment block that starts on a line, 0 when none does."""
    by_start = {start: end for end, start in comments.items()}
    last = 0
    while first in by_start:
        last = by_start[first]
        first = last + 1
    return last
