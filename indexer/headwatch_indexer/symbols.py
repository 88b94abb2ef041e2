"""Which symbols a blob holds, and the chunks of text that stand for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headwatch_indexer import code, markdown, sql, windows
from headwatch_indexer.decoding import decode, reason_to_skip
from headwatch_indexer.grammars import LANGUAGES
from headwatch_indexer.lines import Lines
from headwatch_indexer.records import Chunk, Parsed, Symbol

__all__ = ["PARSER_VERSION", "decode", "parse"]

PARSER_VERSION: Final = 1  # goes up whenever the same blob would give other symbols, chunks or hashes


def parse(content: bytes, language: str) -> Parsed:
    """Read the symbols and chunks of a blob, a pure function of both arguments that never raises.

    The status is "ok", "partial" (the syntax tree has errors) or the reason why the blob is skipped: "binary",
    "lfs pointer", "generated" or "minified". A language without a grammar is read in windows of lines.
    """
    text = decode(content)
    reason = reason_to_skip(content, text, language)
    if text is None or reason is not None:
        return Parsed(language, reason or "binary", "")
    if not text.strip():
        return Parsed(language, "ok", text)
    lines = Lines.of(text)
    status = "ok"
    symbols: Sequence[Symbol]
    chunks: Sequence[Chunk]
    if language in LANGUAGES:
        status, symbols, chunks = code.read_code(lines, language)
    elif language == "sql":
        symbols, chunks = sql.read_statements(lines)
    elif language == "markdown":
        symbols, chunks = markdown.read_sections(lines)
    else:
        symbols, chunks = windows.read_windows(lines)
    return Parsed(language, status, text, tuple(symbols), tuple(chunks))
