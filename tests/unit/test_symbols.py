"""What a blob's symbols are, in every language and encoding."""

from __future__ import annotations

import ast
import os
import sysconfig
from pathlib import Path

import pytest

from headwatch_indexer import symbols
from headwatch_indexer.grammars import LANGUAGES
from headwatch_indexer.records import Parsed, Symbol

FIXTURES = Path(__file__).parent.parent / "fixtures" / "languages"
STDLIB = Path(os.__file__).parent
SITE = Path(sysconfig.get_paths()["purelib"])


def rows(parsed: Parsed) -> list[tuple[str, str, int, int]]:
    return [(s.qualname, s.kind, s.start_line, s.end_line) for s in parsed.symbols]


def named(source: str, language: str) -> dict[str, Symbol]:
    return {s.qualname: s for s in symbols.parse(source.encode(), language).symbols}


def names(source: str, language: str) -> list[str]:
    return [s.qualname for s in symbols.parse(source.encode(), language).symbols if s.qualname != "<module>"]


def fixtures() -> list[str]:
    return sorted(path.stem for path in (FIXTURES / "expected").glob("*.tsv"))


def test_every_language_has_a_fixture() -> None:
    """No grammar goes untested."""
    assert set(fixtures()) == LANGUAGES | {"markdown", "sql"}


@pytest.mark.parametrize("language", fixtures())
def test_fixture(language: str) -> None:
    """Names, kinds and lines of a file in each language are exactly those written down."""
    (path,) = FIXTURES.glob(f"{language}.*")
    expected = []
    for line in (FIXTURES / "expected" / f"{language}.tsv").read_text().splitlines():
        qualname, kind, first, last = line.split("\t")
        expected.append((qualname, kind, int(first), int(last)))
    parsed = symbols.parse(path.read_bytes(), language)
    assert parsed.status == "ok"
    assert rows(parsed) == expected
    assert len(expected) > 15


def definitions(tree: ast.Module) -> list[tuple[str, int, int]]:
    """(dotted path, first line, last line) of every def and class, as ast has them."""
    found: list[tuple[str, int, int]] = []
    stack: list[tuple[ast.AST, str]] = [(tree, "")]
    while stack:
        node, around = stack.pop()
        for child in ast.iter_child_nodes(node):
            path = around
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                path = f"{around}.{child.name}" if around else child.name
                first = min([child.lineno, *(d.lineno for d in child.decorator_list)])
                assert child.end_lineno is not None
                found.append((path, first, child.end_lineno))
            stack.append((child, path))
    return sorted(found)


def python_files() -> list[Path]:
    return [
        *(
            STDLIB / name
            for name in ("argparse.py", "typing.py", "dataclasses.py", "ast.py", "asyncio/tasks.py")
        ),
        *(
            STDLIB / name
            for name in ("_pydecimal.py", "unittest/mock.py", "inspect.py", "logging/__init__.py")
        ),
        SITE / "hypothesis" / "core.py",
        SITE / "starlette" / "routing.py",
        SITE / "psycopg" / "_connection_base.py",
    ]


@pytest.mark.parametrize("path", python_files(), ids=lambda path: path.name)
def test_python_agrees_with_ast(path: Path) -> None:
    """What ast finds in released code is a symbol with the same lines (trailing comments aside)."""
    content = path.read_bytes()
    parsed = symbols.parse(content, "python")
    assert parsed.status == "ok"
    found = sorted(
        (s.qualname.split("#")[0], s.start_line, s.end_line)
        for s in parsed.symbols
        if s.kind in ("function", "method", "class")
    )
    expected = definitions(ast.parse(content))
    assert [f[:2] for f in found] == [e[:2] for e in expected]
    lines = content.decode().split("\n")
    for (_, _, last), (_, _, ast_last) in zip(found, expected, strict=True):
        assert all(line.lstrip().startswith("#") or not line.strip() for line in lines[ast_last:last])


@pytest.mark.parametrize("path", sorted((STDLIB / "json").glob("*.py")), ids=lambda path: path.name)
def test_python_docstrings(path: Path) -> None:
    """The doc of a Python symbol is its docstring."""
    tree = ast.parse(path.read_bytes())
    docs = {
        s.start_line: s.doc for s in symbols.parse(path.read_bytes(), "python").symbols if s.kind != "module"
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and (doc := ast.get_docstring(node)):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            assert docs[first].split()[:30] == doc.encode().decode("unicode_escape").split()[:30]


def test_c_headers_of_python() -> None:
    """Released C headers parse; their types, macros and inline functions are found."""
    include = Path(sysconfig.get_paths()["include"])
    if not (include / "object.h").exists():
        pytest.skip("no headers are installed here")
    found = named((include / "object.h").read_text(), "c")
    assert found["Py_XDECREF"].kind == "function"
    assert found["PyType_Slot"].kind == "class"
    assert found["_object"].kind == "class"
    assert found["Py_TPFLAGS_HEAPTYPE"].kind == "constant"
    assert found["unaryfunc"].kind == "type"


def test_cpp_headers_of_torch() -> None:
    """Released C++ headers parse; classes, templates and namespaces are found."""
    path = SITE / "torch" / "include" / "c10" / "util" / "ArrayRef.h"
    if not path.exists():
        pytest.skip("torch has no headers here")
    parsed = symbols.parse(path.read_bytes(), "cpp")
    found = {s.qualname: s.kind for s in parsed.symbols}
    assert found["c10"] == "module"
    assert {"c10.ArrayRef", "c10.ArrayRef.slice", "c10.ArrayRef.front", "c10.makeArrayRef"} <= found.keys()


STYLES = {
    "res.json = function json(b) {}": ["res.json"],
    "exports.x = () => 1": ["exports.x"],
    "module.exports.x = function () {}": ["module.exports.x"],
    "module.exports = function make() {}": ["make"],
    "module.exports = () => 1": ["module.exports"],
    "Foo.prototype.bar = function () {}": ["Foo.bar"],
    "Foo.prototype = { bar: function () {}, baz() {} }": ["Foo.bar", "Foo.baz"],
    "var app = { use(fn) {}, get: function () {}, on: () => 1 }": ["app.use", "app.get", "app.on"],
    "module.exports = { a() {}, b: { c() {} } }": ["module.exports.a", "module.exports.b.c"],
    "class A { f = () => 1; static async *g() {} get h() { return 1 } set h(v) {} }": [
        "A",
        "A.f",
        "A.g",
        "A.h",
        "A.h#2",
    ],
    "function View() { this.render = function () {} }": ["View", "View.render"],
    "a.b = a.c = function () {}": ["a.b", "a.c"],
    "defineGetter(req, 'protocol', function protocol() {})": ["req.protocol"],
    "Object.defineProperty(Foo.prototype, 'bar', { get: function () {} })": ["Foo.bar"],
    "export default function () {}": ["default"],
    "export default class {}": ["default"],
    "export const f = async (x) => x": ["f"],
    "const C = class extends B { m() {} }": ["C", "C.m"],
    "const lower = 1; const UPPER = 2; export const shown = 3": ["UPPER", "shown"],
    "it('works', function () { const x = () => 1 })": ["x"],
}


@pytest.mark.parametrize("source", STYLES)
def test_javascript_as_people_write_it(source: str) -> None:
    """Functions assigned to properties, kept in objects and bound to fields have their dotted names."""
    assert names(source, "javascript") == STYLES[source]
    assert names(source, "typescript") == STYLES[source]


NAMES = [
    ("python", "def f():\n def g():\n  def h(): pass\nclass A:\n class B:\n  def c(self): pass\n",
     "f f.g f.g.h A A.B A.B.c"),
    ("python", "class A:\n def f(self): pass\nclass A:\n def f(self): pass\n", "A A.f A#2 A.f#2"),
    ("python", "if x:\n def f(): pass\nelse:\n def f(): pass\nwith y:\n def f(): pass\n", "f f#2 f#3"),
    ("go", "package a\nfunc (s *Store[K, V]) Get() {}\nfunc (Store) Len() {}\n", "Store.Get Store.Len"),
    ("rust", "impl<'a, T> io::Read for &'a mut Foo<T> { fn read() {} }\nimpl dyn Bar { fn b() {} }", "Foo.read Bar.b"),
    ("rust", "impl<T> Tr for [T] { fn a() {} }\nimpl Tr for (A, B) { fn c() {} }", "[T].a (A,B).c"),
    ("cpp", "namespace a { namespace b { int C<int>::d(int) { return 1; } } }", "a a.b a.b.C.d"),
    ("cpp", "Foo::~Foo() {}\nbool Foo::operator()(int) { return 1; }\nFoo::operator bool() const { return 1; }",
     "Foo.~Foo Foo.operator() Foo.operator bool"),
    ("cpp", "int *a() { return 0; }\nint &b() { return x; }\nauto c() -> int { return 1; }", "a b c"),
    ("c", "static const char **names(void) { return 0; }\nvoid (*signal(int s))(int) { return 0; }", "names signal"),
    ("java", "class A { A() {} A(int a) {} class B { void c() {} } }", "A A.A A.A#2 A.B A.B.c"),
    ("ruby", "class A::B\n def c; end\n def self.d; end\n def e=(x); end\nend", "A.B A.B.c A.B.d A.B.e="),
    ("kotlin", "fun <T> List<T>.second(): T = this[1]\nclass A {\n companion object {\n  fun b() = 1\n }\n}",
     "List.second A A.b"),
    ("swift", "extension Array where Element: P { func a() {} }\nextension A.B { func c() {} }", "Array.a A.B.c"),
    ("lua", "function a.b.c() end\nfunction a:d() end\nlocal t = { e = function() end }", "a.b.c a.d t.e"),
    ("csharp", "namespace A.B { class C { int D => 1; int E { get; set; } ~C() {} } }", "A.B A.B.C A.B.C.D A.B.C.~C"),
    ("php", "<?php namespace A\\B { function c() {} }", "A.B A.B.c"),
    ("haskell", "f 0 = 1\nf n = n\n\ng x = x\n\n(<>) a b = a\n", "f g <>"),
    ("sql", 'create table "A b"."c" (x int);\ncreate or replace view v as select 1;', "A b.c v"),
    ("sql", 'create table "a.\n b." (x int);', "a. b."),
]  # fmt: skip


@pytest.mark.parametrize(("language", "source", "expected"), NAMES)
def test_qualified_names(language: str, source: str, expected: str) -> None:
    """A dot joins what encloses a definition; receivers, impl types and scopes count; repeated names are numbered."""
    assert " ".join(names(source, language)) == expected


def test_names_are_last_parts() -> None:
    """The name is what follows the last dot of the path; operators and computed keys are kept whole."""
    cases = [
        ("go", "package a\nfunc (s *S) Get() {}\n", "S.Get", "Get"),
        ("javascript", "a.b.c = function () {}", "a.b.c", "c"),
        ("javascript", "class A { [Symbol.iterator]() {} }", "A.[Symbol.iterator]", "[Symbol.iterator]"),
        ("haskell", "a <.> b = a\n", "<.>", "<.>"),
        ("haskell", "f . g = f\n", ".", "."),
        ("cpp", "bool A::operator==(A b) { return 1; }", "A.operator==", "operator=="),
        ("ruby", "class A::B; end", "A.B", "B"),
    ]
    for language, source, qualname, name in cases:
        assert named(source, language)[qualname].name == name


def test_lines_include_what_belongs_to_the_definition() -> None:
    """Decorators, attributes, annotations and export are part of a definition, comments between them too."""
    cases = [
        ("python", "x = 1\n\n@a\n# why\n@b(\n  1)\ndef f(): pass\n", "f", 3),
        ("rust", "#[a]\n// why\n#[b]\npub fn f() {}\n", "f", 1),
        ("java", "class A {\n @B\n @C(1)\n void f() {}\n}\n", "A.f", 2),
        ("typescript", "@A()\nexport class B {\n @C()\n d() {}\n}\n", "B", 1),
        ("typescript", "@A()\nexport class B {\n @C()\n d() {}\n}\n", "B.d", 3),
        ("csharp", "[A]\n[B]\nclass C {}\n", "C", 1),
        ("cpp", "template <class T>\nT f(T t) { return t; }\n", "f", 1),
        ("php", "<?php\n#[A]\nfunction f() {}\n", "f", 2),
        ("elixir", 'defmodule A do\n @doc "x"\n @spec f() :: 1\n def f, do: 1\nend\n', "A.f", 2),
    ]
    for language, source, qualname, first in cases:
        assert named(source, language)[qualname].start_line == first, (language, qualname)


def test_doc_comments() -> None:
    """The comment right above a definition is its doc, without marks; one a line further up is not."""
    cases = [
        ("go", "package a\n\n// F does.\n// More.\nfunc F() {}\n", "F does.\nMore."),
        ("rust", "/// F does.\n#[inline]\nfn F() {}\n", "F does."),
        ("java", "class A {\n /**\n  * F does.\n  */\n void F() {}\n}\n", "F does."),
        ("javascript", "/* F does. */\nfunction F() {}\n", "F does."),
        ("javascript", "x()\n/**\n * F does.\n */\n\nfunction F() {}\n", "F does."),
        ("javascript", "/**\n * The file.\n */\n\nfunction F() {}\n", ""),
        ("lua", "--- F does.\nfunction F() end\n", "F does."),
        ("haskell", "-- | F does.\nfff :: Int\nfff = 1\n", "F does."),
        ("sql", "-- F does.\ncreate table F (a int);\n", "F does."),
        ("ruby", "# other\n\ndef F; end\n", ""),
        ("python", 'def F():\n  r"""F does."""\n', "F does."),
        ("python", "# F does.\ndef F():\n  return 1\n", "F does."),
        ("elixir", 'defmodule A do\n @doc """\n F does.\n """\n def f, do: 1\nend\n', "F does."),
    ]
    for language, source, doc in cases:
        found = [
            s for s in symbols.parse(source.encode(), language).symbols if s.name.lower() in ("f", "fff")
        ]
        assert [s.doc for s in found] == [doc], (language, source)


def test_signatures() -> None:
    """A signature is the head on one line, without decorators, comments and the mark that opens the body."""
    cases = [
        ("python", "@a\nasync def f(\n    a: int,  # why\n    b=1,\n) -> int:\n    return 1\n",
         "async def f( a: int, b=1, ) -> int"),
        ("go", "package a\nfunc (s *S) f(a int) (int, error) {\n}\n", "func (s *S) f(a int) (int, error)"),
        ("rust", "#[inline]\npub fn f<T>(a: T) -> u8 where T: A {\n 1\n}\n", "pub fn f<T>(a: T) -> u8 where T: A"),
        ("javascript", "export const f = async (a) => {\n}\n", "export const f = async (a)"),
        ("java", "class A {\n @B(1)\n public int f(int a) {\n return 1; }\n}\n", "public int f(int a)"),
        ("ruby", "def f(a, b = 1)\n 1\nend\n", "def f(a, b = 1)"),
        ("bash", "f() {\n :\n}\n", "f()"),
    ]  # fmt: skip
    for language, source, signature in cases:
        (found,) = [s for s in symbols.parse(source.encode(), language).symbols if s.name == "f"]
        assert found.signature == signature
    long = "def f(" + ", ".join(f"argument{n}" for n in range(60)) + "): pass\n"
    assert len(named(long, "python")["f"].signature) == 200


def test_module_symbol() -> None:
    """Code outside of definitions is one symbol over its first to its last line; blank lines alone are none."""
    source = "\nimport a\n\ndef f():\n    pass\n\nprint(f)\n\n"
    module = named(source, "python")["<module>"]
    assert (module.kind, module.start_line, module.end_line) == ("module", 2, 7)
    assert "<module>" not in named("\ndef f():\n    pass\n\n", "python")
    assert symbols.parse(b"", "python") == Parsed("python", "ok", "")
    assert symbols.parse(b"\n \n", "text").symbols == ()


def test_order_and_ordinals() -> None:
    """Ordinals count from 0 in the order of first lines, the module's among them."""
    parsed = symbols.parse(b"def f(): pass\nimport a\nclass A:\n  def g(self): pass\n", "python")
    assert [(s.ordinal, s.qualname) for s in parsed.symbols] == [
        (0, "f"),
        (1, "<module>"),
        (2, "A"),
        (3, "A.g"),
    ]
