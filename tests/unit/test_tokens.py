"""Tokens in Python; that the database gives the same is tests/integration/test_search_sql.py's to prove."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwatch_indexer.tokens import frequencies, tokens


def test_identifier_gives_itself_and_its_parts() -> None:
    """camelCase, snake_case, acronyms and digits are parts; a name of several parts is a token too."""
    assert tokens("parseHTTPResponse") == ["parsehttpresponse", "parse", "http", "response"]
    assert tokens("__init_subclass__") == ["init_subclass", "init", "subclass"]
    assert tokens("utf8") == ["utf8", "utf", "8"]
    assert tokens("x") == ["x"]


def test_punctuation_separates_and_is_no_token() -> None:
    """Only letters, digits, underscores and what is not ASCII make words."""
    assert tokens("a.b(c)[d] -> e\t#f\n'g'") == list("abcdefg")
    assert tokens("___ --- !?") == []
    assert tokens("") == []


def test_only_ascii_letters_change_case() -> None:
    """Case mappings that change lengths, or depend on a locale, are left alone."""
    kelvin, dotted_i, long_s, sharp_s = "\u212a", "\u0130", "\u017f", "\u00df"
    assert tokens(f"{dotted_i}X STRASSE {long_s}tra{sharp_s}e {kelvin} Ä") == [
        f"{dotted_i}x",
        "strasse",
        f"{long_s}tra{sharp_s}e",
        kelvin,
        "Ä",
    ]


def test_other_scripts_and_emoji_are_words() -> None:
    """Text without ASCII is found by whole runs."""
    assert tokens("配列を並べ替える 🚀launch ñandú") == ["配列を並べ替える", "🚀launch", "ñandú"]


def test_long_runs_are_data() -> None:
    """A run of more than 64 characters is no token, its parts may be."""
    assert tokens("a" * 64) == ["a" * 64]
    assert tokens("a" * 65) == []
    assert tokens("key_" + "b" * 61) == ["key", "b" * 61]


@given(st.text())
def test_frequencies_count_tokens(text: str) -> None:
    """frequencies() counts exactly what tokens() lists, and its length is their number."""
    counts, length = frequencies(text)
    listed = tokens(text)
    assert length == len(listed)
    assert sorted(counts.elements()) == sorted(listed)


@given(st.text())
def test_tokens_are_stable(text: str) -> None:
    """No token is empty, holds ASCII upper case, or is longer than 64 characters."""
    for token in tokens(text):
        assert 0 < len(token) <= 64
        assert not any("A" <= character <= "Z" for character in token)
