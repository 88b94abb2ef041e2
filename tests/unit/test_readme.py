"""README is true: its tree is the modules' own words, its commands exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from support.tree import ROOT, tree

README = (ROOT / "README.md").read_text()


def test_tree_is_the_modules_own_words() -> None:
    """README's tree is what `python tests/support/tree.py` prints."""
    assert tree() in README


def test_named_make_targets_exist() -> None:
    """Every `make X` of README is a target."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert set(re.findall(r"make ([a-z]+)\b", README)) <= targets


def test_named_commands_exist() -> None:
    """Every command of README's table is in `headwatch --help`."""
    program = Path(sys.executable).parent / "headwatch"
    said = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout
    named = set(re.findall(r"`headwatch (\w+)", README)) | {
        "remove",
        "list",
        "wait",
        "show",
        "skipped",
        "doctor",
    }
    assert not {name for name in named if not re.search(rf"^\s+{name}\b", said, re.M)}
