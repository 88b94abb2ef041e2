"""Which definitions a syntax tree holds, how they nest and what they are called."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

from tree_sitter import Node

from headwatch_indexer import names
from headwatch_indexer.grammars import Grammar, cursor
from headwatch_indexer.layout import Layout, Span

DEEPEST: Final = 24  # definitions nested deeper than this stay part of the one around them

_HOLDERS: Final = frozenset({"class", "interface"})  # a function inside one is a method
_BLANK = re.compile(rb"\s*")


@dataclass(slots=True, eq=False)
class Definition:
    """One definition, or a scope that only lends its name (a Rust impl block)."""

    start: int  # bytes; decorators and attributes included
    end: int  # bytes, exclusive, without trailing white space
    kind: str  # as in Symbol, or "scope"
    path: str  # its own dotted name, without what is around it
    header: int  # bytes; where it starts without decorators
    nodes: list[Node]  # one; several where equations of one name were merged
    name_spans: list[Span]
    parent: Definition | None = None
    children: list[Definition] = field(
        default_factory=list
    )  # symbols only; those of a scope are its parent's
    outer: str = ""  # qualified name without a number: what the names inside begin with
    qualname: str = ""  # unique in its file

    @property
    def name(self) -> str:
        return names.last_part(self.path)


def find_definitions(root: Node, source: bytes, grammar: Grammar, layout: Layout) -> list[Definition]:
    """List the definitions of a tree in file order, nested and with unique qualified names."""
    found = _widest(_matches(root, source, grammar), grammar)
    _leave_comments_below(found, source, layout)
    _take_prefixes(found, source, layout)
    found.sort(key=lambda d: (d.start, -d.end))
    if grammar.merges:
        found = _merge_equations(found, source)
    return _nest(found)


def _matches(root: Node, source: bytes, grammar: Grammar) -> Iterable[Definition]:
    """Turn each match of the definitions query into a Definition, names cleaned."""
    found = cursor(grammar.definitions).matches(root)
    found.sort(key=itemgetter(0))  # the first pattern that names something decides what it is
    for _, captures in found:
        name_node = node = receiver = None
        kind = ""
        for capture, nodes in captures.items():
            if capture == "name":
                name_node = nodes[0]
            elif capture == "declarator":
                name_node = names.declared(nodes[0])
            elif capture == "receiver":
                receiver = nodes[0]
            elif capture.startswith("definition."):
                kind, node = capture[11:], nodes[0]
            elif capture in ("scope", "widen"):
                kind, node = capture, nodes[0]
        if name_node is None or node is None:
            continue
        start, end = name_node.start_byte, name_node.end_byte
        raw = source[start:end].decode("utf-8", "replace")
        before = (
            ""
            if receiver is None
            else source[receiver.start_byte : receiver.end_byte].decode("utf-8", "replace")
        )
        kind, path = names.path_of(grammar.name, kind, raw, before)
        if not path:
            continue
        at, last = node.start_byte, node.end_byte
        last = at + len(source[at:last].rstrip())
        yield Definition(at, last, kind, path, at, [node], [(start, end)])


def _widest(found: Iterable[Definition], grammar: Grammar) -> list[Definition]:
    """Keep one definition a name: the first pattern's kind over the widest node that names it."""
    kept: dict[int, Definition] = {}
    for new in found:
        key = new.name_spans[0][0]
        old = kept.setdefault(key, new)
        if old is new:
            continue
        if old.kind in ("scope", "widen") and new.kind not in ("scope", "widen"):
            old.kind, old.path = new.kind, new.path
        if new.end - new.start > old.end - old.start:
            old.start, old.end, old.header, old.nodes = new.start, new.end, new.header, new.nodes
    same: dict[tuple[int, int, str], Definition] = {}
    for definition in kept.values():
        if definition.kind != "widen":
            same.setdefault((definition.start, definition.end, definition.path), definition)
    return list(same.values())


def _leave_comments_below(found: Iterable[Definition], source: bytes, layout: Layout) -> None:
    """End definitions before comments that stand below them, no further right than their own first line.

    Where layout alone ends a body, the grammar counts the doc comment of the next definition to it.
    """
    for definition in found:
        at = bisect_right(layout.comment_ends, definition.end) - 1
        while at >= 0 and layout.comments[at][0] > definition.start:
            start, end = layout.comments[at]
            if source[end : definition.end].strip() or _column(source, start) > _column(
                source, definition.start
            ):
                break
            if source[source.rfind(b"\n", 0, start) + 1 : start].strip():
                break
            definition.end = definition.start + len(source[definition.start : start].rstrip())
            at -= 1


def _column(source: bytes, at: int) -> int:
    return at - source.rfind(b"\n", 0, at) - 1


def _take_prefixes(found: Iterable[Definition], source: bytes, layout: Layout) -> None:
    """Extend definitions over the decorators and attributes right before them."""
    if not layout.prefixes:
        return
    starts = [start for start, _ in layout.prefixes]
    for definition in found:
        at = bisect_right(starts, definition.start) - 1
        if at >= 0 and layout.prefixes[at][0] == definition.start:
            at -= 1  # the node has its decorators inside already
        while at >= 0 and layout.prefixes[at][1] <= definition.start:
            start, end = layout.prefixes[at]
            if not _only_comments(source, end, definition.start, layout):
                break
            definition.start = start
            node = layout.prefix_nodes.get((start, end))
            if node is not None:
                definition.nodes.insert(0, node)
            at -= 1


def _only_comments(source: bytes, start: int, end: int, layout: Layout) -> bool:
    for comment_start, comment_end in layout.inside(layout.comments, start, end):
        match = _BLANK.match(source, start, comment_start)
        if match is None or match.end() != comment_start:
            return False
        start = min(comment_end, end)
    match = _BLANK.match(source, start, end)
    return match is not None and match.end() == end


def _merge_equations(found: Sequence[Definition], source: bytes) -> list[Definition]:
    """Join neighbours of one name: a Haskell function is its signature and all of its equations."""
    merged: list[Definition] = []
    last: Definition | None = None
    for new in found:
        if (
            last is not None
            and new.kind == last.kind == "function"
            and new.path == last.path
            and new.start >= last.end
        ):
            last.end = new.end
            last.nodes.extend(new.nodes)
            last.name_spans.extend(new.name_spans)
        else:
            merged.append(new)
            last = new
    return merged


def _nest(found: Sequence[Definition]) -> list[Definition]:
    """Give each definition its parent, its kind there and its qualified name; scopes are dropped."""
    symbols: list[Definition] = []
    around: list[Definition] = []
    seen: dict[str, int] = {}
    for new in found:
        while around and around[-1].end <= new.start:
            around.pop()
        while around and (around[-1].start, around[-1].end) == (new.start, new.end):
            around.pop()  # two names of one declaration are siblings
        if len(around) >= DEEPEST:
            continue
        holder = around[-1] if around else None
        _place(new, holder)
        around.append(new)
        if new.kind == "scope":
            continue
        new.qualname = names.numbered(new.outer, seen)
        symbols.append(new)
        if new.parent is not None:
            new.parent.children.append(new)
    return symbols


def _place(new: Definition, holder: Definition | None) -> None:
    if holder is None:
        new.outer = new.path
        return
    new.outer = f"{holder.outer}.{new.path}"
    new.parent = holder.parent if holder.kind == "scope" else holder
    if new.kind == "function" and (holder.kind in _HOLDERS or holder.kind == "scope"):
        new.kind = "method"
