"""The head of a definition on one line, and what its author wrote about it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import Final

from tree_sitter import Node

from headwatch_indexer.definitions import Definition
from headwatch_indexer.layout import Layout
from headwatch_indexer.lines import Lines

SIGNATURE_LENGTH: Final = 200
DOC_LENGTH: Final = 1_000
_HEAD_BYTES: Final = 2_000  # no head is looked for beyond this

_BODY_FIELDS: Final = ("body", "accessors", "block")
_INNER_FIELDS: Final = ("declaration", "definition", "value", "right", "type")
_BODY_KINDS: Final = frozenset(
    {
        "block",
        "do_block",
        "class_body",
        "enum_class_body",
        "function_body",
        "declaration_list",
        "enum_declaration_list",
        "field_declaration_list",
        "template_body",
        "struct_declaration",
        "enum_declaration",
        "union_declaration",
        "computed_property",
        "object",
        "table_constructor",
        "class_declarations",
        "instance_declarations",
    }
)
_WHITE = re.compile(r"\s+")
_TAIL = re.compile(r"(?:\s*(?:\{|=>|->|:|=|\bdo\b:?|\bthen\b|\bis\b|\bwhere\b))+\s*$|[;,\s]+$")
_ANNOTATION = re.compile(
    r"(?:@(?!interface\b)[\w.:]+(?:\((?:[^()]|\([^()]*\))*\))?|#?\[(?:[^\[\]]|\[[^\[\]]*\])*\])\s+"
)
_DOC_TAG = re.compile(
    r"</?(?:summary|remarks|returns|param|typeparam|para|see|c|code|value|inheritdoc)\b[^>]*>"
)
_KEYWORDS = re.compile(rb"[\w\s]*")
_LINE_MARK = re.compile(r"^[ \t]*(?:///?!?|#+!?|--+(?:[ \t]*\|)?|;+)[ \t]?")
_STAR = re.compile(r"^[ \t]*\*(?!\*)[ \t]?")
_QUOTES = re.compile(r"^[A-Za-z]{0,2}(\"\"\"|'''|\"|')(.*)\1$", re.DOTALL)
_ELIXIR_DOC = re.compile(r"^@(?:module)?doc\s*(?:~[sS])?\(?\s*(?:\"\"\"|\"|'''|\[|\{|\()?")


def body_of(definition: Definition) -> Node | None:
    """Find the node that holds a definition's statements or members; None when it has none."""
    node: Node | None = definition.nodes[-1]
    for _ in range(8):
        if node is None:
            return None
        for field in _BODY_FIELDS:
            body = node.child_by_field_name(field)
            if body is not None:
                return body
        children = node.named_children
        for child in reversed(children):
            if child.type in _BODY_KINDS:
                return child
        inner = None
        for field in _INNER_FIELDS:
            inner = node.child_by_field_name(field)
            if inner is not None and inner.named_child_count:
                break
        node = inner or (children[-1] if children else None)
    return None


def signature_of(definition: Definition, body: Node | None, lines: Lines, layout: Layout) -> str:
    """Fold a definition's head into one line, without decorators, comments and the mark that opens its body."""
    source = lines.source
    start = definition.header
    line_start = lines.byte_starts[lines.line_at(start) - 1]
    keywords = _KEYWORDS.match(source, line_start, start)
    if (
        keywords is not None and keywords.end() == start
    ):  # `export const f`: the keywords are outside of the node
        start = line_start
    limit = min(definition.end, start + _HEAD_BYTES)
    end = -1
    if body is not None and body.start_byte > definition.name_spans[0][0] and definition.kind != "constant":
        end = min(body.start_byte, limit)
    if end <= start:
        newline = source.find(b"\n", max(start, definition.name_spans[0][1]), limit)
        end = limit if newline < 0 else newline
    head = b""
    for comment_start, comment_end in layout.inside(layout.comments, start, end):
        head += source[start:comment_start] + b" "
        start = min(comment_end, end)
    head += source[start:end]
    text = _WHITE.sub(" ", head.decode("utf-8", "replace")).strip()
    while (match := _ANNOTATION.match(text)) is not None:
        text = text[match.end() :]
    if definition.kind != "constant":
        text = _TAIL.sub("", text)
    text = text.rstrip(" ;,\\")
    return text if len(text) <= SIGNATURE_LENGTH else text[: SIGNATURE_LENGTH - 1].rstrip() + "…"


def doc_of(definition: Definition, lines: Lines, layout: Layout, comment_first: int) -> str:
    """Read a definition's docstring, else the comment right above it (its first line, or 0)."""
    if layout.docs:
        inner_start = definition.children[0].start if definition.children else definition.end
        for start, end in layout.inside(layout.docs, definition.start, inner_start):
            return clean_docstring(lines.source[start:end].decode("utf-8", "replace"))
    if not comment_first:
        return ""
    return clean_comment(lines.slice(comment_first, lines.line_at(definition.start) - 1))


def clean_docstring(literal: str) -> str:
    """Take a docstring out of its quotes and its indentation."""
    text = literal.strip()
    if text.startswith(("@doc", "@moduledoc")):
        text = _ELIXIR_DOC.sub("", text).rstrip("\"')]} \n")
    elif (match := _QUOTES.match(text)) is not None:
        text = match[2]
    first, _, rest = text.strip().partition("\n")
    return _cut(f"{first}\n{textwrap.dedent(rest)}")


def clean_comment(text: str) -> str:
    """Take comment marks off a block of comment lines."""
    out: list[str] = []
    inside = False  # of a block comment
    for raw in text.split("\n"):
        line = raw.strip()
        if not inside and line.startswith(("/*", "{-", "(*", "<!--")):
            inside = True
            line = re.sub(r"^(?:/\*+!?|\{-+\s*\|?|\(\*+|<!--)", "", line)
        elif inside:
            line = _STAR.sub("", line) if line.startswith("*") and not line.startswith("*/") else raw.rstrip()
        else:
            line = _LINE_MARK.sub("", line)
        if inside and (closing := re.search(r"\s*(?:\*+/|-\}|\*\)|-->)\s*$", line)):
            inside = False
            line = line[: closing.start()]
        out.append(_DOC_TAG.sub("", line).rstrip() if "<" in line else line.rstrip())
    return _cut(textwrap.dedent("\n".join(out)))


def _cut(text: str) -> str:
    text = text.strip()
    return text if len(text) <= DOC_LENGTH else text[: DOC_LENGTH - 1].rstrip() + "…"


def module_doc(top: Sequence[Definition], lines: Lines, layout: Layout) -> str:
    """Read a module's docstring, else the comment that opens the file."""
    limit = top[0].start if top else len(lines.source)
    for start, end in layout.inside(layout.docs, 0, limit):
        return clean_docstring(lines.source[start:end].decode("utf-8", "replace"))
    first = last = 0
    for start, end in layout.inside(layout.comments, 0, limit):
        line = lines.line_at(start)
        if last and line > last + 1:
            break
        if not last and lines.source[:start].strip():
            break
        first, last = (
            first or line,
            lines.line_at(max(start, start + len(lines.source[start:end].rstrip()) - 1)),
        )
    if first and lines.texts[first - 1].startswith("#!"):
        first += 1
    return clean_comment(lines.slice(first, last)) if 0 < first <= last else ""
