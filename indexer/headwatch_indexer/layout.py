"""Which bytes of a source are comments, strings, docstrings and decorators."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from headwatch_indexer.grammars import Grammar, cursor

Span = tuple[int, int]  # byte offsets, end exclusive


@dataclass(frozen=True, slots=True)
class Layout:
    """Spans of one source, each list in order and without overlap; nodes where their structure counts."""

    comments: Sequence[Span]
    strings: Sequence[Span]  # outermost first; may hold others inside
    docs: Sequence[Span]  # docstrings
    prefixes: Sequence[Span]  # decorators and attributes, documentation attributes among them
    prefix_nodes: dict[Span, Node]  # those that count as structure
    comment_ends: Sequence[int]

    def inside(self, spans: Sequence[Span], start: int, end: int) -> Sequence[Span]:
        """Spans that lie in a range of bytes."""
        return spans[bisect_left(spans, (start, 0)) : bisect_left(spans, (end, 0))]

    def comments_before(self, byte: int) -> int:
        """How many comments end at or before an offset."""
        return bisect_right(self.comment_ends, byte)


def read_layout(root: Node, grammar: Grammar) -> Layout:
    """Find the spans that are not code, or that belong to the definition after them."""
    found = cursor(grammar.layout).captures(root)
    doc_attributes = _spans(found.get("prefix.doc", ()))
    prefix_nodes = {(node.start_byte, node.end_byte): node for node in found.get("prefix", ())}
    comments = _outermost(_spans(found.get("comment", ())))
    return Layout(
        comments=comments,
        strings=_spans(found.get("string", ())),
        docs=_outermost(sorted({*_spans(found.get("doc", ())), *doc_attributes})),
        prefixes=_outermost(sorted({*prefix_nodes, *doc_attributes}, key=_widest_first)),
        prefix_nodes=prefix_nodes,
        comment_ends=[end for _, end in comments],
    )


def _spans(nodes: Iterable[Node]) -> list[Span]:
    return sorted({(node.start_byte, node.end_byte) for node in nodes}, key=_widest_first)


def _widest_first(span: Span) -> Span:
    return span[0], -span[1]


def _outermost(spans: Iterable[Span]) -> list[Span]:
    kept: list[Span] = []
    for span in spans:
        if not kept or span[0] >= kept[-1][1]:
            kept.append(span)
    return kept
