"""Text without a grammar, cut into windows of whole lines."""

from __future__ import annotations

from typing import Final

from headwatch_indexer.lines import Lines
from headwatch_indexer.records import Chunk, Symbol
from headwatch_indexer.structure import digest

WINDOW_LINES: Final = 40
WINDOW_CHARACTERS: Final = 2_400
_EARLIEST: Final = 30  # a blank line from here on ends a window early
SIGNATURE_LENGTH: Final = 200


def read_windows(lines: Lines) -> tuple[list[Symbol], list[Chunk]]:
    """Cut a text into sections of about forty lines, at a blank line where one is near."""
    symbols: list[Symbol] = []
    chunks: list[Chunk] = []
    for first, last in _windows(lines):
        if all(lines.is_blank(number) for number in range(first, last + 1)):
            continue
        ordinal = len(symbols)
        qualname = f"L{first}-{last}"
        symbols.append(section(ordinal, qualname, qualname, lines, first, last))
        chunks.append(Chunk(ordinal, 0, first, last, f"{qualname}\n{lines.slice(first, last)}"))
    return symbols, chunks


def section(
    ordinal: int, name: str, qualname: str, lines: Lines, first: int, last: int, skip: int = 0
) -> Symbol:
    """Describe lines first..last as one section; `skip` lines of heading are left out of its body hash."""
    start, end = lines.span(first, last)
    texts = lines.texts[first - 1 : last]
    signature = next((" ".join(line.split()) for line in texts if line.strip()), "")
    return Symbol(
        ordinal=ordinal,
        name=name,
        qualname=qualname,
        kind="section",
        signature=signature[:SIGNATURE_LENGTH],
        doc="",
        start_line=first,
        end_line=last,
        start_offset=start,
        end_offset=end,
        structural_hash=digest(*(line.rstrip().encode() for line in texts if line.strip())),
        body_hash=digest(*(line.rstrip().encode() for line in texts[skip:] if line.strip())),
    )


def _windows(lines: Lines) -> list[tuple[int, int]]:
    windows: list[tuple[int, int]] = []
    first, size = 1, 0
    for number in range(1, len(lines) + 1):
        length = len(lines.texts[number - 1]) + 1
        if number > first and size + length > WINDOW_CHARACTERS:
            windows.append((first, number - 1))
            first, size = number, 0
        size += length
        height = number - first + 1
        if height >= WINDOW_LINES or (height >= _EARLIEST and lines.is_blank(number)):
            windows.append((first, number))
            first, size = number + 1, 0
    if first <= len(lines):
        windows.append((first, len(lines)))
    return windows
