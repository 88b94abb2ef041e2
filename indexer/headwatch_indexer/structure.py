"""What of a definition counts as its structure: the hashes that ignore comments, docstrings and layout."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from tree_sitter import Node

from headwatch_indexer.definitions import Definition
from headwatch_indexer.grammars import Grammar
from headwatch_indexer.layout import Layout, Span

# Node.__str__ recurses in C, some 400 bytes of stack a level: a tree of this many nodes is always shallow enough.
WHOLE_NODES: Final = 4_000

_BORDER = b"\x02"
_STRING = b"\x01"
_NO_MARKS = bytes.maketrans(_BORDER + _STRING, b"\x03\x03")
# After white space is folded: a space that no two words need between them.
_NEEDLESS_SPACE = re.compile(rb" (?:(?<![\w\x80-\xff] )|(?![\w\x80-\xff]))")
# A comma that a formatter puts after the last item, before a line break.
_LAST_COMMA = re.compile(rb",\s*\n\s*(?=[)\]}])")
_DOCSTRING = re.compile(
    r" body: \(block \(expression_statement \(string \(string_start\)"
    r"(?: \(string_content(?: \([^()]*\))*\))* \(string_end\)\)\)"
)


def digest(*parts: bytes) -> str:
    """Hash parts that are kept apart: 16 bytes of BLAKE2b, in hex."""
    return blake2b(b"\0".join(parts), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Structure:
    """The code of one source without comments, docstrings and layout, cut at the borders of its definitions."""

    borders: Sequence[int]  # byte offsets where the code is cut
    pieces: Sequence[bytes]  # the code between them
    string_starts: Sequence[int]
    strings: Sequence[bytes]
    doc_starts: Set[int]
    comment: re.Pattern[str]
    comment_marks: Sequence[str]
    docstrings: bool

    def hashes(self, definition: Definition) -> tuple[str, str]:
        """Structural hash and body hash of a definition."""
        tree = self._tree(definition.nodes).encode()
        strings = _STRING.join(self._strings(definition.start, definition.end))
        first, last = self._at(definition.start), self._at(definition.end)
        pieces = list(self.pieces[first:last])
        whole = b"".join(pieces)
        for start, end in definition.name_spans:
            for n in range(self._at(start) - first, self._at(end) - first):
                pieces[n] = b""
        return digest(tree, whole, strings), digest(tree, b"".join(pieces), strings)

    def outside_hash(self, root: Node, top: Sequence[Definition]) -> str:
        """Hash what is outside of all definitions."""
        spans = _union((d.start, d.end) for d in top)
        starts = [start for start, _ in spans]
        whole: list[str] = []
        for node in root.children:
            if node.start_byte in self.doc_starts:
                continue
            at = bisect_left(starts, node.end_byte) - 1
            if at < 0 or spans[at][1] <= node.start_byte:
                whole.append(self._tree([node]))
        code: list[bytes] = []
        strings: list[bytes] = []
        edge = 0
        for start, end in [*spans, (root.end_byte + 1, 0)]:
            code.append(b"".join(self.pieces[self._at(edge) : self._at(start)]))
            strings.extend(self._strings(edge, start))
            edge = end
        return digest("".join(whole).encode(), _BORDER.join(code), _STRING.join(strings))

    def _at(self, byte: int) -> int:
        return bisect_left(self.borders, byte)

    def _strings(self, start: int, end: int) -> Sequence[bytes]:
        return self.strings[bisect_left(self.string_starts, start) : bisect_left(self.string_starts, end)]

    def _tree(self, nodes: Iterable[Node]) -> str:
        tree = "".join(" " + expression(node) for node in nodes)
        if "comment)" in tree:
            tree = tree.replace(" (comment)", "")
        if any(mark in tree for mark in self.comment_marks):
            tree = self.comment.sub("", tree)
        if self.docstrings and " (block (expression_statement (string " in tree:
            tree = _DOCSTRING.sub(" body: (block", tree)
        return tree


def read_structure(source: bytes, layout: Layout, found: Sequence[Definition], grammar: Grammar) -> Structure:
    """Reduce a source to its code, once for all of its definitions."""
    if _BORDER in source or _STRING in source:
        source = source.translate(_NO_MARKS)
    edges = {0, len(source)}
    for definition in found:
        edges.update((definition.start, definition.end))
        for span in definition.name_spans:
            edges.update(span)
    borders = sorted(edges)
    strings = _strings_to_keep(layout, borders)
    code: list[bytes] = []
    at = 0
    for start, end, mark in _events(layout, strings, borders):
        if start >= at:
            code.append(source[at:start])
            at = end
            code.append(mark)
        elif mark == _BORDER:
            code.append(mark)
    code.append(source[at:])
    joined = b"".join(code)
    joined = _NEEDLESS_SPACE.sub(b"", b" ".join(_LAST_COMMA.sub(b"", joined).split()))
    pieces = joined.split(_BORDER)[1:]
    return Structure(
        borders=borders,
        pieces=pieces,
        string_starts=[start for start, _ in strings],
        strings=[source[start:end] for start, end in strings],
        doc_starts={start for start, _ in layout.docs},
        comment=_comment_pattern(grammar.comments),
        comment_marks=[f"({kind}" for kind in sorted(grammar.comments)],
        docstrings=grammar.docstrings,
    )


def expression(node: Node, whole_nodes: int = WHOLE_NODES) -> str:
    """Write a node as an S-expression, as Node.__str__ does, without its recursion on large trees."""
    if node.descendant_count <= whole_nodes:
        return str(node)
    out = [f"({node.type}"]
    closing = [")"]
    cursor = node.walk()
    cursor.goto_first_child()
    while closing:
        child = cursor.node
        if child is not None:
            shown = child.is_named or child.is_missing
            large = child.descendant_count > whole_nodes
            if shown:
                out.append(f" {cursor.field_name}: " if cursor.field_name else " ")
                out.append(f"({child.type}" if large else str(child))
            if large and cursor.goto_first_child():
                closing.append(")" if shown else "")
                continue
        while closing and not cursor.goto_next_sibling():
            cursor.goto_parent()
            out.append(closing.pop())
    return "".join(out)


def _strings_to_keep(layout: Layout, borders: Sequence[int]) -> list[Span]:
    """Strings whose inside counts as it is: outside of docstrings and comments, no definition within."""
    strings: list[Span] = []
    edge = 0
    for start, end in layout.strings:
        if start < edge:
            continue
        at = bisect_left(borders, start + 1)
        if at < len(borders) and borders[at] < end:
            continue
        strings.append((start, end))
        edge = end
    cut = sorted([*layout.docs, *layout.comments])
    if not cut:
        return strings
    starts = [start for start, _ in cut]
    kept: list[Span] = []
    for span in strings:
        at = bisect_left(starts, span[0] + 1) - 1
        if at < 0 or cut[at][1] <= span[0]:
            kept.append(span)
    return kept


def _events(layout: Layout, strings: Sequence[Span], borders: Sequence[int]) -> list[tuple[int, int, bytes]]:
    events = [(at, at, _BORDER) for at in borders]
    events += [(start, end, b" ") for start, end in layout.comments]
    events += [(start, end, b" ") for start, end in layout.docs]
    events += [(start, end, _STRING) for start, end in strings]
    events.sort()
    return events


def _union(spans: Iterable[Span]) -> list[Span]:
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _comment_pattern(kinds: frozenset[str]) -> re.Pattern[str]:
    names = "|".join(sorted(kinds))
    inner = r"(?:[^()]|\((?:[^()]|\([^()]*\))*\))*"
    return re.compile(rf" (?:\w+: )?\((?:{names})\b{inner}\)")
