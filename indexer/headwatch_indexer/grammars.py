"""The grammar of each language, and the queries that say what in its trees is a definition or a comment."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

from tree_sitter import Language, Query, QueryCursor


@dataclass(frozen=True, slots=True)
class _Source:
    """Where a language comes from; node kinds are those of its grammar."""

    module: str
    function: str = "language"
    tags: Sequence[str] = ()  # names under tags/; the language's own when empty
    comments: str = "comment"
    strings: str = ""
    prefixes: str = ""  # kinds that belong to the definition right after them: decorators, attributes
    extra: str = ""  # further layout query: docstrings, conditional prefixes
    docstrings: bool = False  # a first string in a body documents it
    merges: bool = False  # neighbouring definitions of one name are one (the equations of Haskell)


@dataclass(frozen=True, slots=True)
class Grammar:
    """One language, ready to parse and to query."""

    name: str
    language: Language
    definitions: Query  # captures: definition.*, scope, name, declarator, receiver
    layout: Query  # captures: comment, string, prefix, doc, prefix.doc
    comments: frozenset[str]
    docstrings: bool
    merges: bool


_JS: Final = "string template_string regex jsx_text"
_C_STRINGS: Final = "string_literal char_literal system_lib_string preproc_arg"

_SOURCES: Final[dict[str, _Source]] = {
    "python": _Source(
        "tree_sitter_python",
        strings="string",
        prefixes="decorator",
        docstrings=True,
        extra="""
        (function_definition body: (block . (expression_statement . (string) @doc .)))
        (class_definition body: (block . (expression_statement . (string) @doc .)))
        (module . (comment)* . (expression_statement . (string) @doc .))
        """,
    ),
    "javascript": _Source(
        "tree_sitter_javascript",
        tags=("javascript", "javascript-fields"),
        strings=_JS,
        prefixes="decorator",
        comments="comment html_comment",
    ),
    "typescript": _Source(
        "tree_sitter_typescript",
        "language_typescript",
        tags=("javascript", "typescript"),
        strings="string template_string regex",
        prefixes="decorator",
    ),
    "tsx": _Source(
        "tree_sitter_typescript",
        "language_tsx",
        tags=("javascript", "typescript"),
        strings=_JS,
        prefixes="decorator",
    ),
    "go": _Source("tree_sitter_go", strings="interpreted_string_literal raw_string_literal rune_literal"),
    "rust": _Source(
        "tree_sitter_rust",
        comments="line_comment block_comment",
        strings="string_literal raw_string_literal char_literal",
        prefixes="attribute_item",
    ),
    "java": _Source(
        "tree_sitter_java", comments="line_comment block_comment", strings="string_literal character_literal"
    ),
    "c": _Source("tree_sitter_c", strings=_C_STRINGS),
    "cpp": _Source("tree_sitter_cpp", strings=f"{_C_STRINGS} raw_string_literal"),
    "csharp": _Source(
        "tree_sitter_c_sharp",
        strings="string_literal verbatim_string_literal raw_string_literal character_literal "
        "interpolated_string_expression",
    ),
    "ruby": _Source(
        "tree_sitter_ruby", strings="string heredoc_body regex string_array symbol_array subshell character"
    ),
    "php": _Source(
        "tree_sitter_php",
        "language_php",
        strings="string encapsed_string heredoc nowdoc text shell_command_expression",
    ),
    "kotlin": _Source(
        "tree_sitter_kotlin",
        comments="line_comment block_comment",
        strings="string_literal multiline_string_literal character_literal",
        # An annotation with arguments, right above a function, may be read as an expression of its own.
        extra="""
        (annotated_expression (annotation) [(parenthesized_expression)
          (annotated_expression (annotation) (parenthesized_expression) .)] .) @prefix
        """,
    ),
    "swift": _Source(
        "tree_sitter_swift",
        comments="comment multiline_comment",
        strings="line_string_literal multi_line_string_literal raw_string_literal regex_literal",
    ),
    "scala": _Source(
        "tree_sitter_scala",
        comments="comment block_comment",
        strings="string interpolated_string_expression character_literal",
    ),
    "lua": _Source("tree_sitter_lua", strings="string"),
    "bash": _Source(
        "tree_sitter_bash", strings="string raw_string ansi_c_string translated_string heredoc_body regex"
    ),
    "elixir": _Source(
        "tree_sitter_elixir",
        strings="string charlist sigil",
        extra="""
        (unary_operator "@" operand: (call target: (identifier) @_name)
          (#match? @_name "^(spec|impl|since|deprecated|dialyzer)$")) @prefix
        (unary_operator "@" operand: (call target: (identifier) @_name)
          (#eq? @_name "doc")) @prefix.doc
        (unary_operator "@" operand: (call target: (identifier) @_name)
          (#eq? @_name "moduledoc")) @doc
        """,
    ),
    "haskell": _Source(
        "tree_sitter_haskell", comments="comment haddock", strings="string char quasiquote", merges=True
    ),
    "zig": _Source("tree_sitter_zig", strings="string multiline_string character"),
}

LANGUAGES: Final = frozenset(_SOURCES)

# A query state counts depth in 16 bits: beyond it states pile up, and a query of a second takes minutes.
DEEPEST_NODE: Final = 5_000


def cursor(query: Query) -> QueryCursor:
    """Open a cursor that looks no deeper than any code written by hand goes."""
    opened = QueryCursor(query)
    opened.set_max_start_depth(DEEPEST_NODE)
    return opened


@cache
def grammar_of(name: str) -> Grammar:
    """Load a language's grammar and queries, once a process. Raises KeyError for an unknown one."""
    source = _SOURCES[name]
    module = importlib.import_module(source.module)
    with warnings.catch_warnings():  # some grammars still hand out a plain address
        warnings.simplefilter("ignore", DeprecationWarning)
        language = Language(getattr(module, source.function)())
    tags = resources.files("headwatch_indexer") / "tags"
    definitions = "\n".join((tags / f"{tag}.scm").read_text("utf-8") for tag in source.tags or (name,))
    comments = frozenset(source.comments.split())
    return Grammar(
        name=name,
        language=language,
        definitions=Query(language, definitions),
        layout=Query(language, _layout(source)),
        comments=comments,
        docstrings=source.docstrings,
        merges=source.merges,
    )


def _layout(source: _Source) -> str:
    groups = (("comment", source.comments), ("string", source.strings), ("prefix", source.prefixes))
    parts = [
        f"[{' '.join(f'({kind})' for kind in kinds.split())}] @{capture}"
        for capture, kinds in groups
        if kinds.split()
    ]
    return "\n".join([*parts, source.extra])
