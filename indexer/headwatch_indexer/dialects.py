"""What grammar a source is read with, and what it reads where preprocessor lines cut the code in two."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from tree_sitter import Tree

from headwatch_indexer.grammars import Grammar, grammar_of
from headwatch_indexer.trees import parse_tree

# A header of C++ is named like one of C; these lines are never C.
_CPLUSPLUS = re.compile(
    rb"^[ \t]*(?:namespace\b[^;\n]*(?:\{|$)|template[ \t]*<|using[ \t]+[\w:]+[ \t]*[=;]|using[ \t]+namespace\b"
    rb"|(?:public|protected|private)[ \t]*:|(?:enum[ \t]+)?class[ \t]+\w[^;()=\n]*(?:[{:]|$))",
    re.MULTILINE,
)
_CONDITIONALS: Final = frozenset({"c", "cpp", "csharp"})
_DIRECTIVE = re.compile(
    rb"^[ \t]*#[ \t]*(if|ifdef|ifndef|elif|elifdef|elifndef|else|endif|region|endregion|pragma)\b"
    rb"(?:\\\r?\n|[^\n])*",
    re.MULTILINE,
)
_NOT_NEWLINE = re.compile(rb"[^\n]")


def parse_dialect(source: bytes, language: str) -> tuple[Grammar, Tree | None]:
    """Parse a source with the grammar that fits it; the tree's offsets are those of the source.

    Where the tree has errors, conditional lines (#if, #else, #endif) are taken out, then the branches after #else
    too, and the first tree without errors is the one: `#if` may stand between the halves of a statement.
    """
    grammar = grammar_of("cpp" if language == "c" and _CPLUSPLUS.search(source) else language)
    tree = parse_tree(source, grammar)
    if tree is not None and tree.root_node.has_error and language in _CONDITIONALS:
        for plain in _without_conditionals(source):
            other = parse_tree(plain, grammar)
            if other is not None and not other.root_node.has_error:
                return grammar, other
    return grammar, tree


def _without_conditionals(source: bytes) -> Iterable[bytes]:
    """Blank the conditional lines, then also what stands between #else or #elif and #endif."""
    found = list(_DIRECTIVE.finditer(source))
    if not found:
        return
    yield _DIRECTIVE.sub(lambda match: _blank(match[0]), source)
    out: list[bytes] = []
    at = 0
    unread: list[bool] = []  # of each open #if: is this one of its later branches?
    for match in found:
        before = source[at : match.start()]
        out.append(_blank(before) if any(unread) else before)
        out.append(_blank(match[0]))
        at = match.end()
        word = match[1]
        if word.startswith(b"if"):
            unread.append(False)
        elif word.startswith(b"el") and unread:
            unread[-1] = True
        elif word == b"endif" and unread:
            unread.pop()
    out.append(source[at:])
    if any(word[1].startswith(b"el") for word in found):
        yield b"".join(out)


def _blank(text: bytes) -> bytes:
    return _NOT_NEWLINE.sub(b" ", text)
