"""Who keeps a clone: a session advisory lock that dies with its holder, and a heartbeat that stops with it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable

from headwatch_indexer.store.connection import Connection, translate
from headwatch_sql import queries

_SQL = queries("ownership")


def lock_key(host: str, common_dir: str) -> int:
    """Name the advisory lock of one object database on one host (a signed 64-bit number)."""
    digest = hashlib.blake2b(f"{host}\0{common_dir}".encode(errors="surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def own(conn: Connection, clone_id: int, *, host: str, common_dir: str) -> bool:
    """Become the owner of a clone for the life of this session; False when another session is.

    Asking again from the same session is harmless: the lock is held once.
    """
    key = lock_key(host, common_dir)
    with translate():
        row = conn.execute(_SQL["own"], {"clone_id": clone_id, "key": key, "pid": os.getpid()}).fetchone()
    return bool(row and row[0])


def beat(conn: Connection, clone_ids: Iterable[int]) -> None:
    """Say that the owner of these clones is alive."""
    with translate():
        conn.execute(_SQL["beat"], {"clones": list(clone_ids), "pid": os.getpid()})


def release(conn: Connection, clone_id: int, *, host: str, common_dir: str) -> None:
    """Stop owning a clone."""
    with translate():
        conn.execute(
            _SQL["release"], {"clone_id": clone_id, "key": lock_key(host, common_dir), "pid": os.getpid()}
        )
