"""A real `headwatch run` for tests: a process with a home and a socket of its own."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg

from headwatch.postgres import EmbeddedServer
from support import oracle
from support.databases import FAST
from support.eventually import eventually
from support.worktree import ISOLATED, Worktree

COMMAND = [sys.executable, "-c", "from headwatch.cli import main; main()"]
# The jobs that look at everything by the clock would hide that an event was missed.
QUIET = ("--set", "watch.stat_s=3600", "--set", "watch.token_s=3600")


class Refused(Exception):
    """An error answer of the socket."""

    def __init__(self, status: int, error: dict[str, Any]) -> None:
        super().__init__(f"{status}: {error['message']} ({error['hint']})")
        self.status = status
        self.message: str = error["message"]
        self.hint: str = error["hint"]
        self.exit_code: int = error["exit_code"]


class Daemon:
    """`headwatch run` in one home; `options` are global flags, `variables` extend a clean environment."""

    def __init__(self, home: Path, *options: str, vectors: bool = False, **variables: str) -> None:
        self.home = home
        self.socket = home / "run" / "headwatch.sock"
        self.options = options
        self.vectors = vectors
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "HEADWATCH_"))
        }
        self.environment |= ISOLATED | {
            "HEADWATCH_HOME": str(home),
            "HEADWATCH_SOCKET": str(self.socket),
            "XDG_CONFIG_HOME": str(home / "no-config"),
            "HF_HUB_OFFLINE": "1",
        }
        self.environment |= variables
        self._process: subprocess.Popen[bytes] | None = None
        self._log = home / "daemon.log"
        self._dsn: str | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def launch(self, *paths: Path) -> subprocess.Popen[bytes]:
        """Start the process, without waiting for it."""
        vectors = () if self.vectors else ("--no-vectors",)
        command = [*COMMAND, *self.options, "run", *vectors, *map(str, paths)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd="/", env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        return self._process

    def start(self, *paths: Path) -> Daemon:
        """Start the process, and return when the socket answers."""
        process = self.launch(*paths)

        def answers() -> bool:
            assert process.poll() is None, f"ended with {process.returncode}:\n{self.log()}"
            with suppress(OSError):
                return bool(self.health()["pid"] == process.pid)
            return False

        eventually(answers, "the socket answers")
        return self

    def stop(self, timeout_s: float = 20.0) -> int:
        """Ask for the end with SIGTERM; returns the exit code."""
        assert self._process is not None
        self._process.terminate()
        self._dsn = None  # the database goes with the daemon, unless it is asked to stay
        return self._process.wait(timeout_s)

    def kill(self) -> None:
        """End the process with SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Leave nothing running, whatever state the test left."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            try:
                self.stop()
            except subprocess.TimeoutExpired:
                self.kill()
        EmbeddedServer(self.home).stop()

    def log(self) -> str:
        """What every process of this home wrote."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def logged(self) -> list[dict[str, Any]]:
        """The log's lines; fails on one that is not JSON, as a traceback is not."""
        return [json.loads(line) for line in self.log().splitlines()]

    def child(self, module: str) -> psutil.Process | None:
        """The process of `python -m module` below the daemon; a zombie is none."""
        for process in psutil.Process(self.pid).children():
            with suppress(psutil.Error):
                if module in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                    return process
        return None

    def call(self, verb: str, route: str, body: object = None, timeout_s: float = 120.0) -> Any:
        """Send one request and return its document; raises Refused for an error answer."""
        with self.request(verb, route, body, timeout_s) as answer:
            return json.loads(answer.read())

    @contextmanager
    def request(
        self, verb: str, route: str, body: object = None, timeout_s: float = 120.0
    ) -> Iterator[http.client.HTTPResponse]:
        """Send one request; gives the answer, to be read while it comes."""
        connection = _Connection(str(self.socket), timeout_s)
        headers = {"Content-Type": "application/json", "Connection": "close"}
        try:
            connection.request(verb, route, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            if answer.status >= 400:
                raise Refused(answer.status, json.loads(answer.read())["error"])
            yield answer
        finally:
            connection.close()

    def health(self) -> dict[str, Any]:
        answer: dict[str, Any] = self.call("GET", "/health", timeout_s=10)
        return answer

    def status(self) -> dict[str, Any]:
        answer: dict[str, Any] = self.call("GET", "/status")
        return answer

    def counters(self) -> dict[str, int]:
        counters: dict[str, int] = self.status()["counters"]
        return counters

    def worktrees(self) -> dict[str, dict[str, Any]]:
        """The worktrees of the status document, by root."""
        return {w["root"]: w for r in self.status()["repositories"] for w in r["worktrees"]}

    def worktree(self, root: Path) -> dict[str, Any]:
        """One worktree of the status document."""
        return self.worktrees()[os.path.realpath(root)]

    def add(self, root: Path) -> None:
        self.call("POST", "/repositories", {"repo": str(root)})

    def remove(self, root: Path) -> None:
        self.call("POST", "/remove", {"repo": str(root), "purge": True})

    def wait(self, root: Path, *, vectors: bool = False, timeout_s: float = 60.0) -> dict[str, Any]:
        """Wait until the rows of a worktree match its disk; returns its entry of the status document."""
        body = {"repo": str(root), "vectors": vectors, "timeout": timeout_s}
        entry: dict[str, Any] = self.call("POST", "/wait", body, timeout_s + 30)
        return entry

    def settle(self, tree: Worktree) -> dict[str, Any]:
        """Wait, and compare all rows of the worktree with an index made from scratch."""
        entry = self.wait(tree.root)
        oracle.assert_equal(self.dsn(), tree.root)
        return entry

    def catches_up(self, tree: Worktree, generation: int) -> dict[str, Any]:
        """Return when events alone have brought the worktree past a generation; nothing is left to find then."""

        def fresh() -> bool:
            seen = self.worktree(tree.root)
            return bool(seen["generation"] > generation and seen["text_fresh"])

        eventually(fresh, f"{tree.root} is past generation {generation}", 30)
        seen = self.worktree(tree.root)
        assert self.settle(tree)["generation"] == seen["generation"], "the events did not tell everything"
        return seen

    def search(self, query: str, root: Path, **more: object) -> list[dict[str, Any]]:
        """Search a worktree by words, or as `more` says."""
        body = {"query": query, "repo": str(root), "mode": "lexical"} | more
        results: list[dict[str, Any]] = self.call("POST", "/search", body)["results"]
        return results

    def events(self) -> list[dict[str, Any]]:
        """The journal and the transitions, oldest first."""
        with self.request("GET", "/events?follow=false") as answer:
            return [json.loads(line) for line in answer]

    def dsn(self) -> str:
        """What `headwatch db url` prints."""
        if self._dsn is None:
            self._dsn = self.run("db", "url").stdout.strip()
        return self._dsn

    def sql(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Ask the database as any reader does."""
        with psycopg.connect(self.dsn(), autocommit=True) as conn:
            return conn.execute(query.encode(), parameters or None).fetchall()

    def run(
        self, *arguments: str, cwd: Path | None = None, code: int = 0, timeout_s: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        """Run another command in this home; fails when it does not exit with `code`."""
        done = subprocess.run(
            [*COMMAND, *self.options, *arguments],
            cwd=cwd or "/",
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        assert done.returncode == code, f"exit {done.returncode}:\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr
        return done


class Follower:
    """`GET /events` read in a thread while it streams."""

    def __init__(self, daemon: Daemon) -> None:
        self.seen: list[dict[str, Any]] = []
        self._daemon = daemon
        self._thread = threading.Thread(target=self._read, name="follower", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with (
            suppress(OSError, http.client.HTTPException),
            self._daemon.request("GET", "/events", timeout_s=170) as answer,
        ):
            for line in answer:
                self.seen.append(json.loads(line))

    def join(self) -> None:
        """Return when the stream has ended."""
        self._thread.join(30)
        assert not self._thread.is_alive()


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("headwatch", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def populate(tree: Worktree) -> Worktree:
    """Commit a few files that no other test's repository has, so that it is a repository of its own."""
    tree.write("README.md", f"# {tree.root.name}\n\nMade for {tree.root}.\n")
    tree.write("pkg/shapes.py", "class Circle:\n    def area(self):\n        return 3 * self.r ** 2\n")
    tree.write("pkg/util.py", "def clamp(x, low, high):\n    return max(low, min(x, high))\n")
    tree.write("pkg/text.py", "def shout(words):\n    return words.upper()\n\nLOUD = 11\n")
    tree.write("cmd/main.go", "package main\n\nfunc Run(n int) int {\n\treturn n + 1\n}\n")
    tree.write(".gitignore", "*.log\nbuild/\n")
    tree.commit("first")
    return tree


@contextmanager
def daemon(prepared: Path | None, *options: str, vectors: bool = False, **variables: str) -> Iterator[Daemon]:
    """A daemon that was not started yet, in a home of its own; nothing of it is left in the end.

    `prepared` is a home whose database is copied, as making one takes seconds. The home is outside pytest's
    folder, whose mode another run of pytest resets under a running server.
    """
    with tempfile.TemporaryDirectory(prefix="hw-home-", ignore_cleanup_errors=True) as folder:
        home = Path(folder).resolve()
        if prepared is not None:
            subprocess.run(["cp", "-Rp", prepared / "postgres", home], check=True)
        one = Daemon(home, *options, vectors=vectors, **variables)
        try:
            yield one
        finally:
            one.close()


@contextmanager
def prepared_home() -> Iterator[Path]:
    """A home with a migrated database that does not run, and does not wait for the disk when it does."""
    with daemon(None) as maker:
        maker.run("db", "migrate")
        maker.run("db", "stop")
        with (maker.home / "postgres" / "data" / "postgresql.conf").open("a") as conf:
            conf.writelines(f"{name} = '{value}'\n" for name, value in FAST.items())
        yield maker.home
