"""The API over a real socket: routes, errors, limits, who may connect, and who owns the path."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwatch import __version__
from headwatch.client import Client, connect
from headwatch.endpoint import Claim, SocketTaken
from headwatch.protocol import SearchRequest
from headwatch.server import ApiServer
from headwatch_indexer.errors import NotFresh, Unreachable, WrongUsage
from support.actions import SetActions


@pytest.fixture
def acts() -> Iterator[SetActions]:
    actions = SetActions()
    yield actions
    actions.release.set()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "run" / "hw.sock")


@pytest.fixture
def client(acts: SetActions, path: str) -> Iterator[Client]:
    with Claim(path, "/the/home") as claim, ApiServer(acts, claim):
        yield Client(path, timeout_s=20)


def raw(path: str, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send bytes as they are and read one answer: status, headers, body."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(20)
        sock.connect(path)
        sock.sendall(request)
        data = b""
        while piece := sock.recv(65536):
            data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return int(first.split()[1]), headers, body


def ask(path: str, verb: str, route: str, body: bytes = b"", length: int | None = None) -> tuple[int, Any]:
    size = len(body) if length is None else length
    head = (
        f"{verb} {route} HTTP/1.1\r\nhost: headwatch\r\nconnection: close\r\ncontent-length: {size}\r\n\r\n"
    )
    status, headers, answer = raw(path, head.encode() + body)
    assert headers["headwatch-version"] == __version__
    return status, json.loads(answer)


def test_every_action_answers_as_itself(client: Client, acts: SetActions) -> None:
    """Over the socket every action takes the same arguments and gives the same answer as directly."""
    assert client.status(None) == acts.status(None)
    assert client.status("/r/ä b") == acts.status("/r/ä b")
    request = SearchRequest(query="x", repo=["/r"], k=3, tests=False, cwd="/r")
    assert client.search(request) == acts.search(request)
    assert client.show("a.py#A.b", None, "/r") == acts.show("a.py#A.b", None, "/r")
    assert client.add(["/r"], "name") == acts.add(["/r"], "name")
    assert client.remove("/r", True) == acts.remove("/r", True)
    assert client.list_() == acts.list_()
    assert client.skipped(None, "/r") == acts.skipped(None, "/r")
    assert client.wait("/r", 5, True, "/r") == acts.wait("/r", 5, True, "/r")
    assert client.reconcile(None) == acts.reconcile(None)
    assert list(client.events(follow=False)) == list(acts.events(follow=False))
    assert client.embed(["abc"], "query") == acts.embed(["abc"], "query")
    assert client.metrics() == acts.metrics()
    asked = acts.asked
    pairs = list(zip(asked[::2], asked[1::2], strict=True))
    assert all(over == direct for over, direct in pairs)


def test_health_names_the_daemon(client: Client) -> None:
    """Health tells what a second daemon must say of the first: pid, home and version."""
    told = client.health()
    assert told == {
        "ok": True,
        "pid": os.getpid(),
        "home": "/the/home",
        "version": __version__,
        "state": "fresh",
    }


def test_the_query_may_be_named_text(client: Client, acts: SetActions, path: str) -> None:
    """QUERY is `query`, and `text` means the same; --no-tests works under its own name."""
    assert ask(path, "POST", "/search", b'{"text": "x", "no_tests": true}')[0] == 200
    request = acts.asked[-1][1]
    assert (request.query, request.tests, request.k, request.k_given) == ("x", False, 10, False)


@pytest.mark.parametrize(
    ("route", "body", "status", "word"),
    [
        ("/search", b"{}", 400, "'query' is missing"),
        ("/search", b'{"query": "  "}', 400, "empty"),
        ("/search", b'{"query": "x", "mode": "psychic"}', 400, "psychic"),
        ("/search", b'{"query": "x", "k": 0}', 400, "k:"),
        ("/search", b'{"query": "x", "k": 201}', 400, "k:"),
        ("/search", b'{"query": "x", "lang": "python"}', 400, "unknown key 'lang'"),
        ("/search", b"[1]", 400, "body"),
        ("/search", b"{", 400, "not JSON"),
        ("/search", b'{"query": "\xff"}', 400, "not JSON"),
        ("/search", b"[" * 100_000, 400, "not JSON"),
        ("/wait", b'{"timeout": -1}', 400, "timeout"),
        ("/wait", b'{"timeout": 1e999}', 400, "timeout"),
        ("/repositories", b"{}", 400, "no path"),
        ("/repositories", b'{"repo": "relative"}', 400, "not absolute"),
        ("/embed", b'{"texts": [], "kind": "query"}', 400, "texts"),
        ("/show", b'{"symbol": "a", "repo": "/elsewhere"}', 404, "no worktree"),
        ("/reconcile", b'{"repo": "/boom"}', 500, "RuntimeError"),
        ("/nowhere", b"{}", 404, "/nowhere"),
        ("/status", b"{}", 405, "POST /status"),
    ],
)
@pytest.mark.usefixtures("client")
def test_errors_say_what_and_what_to_do(path: str, route: str, body: bytes, status: int, word: str) -> None:
    """A wrong request gets a fitting status, and a message and a hint in the one documented shape."""
    got, answer = ask(path, "POST", route, body)
    assert got == status
    assert word in answer["error"]["message"]
    assert answer["error"]["hint"]
    assert "secret" not in json.dumps(answer)


def test_not_fresh_is_not_fresh_at_the_client(client: Client, acts: SetActions) -> None:
    """A wait that times out is a 504 for curl and NotFresh (exit 3) for our own client."""
    acts.state = "pending"
    with pytest.raises(NotFresh) as caught:
        client.wait("/r", 0.01, False, "/r")
    assert caught.value.exit_code == 3
    assert ask(client.socket_path, "POST", "/wait", b'{"repo": "/r", "timeout": 0}')[0] == 504


def test_a_body_over_the_limit(client: Client, path: str) -> None:
    """A body of more than 1 MiB is refused before it is all read; the server goes on."""
    status, answer = ask(path, "POST", "/search", b"x" * (1 << 20) + b"x", length=1 << 40)
    assert status == 413
    assert "1048576" in answer["error"]["message"]
    assert client.health()["ok"]


def test_waits_do_not_hold_up_others(client: Client, acts: SetActions) -> None:
    """A hundred waits block nobody: status answers meanwhile, and all get their answer in the end."""
    acts.state = "pending"
    answers: list[Any] = []
    threads = [
        threading.Thread(target=lambda: answers.append(client.wait("/r", 60, False, "/r")["root"]))
        for _ in range(100)
    ]
    for thread in threads:
        thread.start()
    assert Client(client.socket_path, timeout_s=10).status()["state"] == "pending"
    acts.release.set()
    for thread in threads:
        thread.join()
    assert answers == ["/r"] * 100


def test_events_are_streamed(client: Client, acts: SetActions) -> None:
    """Events arrive as they happen, one JSON object a line, while the stream stays open."""
    stream = client.events(follow=True)
    assert [next(stream)["event"] for _ in range(3)] == ["e0", "e1", "e2"]
    assert acts.streaming.wait(10)
    acts.release.set()
    assert [event["event"] for event in stream] == ["last"]


def test_a_reader_who_leaves_a_stream(client: Client) -> None:
    """A follower that hangs up leaves the server whole."""
    stream = client.events(follow=True)
    next(stream)
    stream.close()  # type: ignore[attr-defined]  # a generator
    assert client.health()["ok"]


def test_stop_does_not_wait_for_waiters(acts: SetActions, path: str) -> None:
    """A stopping daemon ends waits and streams instead of outliving them; the socket is gone."""
    acts.state = "pending"
    failed = threading.Event()
    with Claim(path, "/h") as claim:
        server = ApiServer(acts, claim)
        server.start()
        stream = Client(path).events(follow=True)
        next(stream)

        def wait() -> None:
            with pytest.raises(Unreachable, match="stops"):
                Client(path).wait("/r", 100, False, "/r")
            failed.set()

        threading.Thread(target=wait, daemon=True).start()
        while not any(call[0] == "wait" for call in acts.asked):
            pass
        server.stop()
        assert failed.wait(10)
        assert "last" not in [event["event"] for event in stream]
    assert not os.path.exists(path)
    assert connect(path) is None


def test_socket_is_private(client: Client) -> None:
    """The socket is 0600 in a 0700 folder."""
    assert os.stat(client.socket_path).st_mode & 0o777 == 0o600
    assert os.stat(os.path.dirname(client.socket_path)).st_mode & 0o777 == 0o700


def test_the_second_daemon_names_the_first(client: Client) -> None:
    """A live daemon's socket is never taken: the second learns pid and home of the first, exit 1."""
    with pytest.raises(SocketTaken) as caught:
        Claim(client.socket_path, "/other/home")
    assert f"pid {os.getpid()}, home /the/home" in caught.value.message
    assert caught.value.exit_code == 1
    assert client.health()["ok"]


def test_a_daemon_that_has_not_started_yet_is_one_too(path: str) -> None:
    """Between claim and listening the path is taken as well; the lock file says by whom."""
    with Claim(path, "/the/home"), pytest.raises(SocketTaken, match=f"pid {os.getpid()}, home /the/home"):
        Claim(path, "/other")


def test_a_dead_daemons_socket_is_replaced(acts: SetActions, path: str) -> None:
    """What kill -9 leaves behind, socket and lock file, does not keep the next daemon out."""
    code = (
        "import os, sys; from headwatch.endpoint import Claim\n"
        "claim = Claim(sys.argv[1], '/dead'); claim.listen(); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, path], check=False)
    assert os.path.exists(path)
    with Claim(path, "/h") as claim, ApiServer(acts, claim):
        assert Client(path).health()["home"] == "/h"


def test_a_late_leaver_does_not_take_the_new_socket_along(path: str) -> None:
    """A daemon that ends after its path was replaced leaves the new socket alone."""
    old = Claim(path, "/old")
    old.listen().close()
    os.unlink(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as new:
        new.bind(path)
        old.close()
        assert os.path.exists(path)


def test_what_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    """A file in the socket's place is never deleted; nor is another program's live socket."""
    (tmp_path / "file").write_text("precious")
    with pytest.raises(SocketTaken, match="not a socket"):
        Claim(str(tmp_path / "file"), "/h")
    assert (tmp_path / "file").read_text() == "precious"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(str(tmp_path / "live"))
        other.listen()
        accept = threading.Thread(target=lambda: [other.accept()[0].close() for _ in range(2)])
        accept.start()
        with pytest.raises(SocketTaken):
            Claim(str(tmp_path / "live"), "/h")
        accept.join()
    assert os.path.exists(tmp_path / "live")


def test_a_folder_that_others_may_write_to(tmp_path: Path) -> None:
    """A socket in a folder where other users could replace it is refused."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(SocketTaken, match="other users"):
        Claim(str(tmp_path / "open" / "s"), "/h")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_refused(acts: SetActions) -> None:
    """A peer of another user is cut off by the kernel's word for who he is, whatever the file's mode."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run", "s")
        code = (
            "import socket, sys; s = socket.socket(socket.AF_UNIX); s.settimeout(20); s.connect(sys.argv[1])\n"
            "try:\n s.sendall(b'GET /health HTTP/1.1\\r\\nhost: x\\r\\n\\r\\n'); print(len(s.recv(100)))\n"
            "except (BrokenPipeError, ConnectionResetError): print(0)"
        )
        with Claim(path, "/h") as claim, ApiServer(acts, claim):
            for place, mode in ((folder, 0o755), (os.path.dirname(path), 0o755), (path, 0o666)):
                os.chmod(place, mode)
            done = subprocess.run(
                ["/usr/bin/python3", "-c", code, path], user=65534, group=65534, extra_groups=[], capture_output=True,
                text=True, check=False,
            )  # fmt: skip
            assert (done.stdout.strip(), done.returncode) == ("0", 0), done.stderr
            assert Client(path).health()["ok"]


def test_an_idle_server_does_not_wake_up(client: Client) -> None:
    """While nobody asks, the server's thread sleeps: it is not scheduled at all."""
    client.health()
    thread = next(t for t in threading.enumerate() if t.name == "api")
    status = Path(f"/proc/self/task/{thread.native_id}/status")
    if not status.exists():
        pytest.skip("needs /proc")

    def switches() -> int:
        lines = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
        return int(lines["voluntary_ctxt_switches"])

    before = switches()
    threading.Event().wait(1.0)
    assert switches() - before <= 2


def test_slow_heads_are_cut_off(acts: SetActions, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that never completes a request's head is closed."""
    monkeypatch.setattr("headwatch.server._HEADER_TIMEOUT_S", 0.05)
    with Claim(path, "/h") as claim, ApiServer(acts, claim):
        for part in (b"", b"GET /health HTT"):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
                sock.settimeout(20)
                sock.connect(path)
                sock.sendall(part)
                assert sock.recv(100) == b""


@pytest.mark.usefixtures("client")
def test_the_wrong_class_of_error_is_wrong_usage(path: str) -> None:
    """Our client raises a refused body as WrongUsage: exit 2, as on the command line."""
    request = SearchRequest.model_construct(query="x", mode="psychic", _fields_set={"query", "mode"})
    with pytest.raises(WrongUsage, match="psychic"):
        Client(path).search(request)
