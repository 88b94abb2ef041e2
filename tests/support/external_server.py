"""Somebody else's Postgres: on TCP, with passwords, and a login that is no superuser."""

from __future__ import annotations

import os
import secrets
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg import sql

from headwatch import postmaster
from headwatch.dsn import url
from support.databases import FAST

LOGIN = "hw_app"


@contextmanager
def external_server() -> Iterator[str]:
    """Run a server on 127.0.0.1 with scram-sha-256, pgvector in template1; gives the DSN of `hw_app`."""
    with tempfile.TemporaryDirectory(prefix="hw-ext-") as folder:
        data = Path(folder).resolve() / "data"
        account = postmaster.account_for(data)
        postmaster.open_binaries(account)
        if account:
            os.chown(folder, account.uid, account.gid)
        address = {"host": "127.0.0.1", "port": str(_free_port()), "password": secrets.token_hex(16)}
        _initdb(data, address, account)
        postmaster.launch(data, data / "start.log", account)
        try:
            _wait_until_ready(data)
            _make_login(address)
            yield url(address | {"user": LOGIN, "dbname": "postgres"})
        finally:
            postmaster.stop(data, timeout_s=10)


def _initdb(data: Path, address: dict[str, str], account: postmaster.Account | None) -> None:
    password_file = data.parent / "password"
    password_file.write_text(address["password"])
    if account:
        os.chown(password_file, account.uid, account.gid)
    arguments = ["-D", str(data), "-U", "postgres", "--encoding=UTF8", "--locale=C", "--no-sync"]
    arguments += ["--auth=scram-sha-256", f"--pwfile={password_file}"]
    done = postmaster.run_tool("initdb", arguments, account)
    assert done.returncode == 0, done.stderr
    settings = FAST | {"listen_addresses": address["host"], "port": address["port"]}
    with (data / "postgresql.conf").open("a") as file:
        file.writelines(
            f"{name} = '{value}'\n" for name, value in (settings | {"unix_socket_directories": ""}).items()
        )


def _wait_until_ready(data: Path) -> None:
    deadline = time.monotonic() + 30
    while True:
        found = postmaster.find(data)
        if found and found.status == "ready":
            return
        if time.monotonic() > deadline:
            raise AssertionError((data / "start.log").read_text())
        time.sleep(0.02)


def _make_login(address: dict[str, str]) -> None:
    with psycopg.connect(
        url(address | {"user": "postgres", "dbname": "template1"}), autocommit=True
    ) as connection:
        connection.execute("create extension vector")
        connection.execute(
            sql.SQL("create role {} login createdb createrole nosuperuser password {}").format(
                sql.Identifier(LOGIN), sql.Literal(address["password"])
            )
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
