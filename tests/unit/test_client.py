"""The client alone: no daemon, a foreign socket, answers that are no answers."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headwatch.client import Client, NoDaemon, connect
from headwatch_indexer.errors import HeadwatchError, NotFresh, Unreachable, WrongUsage

Answer = Callable[[socket.socket], None]


@contextmanager
def answering(path: Path, answer: Answer) -> Iterator[None]:
    """Serve one connection with a hand-written answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(path))
        server.listen()

        def serve() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(65536)
                answer(peer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        thread.join()


def saying(status: str, body: str) -> Answer:
    text = f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\nheadwatch-version: 9.9\r\n\r\n{body}"
    return lambda peer: peer.sendall(text.encode())


def test_nobody_listens(tmp_path: Path) -> None:
    """No socket, and the socket of a dead daemon, both mean that none runs: exit 4."""
    path = tmp_path / "s"
    assert connect(str(path)) is None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(path))
    assert connect(str(path)) is None
    with pytest.raises(NoDaemon) as caught:
        Client(str(path)).status()
    assert caught.value.exit_code == 4
    assert "headwatch run" in caught.value.hint


@pytest.mark.parametrize(
    ("code", "kind"),
    [(1, HeadwatchError), (2, WrongUsage), (3, NotFresh), (4, Unreachable), (99, HeadwatchError)],
)
def test_an_error_comes_back_as_itself(tmp_path: Path, code: int, kind: type[HeadwatchError]) -> None:
    """What the daemon raised is raised here: same message, hint and exit code."""
    body = f'{{"error": {{"message": "m", "hint": "h", "exit_code": {code}}}}}'
    with answering(tmp_path / "s", saying("400 Bad Request", body)), pytest.raises(HeadwatchError) as caught:
        Client(str(tmp_path / "s")).status()
    assert type(caught.value) is kind
    assert (caught.value.message, caught.value.hint) == ("m", "h")


def test_an_error_of_another_shape(tmp_path: Path) -> None:
    """An error answer that is not ours (another program on the socket) is still an error with a hint."""
    with answering(tmp_path / "s", saying("500 Oops", "no json")), pytest.raises(HeadwatchError, match="500"):
        Client(str(tmp_path / "s")).status()


@pytest.mark.parametrize("said", [b"", b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{"])
def test_a_daemon_that_dies_while_it_answers(tmp_path: Path, said: bytes) -> None:
    """A connection that ends too early, or speaks nonsense, is out of reach (exit 4), not a traceback."""
    with answering(tmp_path / "s", lambda peer: peer.sendall(said)), pytest.raises(Unreachable, match="lost"):
        Client(str(tmp_path / "s")).status()


def test_a_daemon_that_hangs(tmp_path: Path) -> None:
    """A daemon that accepts and never answers is out of reach after the time-out."""
    ended = threading.Event()
    with answering(tmp_path / "s", lambda _peer: ended.wait() and None):
        with pytest.raises(Unreachable, match="did not answer"):
            Client(str(tmp_path / "s"), timeout_s=0.05).status()
        ended.set()


def test_the_other_version_is_known(tmp_path: Path) -> None:
    """The client knows the daemon's version after an answer, to say so when it differs."""
    client = Client(str(tmp_path / "s"))
    with answering(tmp_path / "s", saying("200 OK", "{}")):
        assert client.status() == {}
    assert client.server_version == "9.9"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_socket_of_another_user() -> None:
    """A socket that a third user made is not trusted."""
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server,
    ):
        path = Path(folder) / "s"
        server.bind(str(path))
        server.listen()
        os.chmod(folder, 0o755)
        os.chmod(path, 0o777)
        os.chown(path, 65533, 65533)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.seteuid(65534)
                Client(str(path)).status()
            except Unreachable as exc:
                code = 0 if "belongs to user 65533" in exc.message else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
