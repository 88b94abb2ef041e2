"""The main process stays small: what only the children need is never loaded into it."""

from __future__ import annotations

import subprocess
import sys

import pytest

_CHILDREN_ALONE = ("pygit2", "torch", "numpy", "transformers", "sentence_transformers", "tree_sitter")


@pytest.mark.parametrize("module", ["headwatch.app", "headwatch.engine", "headwatch.actions"])
def test_main_process_loads_neither_git_library_nor_model(module: str) -> None:
    """pygit2 holds the interpreter for whole calls and torch is large: both belong to the children."""
    code = f"import sys, {module}; print([m for m in {_CHILDREN_ALONE!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
