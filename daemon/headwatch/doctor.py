"""Is every part in order, and if not, what mends it? Looks only; a daemon that does not run is no fault."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headwatch.client import Client, find
from headwatch.config import Config
from headwatch_indexer.errors import HeadwatchError

_MIN_GIT = (2, 30)
_MIN_FREE_BYTES = 1 << 30
_MIN_WATCHES = 65_536
_MIN_INSTANCES = 32
_MAX_HNSW_DIM = 4000


@dataclass(frozen=True, slots=True)
class Check:
    """One part looked at."""

    name: str
    ok: bool
    detail: str
    fix: str = ""  # what to do; "" when nothing is to be done


def examine(config: Config) -> dict[str, Any]:
    """Look at every part; gives the document of `doctor --json`."""
    found: list[Check] = []
    for look in (_settings, _git, _home, _disk, _watches, _socket, _daemon, _model, _device, _database):
        found += _guarded(look, config)
    return {"ok": all(check.ok for check in found), "checks": [asdict(check) for check in found]}


def _guarded(look: Callable[[Config], Iterator[Check]], config: Config) -> Iterator[Check]:
    """Turn what a look raises into a broken check: one broken part must not hide the others."""
    try:
        yield from look(config)
    except HeadwatchError as exc:
        yield Check(look.__name__.strip("_"), False, exc.message, exc.hint)
    except Exception as exc:
        detail = f"could not look: {type(exc).__name__}: {exc}"
        yield Check(look.__name__.strip("_"), False, detail, "run again with HEADWATCH_DEBUG=1")


def _settings(config: Config) -> Iterator[Check]:
    there = os.path.exists(config.file)
    yield Check("config", True, config.file if there else f"defaults ({config.file} does not exist)")


def _git(_config: Config) -> Iterator[Check]:
    fix = f"install git {_MIN_GIT[0]}.{_MIN_GIT[1]} or later"
    try:
        told = subprocess.run(
            ["git", "--version"], capture_output=True, text=True, timeout=10, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError) as exc:
        yield Check("git", False, f"cannot run git: {exc}", fix)
        return
    number = re.search(r"(\d+)\.(\d+)", told)
    good = number is not None and (int(number[1]), int(number[2])) >= _MIN_GIT
    yield Check("git", good, told.strip(), "" if good else fix)


def _home(config: Config) -> Iterator[Check]:
    place = _existing(config.home)
    good = os.access(place, os.W_OK | os.X_OK)
    detail = config.home if place == config.home else f"{config.home} (made at first use)"
    yield Check(
        "home",
        good,
        detail,
        "" if good else f"make {place} writable, or set HEADWATCH_HOME to another folder",
    )


def _disk(config: Config) -> Iterator[Check]:
    free = shutil.disk_usage(_existing(config.home)).free
    good = free >= _MIN_FREE_BYTES
    fix = "" if good else f"free some space on the disk of {config.home}, or move HEADWATCH_HOME"
    yield Check("disk", good, f"{free / (1 << 30):.1f} GiB free", fix)


def _watches(_config: Config) -> Iterator[Check]:
    if sys.platform != "linux":
        yield Check("watches", True, "FSEvents")
        return
    limits = {name: _sysctl(name) for name in ("max_user_watches", "max_user_instances", "max_queued_events")}
    detail = ", ".join(f"{name} {value}" for name, value in limits.items())
    wanted = {"max_user_watches": _MIN_WATCHES, "max_user_instances": _MIN_INSTANCES}
    low = [
        f"sysctl fs.inotify.{name}={value}"
        for name, value in wanted.items()
        if (limits[name] or value) < value
    ]
    # What lies beyond the limits is polled, so a low limit is slow, not broken.
    yield Check("watches", True, detail, f"for large trees: {'; '.join(low)}" if low else "")


def _sysctl(name: str) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int(Path(f"/proc/sys/fs/inotify/{name}").read_text())
    return None


def _socket(config: Config) -> Iterator[Check]:
    folder = os.path.dirname(config.socket)
    if not os.path.isdir(folder):
        yield Check("socket", True, f"{config.socket} (made when a daemon starts)")
        return
    mode = os.stat(folder).st_mode & 0o777
    fix = f"chmod 700 {folder}, or set HEADWATCH_SOCKET to a path in a private folder" if mode & 0o077 else ""
    yield Check(
        "socket",
        not mode & 0o022 or bool(os.stat(folder).st_mode & 0o1000),
        f"{config.socket}, folder {mode:o}",
        fix,
    )


def _daemon(config: Config) -> Iterator[Check]:
    from headwatch import __version__

    client = find(config.socket, config.home)
    if client is None:
        yield Check("daemon", True, "not running", "start it: headwatch run")
        return
    told = Client(config.socket, timeout_s=10).health()
    same = told.get("version") == __version__
    detail = f"pid {told.get('pid')}, version {told.get('version')}, home {told.get('home')}"
    yield Check("daemon", True, detail, "" if same else f"restart it: this command is version {__version__}")


def _model(config: Config) -> Iterator[Check]:
    from headwatch_indexer import models

    located = models.locate(config.model)
    if located.packaged and located.folder is not None:
        models.verify_packaged(located.folder)
        yield Check("model", True, f"{located.name}, weights verified by sha256")
        return
    info = models.model_info(config.model)
    fix = (
        f"vectors of more than {_MAX_HNSW_DIM} numbers are searched without an index"
        if info.dim > _MAX_HNSW_DIM
        else ""
    )
    yield Check("model", True, f"{info.name}, revision {info.revision}, {info.dim} numbers a vector", fix)


def _device(config: Config) -> Iterator[Check]:
    from importlib.util import find_spec

    if find_spec("torch") is None:
        yield Check("device", False, "torch is not installed", "pip install torch")
        return
    if config.embedding.device != "auto":
        yield Check("device", True, f"{config.embedding.device}, as set by embedding.device")
        return
    driver = "an NVIDIA driver is there" if shutil.which("nvidia-smi") else "no NVIDIA driver here"
    yield Check("device", True, f"auto, the fastest that torch finds; {driver}")


def _database(config: Config) -> Iterator[Check]:
    """Reach the database; an embedded one that was down is started for the look and stopped after it."""
    from headwatch import postgres

    if config.database_url:
        yield from _inside(config, postgres.external(config.database_url))
        return
    server = postgres.EmbeddedServer(Path(config.home))
    if not server.data.exists():
        yield Check("database", True, "embedded, made at first use")
        return
    ran = server.running()
    try:
        yield from _inside(config, server.start())
    finally:
        if not ran:
            server.close()


def _inside(config: Config, database: Any) -> Iterator[Check]:
    from headwatch import postgres
    from headwatch.actions import host
    from headwatch_indexer import migrate, store
    from headwatch_sql import queries

    info = postgres.check(database.dsn)
    kind = "embedded" if database.embedded else "external"
    yield Check("database", True, f"{kind} PostgreSQL {info.server_version}")
    yield Check("vector", True, f"pgvector {info.vector_version or 'is made with the schema'}")
    sql = queries("inspect")
    dsn = postgres.with_tenant(database.dsn, str(config.tenant))
    with store.connect(dsn) as connection, store.translate(dsn):
        version = migrate.version(connection)
        if version == 0:
            yield Check("schema", True, "made at first use")
            return
        good = version == migrate.known()
        fix = "headwatch db migrate" if version < migrate.known() else "upgrade headwatch"
        yield Check(
            "schema", good, f"version {version}, this headwatch has {migrate.known()}", "" if good else fix
        )
        if not good:
            return
        letters = connection.execute(sql["dead_letters"]).fetchall()
        roots = [row[0] for row in connection.execute(sql["roots"], {"host": host()}).fetchall()]
    yield _dead_letters(letters)
    yield from _worktrees(roots)


def _dead_letters(letters: list[tuple[Any, ...]]) -> Check:
    """Report what failed for good; the rest of the index is whole without it."""
    if not letters:
        return Check("dead letters", True, "none")
    shown = "; ".join(f"{count} × {kind}: {reason}" for kind, reason, count in letters[:3])
    return Check(
        "dead letters", True, shown, "these are found by words only; the daemon's log has the details"
    )


def _worktrees(roots: list[str]) -> Iterator[Check]:
    from headwatch_indexer.rules import load_rules

    gone = [root for root in roots if not os.path.isdir(root)]
    if gone:
        yield Check(
            "worktrees",
            True,
            f"not there: {', '.join(gone)}",
            "headwatch remove PATH, if they are gone for good",
        )
    problems = [rules.problem for root in roots if (rules := load_rules(root)).problem]
    for problem in problems:
        yield Check(".headwatch.toml", False, problem, "fix this line; until then the defaults are used")
    if not problems:
        yield Check(".headwatch.toml", True, f"{len(roots)} worktrees, no problem")


def _existing(path: str) -> str:
    """Climb to the nearest folder that exists."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path
