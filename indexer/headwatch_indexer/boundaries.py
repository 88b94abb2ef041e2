"""Where another repository begins that git itself does not recognise as one."""

from __future__ import annotations

import stat
from collections.abc import Iterable

from headwatch_indexer.disk import Disk


class Boundaries:
    """Folders among untracked files that are a cut-off worktree (a `.git` file) or a bare repository."""

    def __init__(self, disk: Disk, untracked: Iterable[bytes]) -> None:
        self._disk = disk
        self._heads = {path.rpartition(b"/")[0] for path in untracked if path.endswith(b"/HEAD")}
        self._known: dict[bytes, bytes | None] = {b"": None}

    def around(self, path: bytes) -> bytes | None:
        """Return the outermost such folder that holds `path`, "/" at its end."""
        folder = path.rpartition(b"/")[0]
        if folder not in self._known:
            outer = self.around(folder)
            self._known[folder] = outer or (folder + b"/" if self._begins(folder) else None)
        return self._known[folder]

    def _begins(self, folder: bytes) -> bool:
        try:
            found = self._disk.peek(folder + b"/.git")
            if found is not None and stat.S_ISREG(found.st_mode):
                look = self._disk.read(folder + b"/.git")
                return look is not None and look.content.startswith(b"gitdir:")
            return folder in self._heads and all(
                self._is_folder(folder + b"/" + n) for n in (b"objects", b"refs")
            )
        except OSError:
            return False

    def _is_folder(self, path: bytes) -> bool:
        found = self._disk.peek(path)
        return found is not None and stat.S_ISDIR(found.st_mode)
