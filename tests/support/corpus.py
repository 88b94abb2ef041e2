"""A repository of real code: definitions of Python's own library, spread over source, test and document files."""

from __future__ import annotations

import textwrap

from support.stdlib_code import functions
from support.worktree import Worktree

FOLDERS = ("src/core", "src/net", "lib/io/deep", "tests/unit", "docs", "examples")
SCRIPT = "export function parseQuery(text) {\n  return text.split('&').map((pair) => pair.split('='));\n}\n"
GUIDE = "# Getting started\n\nOpen a file and parse it.\n\n## Closing\n\nClose the file handle again.\n"


def write_corpus(tree: Worktree, count: int, *, seed: int = 1) -> None:
    """Write `count` definitions, ten a file, with a script and a guide beside them."""
    blocks = [textwrap.dedent(text.split("\n", 1)[1]) for text in functions(count, seed=seed)]
    for at in range(0, len(blocks), 10):
        folder = FOLDERS[at // 10 % len(FOLDERS)]
        name = f"test_part{at}.py" if folder.startswith("tests") else f"part{at}.py"
        tree.write(f"{folder}/{name}", "import os\n\n\n" + "\n\n\n".join(blocks[at : at + 10]) + "\n")
    tree.write("web/query.js", SCRIPT)
    tree.write("docs/guide.md", GUIDE)
