"""The command line as a process: exit codes, what goes to which stream, with and without a daemon."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headwatch import __version__
from headwatch.endpoint import Claim
from headwatch.server import ApiServer
from support.actions import SetActions
from support.worktree import Worktree

Run = Callable[..., "subprocess.CompletedProcess[str]"]
COMMAND = [sys.executable, "-c", "from headwatch.cli import main; main()"]
COMMANDS = [
    "run",
    "add",
    "remove",
    "list",
    "status",
    "wait",
    "search",
    "show",
    "skipped",
    "doctor",
    "events",
    "db",
]


@pytest.fixture
def run(home: Path, tmp_path: Path) -> Run:
    """Run `headwatch ARGUMENTS` in a home of its own."""

    def run(*arguments: str, cwd: Path = tmp_path, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "HEADWATCH_HOME": str(home)} | variables
        return subprocess.run(
            [*COMMAND, *arguments],
            capture_output=True,
            text=True,
            env=environment,
            cwd=cwd,
            check=False,
            timeout=120,
        )

    return run


@pytest.fixture
def acts(home: Path) -> Iterator[SetActions]:
    """A daemon with set answers in that home."""
    actions = SetActions()
    with Claim(str(home / "run" / "headwatch.sock"), str(home)) as claim, ApiServer(actions, claim):
        yield actions
        actions.release.set()


def fails(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    """Exit code, a message and a hint on stderr, and nothing else anywhere."""
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    *_, hint = done.stderr.splitlines()
    assert "\nheadwatch: " in "\n" + done.stderr
    assert hint.startswith("hint: ")
    assert len(hint) > len("hint: ")
    for word in words:
        assert word in done.stderr
    assert "Traceback" not in done.stderr
    assert not set("│╭╰─") & set(done.stderr)


def test_version_and_help(run: Run) -> None:
    """--version names the version; every command explains itself with an example."""
    assert run("--version").stdout == f"headwatch {__version__}\n"
    told = run("--help").stdout
    for command in COMMANDS:
        assert f"  {command} " in told
    for command in [[name] for name in COMMANDS if name != "db"] + [
        ["db", name] for name in ("url", "migrate", "shell", "stats", "stop")
    ]:
        done = run(*command, "--help")
        assert done.returncode == 0
        assert (
            f"Example:\n    {'psql $(' if command == ['db', 'url'] else ''}headwatch {command[0]}"
            in done.stdout
        )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["frobnicate"], ["frobnicate", "headwatch --help"]),
        (["status", "--frob"], ["--frob", "headwatch status --help"]),
        (["search"], ["query"]),
        (["search", "x", "-k", "many"], ["-k"]),
        (["search", "x", "-k", "0"], ["k:"]),
        (["search", "x", "--mode", "psychic"], ["psychic", "lexical"]),
        (["search", " "], ["query: is empty"]),
        (["status", "--watch", "--json"], ["--watch"]),
        (["add"], ["PATH"]),
        (["add", "/no/such/folder"], ["/no/such/folder"]),
        (["run", "--once", "/no/such/folder"], ["/no/such/folder"]),
        (["run", "--json"], ["--once"]),
        (["--set", "nonsense", "status"], ["nonsense"]),
        (["db"], ["db --help"]),
        (["db", "url", "--owner", "--reader"], ["exclude"]),
    ],
)
def test_wrong_usage_is_exit_2(run: Run, arguments: list[str], words: list[str]) -> None:
    """Whatever cannot be meant ends with exit 2, in plain text, with what to do."""
    fails(run(*arguments, HEADWATCH_DATABASE_URL="postgresql:///nowhere"), 2, *words)


def test_no_command_shows_the_help(run: Run) -> None:
    """A bare `headwatch` is wrong usage that explains itself."""
    done = run()
    assert (done.returncode, done.stdout) == (2, "")
    assert "Commands:" in done.stderr


def test_malformed_configuration(run: Run, tmp_path: Path) -> None:
    """A malformed file stops every command with its name and line, exit 1."""
    file = tmp_path / "broken.toml"
    file.write_text("[model\nname = \n")
    for command in (["status"], ["run", "--once", str(tmp_path)], ["doctor"]):
        fails(run(*command, HEADWATCH_CONFIG=str(file)), 1, f"{file}:1:")


def test_what_needs_a_daemon_is_exit_4_without_one(run: Run) -> None:
    """`wait` and `events --follow` cannot work without a daemon and say how to start one."""
    fails(run("wait"), 4, "no headwatch daemon answers", "headwatch run")
    fails(run("events", "--follow"), 4, "headwatch run")


def test_an_unreachable_database_is_exit_4(run: Run) -> None:
    """A database that does not answer is out of reach, and its password is not shown."""
    done = run("status", HEADWATCH_DATABASE_URL="postgresql://u:secret@127.0.0.1:1/d")
    fails(done, 4, "127.0.0.1")
    assert "secret" not in done.stderr


@pytest.mark.usefixtures("acts")
@pytest.mark.parametrize(
    "arguments",
    [["status"], ["list"], ["search", "x"], ["search", "x", "--budget", "9"], ["show", "a.py#A.b"], ["skipped"],
     ["wait"], ["add", "/"], ["remove", "/r"]],
)  # fmt: skip
def test_json_is_one_document_and_nothing_else(run: Run, arguments: list[str]) -> None:
    """With a daemon `--json` prints its answer: one document on stdout, stderr silent."""
    done = run(*arguments, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert isinstance(json.loads(done.stdout), dict)


def test_paths_mean_the_callers_folder(run: Run, acts: SetActions, tmp_path: Path) -> None:
    """The daemon runs elsewhere: it is given whole paths, and the caller's folder."""
    run("show", "a.py#A.b", "--repo", "sub/../here")
    run("wait", "--timeout", "7", "--vectors")
    run("search", "x", "--repo", ".", "--no-tests", "-k", "3")
    show, wait, search = acts.asked
    assert show == ("show", "a.py#A.b", str(tmp_path / "here"), str(tmp_path))
    assert wait == ("wait", None, 7.0, True, str(tmp_path))
    assert search[1].repos == [str(tmp_path)]
    assert (search[1].cwd, search[1].tests, search[1].k) == (str(tmp_path), False, 3)


def test_search_in_text(run: Run, acts: SetActions) -> None:
    """Place, kind and name head a result; long code is cut and says so; control characters are not obeyed."""
    lines = run("search", "x").stdout.splitlines()
    assert lines[0] == "1  a.py:1-32  method A.b  0.5000"
    assert lines[1] == "   def b(self):"
    assert "   … 20 more lines" in lines
    whole = run("show", "a.py#A.b").stdout
    assert "\\x1b[31m" in whole
    assert "\x1b" not in whole
    acts.state = "pending"
    told = run("search", "x").stdout.splitlines()
    assert told[0].startswith("pending (indexing): /r, indexed 1234567")
    assert told[1].startswith("7 vectors missing")
    assert "nothing found" in run("search", "nothing").stdout
    assert run("search", "x", "--budget", "9").stdout.splitlines()[-1] == "packed"


def test_not_fresh_in_time_is_exit_3(run: Run, acts: SetActions) -> None:
    """A wait that ends without freshness says so with exit 3."""
    acts.state = "pending"
    fails(run("wait", "--timeout", "0.05"), 3, "still pending")


def test_an_unexpected_error_is_one_line(run: Run, acts: SetActions) -> None:
    """What nobody foresaw is one line and a hint, never a traceback, unless HEADWATCH_DEBUG asks for it."""
    acts.status = lambda _repo: {"daemon": 1}  # type: ignore[assignment,method-assign,return-value,misc]
    fails(run("status"), 1, "HEADWATCH_DEBUG")
    assert "Traceback" in run("status", HEADWATCH_DEBUG="1").stderr


def test_once_is_handed_to_a_running_daemon(run: Run, acts: SetActions) -> None:
    """`run --once` beside a daemon registers, reconciles and waits through it, vectors too."""
    done = run("run", "--once", "/", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["repositories"][0]["worktrees"][0]["root"] == "/r"
    asked = [call for call in acts.asked if call[0] != "status"]
    assert asked[:2] == [("add", ["/"], None), ("reconcile", "/")]
    assert asked[2][:2] + asked[2][3:4] == ("wait", "/", True)
    acts.asked.clear()
    run("run", "--once", "--no-vectors")
    assert [call[3] for call in acts.asked if call[0] == "wait"] == [False]


def test_a_second_daemon_is_refused(run: Run, acts: SetActions, home: Path) -> None:
    """`run` beside a live daemon names its pid and home, exit 1."""
    done = run("run")
    assert done.returncode == 1
    assert f"pid {os.getpid()}, home {home}" in done.stderr
    assert acts.health()


def _heed_ctrl_c() -> None:
    """A run in the background ignores Ctrl-C, and hands that on to its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_events_are_one_object_a_line(run: Run, acts: SetActions, home: Path) -> None:
    """`events` prints what happened; with --follow each line is there when it happens, and Ctrl-C ends it quietly."""
    lines = run("events").stdout.splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["e0", "e1", "e2"]
    environment = {**os.environ, "HEADWATCH_HOME": str(home)}
    with subprocess.Popen(
        [*COMMAND, "events", "--follow"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=_heed_ctrl_c,
    ) as process:
        assert process.stdout
        assert process.stderr
        assert [json.loads(process.stdout.readline())["event"] for _ in range(3)] == ["e0", "e1", "e2"]
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert process.stderr.read() == ""
    assert acts.health()


@pytest.mark.usefixtures("acts")
def test_watching_shows_each_state(home: Path) -> None:
    """`status --watch` shows the state again and again, also in a pipe, until its reader goes."""
    environment = {**os.environ, "HEADWATCH_HOME": str(home)}
    with subprocess.Popen(
        [*COMMAND, "status", "--watch"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout
        assert process.stderr
        seen = 0
        while seen < 2:
            seen += process.stdout.readline().startswith("daemon")
        process.stdout.close()
        assert process.wait(20) == 0
        assert process.stderr.read() == ""


@pytest.mark.usefixtures("acts")
def test_a_closed_pipe_is_no_error(home: Path) -> None:
    """`headwatch … | head` ends quietly."""
    environment = {**os.environ, "HEADWATCH_HOME": str(home)}
    command = " ".join(f"'{part}'" for part in COMMAND)
    for arguments in ("show a.py#A.b", "list --json", "events"):
        done = subprocess.run(
            ["/bin/bash", "-c", f"{command} {arguments} | true; echo ${{PIPESTATUS[0]}}"],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        assert (done.stdout, done.stderr) == ("0\n", "")


@pytest.mark.usefixtures("acts")
def test_colours_only_at_a_terminal(home: Path) -> None:
    """At a terminal headings are coloured, not with NO_COLOR, and never in a pipe."""

    def at_terminal(**variables: str) -> str:
        master, slave = pty.openpty()
        environment = {**os.environ, "HEADWATCH_HOME": str(home), "TERM": "xterm-256color"} | variables
        said: list[bytes] = []

        def read() -> None:
            try:
                while piece := os.read(master, 65536):
                    said.append(piece)
            except OSError:
                return  # the other end is closed

        reader = threading.Thread(target=read)
        reader.start()
        with subprocess.Popen([*COMMAND, "search", "x"], stdout=slave, env=environment) as process:
            os.close(slave)
            assert process.wait(60) == 0
        reader.join()
        os.close(master)
        return b"".join(said).decode()

    assert "\x1b[36m" in at_terminal()
    assert "\x1b[36m" not in at_terminal(NO_COLOR="1")


@pytest.mark.usefixtures("acts")
def test_a_command_that_only_asks_is_light(home: Path) -> None:
    """`--help` and asking a running daemon import nothing heavy."""
    code = (
        "import sys; from headwatch.cli import run; run(['status', '--json']); run(['list'])\n"
        "heavy = {'starlette', 'uvicorn', 'psycopg', 'torch', 'pygit2', 'numpy', 'structlog', 'asyncio'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    environment = {**os.environ, "HEADWATCH_HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
    )
    assert done.stderr.splitlines()[-1] == "[]"


@pytest.mark.slow
def test_without_a_daemon(run: Run, git_repo: Callable[..., Worktree]) -> None:
    """Straight on the database everything but waiting works, says that no daemon runs, and `db` reaches it."""
    repo = git_repo("project")
    repo.write("a.py", "def quokka():\n    return 1\n")
    repo.git("add", "-A")
    repo.git("commit", "-qm", "first")
    root = Path(repo.root)

    done = run("add", str(root), "--json")
    assert done.returncode == 0, done.stderr
    assert "no daemon runs" in done.stderr
    fails(run("search", "quokka"), 2, str(root))  # outside of a worktree the known ones are listed
    status: dict[str, Any] = json.loads(run("status", "--json").stdout)
    assert status["daemon"]["running"] is False
    assert "not running" in run("status").stdout
    assert str(root) in run("list").stdout
    url = run("db", "url").stdout
    assert url.count("\n") == 1
    assert "app.current_tenant_id" in url
    assert "schema version" in run("db", "migrate").stdout
    assert any(
        table["name"] == "worktree" for table in json.loads(run("db", "stats", "--json").stdout)["tables"]
    )
    assert str(root) in run("db", "shell", "-c", "select root from headwatch.worktree").stdout
    told = run("doctor", "--json")
    checks = {check["name"]: check for check in json.loads(told.stdout)["checks"]}
    assert told.returncode == 0, checks
    assert {"config", "git", "home", "disk", "socket", "daemon", "model", "device", "database", "vector", "schema",
            "dead letters", ".headwatch.toml"} <= checks.keys()  # fmt: skip
    (root / ".headwatch.toml").write_text("include = [\n")
    broken = run("doctor")
    assert broken.returncode == 1
    assert "BAD .headwatch.toml" in broken.stdout
    assert run("remove", str(root)).returncode == 0
    assert run("db", "stop").stdout == "stopped\n"
    assert run("db", "stop").stdout == "it did not run\n"
