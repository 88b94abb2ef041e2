"""Parses and contents: what a blob holds, written once a repository whoever shows it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from headwatch_indexer.records import Parsed
from headwatch_indexer.store.connection import Connection
from headwatch_indexer.tokens import frequencies
from headwatch_sql import queries

_SQL = queries("content")
_SMALLINT = 32_767

Key = tuple[str, str]  # blob id, language


@dataclass(frozen=True, slots=True)
class ParseRow:
    """A parse that the database has."""

    id: int
    status: str
    symbols: int


@dataclass(slots=True)
class Terms:
    """Term ids seen so far; valid as long as no transaction that added some was rolled back."""

    ids: dict[str, int] = field(default_factory=dict)
    limit: int = 400_000  # about 50 MB

    def resolve(self, conn: Connection, wanted: Iterable[str]) -> dict[str, int]:
        """Map terms to their ids, adding what is new."""
        missing = sorted({term for term in wanted if term not in self.ids})
        if missing:
            if len(self.ids) + len(missing) > self.limit:
                self.ids.clear()
                missing = sorted(set(wanted))
            conn.execute(_SQL["add_terms"], {"terms": missing})
            self.ids.update(conn.execute(_SQL["term_ids"], {"terms": missing}).fetchall())
        return self.ids


@dataclass(frozen=True, slots=True)
class Source:
    """A blob that was parsed, with the tokens of its chunks counted: all that costs time but the database's."""

    oid: str
    size_bytes: int
    parsed: Parsed
    counted: tuple[tuple[bytes, Counter[str], int], ...]  # of each chunk: content hash, tokens, their number

    @classmethod
    def of(cls, oid: str, size_bytes: int, parsed: Parsed) -> Source:
        counted = ((content_hash(chunk.text), *frequencies(chunk.text)) for chunk in parsed.chunks)
        return cls(oid, size_bytes, parsed, tuple(counted))

    @property
    def key(self) -> Key:
        return self.oid, self.parsed.language


@dataclass(frozen=True, slots=True)
class Added:
    """What one call of add_parses wrote."""

    parses: dict[Key, ParseRow]
    new_contents: list[int]
    rows: int


def known_parses(
    conn: Connection, repository_id: int, keys: Sequence[Key], parser_version: int
) -> dict[Key, ParseRow]:
    """Find the parses that exist for (blob id, language) pairs."""
    rows = conn.execute(
        _SQL["known_parses"],
        {
            "repository_id": repository_id,
            "oids": [oid for oid, _ in keys],
            "languages": [language for _, language in keys],
            "parser_version": parser_version,
        },
    ).fetchall()
    return {(oid, language): ParseRow(id_, status, symbols) for id_, oid, language, status, symbols in rows}


def add_parses(
    conn: Connection,
    repository_id: int,
    batch: Sequence[Source],
    parser_version: int,
    terms: Terms,
) -> Added:
    """Write the parses of sources, with their symbols, chunks and contents.

    Runs inside the caller's transaction. Postings of new contents are written by `add_postings`.
    """
    conn.execute(
        _SQL["add_blobs"],
        {
            "repository_id": repository_id,
            "oids": [source.oid for source in batch],
            "sizes": [source.size_bytes for source in batch],
            "sources": [source.parsed.text.encode() for source in batch],
        },
    )
    rows = conn.execute(
        _SQL["add_parses"],
        {
            "repository_id": repository_id,
            "oids": [source.oid for source in batch],
            "languages": [source.parsed.language for source in batch],
            "statuses": [source.parsed.status for source in batch],
            "symbols": [len(source.parsed.symbols) for source in batch],
            "parser_version": parser_version,
        },
    ).fetchall()
    parses = {(oid, language): ParseRow(id_, status, n) for id_, oid, language, status, n in rows}
    written = 2 * len(parses) + _add_symbols(conn, repository_id, batch, parses)
    contents, new = _add_contents(conn, repository_id, batch, terms)
    written += len(new) + _add_chunks(conn, batch, parses, contents)
    return Added(parses, new, written)


def add_postings(conn: Connection, repository_id: int, contents: Sequence[int], *, fresh: bool) -> None:
    """Write the postings of new contents; a fresh partition is indexed and attached after it is filled."""
    if contents:
        statement = _SQL["add_postings"].replace(b"{partition}", b"posting_r%d" % repository_id)
        conn.execute(statement, {"contents": list(contents)})
    if fresh:
        conn.execute("select attach_repository(%s)", (repository_id,))


def content_hash(text: str) -> bytes:
    """Name a chunk text: 16 bytes of BLAKE2b over its UTF-8."""
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()


def _add_symbols(
    conn: Connection,
    repository_id: int,
    batch: Sequence[Source],
    parses: dict[Key, ParseRow],
) -> int:
    rows = [
        (
            parses[source.key].id,
            s.ordinal,
            source.oid,
            source.parsed.language,
            s.name,
            s.qualname,
            s.kind,
            s.signature,
            s.doc,
            s.start_line,
            s.end_line,
            start,
            end,
            s.structural_hash,
            s.body_hash,
        )
        for source in batch
        for s, (start, end) in zip(source.parsed.symbols, _byte_spans(source.parsed), strict=True)
    ]
    if rows:
        conn.execute(_SQL["add_symbols"], [repository_id, *map(list, zip(*rows, strict=True))])
    return len(rows)


def _byte_spans(parsed: Parsed) -> list[tuple[int, int]]:
    """Where each symbol starts and ends in the text's UTF-8, from its code points."""
    spans = [(s.start_offset, s.end_offset) for s in parsed.symbols]
    if parsed.text.isascii():
        return spans
    offsets: dict[int, int] = {}
    characters = size = 0
    for at in sorted({offset for span in spans for offset in span}):
        size += len(parsed.text[characters:at].encode())
        offsets[at] = size
        characters = at
    return [(offsets[start], offsets[end]) for start, end in spans]


def _add_contents(
    conn: Connection, repository_id: int, batch: Sequence[Source], terms: Terms
) -> tuple[dict[bytes, int], list[int]]:
    texts = {
        digest: (chunk.text, counts, length)
        for source in batch
        for chunk, (digest, counts, length) in zip(source.parsed.chunks, source.counted, strict=True)
    }
    if not texts:
        return {}, []
    known: dict[bytes, int] = dict(
        conn.execute(_SQL["content_ids"], {"repository_id": repository_id, "hashes": list(texts)}).fetchall()
    )
    fresh = [(digest, *of) for digest, of in texts.items() if digest not in known]
    if not fresh:
        return known, []
    ids = terms.resolve(conn, {term for _, _, counts, _ in fresh for term in counts})
    # Arrays of arrays do not unnest row by row: each row's arrays travel as Postgres array literals.
    rows = conn.execute(
        _SQL["add_contents"],
        {
            "repository_id": repository_id,
            "hashes": [digest for digest, *_ in fresh],
            "texts": [text for _, text, _, _ in fresh],
            "lengths": [length for *_, length in fresh],
            "terms": ["{" + ",".join(str(ids[term]) for term in counts) + "}" for _, _, counts, _ in fresh],
            "frequencies": [
                "{" + ",".join(str(min(n, _SMALLINT)) for n in counts.values()) + "}"
                for _, _, counts, _ in fresh
            ],
        },
    ).fetchall()
    added: dict[bytes, int] = dict(rows)
    return known | added, list(added.values())


def _add_chunks(
    conn: Connection,
    batch: Sequence[Source],
    parses: dict[Key, ParseRow],
    contents: dict[bytes, int],
) -> int:
    rows = [
        (
            parses[source.key].id,
            chunk.symbol_ordinal,
            chunk.n,
            contents[digest],
            chunk.start_line,
            chunk.end_line,
        )
        for source in batch
        for chunk, (digest, _, _) in zip(source.parsed.chunks, source.counted, strict=True)
    ]
    if rows:
        conn.execute(_SQL["add_chunks"], [*map(list, zip(*rows, strict=True))])
    return len(rows)
