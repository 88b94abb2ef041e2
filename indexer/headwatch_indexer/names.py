"""What a definition is called, from the text of its name in each language."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from tree_sitter import Node

_NAMES_IN_C: Final = frozenset(
    {
        "identifier",
        "field_identifier",
        "type_identifier",
        "qualified_identifier",
        "destructor_name",
        "operator_name",
        "operator_cast",
        "template_function",
        "primitive_type",
    }
)
_WORD = re.compile(r"[^\W\d][\w']*(?:\.[^\W\d][\w']*)*")
_MEMBER = re.compile(r"[\w$#]+(?:\.[\w$#]+)*")
_WHITE = re.compile(r"\s+")


def declared(declarator: Node) -> Node | None:
    """Find the name inside a C declarator, however many pointers and parentheses are around it."""
    node: Node | None = declarator
    for _ in range(16):
        if node is None or node.type in _NAMES_IN_C:
            return node
        inner = node.child_by_field_name("declarator")
        if inner is None:
            children = node.named_children
            inner = next(
                (c for c in children if c.type.endswith("declarator") or c.type in _NAMES_IN_C), None
            )
        node = inner
    return None


def path_of(language: str, kind: str, raw: str, receiver: str) -> tuple[str, str]:
    """Name a definition: (kind as in Symbol, or "scope"; its dotted name, "" when it has none)."""
    kind, path = _READERS.get(language, _plain)(kind, raw, receiver)
    return kind, " ".join(path.split()) if "\n" in path else path


def last_part(path: str) -> str:
    """The name alone: what follows the last dot, an operator kept whole."""
    if path.endswith(".") or not any(map(str.isalnum, path)):
        return path
    head, dot, tail = path.rpartition(".")
    if dot and "[" in head.rpartition(".")[2] and tail.endswith("]"):  # [Symbol.iterator]
        return path[path.rindex("[") :]
    return tail


def numbered(qualname: str, seen: dict[str, int]) -> str:
    """Make a qualified name unique in its file: the second of its kind ends in #2. Updates `seen`."""
    count = seen.get(qualname, 0) + 1
    name = qualname
    while count > 1 and (name := f"{qualname}#{count}") in seen:
        count += 1
    seen[qualname] = count
    if count > 1:
        seen[name] = 1
    return name


def _plain(kind: str, raw: str, receiver: str) -> tuple[str, str]:
    return kind, _WHITE.sub(" ", raw.strip().strip("`\"'"))


def _javascript(kind: str, raw: str, receiver: str) -> tuple[str, str]:
    path = _WHITE.sub("", raw).strip("\"'`")
    if receiver:
        path = f"{_WHITE.sub('', receiver)}.{path}"
    if kind == "assigned" or ("." in path and not path.startswith("[")):
        if not _MEMBER.fullmatch(path):
            return kind, ""
        path = path.removeprefix("this.").removesuffix(".prototype")
        bare = path.replace(".prototype.", ".")
        if kind == "assigned":
            kind = "method"
            if bare == path and path.startswith(("exports.", "module.exports")):
                kind = "function"
        path = bare
    return kind, path


def _typed(kind: str, raw: str, receiver: str) -> tuple[str, str]:
    """Go and Rust: a receiver or an impl's type names what is around, without pointers and type arguments."""
    if receiver:
        return kind, f"{_type_name(receiver)}.{raw}"
    return kind, _type_name(raw) if kind == "scope" else raw


def _type_name(text: str) -> str:
    text = _without_brackets(text, "<", ">") if "<" in text else text[:1] + text[1:].split("[")[0]
    text = re.sub(r"&\s*(?:'\w+\s+)?|\*\s*|\b(?:mut|const|dyn|impl)\b", "", text).strip()
    if re.fullmatch(r"[\w:.]+", text):
        return re.split(r"::|\.", text)[-1]
    return _WHITE.sub("", text.split("+")[0]) or text


def _without_brackets(text: str, opening: str, closing: str) -> str:
    out, depth = [], 0
    for char in text:
        if char == opening:
            depth += 1
        elif char == closing and depth:
            depth -= 1
        elif not depth:
            out.append(char)
    return "".join(out)


def _cpp(kind: str, raw: str, receiver: str) -> tuple[str, str]:
    scope, operator, rest = raw.partition("operator")
    if operator and re.match(r"[^\w]", rest) and (not scope or scope.endswith(":")):
        rest = rest if rest.lstrip().startswith("()") else rest.split("(")[0]
        symbol = rest.strip()
        last = (
            f"operator {_WHITE.sub(' ', symbol)}"
            if symbol[:1].isalpha()
            else f"operator{_WHITE.sub('', symbol)}"
        )
    elif operator and not rest:
        last = operator
    else:
        scope, last = raw, ""
    scope = _WHITE.sub("", _without_brackets(scope, "<", ">") if "<" in scope else scope)
    parts = [part for part in scope.split("::") if part]
    if last:
        parts.append(last)
    if kind == "function" and len(parts) > 1:
        kind = "method"
    return kind, ".".join(parts)


def _csharp(kind: str, raw: str, receiver: str) -> tuple[str, str]:
    if kind == "operator":
        return "method", f"operator {raw}"
    return kind, f"{receiver}{_WHITE.sub('', raw)}"


def _ruby(kind: str, raw: str, receiver: str) -> tuple[str, str]:
    return kind, _WHITE.sub("", raw).replace("::", ".").lstrip(".")


def _php(kind: str, raw: str, receiver: str) -> tuple[str, str]:
    return kind, raw.strip("\\").replace("\\", ".")


def _kotlin(kind: str, raw: str, receiver: str) -> tuple[str, str]:
    name = raw.strip("`")
    return kind, f"{_type_name(receiver).rstrip('?')}.{name}" if receiver else name


def _swift(kind: str, raw: str, receiver: str) -> tuple[str, str]:
    name = _without_brackets(raw, "<", ">") if kind == "scope" else raw.strip("`")
    return "method" if kind == "computed" else kind, _WHITE.sub("", name)


def _lua(kind: str, raw: str, receiver: str) -> tuple[str, str]:
    return kind, _WHITE.sub("", raw).replace(":", ".").strip("\"'[]")


def _elixir(kind: str, raw: str, receiver: str) -> tuple[str, str]:
    return kind, f"{receiver}.{raw}" if receiver else raw


def _haskell(kind: str, raw: str, receiver: str) -> tuple[str, str]:
    if receiver:
        match = _WORD.search(raw)
        return kind, f"{receiver}.{match[0] if match else _WHITE.sub('', raw)}"
    bare = raw.strip()
    if (bare[:1], bare[-1:]) in (("(", ")"), ("`", "`")):
        bare = bare[1:-1].strip()
    return kind, bare


_READERS: Final[dict[str, Callable[[str, str, str], tuple[str, str]]]] = {
    "javascript": _javascript,
    "typescript": _javascript,
    "tsx": _javascript,
    "go": _typed,
    "rust": _typed,
    "c": _cpp,
    "cpp": _cpp,
    "csharp": _csharp,
    "ruby": _ruby,
    "php": _php,
    "kotlin": _kotlin,
    "swift": _swift,
    "lua": _lua,
    "elixir": _elixir,
    "haskell": _haskell,
}
