"""What released code showed of grammars: where they read it wrongly, and what is read instead."""

from __future__ import annotations

from headwatch_indexer import symbols
from headwatch_indexer.records import Parsed


def rows(parsed: Parsed) -> list[tuple[str, str, int, int]]:
    return [
        (s.qualname, s.kind, s.start_line, s.end_line)
        for s in parsed.symbols
        if s.qualname != symbols.sql.MODULE
    ]


def read(language: str, *lines: str) -> Parsed:
    return symbols.parse("\n".join([*lines, ""]).encode(), language)


def test_header_of_cplusplus_named_like_one_of_c() -> None:
    """A .h file with namespaces, templates or classes is read as C++."""
    parsed = read(
        "c", "#pragma once", "namespace a {", "class B {", " public:", "  int f() { return 1; }", "};", "}"
    )
    assert (parsed.language, parsed.status) == ("c", "ok")
    assert rows(parsed) == [("a", "module", 2, 7), ("a.B", "class", 3, 6), ("a.B.f", "method", 5, 5)]


def test_names_that_only_cplusplus_keeps_for_itself_are_plain_in_c() -> None:
    """C that calls its variables class, template or new stays C."""
    parsed = read(
        "c", "int class = 1;", "int f(int namespace, int new) {", "  class = new;", "  return namespace;", "}"
    )
    assert parsed.status == "ok"
    assert rows(parsed) == [("f", "function", 2, 5)]


def test_conditional_between_the_halves_of_a_definition() -> None:
    """Where #if cuts a definition in two, its first branch is read, and the lines stay those of the file."""
    parsed = read(
        "cpp",
        "A::A(int a)",
        "#if X",
        "  : b(a) {}",
        "#else",
        "  : b() {}",
        "#endif",
        "",
        "int f() { return 1; }",
    )
    assert parsed.status == "ok"
    assert rows(parsed) == [("A.A", "method", 1, 3), ("f", "function", 8, 8)]


def test_both_branches_of_a_sound_conditional() -> None:
    """Where both branches of #if are whole definitions, both are kept."""
    parsed = read(
        "c", "#ifdef X", "int f(void) { return 1; }", "#else", "int f(void) { return 2; }", "#endif"
    )
    assert parsed.status == "ok"
    assert rows(parsed) == [("f", "function", 2, 2), ("f#2", "function", 4, 4)]


def test_errors_that_no_conditional_explains_stay() -> None:
    """Broken code with conditionals is still told to be partial."""
    assert read("c", "#ifdef X", "int f(void { return 1; }", "#endif").status == "partial"


def test_component_inside_a_call() -> None:
    """A component that a call wraps is a function; other calls with a function inside are not."""
    parsed = read(
        "tsx",
        "const Row = React.memo((props: P) => <A {...props} />);",
        "export const Cell = memo(forwardRef<A, P>(function (props, ref) {",
        "  return <A ref={ref} />;",
        "}));",
        "const ids = rows.map((row) => row.id);",
        "const LIMITS = rows.map((row) => row.limit);",
    )
    assert rows(parsed) == [
        ("Row", "function", 1, 1),
        ("Cell", "function", 2, 4),
        ("LIMITS", "constant", 6, 6),
    ]


def test_kotlin_annotation_with_arguments() -> None:
    """Annotations with arguments belong to the function below, though the grammar takes them for expressions."""
    parsed = read(
        "kotlin", '@Suppress("X")', "fun f() {}", "", "@Composable", '@Preview("y")', "fun g() {", "}"
    )
    assert rows(parsed) == [("f", "function", 1, 2), ("g", "function", 4, 7)]


def test_scala_doc_of_the_next_definition() -> None:
    """A definition without braces keeps the comments that are indented in it, not the doc of the next one."""
    parsed = read(
        "scala",
        "object A {",
        "  def f =",
        "    1",
        "    // of f",
        "",
        "  /** Of g.",
        "   */",
        "  def g = 2",
        "}",
    )
    assert rows(parsed)[1:] == [("A.f", "method", 2, 4), ("A.g", "method", 8, 8)]
