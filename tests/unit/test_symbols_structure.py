"""What the structural hash and the body hash of a symbol are deaf to, and what they hear."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headwatch_indexer import structure, symbols
from headwatch_indexer.grammars import grammar_of
from headwatch_indexer.lines import Lines
from headwatch_indexer.records import Symbol
from headwatch_indexer.trees import parse_tree


def symbol(source: str, language: str, name: str = "f") -> Symbol:
    (found,) = [s for s in symbols.parse(source.encode(), language).symbols if s.name == name]
    return found


SAME = [
    ("python", "def f(a, b):\n    return a\n", "def f(\n    a,\n    b,\n):\n    # why\n\n    return a  # so\n"),
    ("python", "def f(a):\n    return a\n", 'def f(a):\n    """Say."""\n    return  a\n'),
    ("python", 'def f(a):\n    """Say."""\n    return a\n',
     "def f(a):\n    # c\n    '''Say\n    more.'''\n    return a\n"),
    ("python", "def f():\n    x = a\n    y = b\n", "def f():\n    x = a  # c\n    # d\n    y = b\n"),
    ("python", "class f:\n  def g(self): pass\n",
     'class f:\n  "Doc."\n\n  # c\n  def g(self):\n    "Doc."\n    pass\n'),
    ("python", "@a\ndef f(): pass\n", "@a\n# c\ndef f():\n    pass\n"),
    ("python", "def f():\n  return [\n   1,\n   2,\n  ]\n", "def f():\n  return [1, 2]\n"),
    ("go", "package a\nfunc f(a Foo) int { return 1 }\n",
     "package a\n// Doc.\nfunc f(a /* c */ Foo) int {\n\t// c\n\treturn 1\n}\n"),
    ("javascript", "function f(a) { return a }", "/** Doc. */\nfunction f( a ) {\n  // c\n  return a\n}"),
    ("rust", "#[a]\nfn f(a: u8) -> u8 { a }",
     "/// Doc.\n#[a] // c\nfn f(\n  a: u8,\n) -> u8 {\n  //! inner\n  a /* c */\n}"),
    ("java", "class f { int g() { return 1; } }",
     "/** Doc. */\nclass f {\n  // c\n  int g() {\n    return 1;\n  }\n}"),
    ("c", "int f(int a) { return a; }", "int f(int a)\n{\n    /* c */ return a;\n}"),
    ("cpp", "int f(Foo a) { return a; }", "// Doc\nint\nf(Foo  a)\n{\n  return a; // c\n}"),
    ("ruby", "def f(a)\n a\nend", "# Doc\ndef f(a)\n  # c\n  a # d\nend"),
    ("haskell", "f :: Int -> Int\nf a = a\n", "-- | Doc\nf :: Int -> Int\n-- c\nf a  =  a\n"),
    ("elixir", "defmodule A do\n def f(a), do: a\nend", 'defmodule A do\n @doc "Doc"\n def f(a), do: a # c\nend'),
    ("lua", "function f(a) return a end", "-- Doc\nfunction f(a)\n  -- c\n  return a\nend"),
    ("bash", "f() { echo a b; }", "# Doc\nf() {\n  # c\n  echo a  b;\n}"),
    ("sql", "create table f (a int, b text);", "-- Doc\ncreate table f (\n  a int, -- c\n  b text /* d */\n);"),
    ("sql", "create function f() returns int language sql as $$ select 1; $$;",
     "create function f() returns int\nlanguage sql as $$\n  -- c\n  select 1;\n$$;"),
    ("php", "<?php function f($a) { return $a; }", "<?php\n/** Doc */\nfunction f($a)\n{\n  # c\n  return $a;\n}"),
    ("swift", "func f(a: Int) -> Int { return a }", "/// Doc\nfunc f(a: Int) -> Int {\n  // c\n  return a\n}"),
    ("kotlin", "fun f(a: Int): Int { return a }", "/** Doc */\nfun f(a: Int): Int {\n  // c\n  return a\n}"),
    ("scala", "object A { def f(a: Int): Int = { a } }",
     "object A {\n /** Doc */\n def f(a: Int): Int = {\n  // c\n  a\n }\n}"),
    ("zig", "fn f(a: u8) u8 { return a; }", "/// Doc\nfn f(a: u8) u8 {\n    // c\n    return a;\n}"),
    ("csharp", "class A { int f(int a) { return a; } }",
     "class A {\n /// Doc\n int f(int a)\n {\n  // c\n  return a;\n }\n}"),
]  # fmt: skip

DIFFERENT = [
    ("python", "def f():\n  if a:\n    b()\n    c()\n", "def f():\n  if a:\n    b()\n  c()\n"),
    ("python", 'def f():\n  return "a  b"\n', 'def f():\n  return "a b"\n'),
    ("python", 'def f():\n  x = "a"\n', 'def f():\n  x = "b"\n'),
    ("python", "def f(): return a + b\n", "def f(): return a - b\n"),
    ("python", "def f(): return (a,)\n", "def f(): return (a)\n"),
    ("python", "def f(a): pass\n", "def f(b): pass\n"),
    ("python", "@a\ndef f(): pass\n", "@b\ndef f(): pass\n"),
    ("python", "def f(): pass\n", "async def f(): pass\n"),
    ("python", "def f(): pass\n", "@a\ndef f(): pass\n"),
    ("python", 'def f():\n  x = 1\n  "a"\n', 'def f():\n  x = 1\n  "b"\n'),
    ("python", "class f:\n  def g(self): return 1\n", "class f:\n  def g(self): return 2\n"),
    ("python", "class f:\n  def g(self): return 1\n", "class f:\n  def h(self): return 1\n"),
    ("c", "void f() { Foo ab; }", "void f() { Fooa b; }"),
    ("javascript", "function f() { return `a  b` }", "function f() { return `a b` }"),
    ("javascript", "function f() { return /a b/ }", "function f() { return /ab/ }"),
    ("javascript", "function f() { if (a) b(); c() }", "function f() { if (a) { b(); c() } }"),
    ("rust", 'fn f() { p!("a b") }', 'fn f() { p!("ab") }'),
    ("bash", "f() { echo a b; }", "f() { echo ab; }"),
    ("bash", 'f() { echo "a  b"; }', 'f() { echo "a b"; }'),
    ("sql", "create view f as select 'a  b';", "create view f as select 'a b';"),
    ("sql", "create table f (a int);", "create table f (a bigint);"),
    ("haskell", "f 0 = 1\nf n = n\n", "f 0 = 1\nf n = 2\n"),
]  # fmt: skip


@pytest.mark.parametrize(("language", "one", "other"), SAME)
def test_deaf_to_comments_docstrings_and_layout(language: str, one: str, other: str) -> None:
    """Comments, docstrings, line breaks and a last comma that a formatter adds change no hash."""
    a, b = symbol(one, language), symbol(other, language)
    assert (a.structural_hash, a.body_hash) == (b.structural_hash, b.body_hash)


@pytest.mark.parametrize(("language", "one", "other"), DIFFERENT)
def test_hears_every_change_of_code(language: str, one: str, other: str) -> None:
    """Nesting, operators, names, decorators and what strings say change both hashes."""
    a, b = symbol(one, language), symbol(other, language)
    assert a.structural_hash != b.structural_hash
    assert a.body_hash != b.body_hash


RENAMES = [
    ("python", "@a\ndef f(b):\n    return b\n", "@a\ndef g(b):\n    return b\n"),
    ("python", "class f:\n    x = 1\n", "class g:\n    x = 1\n"),
    ("python", "class A:\n  def f(self): return 1\n", "class A:\n  def g(self): return 1\n"),
    ("go", "package a\nfunc (s *S) f() int { return 1 }\n", "package a\nfunc (s *S) g() int { return 1 }\n"),
    ("javascript", "a.f = function (x) { return x }", "a.g = function (x) { return x }"),
    ("javascript", "const f = (x) => x", "const g = (x) => x"),
    ("rust", "impl A { fn f(&self) -> u8 { 1 } }", "impl A { fn g(&self) -> u8 { 1 } }"),
    ("cpp", "int A::f() { return 1; }", "int A::g() { return 1; }"),
    ("haskell", "f :: Int\nf 0 = 1\nf n = n\n", "g :: Int\ng 0 = 1\ng n = n\n"),
    ("sql", "create view f as select 1;", "create view g as select 1;"),
]


@pytest.mark.parametrize(("language", "one", "other"), RENAMES)
def test_rename_keeps_the_body_hash(language: str, one: str, other: str) -> None:
    """A pure rename changes the structural hash and keeps the body hash."""
    a, b = symbol(one, language, "f"), symbol(other, language, "g")
    assert a.structural_hash != b.structural_hash
    assert a.body_hash == b.body_hash


def test_same_definition_elsewhere() -> None:
    """Hashes depend on the definition alone, not on its file, its indentation or its parent."""
    plain = symbol("def f(a):\n    return a\n", "python")
    nested = symbol(
        "import x\n\nclass A:\n    if x:\n        def f(a):\n            return a\n    y = 1\n", "python"
    )
    assert (plain.structural_hash, plain.body_hash) == (nested.structural_hash, nested.body_hash)


def test_module_hash_is_about_what_is_outside() -> None:
    """The module's hash changes with the code outside of definitions, and with nothing inside of them."""
    base = "import a\n\ndef f():\n    return 1\n\nif a:\n    b()\n    c()\n"

    def module(source: str) -> str:
        return symbol(source, "python", "<module>").structural_hash

    assert module(base) == module(base.replace("return 1", "return 2").replace("import a", "import a  # c"))
    assert module(base) == module('"""Doc."""\n' + base)
    assert module(base) != module(base.replace("import a", "import z"))
    assert module(base) != module(base.replace("    c()", "c()"))


def test_marks_in_the_source_do_not_confuse() -> None:
    """Control characters in a source are only text."""
    a = symbol("def f():\n    x = '\x02\x01'\n    \x02 = 1\n", "python")
    b = symbol("def f():\n    x = '\x02\x01'\n    \x02 = 1\n\n\n", "python")
    assert a.structural_hash == b.structural_hash


@pytest.mark.parametrize("limit", [1, 7, 60, 500])
def test_large_trees_are_written_the_same_way(limit: int) -> None:
    """Walking a large tree gives the very S-expression that the parser gives for a small one."""
    source = (Path(os.__file__).parent / "textwrap.py").read_bytes()
    tree = parse_tree(source, grammar_of("python"))
    assert tree is not None
    for node in (tree.root_node, *tree.root_node.children):
        assert structure.expression(node, limit) == str(node)


def test_string_with_a_function_inside() -> None:
    """A definition inside a template string has hashes of its own, and the string still counts."""
    source = "const f = `a  ${items.map((x) => { const g = (y) => y; return g(x) })}  b`\nfunction h() {}\n"
    one, other = symbol(source, "javascript", "g"), symbol(source.replace("=> y", "=> z"), "javascript", "g")
    assert one.structural_hash != other.structural_hash


def test_lines_count_code_points_and_bytes() -> None:
    """Offsets of lines are right in both units when characters take several bytes."""
    lines = Lines.of("aé\n𝄞b\nc")
    assert (list(lines.starts), list(lines.byte_starts)) == ([0, 3, 6], [0, 4, 10])
    assert [lines.line_at(byte) for byte in (0, 3, 4, 9, 10)] == [1, 1, 2, 2, 3]
