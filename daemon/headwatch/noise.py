"""Which ignored files are written so often that a look for each would keep the daemon busy? A server's log."""

from __future__ import annotations

import os
from collections import Counter, defaultdict

from headwatch.hints import Target
from headwatch.outside import Ignored
from headwatch_indexer.errors import HeadwatchError

OFTEN = 3  # hints of one file before git is asked, once, whether it ignores it
_FILES_MAX = 1024  # remembered a target


class Noise:
    """Mutes files that are hinted at again and again and that git ignores.

    Most files are never asked about: a question costs 3 ms, a hint for an ignored file one idle pass.
    """

    def __init__(self, ignored_files: Ignored | None) -> None:
        self._ignored = ignored_files
        self._counts: defaultdict[Target, Counter[bytes]] = defaultdict(Counter)
        self._open: defaultdict[Target, set[bytes]] = defaultdict(set)
        self._muted: defaultdict[Target, set[bytes]] = defaultdict(set)

    def mutes(self, target: Target, path: bytes) -> bool:
        """Count a change of a file; True when it is known to be noise."""
        if self._ignored is None:
            return False
        if path in self._muted[target]:
            return True
        counts = self._counts[target]
        if len(counts) >= _FILES_MAX:
            counts.clear()
        counts[path] += 1
        if counts[path] == OFTEN:
            self._open[target].add(path)
        return False

    def judge(self) -> None:
        """Ask git about the files that came often."""
        while self._ignored is not None and self._open:
            target, paths = self._open.popitem()
            prefix = os.fsencode(target.root) + b"/"
            try:
                ignored = self._ignored(target, [path.removeprefix(prefix) for path in sorted(paths)])
            except (HeadwatchError, OSError):
                continue  # they stay hints, which is only slower
            self._muted[target] |= {prefix + path for path in ignored}

    def forget(self, target: Target) -> None:
        """The rules or the index changed, or the target left: nothing is known any more."""
        for known in (self._counts, self._open, self._muted):
            known.pop(target, None)
