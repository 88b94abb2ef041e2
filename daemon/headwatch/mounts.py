"""Can the kernel tell of every change below a path? Mount types and the limits of inotify."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

MAX_WATCHES_SYSCTL = "fs.inotify.max_user_watches"
MAX_INSTANCES_SYSCTL = "fs.inotify.max_user_instances"
BUDGET_SHARE = 0.6  # other programs of this user draw on the same limit
BUDGET_MAX = 50_000

# File systems with a far side, whose changes make no event here; fuseblk (ntfs-3g, a local disk) is none.
_FAR_NETWORK = (
    "afs",
    "beegfs",
    "ceph",
    "cifs",
    "coda",
    "gfs2",
    "gpfs",
    "lustre",
    "ncpfs",
    "nfs",
    "nfs4",
    "ocfs2",
)
_FAR_HOST = (
    "9p",
    "drvfs",
    "fuse",
    "orangefs",
    "prl_fs",
    "smb3",
    "smbfs",
    "v9fs",
    "vboxsf",
    "virtiofs",
    "vmhgfs",
)
_FAR_TYPES = frozenset((*_FAR_NETWORK, *_FAR_HOST))


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of /proc/self/mountinfo."""

    point: bytes
    fstype: str
    source: str

    @property
    def far(self) -> bool:
        """Can it change with no event here?"""
        return self.fstype in _FAR_TYPES or self.fstype.startswith("fuse.")


def read_mounts(path: str = "/proc/self/mountinfo") -> list[Mount]:
    """Read the mounts of this process; an empty list where there is no such file."""
    try:
        data = Path(path).read_bytes()
    except OSError:
        return []
    return parse_mounts(data)


def parse_mounts(data: bytes) -> list[Mount]:
    """Parse mountinfo, see proc(5): optional fields end at a lone dash, blanks in names are octal."""
    mounts = []
    for line in data.splitlines():
        left, dash, right = line.partition(b" - ")
        fields, tail = left.split(b" "), right.split(b" ")
        if dash and len(fields) >= 5 and len(tail) >= 2:
            mounts.append(Mount(_unescape(fields[4]), os.fsdecode(tail[0]), os.fsdecode(_unescape(tail[1]))))
    return mounts


def far_mount(path: bytes, mounts: Iterable[Mount]) -> Mount | None:
    """Find a mount with a far side that holds `path` (the deepest mount does), or lies below it."""
    holder: Mount | None = None
    below: Mount | None = None
    for mount in mounts:  # a later line covers an earlier one of the same mount point
        if _within(path, mount.point) and (holder is None or len(mount.point) >= len(holder.point)):
            holder = mount
        elif _within(mount.point, path) and mount.far:
            below = mount
    return holder if holder is not None and holder.far else below


def read_sysctl(name: str) -> int | None:
    """Read a number below /proc/sys; None where there is none."""
    try:
        return int(Path("/proc/sys", *name.split(".")).read_text())
    except (OSError, ValueError):
        return None


def watch_budget() -> int:
    """Return how many watches we may hold: 60 % of the user's limit, at most 50,000."""
    limit = read_sysctl(MAX_WATCHES_SYSCTL)
    return BUDGET_MAX if limit is None else min(int(limit * BUDGET_SHARE), BUDGET_MAX)


def _within(path: bytes, folder: bytes) -> bool:
    return path == folder or path.startswith(folder.rstrip(b"/") + b"/")


def _unescape(field: bytes) -> bytes:
    head, *rest = field.split(b"\\")
    return head + b"".join(bytes((int(part[:3], 8),)) + part[3:] for part in rest)
