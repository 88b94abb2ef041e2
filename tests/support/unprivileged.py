"""Permissions that count even where tests run as root, who may read everything."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NOBODY = 65534


@contextmanager
def own_folder() -> Iterator[Path]:
    """A folder that `ordinary_user` can enter and write; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory(prefix="hw-user-") as folder:
        if os.geteuid() == 0:
            os.chown(folder, _NOBODY, _NOBODY)
        try:
            yield Path(folder).resolve()
        finally:
            for path in [*Path(folder).rglob("*")]:
                if not path.is_symlink() and path.is_dir():
                    path.chmod(0o700)


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Go on as a user whom file modes bind; a root process gets its rights back in the end."""
    if os.geteuid() != 0:
        yield
        return
    os.setegid(_NOBODY)
    os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
