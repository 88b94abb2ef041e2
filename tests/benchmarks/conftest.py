"""Benchmarks print each figure with its goal and their ratio; inputs are released packages, built on the spot."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.worktree import Worktree

_PACKAGES = (
    "pip",
    "rich",
    "pydantic",
    "starlette",
    "psycopg",
    "apscheduler",
    "networkx",
    "sympy/core",
    "mypy",
    "torch/nn",
)
_FILES = 700


class Board:
    """The table of a run."""

    def __init__(self) -> None:
        self.rows: list[str] = []

    def put(
        self, what: str, figure: float, goal: float, unit: str, *, higher_is_better: bool = False
    ) -> None:
        """Print one figure; a ratio of 1 or more means that the goal is met."""
        ratio = figure / goal if higher_is_better else goal / max(figure, 1e-9)
        verdict = "met" if ratio >= 1 else "MISSED"
        self.rows.append(
            f"{what:<58} {figure:>10.4g} {unit:<10} goal {goal:>8.4g}  ratio {ratio:5.2f}  {verdict}"
        )
        print("\n" + self.rows[-1])

    def tell(self, what: str, figure: float, unit: str) -> None:
        """Print one figure that stands beside others."""
        self.rows.append(f"{what:<58} {figure:>10.4g} {unit}")
        print("\n" + self.rows[-1])


@pytest.fixture(scope="session")
def board() -> Iterator[Board]:
    board = Board()
    yield board
    print("\n\n" + "\n".join(board.rows), file=sys.stderr)


@pytest.fixture
def project(tmp_path: Path) -> Worktree:
    """A repository of a few hundred Python files of installed packages, in two commits."""
    return build_project(tmp_path / "project")


def build_project(root: Path, files: int = _FILES) -> Worktree:
    """Copy sources of installed packages into a repository; the second commit changes a third of them."""
    worktree = Worktree.init(root)
    library = Path(sysconfig.get_paths()["purelib"])
    sources = [
        path
        for package in _PACKAGES
        for path in sorted((library / package).rglob("*.py"))
        if path.stat().st_size < 300_000
    ][:files]
    for n, path in enumerate(sources):
        text = path.read_text(errors="replace")
        worktree.write(
            path.relative_to(library).as_posix(),
            text + "\n\ndef first_form():\n    return 1\n" * (n % 3 == 0),
        )
    worktree.commit("first")
    for n, path in enumerate(sources):
        if n % 3 == 0:
            worktree.write(path.relative_to(library).as_posix(), path.read_text(errors="replace"))
    worktree.commit("second")
    return worktree
