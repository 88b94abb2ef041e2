"""Okapi BM25 as the textbook has it, to hold the database's answers against."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping

from headwatch_indexer import store
from headwatch_indexer.tokens import tokens

K1, B = 1.2, 0.75


def scores(corpus: Mapping[int, str], query: str) -> dict[int, float]:
    """Score every document that has any term of the query; a term counts once however often it is asked for."""
    counts = {number: Counter(tokens(text)) for number, text in corpus.items()}
    lengths = {number: sum(count.values()) for number, count in counts.items()}
    mean = sum(lengths.values()) / max(len(lengths), 1)
    found: dict[int, float] = {}
    for term in set(tokens(query)):
        holders = [number for number, count in counts.items() if term in count]
        idf = math.log(1 + (len(corpus) - len(holders) + 0.5) / (len(holders) + 0.5))
        for number in holders:
            tf = counts[number][term]
            weight = tf * (K1 + 1) / (tf + K1 * (1 - B + B * lengths[number] / mean))
            found[number] = found.get(number, 0.0) + idf * weight
    return found


def best(found: Mapping[int, float], among: Iterable[int], k: int) -> list[tuple[int, float]]:
    """The k best of some documents; equal ones by number."""
    kept = set(among)
    ranked = sorted(
        ((number, score) for number, score in found.items() if number in kept), key=lambda x: (-x[1], x[0])
    )
    return ranked[:k]


def corpus_of(conn: store.Connection, repository_id: int) -> dict[int, str]:
    """The contents that any worktree of a repository shows, once each, by way of its files."""
    return dict(
        conn.execute(
            "select distinct t.id, t.text from worktree w join file f on f.worktree_id = w.id"
            " join chunk c on c.parse_id = f.parse_id join content t on t.id = c.content_id where w.repository_id = %s",
            (repository_id,),
        ).fetchall()
    )


def shown_by(conn: store.Connection, worktree_id: int, condition: str = "true") -> set[int]:
    """The contents that one worktree shows, under a condition on f (file), s (symbol)."""
    rows = conn.execute(
        "select distinct c.content_id from file f join symbol s on s.parse_id = f.parse_id"
        " join chunk c on c.parse_id = s.parse_id and c.symbol_ordinal = s.ordinal"
        f" where f.worktree_id = %s and ({condition})".encode(),
        (worktree_id,),
    ).fetchall()
    return {content for (content,) in rows}
