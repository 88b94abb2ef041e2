"""Where changes can go unseen is told from /proc/self/mountinfo."""

from __future__ import annotations

import pytest

from headwatch.mounts import (
    BUDGET_MAX,
    MAX_WATCHES_SYSCTL,
    Mount,
    far_mount,
    parse_mounts,
    read_mounts,
    read_sysctl,
    watch_budget,
)

INFO = rb"""22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
40 27 0:40 / /mnt/c rw,noatime - 9p C:\134 rw,aname=drvfs;path=C:\;uid=0,trans=fd
41 27 0:41 / /home/me/my\040files rw shared:7 master:1 - nfs4 nas:/files rw
42 27 0:42 / /home/me/src/proj/data rw - fuse.sshfs me@far:/data rw
43 27 0:43 / /usb rw - fuseblk /dev/sdb1 rw
44 40 0:44 / /mnt/c/local rw - ext4 /dev/vdb rw
45 27 0:45 / /stacked rw - cifs //nas/x rw
46 45 0:46 / /stacked rw - tmpfs tmpfs rw
"""


@pytest.mark.parametrize(
    ("path", "point"),
    [
        (b"/home/me/src/other", None),
        (b"/mnt/c/src", b"/mnt/c"),
        (b"/mnt/code", None),  # a prefix of letters is not a folder
        (b"/mnt/c/local/src", None),  # the deepest mount decides
        (b"/home/me/my files/src", b"/home/me/my files"),
        (b"/home/me/src/proj", b"/home/me/src/proj/data"),  # below the root
        (b"/usb/src", None),
        (b"/stacked/src", None),  # the later mount covers the earlier
    ],
)
def test_the_deepest_mount_decides(path: bytes, point: bytes | None) -> None:
    """A network or host share that holds a root, or lies inside it, is found; local disks are not."""
    mount = far_mount(path, parse_mounts(INFO))
    assert (mount.point if mount else None) == point


def test_octal_escapes_are_undone() -> None:
    """Blanks and backslashes in mount points and sources are read as they are."""
    mounts = parse_mounts(INFO)
    assert Mount(b"/mnt/c", "9p", "C:\\") in mounts
    assert Mount(b"/home/me/my files", "nfs4", "nas:/files") in mounts


def test_no_mountinfo_is_no_mount() -> None:
    """Without /proc (macOS) nothing is classified, and nothing raises."""
    assert read_mounts("/nonexistent") == []
    assert far_mount(b"/any", []) is None
    assert parse_mounts(b"garbage\n\n1 2 - x\n") == []


def test_the_budget_leaves_watches_to_others() -> None:
    """At most 60 % of the user's watches, at most 50,000."""
    limit = read_sysctl(MAX_WATCHES_SYSCTL)
    assert 0 < watch_budget() <= BUDGET_MAX
    assert limit is None or watch_budget() <= 0.6 * limit
    assert read_sysctl("fs.inotify.no_such_limit") is None
