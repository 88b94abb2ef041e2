"""Prints README's tree from the modules' own docstrings: `python tests/support/tree.py`."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("daemon/headwatch", "indexer/headwatch_indexer", "sql/headwatch_sql")


def tree() -> str:
    """The three packages with one line a module: the first line of its docstring."""
    lines: list[str] = []
    for package in PACKAGES:
        lines.append(f"{package}/")
        for path in sorted((ROOT / package).rglob("*.py")):
            said = ast.get_docstring(ast.parse(path.read_text()))
            if said is None:
                continue
            name = path.relative_to(ROOT / package).as_posix()
            lines.append(f"  {name:<24} {said.splitlines()[0]}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(tree())
