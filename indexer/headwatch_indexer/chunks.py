"""How the lines of a symbol become the texts that are embedded and searched."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from tree_sitter import Node

from headwatch_indexer.lines import Lines
from headwatch_indexer.records import Chunk

LINES: Final = 60
CHARACTERS: Final = 2_400
DOC_LINES: Final = 30
DOC_CHARACTERS: Final = 1_200

Run = tuple[int, int]  # first and last line, both included


@dataclass(frozen=True, slots=True)
class Part:
    """Some lines of one symbol; gaps are lines that belong to others."""

    runs: Sequence[Run]

    @property
    def first(self) -> int:
        return self.runs[0][0]

    @property
    def last(self) -> int:
        return self.runs[-1][1]


def fits(lines: Lines, first: int, last: int) -> bool:
    """Are these lines short enough for one chunk?"""
    if last - first >= LINES:
        return False
    start, end = lines.span(first, last)
    return end - start <= CHARACTERS


def chunks_of(
    ordinal: int, qualname: str, signature: str, lines: Lines, parts: Sequence[Part], doc: Run | None = None
) -> list[Chunk]:
    """Write the parts of a symbol: its name, the signature from the second part on, then the lines.

    doc: lines of the comment right above the symbol, which open its first part.
    """
    chunks: list[Chunk] = []
    for n, part in enumerate(parts):
        out = [qualname]
        if n and signature:
            out.append(signature)
        elif doc is not None and not n:
            out.extend(lines.texts[doc[0] - 1 : doc[1]])
        for first, last in part.runs:
            out.extend(lines.texts[first - 1 : last])
        chunks.append(Chunk(ordinal, n, part.first, part.last, "\n".join(out)))
    return chunks


def without(first: int, last: int, covered: Iterable[Run]) -> list[Run]:
    """Runs of first..last that no covered run holds."""
    runs: list[Run] = []
    at = first
    for start, end in sorted(covered):
        if start > at:
            runs.append((at, min(start - 1, last)))
        at = max(at, end + 1)
    if at <= last:
        runs.append((at, last))
    return [run for run in runs if run[0] <= run[1]]


def trim(lines: Lines, run: Run) -> Run | None:
    """Drop the blank lines at both ends of a run; None when nothing is left."""
    first, last = run
    while first <= last and lines.is_blank(first):
        first += 1
    while last >= first and lines.is_blank(last):
        last -= 1
    return (first, last) if first <= last else None


def split(lines: Lines, runs: Iterable[Run], borders: Collection[int]) -> list[Part]:
    """Pack runs into parts that fit, cut where statements start, else at blank lines, else anywhere."""
    parts: list[Part] = []
    current: list[Run] = []
    size = count = 0
    for run in runs:
        trimmed = trim(lines, run)
        if trimmed is None:
            continue
        for first, last in _pieces(lines, trimmed, borders):
            start, end = lines.span(first, last)
            length, height = end - start + 1, last - first + 1
            if current and (size + length > CHARACTERS or count + height > LINES):
                parts.append(_part(lines, current))
                current, size, count = [], 0, 0
            if current and current[-1][1] + 1 == first:
                current[-1] = (current[-1][0], last)
            else:
                current.append((first, last))
            size, count = size + length, count + height
    if current:
        parts.append(_part(lines, current))
    return [part for part in parts if part.runs]


def comment_above(line: int, comments: Mapping[int, int]) -> int:
    """First line of the comments that end right above a line, 0 for none; `comments`: last line → first line."""
    at = line
    while (first := comments.get(at - 1)) is not None:
        at = first
    return at if at < line else 0


def doc_lines(lines: Lines, first: int, line: int) -> Run | None:
    """Lines of a comment (its first line, 0 for none) above a line that are read with what is there.

    A long comment lends its beginning alone; the rest stays with the code around it.
    """
    if not first:
        return None
    size, last = 0, first - 1
    for number in range(first, min(line, first + DOC_LINES)):
        size += len(lines.texts[number - 1]) + 1
        if size > DOC_CHARACTERS and last >= first:
            break
        last = number
    return trim(lines, (first, last))


def statement_lines(body: Node, first: int, last: int, comments: frozenset[str]) -> set[int]:
    """Lines of a body at which a statement starts, those inside statements too long for a chunk included."""
    borders: set[int] = set()
    stack = [body]
    while stack:
        node = stack.pop()
        comment_at = 0
        for child in node.children:
            line = child.start_point[0] + 1
            if not first <= line <= last:
                continue
            if child.type in comments:
                comment_at = comment_at or line
                continue
            if child.is_named:
                borders.add(comment_at or line)
            comment_at = 0
            if (
                child.end_point[0] - child.start_point[0] >= LINES
                or child.end_byte - child.start_byte > CHARACTERS
            ):
                stack.append(child)
    return borders


def _part(lines: Lines, runs: Sequence[Run]) -> Part:
    trimmed = [trim(lines, run) for run in runs]
    return Part([run for run in trimmed if run is not None])


def _pieces(lines: Lines, run: Run, borders: Collection[int]) -> Iterable[Run]:
    """Cut a run at borders; a piece that is still too long at blank lines, and then at the limit."""
    first, last = run
    if fits(lines, first, last):
        yield run
        return
    starts = [first, *sorted(line for line in borders if first < line <= last), last + 1]
    for start, following in pairwise(starts):
        if fits(lines, start, following - 1):
            yield start, following - 1
        else:
            yield from _at_blanks(lines, start, following - 1)


def _at_blanks(lines: Lines, first: int, last: int) -> Iterable[Run]:
    start = first
    blank = 0  # the last blank line that the piece may end with
    size = 0
    number = first
    while number <= last:
        size += len(lines.texts[number - 1]) + 1
        if number > start and (size > CHARACTERS or number - start >= LINES):
            cut = blank if blank > start else number - 1
            yield start, cut
            start, number, size, blank = cut + 1, cut + 1, 0, 0
            continue
        if lines.is_blank(number):
            blank = number
        number += 1
    yield start, last
