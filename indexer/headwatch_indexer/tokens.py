"""Lexical tokens of code and prose: the same answer as headwatch.tokens() in the database."""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

_WORD = re.compile(r"[^\x00-\x2f\x3a-\x40\x5b-\x5e\x60\x7b-\x7f]+")
# Fixed lengths and no alternation: Postgres takes the longest branch of one, Python the first.
_SPLITS = tuple(
    re.compile(p)
    for p in (r"([a-z])([A-Z])", r"([A-Z])([A-Z][a-z])", r"([A-Za-z])([0-9])", r"([0-9])([A-Za-z])")
)
_ASCII_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")  # the same parts, in one go
_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
_LONGEST = 64  # code points; longer runs are data, not words


def tokens(text: str) -> list[str]:
    """List the tokens of a text in order, repeated ones too.

    An identifier of several parts gives itself and its camelCase, snake_case and digit parts, all in ASCII lower case.
    """
    return [token for word in _WORD.findall(text) for token in _of_word(word)]


def frequencies(text: str) -> tuple[Counter[str], int]:
    """Count each token of a text; the second value is their sum, the length that BM25 uses."""
    counts: Counter[str] = Counter()
    for word, times in Counter(_WORD.findall(text)).items():
        for token in _of_word(word):
            counts[token] += times
    return counts, counts.total()


@lru_cache(maxsize=200_000)
def _of_word(word: str) -> tuple[str, ...]:
    if word.islower() and word.isalpha() and word.isascii():  # one plain word, the common case
        return (word,) if len(word) <= _LONGEST else ()
    whole = word.strip("_")
    if whole.isascii():
        parts = _ASCII_PARTS.findall(whole)
        if len(parts) > 1:
            parts.insert(0, whole)
        return tuple(part.lower() for part in parts if len(part) <= _LONGEST)
    split = whole
    for pattern in _SPLITS:
        split = pattern.sub(r"\1_\2", split)
    parts = [part for part in split.split("_") if part]
    if len(parts) > 1:
        parts.insert(0, whole)
    return tuple(part.translate(_LOWER) for part in parts if len(part) <= _LONGEST)
