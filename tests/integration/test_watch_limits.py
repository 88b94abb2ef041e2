"""The kernel's own limits, in a user namespace that has its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headwatch.mounts import MAX_INSTANCES_SYSCTL, MAX_WATCHES_SYSCTL
from support.worktree import Worktree

_SCRIPT = """
import os, queue, sys
from headwatch import upkeep
from headwatch.hints import Hint, Target
from headwatch.watch import Watcher

limit, low, root = sys.argv[1:]
upkeep.RETRY_S = 0.2
def allow(number):
    with open("/proc/sys/user/" + limit, "w") as file:
        file.write(str(number))

allow(low)
heard = queue.Queue()
watcher = Watcher(heard.put, lambda target, directories: set())
watcher.add(Target(1, root, root + "/.git", root + "/.git"))
watcher.start()
print(watcher.degraded(1), flush=True)
heard.get(timeout=20)
allow(100_000)
while watcher.degraded(1) is not None:
    assert heard.get(timeout=20) == Hint(1, "rescan")
with open(root + "/d59/f.py", "w"):
    pass
while heard.get(timeout=20) != Hint(1, "path", b"d59/f.py"):
    pass
watcher.stop()
print("recovered")
"""


@pytest.mark.parametrize(
    ("limit", "low", "sysctl"),
    [("max_inotify_watches", "30", MAX_WATCHES_SYSCTL), ("max_inotify_instances", "0", MAX_INSTANCES_SYSCTL)],
)
def test_a_limit_that_is_reached_is_named_and_left_behind(
    tmp_path: Path, limit: str, low: str, sysctl: str
) -> None:
    """Out of watches or instances: the sysctl is named, rescans come, and room that is made is used."""
    own = ["unshare", "--user", "--map-root-user"]
    writable = f"echo {low} > /proc/sys/user/{limit}"
    if subprocess.run([*own, "sh", "-c", writable], capture_output=True).returncode != 0:
        pytest.skip("no user namespaces here")
    repo = Worktree.init(tmp_path / "repo")
    for n in range(60):
        repo.write(f"d{n}/f.py", "x = 1\n")
    script = [*own, sys.executable, "-c", _SCRIPT, limit, low, str(repo.root)]
    done = subprocess.run(script, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    reason, last = done.stdout.splitlines()
    assert sysctl in reason
    assert last == "recovered"
