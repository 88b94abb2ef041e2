"""The symbols and chunks of a source that has a grammar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tree_sitter import Node

from headwatch_indexer import chunks, headers
from headwatch_indexer.definitions import Definition, find_definitions
from headwatch_indexer.dialects import parse_dialect
from headwatch_indexer.grammars import Grammar
from headwatch_indexer.layout import Layout, read_layout
from headwatch_indexer.lines import Lines
from headwatch_indexer.records import Chunk, Symbol
from headwatch_indexer.structure import Structure, read_structure
from headwatch_indexer.windows import read_windows

MODULE: Final = "<module>"

# Kinds whose members are read apart from them, however short they are.
_CONTAINERS: Final = frozenset({"class", "interface", "module", "constant"})


@dataclass(frozen=True, slots=True)
class _Source:
    """One parsed source and what is known about it."""

    lines: Lines
    grammar: Grammar
    root: Node
    layout: Layout
    structure: Structure
    found: Sequence[Definition]
    spans: dict[Definition, chunks.Run]  # first and last line
    comments: dict[Definition, int]  # first line of the comment right above, 0 for none
    docs: dict[Definition, chunks.Run | None]  # the lines of that comment that are read with the definition


def read_code(lines: Lines, language: str) -> tuple[str, Sequence[Symbol], Sequence[Chunk]]:
    """Parse a source: status ("ok" or "partial"), its symbols in file order, their chunks.

    The code outside of all definitions is one symbol of kind "module", where its first line is. A source that the
    parser cannot get through in time is cut into windows of lines, and is "partial".
    """
    grammar, tree = parse_dialect(lines.source, language)
    if tree is None:
        return "partial", *read_windows(lines)
    source = _read(lines, grammar, tree.root_node)
    symbols: list[Symbol] = []
    texts: list[Chunk] = []
    outside = _outside(source)
    for definition in source.found:
        if outside and outside[0][0] <= source.spans[definition][0]:
            _add_module(source, outside, symbols, texts)
            outside = []
        _add(source, definition, symbols, texts)
    if outside:
        _add_module(source, outside, symbols, texts)
    return "partial" if source.root.has_error else "ok", symbols, texts


def _read(lines: Lines, grammar: Grammar, root: Node) -> _Source:
    layout = read_layout(root, grammar)
    found = find_definitions(root, lines.source, grammar, layout)
    structure = read_structure(lines.source, layout, found, grammar)
    spans = {d: (lines.line_at(d.start), lines.line_at(max(d.start, d.end - 1))) for d in found}
    comments = _comment_lines(lines, layout)
    above = {d: chunks.comment_above(spans[d][0], comments) for d in found}
    docs = {d: chunks.doc_lines(lines, above[d], spans[d][0]) for d in found}
    return _Source(lines, grammar, root, layout, structure, found, spans, above, docs)


def _add(source: _Source, definition: Definition, symbols: list[Symbol], texts: list[Chunk]) -> None:
    """Append a definition's symbol and its chunks."""
    lines, layout = source.lines, source.layout
    ordinal = len(symbols)
    body = headers.body_of(definition)
    signature = headers.signature_of(definition, body, lines, layout)
    structural_hash, body_hash = source.structure.hashes(definition)
    first, last = source.spans[definition]
    start, end = lines.span(first, last)
    symbols.append(
        Symbol(
            ordinal=ordinal,
            name=definition.name,
            qualname=definition.qualname,
            kind=definition.kind,
            signature=signature,
            doc=headers.doc_of(definition, lines, layout, source.comments[definition]),
            start_line=first,
            end_line=last,
            start_offset=start,
            end_offset=end,
            structural_hash=structural_hash,
            body_hash=body_hash,
        )
    )
    parts = _parts(source, definition, body)
    texts += chunks.chunks_of(ordinal, definition.qualname, signature, lines, parts, source.docs[definition])


def _parts(source: _Source, definition: Definition, body: Node | None) -> Sequence[chunks.Part]:
    """Choose a symbol's lines: all of a short function, else those that no member has for its own."""
    lines = source.lines
    first, last = source.spans[definition]
    whole = chunks.fits(lines, first, last)
    if whole and (not definition.children or definition.kind not in _CONTAINERS):
        return [chunks.Part([(first, last)])]
    runs = chunks.without(first, last, _covered(source, definition.children))
    if all(chunks.trim(lines, run) is None for run in runs):
        runs = [(first, first)]  # everything is on one line
    borders: set[int] = set()
    if not whole:
        node = definition.nodes[-1] if body is None else body
        borders = chunks.statement_lines(node, first, last, source.grammar.comments)
    return chunks.split(lines, runs, borders)


def _covered(source: _Source, definitions: Sequence[Definition]) -> list[chunks.Run]:
    """Lines that are read with definitions: their own and those of the comments right above."""
    runs = [source.spans[definition] for definition in definitions]
    return runs + [doc for definition in definitions if (doc := source.docs[definition]) is not None]


def _outside(source: _Source) -> list[chunks.Run]:
    """Runs of lines that belong to no definition, without blank lines around them."""
    spans = [source.spans[d] for d in source.found if d.parent is None]
    runs = (chunks.trim(source.lines, run) for run in chunks.without(1, len(source.lines), spans))
    return [run for run in runs if run is not None]


def _add_module(
    source: _Source, outside: Sequence[chunks.Run], symbols: list[Symbol], texts: list[Chunk]
) -> None:
    """Append the symbol of what is outside of all definitions, and its chunks."""
    lines = source.lines
    top = [definition for definition in source.found if definition.parent is None]
    first, last = outside[0][0], outside[-1][1]
    start, end = lines.span(first, last)
    ordinal = len(symbols)
    doc = headers.module_doc(top, lines, source.layout)
    digest = source.structure.outside_hash(source.root, top)
    symbols.append(
        Symbol(ordinal, MODULE, MODULE, "module", "", doc, first, last, start, end, digest, digest)
    )
    # Comments right above a definition are read with it; they stay here only when nothing else would.
    runs = chunks.without(first, last, _covered(source, top))
    if all(chunks.trim(lines, run) is None for run in runs):
        runs = list(outside)
    borders: set[int] = set()
    if not all(chunks.fits(lines, *run) for run in runs):
        borders = chunks.statement_lines(source.root, first, last, source.grammar.comments)
    texts += chunks.chunks_of(ordinal, MODULE, "", lines, chunks.split(lines, runs, borders))


def _comment_lines(lines: Lines, layout: Layout) -> dict[int, int]:
    """Last line → first line of every comment that has its lines to itself."""
    found: dict[int, int] = {}
    source = lines.source
    for start, end in layout.comments:
        first = lines.line_at(start)
        if source[lines.byte_starts[first - 1] : start].strip():
            continue
        end = start + len(source[start:end].rstrip())
        last = lines.line_at(max(start, end - 1))
        line_end = lines.byte_starts[last] if last < len(lines) else len(source)
        if not source[end:line_end].strip():
            found[last] = first
            # A doc block may stand apart by one blank line; on line 1 it is about the file.
            if (
                first > 1
                and source.startswith(b"/**", start)
                and last < len(lines)
                and lines.is_blank(last + 1)
            ):
                found[last + 1] = first
    return found
