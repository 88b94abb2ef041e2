"""How fast a first index is, and that what is known costs nothing."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import tree_sitter_python
from tree_sitter import Language, Parser

from benchmarks.conftest import Board
from headwatch.config import LOCAL_TENANT
from headwatch.parsing import ParserProcess
from headwatch.postgres import EmbeddedServer, with_tenant
from headwatch_indexer import migrate, pipeline, registry, store
from headwatch_indexer.store.content import Terms
from support.worktree import Worktree


def test_first_index(project: Worktree, home: Path, board: Board, request: pytest.FixtureRequest) -> None:
    """A first index reads 2,000 symbols a second; a second pass, a switch and a new worktree parse nothing."""
    database = EmbeddedServer(home).start()
    migrate.migrate(with_tenant(database.owner_dsn, str(LOCAL_TENANT)))
    conn = store.connect(with_tenant(database.dsn, str(LOCAL_TENANT)))

    def reconcile(root: Path) -> tuple[pipeline.Report, float]:
        row = store.worktree_at(conn, str(root), host="bench")
        assert row is not None
        began = time.perf_counter()
        return pipeline.reconcile(conn, row, workspace, terms), time.perf_counter() - began

    parser = ParserProcess()
    workspace, terms = pipeline.Workspace(prepare=parser), Terms()
    request.addfinalizer(conn.close)
    request.addfinalizer(workspace.close)
    request.addfinalizer(parser.close)
    registry.add(conn, str(project.root), host="bench", user_home="/nonexistent")
    bare_s = _bare_parse_s(project.root)
    first, first_s = reconcile(project.root)
    again, again_s = reconcile(project.root)
    assert (again.changed, again.rows, again.symbols_parsed) == (False, 0, 0)

    project.git("switch", "--quiet", "--detach", "HEAD~1")
    reconcile(project.root)
    project.git("switch", "--quiet", "main")
    switch, switch_s = reconcile(project.root)
    assert switch.symbols_parsed == 0

    linked = project.root.parent / "linked"
    project.git("worktree", "add", "--quiet", "--detach", str(linked), "main")
    registry.discover(conn, host="bench")
    added, added_s = reconcile(linked)
    assert added.symbols_parsed == 0

    board.put(
        "text indexing, two cores", first.symbols_parsed / first_s, 2000, "symbols/s", higher_is_better=True
    )
    board.tell("  the same files, bare tree-sitter parse alone", first.symbols_parsed / bare_s, "symbols/s")
    board.tell("  symbols", first.symbols_parsed, "")
    board.tell("  pass without a change", again_s * 1000, "ms")
    board.put(f"switch of {switch.files} files to known content", switch_s * 1000, 500, "ms")
    board.tell(f"new worktree of {added.files} files at a known commit", added_s * 1000, "ms")


def _bare_parse_s(root: Path) -> float:
    sources = [path.read_bytes() for path in root.rglob("*.py")]
    parser = Parser(Language(tree_sitter_python.language()))
    began = time.perf_counter()
    for source in sources:
        parser.parse(source)
    return time.perf_counter() - began
