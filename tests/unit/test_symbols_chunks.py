"""How symbols become chunks: whole when short, cut at statements when long, members apart from their class."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest

from headwatch_indexer import symbols
from headwatch_indexer.chunks import CHARACTERS, LINES
from headwatch_indexer.records import Chunk, Parsed

STDLIB = Path(os.__file__).parent


def chunks(parsed: Parsed, qualname: str) -> list[Chunk]:
    ordinal = next(s.ordinal for s in parsed.symbols if s.qualname == qualname)
    return [c for c in parsed.chunks if c.symbol_ordinal == ordinal]


def parse(source: str, language: str = "python") -> Parsed:
    return symbols.parse(source.encode(), language)


def test_short_function_is_one_chunk() -> None:
    """Qualified name, newline, the source lines as they are."""
    (chunk,) = chunks(parse("class A:\n    def f(self):\n        return 1\n"), "A.f")
    assert chunk == Chunk(chunk.symbol_ordinal, 0, 2, 3, "A.f\n    def f(self):\n        return 1")


def test_comment_above_is_read_with_its_definition() -> None:
    """The doc comment opens the text of its symbol, whose lines stay those of the symbol, and leaves the module's."""
    parsed = parse("package a\n\n// F does.\nfunc F() {}\n", "go")
    (chunk,) = chunks(parsed, "F")
    assert (chunk.start_line, chunk.end_line, chunk.text) == (4, 4, "F\n// F does.\nfunc F() {}")
    (module,) = chunks(parsed, "<module>")
    assert module.text == "<module>\npackage a"


def test_long_comment_above_lends_its_beginning() -> None:
    """A manual above a definition does not push its code out of the chunk; its rest stays with the module's code."""
    comment = "".join(f"// line {n}\n" for n in range(50))
    parsed = parse(f"package a\n\n{comment}func F() {{}}\n", "go")
    (chunk,) = chunks(parsed, "F")
    assert chunk.text.split("\n")[30:] == ["// line 29", "func F() {}"]
    (module,) = chunks(parsed, "<module>")
    assert module.text.startswith("<module>\npackage a\n// line 30\n")


def test_class_chunk_leaves_its_members_out() -> None:
    """A class is its header, docstring and what belongs to no member."""
    source = 'class A(B):\n    """Say."""\n\n    x = 1\n\n    # about f\n    def f(self):\n        pass\n\n    y = 2\n'
    (chunk,) = chunks(parse(source), "A")
    assert chunk.text == 'A\nclass A(B):\n    """Say."""\n\n    x = 1\n    y = 2'
    assert (chunk.start_line, chunk.end_line) == (1, 10)


def test_class_on_one_line() -> None:
    """A class whose lines all belong to members too still has a chunk."""
    parsed = parse("class A { b() {} }", "javascript")
    assert [c.text for c in chunks(parsed, "A")] == ["A\nclass A { b() {} }"]


def test_short_function_keeps_what_is_nested_in_it() -> None:
    """Closures are symbols, and part of the function around them while it is short."""
    parsed = parse("def f():\n    def g():\n        return 1\n    return g\n")
    assert chunks(parsed, "f")[0].text.endswith("return g")
    assert chunks(parsed, "f.g")[0].text == "f.g\n    def g():\n        return 1"


def test_long_function_is_cut_where_statements_start() -> None:
    """Parts fit, begin at statements of the body, carry name and signature, and cover every line once."""
    body = "".join(f"    if a{n}:\n        b({n})\n    # about c{n}\n    c({n})\n" for n in range(60))
    parsed = parse(f"def f(a,\n      b):\n{body}")
    parts = chunks(parsed, "f")
    assert len(parts) > 3
    assert [p.n for p in parts] == list(range(len(parts)))
    assert parts[0].start_line == 1
    assert parts[-1].end_line == 242
    for before, after in pairwise(parts):
        assert after.start_line == before.end_line + 1
        assert after.text.startswith("f\ndef f(a, b)\n")
        first = after.text.split("\n")[2]
        assert first.startswith(("    if ", "    # about"))
    assert all(p.end_line - p.start_line < LINES for p in parts)


def test_statement_longer_than_a_chunk_is_cut_inside() -> None:
    """A try around a whole body is no reason to cut anywhere."""
    body = "".join(f"        a({n})\n        b({n})\n" for n in range(100))
    parts = chunks(parse(f"def f():\n    try:\n{body}    finally:\n        c()\n"), "f")
    assert len(parts) > 2
    assert all(p.end_line - p.start_line < LINES for p in parts)


def test_long_text_without_statements_is_cut_at_blank_lines() -> None:
    """A long string is cut at its blank lines, and anywhere when it has none."""
    lines = [f"line {n}" if n % 10 else "" for n in range(200)]
    parts = chunks(parse('X = """\n' + "\n".join(lines) + '\n"""\n'), "X")
    assert len(parts) > 2
    assert all(p.end_line - p.start_line < LINES for p in parts)
    parts = chunks(parse('X = """\n' + "word\n" * 200 + '"""\n'), "X")
    assert [p.end_line - p.start_line + 1 for p in parts] == [60, 60, 60, 22]


def test_wide_lines_are_cut_by_characters() -> None:
    """Few but wide lines make several chunks; one line is never cut."""
    wide = "    a = '" + "x" * 1000 + "'\n"
    parts = chunks(parse("def f():\n" + wide * 6), "f")
    assert len(parts) == 3
    assert all(len(p.text) <= CHARACTERS + 20 for p in parts)
    parts = chunks(parse("def f():\n    a = '" + "x" * 4000 + "'\n    b = 1\n"), "f")
    assert max(len(p.text) for p in parts) > 4000


def test_module_chunks_join_small_runs() -> None:
    """Lines outside of definitions are joined over them while they fit."""
    source = "import a\n\ndef f(): pass\n\nb = 1\n\ndef g(): pass\n\nc = 2\n"
    (chunk,) = chunks(parse(source), "<module>")
    assert (chunk.start_line, chunk.end_line) == (1, 9)
    assert chunk.text == "<module>\nimport a\nb = 1\nc = 2"
    long = (
        "".join(f"x{n} = {n}\n" for n in range(100))
        + "\ndef f(): pass\n"
        + "".join(f"y{n} = {n}\n" for n in range(100))
    )
    parts = chunks(parse(long), "<module>")
    assert len(parts) == 4
    assert all(p.text.startswith("<module>\n") for p in parts)


@pytest.mark.parametrize("name", ["argparse.py", "typing.py", "_pydecimal.py", "inspect.py"])
def test_every_line_is_in_a_chunk(name: str) -> None:
    """In released code no line that is not blank is lost, and none is twice in one symbol."""
    content = (STDLIB / name).read_bytes()
    parsed = symbols.parse(content, "python")
    lines = parsed.text.split("\n")
    texts = {line for chunk in parsed.chunks for line in chunk.text.split("\n")}
    assert [line for line in lines if line.strip() and line not in texts] == []
    for symbol in parsed.symbols:
        spans = [(c.start_line, c.end_line) for c in parsed.chunks if c.symbol_ordinal == symbol.ordinal]
        assert all(after[0] > before[1] for before, after in pairwise(spans))
    assert max(len(chunk.text) for chunk in parsed.chunks) < CHARACTERS + 400


def test_markdown_sections() -> None:
    """A heading's section ends before the next heading, of whatever level; names are joined by dots."""
    source = "intro\n\n# A\n\na\n\n## B\n\n```\n# not\n```\n\nC\n---\n\nc\n\n# A\n"
    parsed = parse(source, "markdown")
    rows = [(s.qualname, s.name, s.start_line, s.end_line) for s in parsed.symbols]
    assert rows == [
        ("<preamble>", "<preamble>", 1, 1),
        ("A", "A", 3, 5),
        ("A.B", "B", 7, 11),
        ("A.C", "C", 13, 16),
        ("A#2", "A", 18, 18),
    ]
    assert all(s.kind == "section" for s in parsed.symbols)


def test_markdown_front_matter_and_rules() -> None:
    """Front matter, rules under lists, quotes and comments are no headings."""
    source = "---\ntitle: x\n---\n- a\n---\n> b\n---\n<!--\n# c\n-->\n\n# D\n"
    assert [s.qualname for s in parse(source, "markdown").symbols] == ["<preamble>", "D"]


def test_long_markdown_section_is_cut_between_paragraphs() -> None:
    """A section too long for a chunk is cut at blank lines outside of code."""
    source = (
        "# A\n\n" + "\n\n".join("word " * 60 for _ in range(30)) + "\n\n```\n" + "\ncode\n" * 10 + "```\n"
    )
    parts = chunks(parse(source, "markdown"), "A")
    assert len(parts) > 3
    assert all(p.text.startswith("A\n") for p in parts)
    assert sum("```" in p.text for p in parts) == 1


def test_text_windows() -> None:
    """Other text is cut into windows of about forty lines that cover it all."""
    parsed = parse("".join(f"line {n}\n" for n in range(100)), "text")
    assert [s.qualname for s in parsed.symbols] == ["L1-40", "L41-80", "L81-100"]
    assert parsed.chunks[0].text.startswith("L1-40\nline 0\n")
    assert {s.kind for s in parsed.symbols} == {"section"}
    blank = "".join("\n" if n == 34 else f"line {n}\n" for n in range(60))
    assert [s.qualname for s in parse(blank, "text").symbols] == ["L1-35", "L36-60"]


def test_sql_functions_hold_their_bodies() -> None:
    """Semicolons in dollar quotes, strings, comments and atomic bodies end no statement."""
    source = (
        "create function a() returns int language plpgsql as $x$\nbegin\n  return 1; -- it's\nend\n$x$;\n"
        "/* ; */ insert into t values ('a;b');\n"
        "create function b() returns int\nbegin atomic\n  select case when a then 1 end;\n  select 2;\nend;\n"
        "create trigger c after insert on t execute function a();"
    )
    rows = [(s.qualname, s.start_line, s.end_line) for s in parse(source, "sql").symbols]
    assert rows == [("a", 1, 5), ("<module>", 6, 6), ("b", 7, 11), ("c", 12, 12)]
