"""The embedded server and servers of others: real processes, real sockets."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from headwatch import postmaster
from headwatch.dsn import parse, url
from headwatch.postgres import Database, EmbeddedServer, check, external, keep_up, kept_up, with_tenant
from headwatch_indexer.errors import HeadwatchError, Unreachable
from support.databases import FAST, DatabaseServer

TENANT = "6c84fb90-12c4-11e1-840d-7b25c5ee775a"
START = """
import sys
import tempfile
import traceback
from pathlib import Path
from headwatch.postgres import EmbeddedServer
server = EmbeddedServer(Path(sys.argv[1]), settings={"fsync": "off"})
server.start()
print(server.pid, flush=True)
sys.stdin.read()
"""

_NOBODY = postmaster.Account(65534, 65534)
_LONG_STATEMENT = "select count(*) from generate_series(1, 1000000000) a, generate_series(1, 1000) b"


@pytest.fixture
def embedded(home: Path) -> EmbeddedServer:
    return EmbeddedServer(home, settings=FAST)


@pytest.fixture(scope="module")
def embedded_database() -> Iterator[Database]:
    """The DSNs of a server that no test stops."""
    with tempfile.TemporaryDirectory(prefix="hw-home-") as folder:
        server = EmbeddedServer(Path(folder), settings=FAST)
        yield server.start()
        server.stop()


def _one(dsn: str, statement: str) -> object:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(statement.encode()).fetchone()
        return row[0] if row else None


def test_fresh_home_gets_a_server(embedded: EmbeddedServer) -> None:
    """A first start makes a UTF-8 database with pgvector, on no TCP port, whatever PGPORT says."""
    database = embedded.start()
    assert database.embedded
    assert embedded.running()
    settings = "select current_setting('listen_addresses') || current_setting('server_encoding')"
    assert _one(database.dsn, settings) == "UTF8"
    assert _one(database.dsn, "select '[1,2]'::public.halfvec <-> '[1,2]'::public.halfvec") == 0
    assert check(database.dsn).vector_version is not None
    assert psutil.Process(embedded.pid).net_connections("inet") == []
    assert [parse(dsn)["port"] for dsn in (database.dsn, database.owner_dsn, database.reader_dsn)] == [
        "5432"
    ] * 3


def test_logins_are_no_superusers(embedded_database: Database) -> None:
    """Owner, writer and reader are three logins that row-level security binds; the owner alone creates."""
    database = embedded_database
    for dsn in (database.dsn, database.owner_dsn, database.reader_dsn):
        bound = "select not (rolsuper or rolbypassrls or rolcreaterole or rolcreatedb) from pg_roles"
        assert _one(dsn, f"{bound} where rolname = current_user")
        assert not check(dsn).superuser
    may_create = "select has_database_privilege(current_database(), 'create')"
    may_create += " or has_schema_privilege('public', 'create')"
    assert [_one(dsn, may_create) for dsn in (database.owner_dsn, database.dsn, database.reader_dsn)] == [
        True,
        False,
        False,
    ]
    assert not _one(database.reader_dsn, "select has_database_privilege(current_database(), 'temporary')")


def test_others_have_no_way_in(embedded: EmbeddedServer) -> None:
    """Data and socket are in folders of mode 0700; the home lets nobody list it."""
    database = embedded.start()
    for folder in (embedded.data, embedded.folder, Path(parse(database.dsn)["host"])):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not stat.S_IMODE(embedded.home.stat().st_mode) & 0o066


def test_log_holds_no_statements(embedded: EmbeddedServer) -> None:
    """Neither a failed statement nor the rows it names get into the log."""
    database = embedded.start()
    with psycopg.connect(database.owner_dsn) as connection:
        connection.execute("create table t (name text primary key)")
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute("insert into t values ('source text'), ('source text')")
    embedded.stop()
    log = "".join(path.read_text() for path in (embedded.data / "log").iterdir())
    assert "duplicate key" in log
    assert "source text" not in log


def test_running_server_is_reused(embedded: EmbeddedServer) -> None:
    """A second start, from another object too, finds the same process."""
    embedded.start()
    pid = embedded.pid
    other = EmbeddedServer(embedded.home)
    assert other.start() == embedded.database()
    assert other.pid == pid


def test_server_outlives_who_started_it(embedded: EmbeddedServer) -> None:
    """A server whose starter was killed is adopted, not started again."""
    with _starter(embedded.home) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        starter.kill()
    embedded.start()
    assert embedded.pid == pid


def test_killed_postmaster_is_replaced(embedded: EmbeddedServer) -> None:
    """After kill -9 of the postmaster, a zombie perhaps, the next start recovers what was committed."""
    database = embedded.start()
    with psycopg.connect(database.owner_dsn) as connection:
        connection.execute("create table t as select 1 as x")
    pid = _kill(embedded)
    database = embedded.start()
    assert embedded.pid not in (None, pid)
    assert _one(database.owner_dsn, "select x from t") == 1


def test_busy_backend_of_a_killed_postmaster_is_ended(embedded: EmbeddedServer) -> None:
    """A backend that works on without its postmaster is ended before a new one touches the files."""
    dsn = embedded.start().dsn
    command = [postmaster.binary("psql"), "-X", "-c", _LONG_STATEMENT, dsn]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as client:
        try:
            backend = _busy_backend(dsn)
            _kill(embedded)
            embedded.start()
            assert postmaster.dead(backend)
        finally:
            client.kill()
    assert _one(dsn, "select 1") == 1


def test_pid_of_another_program_is_stale(embedded: EmbeddedServer) -> None:
    """A postmaster.pid that names a living process which is no Postgres does not stop a start."""
    embedded.start()
    embedded.stop()
    (embedded.data / "postmaster.pid").write_text(f"{os.getpid()}\n{embedded.data}\n1\n5432\n\n")
    assert not embedded.running()
    embedded.start()
    assert embedded.running()


def test_two_starts_make_one_server(home: Path) -> None:
    """Two processes that start at once in a new home end up with the same server."""
    with _starter(home) as one, _starter(home) as two:
        assert one.stdout is not None
        assert two.stdout is not None
        pids = {int(one.stdout.readline()), int(two.stdout.readline())}
        assert pids == {EmbeddedServer(home).pid}
        one.kill()
        two.kill()


def test_interrupted_first_start_is_repeated(embedded: EmbeddedServer) -> None:
    """What a killed initdb left behind is thrown away."""
    embedded.start()
    embedded.stop()
    embedded.data.rename(embedded.folder / "data.new")
    (embedded.folder / "data.new" / "PG_VERSION").unlink()
    embedded.start()
    assert embedded.running()


def test_stop_ends_it(embedded: EmbeddedServer) -> None:
    """After stop nothing runs and no socket is left; stopping twice, or before a start, is nothing."""
    embedded.stop()
    database = embedded.start()
    pid = embedded.pid
    assert pid is not None
    embedded.stop()
    assert postmaster.dead(pid)
    assert not embedded.running()
    assert not Path(parse(database.dsn)["host"]).exists()
    embedded.stop()
    with pytest.raises(Unreachable):
        embedded.database()


def test_stop_does_not_wait_for_clients(embedded: EmbeddedServer) -> None:
    """An idle connection of somebody else does not hold a stop up."""
    with psycopg.connect(embedded.start().reader_dsn) as connection:
        embedded.stop()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("select 1")


def test_kept_up_server_stays(embedded: EmbeddedServer) -> None:
    """A server that is marked to stay up is left by close, and stop ends it and clears the mark."""
    embedded.start()
    keep_up(embedded.home, on=True)
    embedded.close()
    assert embedded.running()
    embedded.stop()
    assert not kept_up(embedded.home)
    embedded.start()
    embedded.close()
    assert not embedded.running()


@pytest.mark.parametrize("name", ["with space 'and' \"quotes\" $HOME `x` ü", "/".join(["long" * 12] * 6)])
def test_any_home(home: Path, name: str) -> None:
    """A home may have any name and length: the socket's path stays short."""
    embedded = EmbeddedServer(home / name, settings=FAST)
    try:
        database = embedded.start()
        assert len(os.fsencode(Path(parse(database.dsn)["host"]) / ".s.PGSQL.5432")) < 100
        assert _one(database.dsn, "select 1") == 1
    finally:
        embedded.stop()


def test_long_tempdir(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A TMPDIR that is too deep for a socket is not used for it."""
    deep = home / ("deep" * 30)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    embedded = EmbeddedServer(home, settings=FAST)
    assert _one(embedded.start().dsn, "select 1") == 1


@pytest.mark.parametrize("form", ["url", "keywords"])
def test_printed_dsn_works_from_psql(embedded_database: Database, form: str) -> None:
    """The DSN with a tenant works as it is in psql and psycopg, and its sessions have that tenant."""
    dsn = embedded_database.reader_dsn
    if form == "keywords":
        dsn = " ".join(f"{key}={value}" for key, value in parse(dsn).items())
    dsn = with_tenant(dsn, TENANT)
    show = "select current_setting('app.current_tenant_id')"
    done = subprocess.run(
        [postmaster.binary("psql"), "-XAt", "-c", show, dsn],
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], "PGPORT": "1"},
    )
    assert (done.stdout.strip(), done.stderr) == (TENANT, "")
    assert _one(dsn, show) == TENANT


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.usefixtures("embedded_database")  # loads every module that the other user may be unable to read
def test_works_as_a_normal_user(home: Path) -> None:
    """A normal user's server is that user's, opens no folder, and stays theirs when root starts it."""
    home.chmod(0o711)
    own = home / "own"
    own.mkdir(mode=0o700)
    os.chown(own, _NOBODY.uid, _NOBODY.gid)
    postmaster.open_binaries(_NOBODY)
    embedded = EmbeddedServer(own, settings=FAST)
    try:
        assert _as_nobody(embedded.start) == 0
        assert psutil.Process(embedded.pid).uids().real == _NOBODY.uid
        assert stat.S_IMODE(own.stat().st_mode) == 0o700
        assert _as_nobody(embedded.stop) == 0
        assert not embedded.running()
        embedded.start()
        assert psutil.Process(embedded.pid).uids().real == _NOBODY.uid
        assert stat.S_IMODE(own.stat().st_mode) == 0o700
    finally:
        embedded.stop()


def test_other_version_is_refused(embedded: EmbeddedServer) -> None:
    """A data directory of another PostgreSQL is left alone, and the error says what to do."""
    embedded.data.mkdir(parents=True)
    (embedded.data / "PG_VERSION").write_text("16\n")
    with pytest.raises(HeadwatchError, match="made by PostgreSQL 16") as caught:
        embedded.start()
    assert "pg_dump" in caught.value.hint


def test_failed_start_tells_the_reason(embedded: EmbeddedServer) -> None:
    """A server that cannot start is reported at once, with what it said."""
    embedded.start()
    embedded.stop()
    with (embedded.data / "postgresql.conf").open("a") as file:
        file.write("shared_preload_libraries = 'no_such_library'\n")
    with pytest.raises(Unreachable, match="no_such_library") as caught:
        embedded.start()
    assert "log" in caught.value.hint


def test_slow_start_is_told_and_then_adopted(home: Path) -> None:
    """A start that takes too long is unreachable for now; the next one finds the server."""
    with pytest.raises(Unreachable, match="needs more than 0 s"):
        EmbeddedServer(home, settings=FAST, start_timeout_s=0).start()
    embedded = EmbeddedServer(home, settings=FAST)
    pid = embedded.pid
    embedded.start()
    assert pid in (None, embedded.pid)


def test_home_that_cannot_be_made(tmp_path: Path) -> None:
    """A home that is no folder is an error with a hint, not a traceback."""
    (tmp_path / "file").write_text("")
    with pytest.raises(HeadwatchError) as caught:
        EmbeddedServer(tmp_path / "file" / "home").start()
    assert "HEADWATCH_HOME" in caught.value.hint


def test_socket_folder_of_somebody_else_is_refused(embedded: EmbeddedServer, tmp_path: Path) -> None:
    """A link that waits where the socket's folder goes is not followed."""
    host = Path(parse(embedded.start().dsn)["host"])
    embedded.stop()
    host.symlink_to(tmp_path)
    try:
        with pytest.raises(HeadwatchError, match="somebody else"):
            embedded.start()
    finally:
        host.unlink()
    assert list(tmp_path.iterdir()) == []


def test_external_server_is_checked(external_server: str) -> None:
    """A server behind a URL serves all three purposes and is looked at before it is used."""
    database = external(external_server)
    assert {database.dsn, database.owner_dsn, database.reader_dsn} == {external_server}
    assert not database.embedded
    info = check(url(parse(external_server) | {"dbname": "template1"}))
    assert (info.superuser, info.version_num // 10000) == (False, postmaster.MAJOR)
    assert info.vector_version is not None


def test_wrong_password_is_not_shown(external_server: str) -> None:
    """A refused login is unreachable; the message names the server, not the password."""
    dsn = url(parse(external_server) | {"password": "hunter2"})
    with pytest.raises(Unreachable, match="password authentication failed") as caught:
        check(dsn)
    assert "hunter2" not in caught.value.message + caught.value.hint
    assert "hw_app:***@127.0.0.1" in caught.value.message
    assert caught.value.exit_code == 4
    assert caught.value.__suppress_context__


def test_nobody_listens(home: Path) -> None:
    """A server that is not there is unreachable, with a hint."""
    with pytest.raises(Unreachable) as caught:
        check(f"postgresql://u:hunter2@/d?host={home}")
    assert "is Postgres running" in caught.value.hint
    assert "hunter2" not in caught.value.message


def test_missing_vector_tells_the_statement(external_server: str) -> None:
    """Where pgvector is installed but not in the database, the hint is what an administrator has to run."""
    with psycopg.connect(external_server, autocommit=True) as connection:
        connection.execute("create database no_vector template template0")
    with pytest.raises(HeadwatchError, match="lacks the extension vector") as caught:
        check(url(parse(external_server) | {"dbname": "no_vector"}))
    assert "create extension vector;" in caught.value.hint
    assert "'no_vector'" in caught.value.hint


def test_superuser_may_still_make_vector(embedded_database: Database) -> None:
    """A login that can make the extension is not turned away for its absence."""
    parameters = parse(embedded_database.dsn) | {"user": "postgres", "dbname": "postgres"}
    info = check(url(parameters))
    assert (info.superuser, info.vector_version) == (True, None)


def test_databases_are_the_tests_own(server: DatabaseServer, template: str) -> None:
    """What one test writes, the next does not see."""
    with server.fresh("hw_test", template) as one, server.fresh("hw_test", template) as two:
        with psycopg.connect(one.owner_dsn) as connection:
            connection.execute("create table only_here (x int)")
        assert _one(two.owner_dsn, "select to_regclass('only_here')") is None
        assert _one(one.dsn, "select to_regclass('only_here')") == "only_here"


def _starter(home: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", START, str(home)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def _as_nobody(work: Callable[[], object]) -> int:
    """Run work in a forked process of another user: the interpreter itself may be out of that user's reach."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        os.setgroups([])
        os.setgid(_NOBODY.gid)
        os.setuid(_NOBODY.uid)
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def _busy_backend(dsn: str) -> int:
    query = "select pid from pg_stat_activity where state = 'active' and query = %s"
    with psycopg.connect(dsn, autocommit=True) as connection:
        while not (row := connection.execute(query, [_LONG_STATEMENT]).fetchone()):
            pass
    return int(row[0])


def _kill(embedded: EmbeddedServer) -> int:
    pid = embedded.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    return pid
