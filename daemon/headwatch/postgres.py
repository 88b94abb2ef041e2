"""Where the rows live: an embedded PostgreSQL in the home, or a server that HEADWATCH_DATABASE_URL names.

The embedded server is a process of its own: it outlives a crash of the one who started it, and the next
`start` adopts it. It has no TCP port; its Unix socket lies in a folder of mode 0700. Its files are in
`<home>/postgres`, `<home>/postgres.lock` is locked around start and stop, and `<home>/postgres.keep` says
that it is to stay when the daemon goes. Under root, see postmaster.py for the account it runs as.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg

from headwatch import postmaster
from headwatch.dsn import redact, url, with_tenant
from headwatch.postgres_failures import failure, said_plainly
from headwatch.postgres_settings import CONF_NAME, HBA, conf
from headwatch.postmaster import Account
from headwatch.server_check import ServerInfo, check
from headwatch_indexer.errors import HeadwatchError, Unreachable
from headwatch_sql import queries

__all__ = [
    "Database",
    "EmbeddedServer",
    "ServerInfo",
    "check",
    "external",
    "keep_up",
    "kept_up",
    "redact",
    "with_tenant",
]

_ADMINISTRATOR = "postgres"
_PORT = "5432"  # names the socket file only; said in every DSN, so that PGPORT does not change it
_STOP_TIMEOUT_S = 30  # a step: fast, immediate, by force
_SOCKET_DIR_MAX_BYTES = 80  # with the socket's name below the 104 bytes of macOS


@dataclass(frozen=True, slots=True)
class Database:
    """How to reach the rows, as URLs that carry no tenant yet."""

    dsn: str  # for the daemon: headwatch_writer
    owner_dsn: str  # for migrations: headwatch_owner
    reader_dsn: str  # for everybody else: headwatch_reader
    embedded: bool


def external(database_url: str) -> Database:
    """Use somebody else's server, with one login for everything; connects to nothing (see `check`)."""
    return Database(dsn=database_url, owner_dsn=database_url, reader_dsn=database_url, embedded=False)


def keep_up(home: Path, on: bool) -> None:
    """Set or clear the mark that lets the embedded server stay up when the daemon stops."""
    if on:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        (home / "postgres.keep").write_bytes(b"")
    else:
        (home / "postgres.keep").unlink(missing_ok=True)


def kept_up(home: Path) -> bool:
    """Tell whether the embedded server is to stay up when the daemon stops."""
    return (home / "postgres.keep").exists()


class EmbeddedServer:
    """The PostgreSQL of one home. `settings` override headwatch.conf's."""

    def __init__(
        self, home: Path, *, settings: Mapping[str, str] | None = None, start_timeout_s: float = 120
    ) -> None:
        self.home = Path(os.path.realpath(home))
        self.folder = self.home / "postgres"
        self.data = self.folder / "data"
        self._settings = dict(settings or {})
        self._start_timeout_s = start_timeout_s
        digest = hashlib.sha256(os.fsencode(self.home)).hexdigest()[:12]
        self._cluster = f"headwatch-{digest}"

    @property
    def pid(self) -> int | None:
        """The postmaster's process id; None when it does not run."""
        with said_plainly(self.home):
            found = postmaster.find(self.data)
        return found.pid if found else None

    def running(self) -> bool:
        """Tell whether a postmaster of this home lives; a zombie does not."""
        return self.pid is not None

    def start(self) -> Database:
        """Make, start or adopt the server, wait until it answers, and see that its logins are there."""
        with said_plainly(self.home), self._locked():
            account = self._prepare()
            if not self._adopt():
                self._wait_until_ready(self._launch(account))
                self._set_up()
            return self.database()

    def stop(self) -> None:
        """Stop the server, also a kept-up one; does nothing when it does not run."""
        if not self.folder.exists():
            return
        with said_plainly(self.home), self._locked():
            found = postmaster.find(self.data)
            if found:
                postmaster.stop(self.data, _STOP_TIMEOUT_S)
                _remove_if_empty(Path(found.socket_dir))
            keep_up(self.home, on=False)

    def close(self) -> None:
        """Stop the server unless it is marked to stay up: what the daemon does on its way out."""
        if not kept_up(self.home):
            self.stop()

    def database(self, name: str = "headwatch") -> Database:
        """Return the DSNs of a database of the running server."""
        return Database(
            dsn=self._dsn("headwatch_writer", name),
            owner_dsn=self._dsn("headwatch_owner", name),
            reader_dsn=self._dsn("headwatch_reader", name),
            embedded=True,
        )

    def administrator_dsn(self, name: str = "postgres") -> str:
        """Return the superuser's DSN: for set-up, repair and tests; the daemon never works with it."""
        return self._dsn(_ADMINISTRATOR, name)

    def _dsn(self, user: str, database: str) -> str:
        found = postmaster.find(self.data)
        if found is None or not found.socket_dir:
            raise Unreachable(
                f"the embedded Postgres of {self.home} does not run",
                hint="start it: headwatch run, or headwatch db url",
            )
        return url({"user": user, "dbname": database, "host": found.socket_dir, "port": _PORT})

    def _adopt(self) -> bool:
        """Take over a server that runs; one that is about to end is seen through to its end."""
        found = postmaster.find(self.data) or postmaster.find_starting(self.data)
        if found is None:
            return False
        if found.status == "stopping":
            postmaster.stop(self.data, _STOP_TIMEOUT_S)
            return False
        try:
            self._wait_until_ready(found.pid)
            self._set_up()
        except Unreachable:
            if postmaster.ended(found.pid, timeout_s=5):  # it was killed a moment ago
                return False
            raise
        return True

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self.home / "postgres.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            if os.geteuid() == 0:  # in the home of a user, who must be able to lock it later
                os.fchown(descriptor, self.home.stat().st_uid, self.home.stat().st_gid)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _prepare(self) -> Account | None:
        """Make the folders and, once, the data directory; refuse one of another version."""
        account = postmaster.account_for(self.data)
        self.folder.mkdir(mode=0o700, exist_ok=True)
        _give(self.folder, account)
        postmaster.open_binaries(account)
        postmaster.open_way(self.data, account)
        if not self.data.exists():
            self._initdb(account)
        version = (self.data / "PG_VERSION").read_text().strip()
        if version != str(postmaster.MAJOR):
            raise HeadwatchError(
                f"{self.data} was made by PostgreSQL {version}, this headwatch brings {postmaster.MAJOR}",
                hint=f"dump it with PostgreSQL {version} (pg_dump), move the folder aside and load the dump; "
                "without a dump the index is rebuilt, but recorded facts are lost",
            )
        return account

    def _initdb(self, account: Account | None) -> None:
        new = self.folder / "data.new"
        shutil.rmtree(new, ignore_errors=True)  # what an interrupted first start left
        arguments = ["-D", str(new), "-U", _ADMINISTRATOR, "--auth=trust", "--encoding=UTF8", "--locale=C"]
        arguments += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--no-instructions"]
        if self._settings.get("fsync") == "off":
            arguments.append("--no-sync")
        done = postmaster.run_tool("initdb", arguments, account)
        if done.returncode != 0:
            raise failure(f"cannot make a database in {self.folder}", done.stderr or done.stdout, self.folder)
        with (new / "postgresql.conf").open("a") as file:
            file.write(f"\ninclude '{CONF_NAME}'\n# Changes of your own go below this line.\n")
        _write(new / "pg_hba.conf", HBA, account)
        new.rename(self.data)

    def _launch(self, account: Account | None) -> int:
        socket_dir = self._socket_dir(account)
        postmaster.clear_stale(self.data, socket_dir, self._cluster)
        _write(self.data / CONF_NAME, conf(str(socket_dir), self._cluster, self._settings), account)
        return postmaster.launch(self.data, self.folder / "start.log", account)

    def _socket_dir(self, account: Account | None) -> Path:
        """Make the socket's private folder, its path short enough to bind and plain enough for libpq."""
        name = self._cluster.replace("headwatch-", "headwatch-pg-")
        path = Path(os.path.realpath(tempfile.gettempdir())) / name
        if len(os.fsencode(path)) > _SOCKET_DIR_MAX_BYTES or any(mark in str(path) for mark in ',"@'):
            path = Path(os.path.realpath("/tmp")) / name  # noqa: S108 – ownership and mode are checked below
        path.mkdir(mode=0o700, exist_ok=True)
        seen = path.lstat()
        allowed = {os.geteuid(), account.uid if account else os.geteuid()}
        if not stat.S_ISDIR(seen.st_mode) or seen.st_uid not in allowed:
            raise HeadwatchError(
                f"the folder for the database's socket, {path}, belongs to somebody else",
                hint="remove it, or set TMPDIR to a folder of your own",
            )
        path.chmod(0o700)
        _give(path, account)
        postmaster.open_way(path, account)
        return path

    def _wait_until_ready(self, pid: int) -> None:
        deadline = time.monotonic() + self._start_timeout_s
        while time.monotonic() < deadline and not postmaster.dead(pid):
            found = postmaster.find(self.data)
            if found and found.status == "ready":
                return
            time.sleep(0.02)
        how = "ended as" if postmaster.dead(pid) else f"needs more than {self._start_timeout_s:g} s when"
        raise failure(f"the embedded Postgres of {self.home} {how} it starts", self._log_tail(), self.folder)

    def _log_tail(self) -> str:
        logs = [self.folder / "start.log", *(self.data / "log").glob("*.log")]
        newest = sorted((log for log in logs if log.exists()), key=lambda log: log.stat().st_mtime)[-2:]
        return "\n".join(log.read_text(errors="replace")[-2000:].strip() for log in newest)

    def _set_up(self) -> None:
        """Make logins, database and extension; what is there stays."""
        sql = queries("server")
        with self._connect() as connection:
            connection.execute(sql["roles"])
            exists = connection.execute(sql["database_exists"]).fetchone()
            if exists == (False,):
                connection.execute(sql["create_database"])
        with self._connect("headwatch") as connection:
            connection.execute(sql["create_vector"])
            connection.execute(sql["privileges"])

    @contextmanager
    def _connect(self, name: str = "postgres") -> Iterator[psycopg.Connection]:
        try:
            with psycopg.connect(
                self.administrator_dsn(name), autocommit=True, connect_timeout=10
            ) as connection:
                yield connection
        except psycopg.OperationalError as error:
            raise failure(
                f"the embedded Postgres of {self.home} does not answer", str(error), self.folder
            ) from error


def _give(path: Path, account: Account | None) -> None:
    if account is not None:
        os.chown(path, account.uid, account.gid)


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def _write(path: Path, text: str, account: Account | None) -> None:
    new = path.with_name(path.name + ".new")
    new.write_text(text)
    new.chmod(0o600)
    _give(new, account)
    new.replace(path)
