"""Which files the repository itself declares generated or vendored."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable

from headwatch_indexer import git, gitdir
from headwatch_indexer.disk import StatCache
from headwatch_indexer.listing import Index, Status
from headwatch_indexer.records import Location
from headwatch_indexer.scope import ATTRIBUTES

_FILE = b".gitattributes"
_LINK = 0o120000
_SET = frozenset({b"set", b"true"})


def set_attributes(
    location: Location, index: Index, status: Status, cache: StatCache
) -> dict[bytes, frozenset[str]]:
    """Tell which of scope's ATTRIBUTES are set on which paths; paths without any are left out.

    Git is asked only where an attributes file speaks of them, and only about paths not asked about before.
    """
    key = _key(location, (path for paths in (index.entries, status.untracked) for path in paths))
    if not key:
        return {}
    if key != cache.attributes_key:
        cache.attributes_key, cache.attributes = key, {}
    paths = [path for path, item in index.entries.items() if item.mode < _LINK]
    paths += [*status.untracked, *index.unmerged]
    known = cache.attributes
    new = [path for path in paths if path not in known]
    if new:
        known.update((path, frozenset[str]()) for path in new)
        known.update(_ask(location, new))
    return {path: names for path in paths if (names := known[path])}


def _key(location: Location, paths: Iterable[bytes]) -> str:
    """Digest the attributes files; empty when none of them speaks of linguist."""
    root = os.fsencode(location.root)
    digest = hashlib.sha256()
    speaks = False
    texts = [(b"", gitdir.content(f"{location.common_dir}/info/attributes"))]
    for path in paths:
        if path.endswith(_FILE) and path[-len(_FILE) - 1 : -len(_FILE)] in (b"", b"/"):
            full = os.fsdecode(root + b"/" + path)
            # Where it is not on disk (sparse checkout), git takes the one of the index.
            texts.append((path, gitdir.content(full) if os.path.lexists(full) else b"linguist-"))
    for path, text in texts:
        digest.update(b"%s\0%d\0%s" % (path, len(text), text))
        speaks = speaks or b"linguist-" in text
    return digest.hexdigest() if speaks else ""


def _ask(location: Location, paths: list[bytes]) -> dict[bytes, frozenset[str]]:
    feed = b"".join(path + b"\0" for path in paths)
    out = git.run(location.root, "check-attr", "-z", "--stdin", *ATTRIBUTES, input=feed)
    fields = out.split(b"\0")
    found: dict[bytes, frozenset[str]] = {}
    for path, name, value in zip(fields[0::3], fields[1::3], fields[2::3], strict=False):
        if value in _SET:
            found[path] = found.get(path, frozenset()) | {name.decode()}
    return found
