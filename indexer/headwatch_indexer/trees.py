"""Parsing a source into a syntax tree within bounds of time and memory that depend on the source alone."""

from __future__ import annotations

from typing import Final

from tree_sitter import Node, Parser, Point, Tree

from headwatch_indexer.grammars import Grammar

# Code of every language takes a step (of the parser's own counting) for 50 to 200 bytes, garbage for 10 or more.
# One broken Kotlin file of 1,500 bytes took three minutes without a limit.
_FREE_STEPS: Final = 1_000
_BYTES_PER_STEP: Final = 8

# A query takes quadratic time over a row of tokens that fit nowhere: 0.3 s for this many, 30 s for 200,000.
_RUBBLE_NODES: Final = 30_000

# 20,000 type argument lists that nobody closes take 4.6 GB in one step of these grammars.
_GENERIC: Final = frozenset({"java", "csharp", "typescript", "tsx"})
_OPEN_GENERICS: Final = 2_000

# Some lexers look for the end of a token to the end of the file, again and again: about two seconds of that.
_BYTES_READ: Final = 500_000_000

_CHUNK_BYTES: Final = 4_096


def parse_tree(source: bytes, grammar: Grammar) -> Tree | None:
    """Parse a source; None when no tree can be had in bounded time and memory."""
    if grammar.name in _GENERIC and _open_generics(source) > _OPEN_GENERICS:
        return None
    left = _FREE_STEPS + len(source) // _BYTES_PER_STEP
    unread = _BYTES_READ
    view = memoryview(source)
    parsing = True

    def used_up(_offset: int, _has_error: bool) -> bool:
        nonlocal left
        left -= 1
        return left < 0 or unread < 0

    def read(offset: int, _point: Point) -> bytes | memoryview:
        # The parser keeps every answer until it is done, and there may be a million: it gets views. Queries read the
        # text of names through the same function afterwards, and take bytes alone.
        nonlocal unread
        unread -= _CHUNK_BYTES
        return view[offset : offset + _CHUNK_BYTES] if parsing else source[offset : offset + _CHUNK_BYTES]

    try:
        tree = Parser(grammar.language).parse(read, progress_callback=used_up)
    except ValueError:  # how the binding says that the callback stopped it
        return None
    parsing = False
    return None if _is_rubble(tree.root_node) else tree


def _open_generics(source: bytes) -> int:
    return source.count(b"<") - 2 * source.count(b"<<") - source.count(b">") + source.count(b"=>")


def _is_rubble(root: Node) -> bool:
    """Is the tree, or a part of it right below the root, one long row of tokens?"""
    if not root.has_error or root.descendant_count < _RUBBLE_NODES:
        return False
    return any(node.is_error and node.child_count > _RUBBLE_NODES for node in (root, *root.children))
