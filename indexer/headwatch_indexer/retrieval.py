"""Answers from the rows of one worktree, each verified against the disk before it is given."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg.rows import dict_row

from headwatch_indexer import store
from headwatch_indexer.decoding import decode
from headwatch_indexer.errors import NotFresh
from headwatch_indexer.mutability import classify
from headwatch_indexer.records import RepositoryRules
from headwatch_sql import queries

_SQL = queries("retrieval")
FORMULA = "(lexical + dense + definition + name_words + stem_words + same_file) * demotion * repeat"
_FLAG_ABOVE = 15  # commits
_READ_BYTES = 4 << 20  # more than any indexed file has


@dataclass(frozen=True, slots=True)
class Question:
    """What to look for in one worktree."""

    text: str
    k: int = 10
    mode: str = "hybrid"  # hybrid, lexical or dense
    path: str | None = None  # glob
    language: str | None = None
    kind: str | None = None
    tests: str = "demote"  # demote, equal or exclude
    explain: bool = False


def search(
    conn: store.Connection,
    worktree: store.WorktreeRow,
    question: Question,
    vector: Sequence[float] | None,
    rules: RepositoryRules,
) -> list[dict[str, Any]]:
    """Rank the live code of a worktree; results as INTERFACES' `search` has them, best first.

    `vector` is the query's embedding of the active model's dimension; None answers lexically.
    """
    text = question.text.replace("\0", " ")
    with store.translate(), conn.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(
            _SQL["search"],
            {
                "query": text,
                "vector": None if vector is None else "[" + ",".join(f"{x:.6g}" for x in vector) + "]",
                "worktree": worktree.id,
                "k": question.k,
                "mode": question.mode,
                "path": question.path,
                "language": question.language,
                "kind": question.kind,
                "tests": question.tests,
            },
        ).fetchall()
    distance = 0 if worktree.live_head == worktree.indexed_head else None
    return [_result(row, worktree, rules, distance, explain=question.explain) for row in rows]


def show(
    conn: store.Connection, worktree: store.WorktreeRow, path: str, qualname: str, rules: RepositoryRules
) -> dict[str, Any] | None:
    """One symbol as it is now, in the shape of a search result; None where there is no such symbol."""
    with store.translate(), conn.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(
            _SQL["show"], {"worktree": worktree.id, "path": path, "qualname": qualname}
        ).fetchone()
    if row is None:
        return None
    distance = 0 if worktree.live_head == worktree.indexed_head else None
    return _result(row, worktree, rules, distance, explain=False)


def similar_names(conn: store.Connection, worktree: store.WorktreeRow, path: str, qualname: str) -> list[str]:
    """Symbols that a mistyped PATH#QUALNAME may have meant."""
    with store.translate():
        rows = conn.execute(
            _SQL["similar_names"],
            {"worktree": worktree.id, "path": path, "name": qualname.rsplit(".", 1)[-1]},
        ).fetchall()
    return [f"{found}#{name}" for found, name in rows]


def pack(results: Sequence[dict[str, Any]], budget: int, count: Any, limit: int) -> dict[str, Any]:
    """Pack whole results under a token budget; `count(text)` is the exact number of tokens of a text.

    What does not fit is passed over and the next is tried. A first result that does not fit is cut at a line when
    more than 200 characters fit.
    """
    parts: list[str] = []
    truncated = False
    for result in results:
        if len(parts) == limit:
            break
        part = (
            f"## {result['kind']} {result['path']}:{result['start_line']}-{result['end_line']} "
            f"{result['qualname']} (score {result['score']:.4f})\n{result['content']}"
        )
        if count("\n\n".join([*parts, part])) <= budget:
            parts.append(part)
        elif not parts and (cut := _cut(part, budget, count)) is not None:
            parts.append(cut)
            truncated = True
    text = "\n\n".join(parts)
    return {"text": text, "tokens": count(text), "packed": len(parts), "truncated": truncated}


_CUT_MARK = "\n...[TRUNCATED TO FIT BUDGET]"


def _cut(part: str, budget: int, count: Any) -> str | None:
    lines = part.split("\n")
    low, high = 0, len(lines)
    while low < high:  # the most whole lines that fit
        middle = (low + high + 1) // 2
        if count("\n".join(lines[:middle]) + _CUT_MARK) <= budget:
            low = middle
        else:
            high = middle - 1
    kept = "\n".join(lines[:low])
    return kept + _CUT_MARK if len(kept) > 200 else None


def _result(
    row: dict[str, Any],
    worktree: store.WorktreeRow,
    rules: RepositoryRules,
    distance: int | None,
    *,
    explain: bool,
) -> dict[str, Any]:
    exact = bytes(row["path_bytes"]) if row["path_bytes"] is not None else row["path"].encode()
    start, end, verified = row["start_line"], row["end_line"], worktree.live_head == worktree.indexed_head
    if not worktree.location.bare:  # where nothing is checked out, the blob is all there is
        start, end, verified = _verify(worktree.root, exact, start, end, row["content"])
    trust = None if distance is None else 1 - min(0.08 * distance, 0.9)
    similarity = row.get("similarity")
    result = {
        "rank": row.get("rank", 1),
        "path": row["path"],
        "qualname": row["qualname"],
        "kind": row["kind"],
        "language": row["language"],
        "start_line": start,
        "end_line": end,
        "signature": row["signature"],
        "content": row["content"],
        "blob_oid": row["blob_oid"],
        "score": row.get("score", 1.0),
        "similarity": similarity,
        "bm25": row.get("bm25"),
        "verified": verified,
        "freshness": "current" if verified else "stale",
        "commit_distance": distance,
        "trust": trust,
        "confidence": None if similarity is None or trust is None else similarity * trust,
        "flag": (distance or 0) > _FLAG_ABOVE,
        "age_commits": None,
        "mutability_class": classify(row["path"], rules),
        "last_commit": None,
    }
    if row["path_bytes"] is not None:
        result["path_bytes"] = exact.hex()
    if explain:
        result["explain"] = {"formula": FORMULA, "parts": row["parts"]}
    return result


def _verify(root: str, path: bytes, start_line: int, end_line: int, content: str) -> tuple[int, int, bool]:
    """Compare a result with the disk: its lines as they are now, and whether the content is there.

    Content that only moved inside its file, and stands there once, is given at its new lines.
    """
    lines = _lines_on_disk(root, path)
    wanted = content.replace("\r\n", "\n").split("\n")
    if lines[start_line - 1 : end_line] == wanted:
        return start_line, end_line, True
    size = len(wanted)
    places = [at for at, line in enumerate(lines) if line == wanted[0] and lines[at : at + size] == wanted]
    if len(places) == 1:
        return places[0] + 1, places[0] + size, True
    return start_line, end_line, False


def _lines_on_disk(root: str, path: bytes) -> list[str]:
    """The lines of a file as they are now; none where it cannot be read as text."""
    try:
        descriptor = os.open(
            os.path.join(os.fsencode(root), path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        )
    except OSError:
        return []
    with os.fdopen(descriptor, "rb") as file:
        try:
            text = decode(file.read(_READ_BYTES))
        except OSError:
            return []
    return [] if text is None else text.replace("\r\n", "\n").split("\n")


def worktree_proof(
    worktree: store.WorktreeRow, state: str, live_head: str | None, pending: int
) -> dict[str, Any]:
    """The freshness proof that goes with an answer."""
    return {
        "root": worktree.root,
        "state": state,
        "live_head": live_head,
        "indexed_head": worktree.indexed_head,
        "generation": worktree.generation,
        "pending_vectors": pending,
    }


def require_indexed(worktree: store.WorktreeRow) -> None:
    """Raise when nothing was ever indexed: an empty list would say that nothing is there."""
    if worktree.generation == 0:
        raise NotFresh(
            f"{worktree.root} is not indexed yet ({worktree.reason or worktree.state})",
            hint=f"try: headwatch wait {worktree.root}",
        )
