"""Read blobs out of a clone's object database; what is not there stays there, nothing is fetched."""

from __future__ import annotations

import os
import re
import select
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from headwatch_indexer import git, gitdir
from headwatch_indexer.records import Location

if TYPE_CHECKING:
    import pygit2

# libgit2 and `cat-file` both keep deleted packs open: a repack frees no disk before we let go.
REOPEN_S = 600.0

_OID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_CAT_FILE = ("cat-file", "--batch-command")
_AHEAD = 200  # requests written before an answer is read; 200 x 65 bytes fit any pipe
_READ_SIZE = 1 << 16


class Objects(Protocol):
    """The blobs of one clone. For one thread."""

    def read(self, oid: str) -> bytes | None:
        """Return a blob's content; None when it is missing or no blob."""

    def read_many(self, oids: Iterable[str]) -> Iterator[tuple[str, bytes | None]]:
        """Read blobs in the order of their ids."""
        ...

    def sizes(self, oids: Iterable[str]) -> dict[str, int]:
        """Return the sizes in bytes of those blobs that are there."""
        ...

    def refresh(self) -> None:
        """Let go of packs that are gone, if it is time; cheap, for idle moments."""

    def close(self) -> None:
        """Let go of everything; a later read opens again."""


def open_objects(location: Location) -> Objects:
    """Open a clone's blobs: through libgit2 where it can, else through the git command.

    SHA-256, partial clones and reftable are beyond libgit2. Raises GitFailed when git refuses as well.
    """
    if location.object_format == "sha1" and not gitdir.has_reftable(location.common_dir):
        library = _Library(location)
        if library.opens():
            return library
    command = _Command(location)
    command.check()
    return command


class _Library:
    """Blobs by pygit2."""

    def __init__(self, location: Location) -> None:
        self._common_dir = location.common_dir
        self._command = _Command(location)  # for what libgit2 stumbles over
        self._repository: pygit2.Repository | None = None
        self._seen: object = None
        self._opened_at = 0.0

    def opens(self) -> bool:
        import pygit2

        try:
            self._open()
        except pygit2.GitError:
            return False
        return True

    def read(self, oid: str) -> bytes | None:
        import pygit2

        if not _OID.fullmatch(oid):
            return None
        self.refresh()
        for retry in (False, True):
            repository = self._repository or self._open()
            try:
                kind, content = repository.read(oid)
            except KeyError:
                if retry:
                    return None
                self._drop()
            except pygit2.GitError:
                return self._command.read(oid)
            else:
                return content if kind == pygit2.enums.ObjectType.BLOB else None
        return None

    def read_many(self, oids: Iterable[str]) -> Iterator[tuple[str, bytes | None]]:
        for oid in oids:
            yield oid, self.read(oid)

    def sizes(self, oids: Iterable[str]) -> dict[str, int]:
        import pygit2

        self.refresh()
        odb = (self._repository or self._open()).odb
        found: dict[str, int] = {}
        for oid in oids:
            try:
                kind, size = odb.read_header(oid)
            except (KeyError, ValueError, pygit2.GitError):
                continue
            if kind == pygit2.enums.ObjectType.BLOB:
                found[oid] = size
        return found

    def refresh(self) -> None:
        if self._repository is not None and (
            time.monotonic() - self._opened_at > REOPEN_S or self._seen != _packs(self._common_dir)
        ):
            self._drop()
        self._command.refresh()

    def close(self) -> None:
        self._drop()
        self._command.close()

    def _open(self) -> pygit2.Repository:
        import pygit2

        self._seen = _packs(self._common_dir)
        self._opened_at = time.monotonic()
        self._repository = pygit2.Repository(self._common_dir, pygit2.enums.RepositoryOpenFlag.NO_SEARCH)
        return self._repository

    def _drop(self) -> None:
        if self._repository is not None:
            self._repository.free()
            self._repository = None


class _Command:
    """Blobs by one `git cat-file --batch-command` that is kept open."""

    def __init__(self, location: Location) -> None:
        self._root = location.common_dir
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = bytearray()
        self._seen: object = None
        self._opened_at = 0.0

    def read(self, oid: str) -> bytes | None:
        return next(iter(self.read_many([oid])))[1]

    def read_many(self, oids: Iterable[str]) -> Iterator[tuple[str, bytes | None]]:
        for oid, _, content in self._ask("contents", oids):
            yield oid, content

    def sizes(self, oids: Iterable[str]) -> dict[str, int]:
        return {oid: size for oid, size, _ in self._ask("info", oids) if size is not None}

    def check(self) -> None:
        """Raise GitFailed if git refuses this repository."""
        git.run(self._root, "rev-parse", "--git-dir")

    def refresh(self) -> None:
        if self._process is not None and (
            time.monotonic() - self._opened_at > REOPEN_S or self._seen != _packs(self._root)
        ):
            self.close()

    def close(self) -> None:
        if self._process is not None:
            git.end(self._process)
            self._process = None
            self._buffer.clear()

    def _ask(self, verb: str, oids: Iterable[str]) -> Iterator[tuple[str, int | None, bytes | None]]:
        """Ask for blobs, some ahead of the answers; yields (id, size, content), None for what is missing."""
        self.refresh()
        wanted = list(oids)
        done = 0
        try:
            while done < len(wanted):
                some = wanted[done : done + _AHEAD]
                if bad := next((oid for oid in some if not _OID.fullmatch(oid)), None):
                    raise ValueError(f"not an object id: {bad!r}")
                self._send(b"".join(f"{verb} {oid}\n".encode() for oid in some))
                for oid in some:
                    answer = self._answer(verb)
                    done += 1
                    if answer is None:  # git ended over this one; the ones behind it are asked again
                        yield oid, None, None
                        break
                    yield oid, *answer
        finally:
            if done < len(wanted):  # answers that nobody waits for would be taken for the next ones
                self.close()

    def _send(self, requests: bytes) -> None:
        if self._process is None:
            self._seen = _packs(self._root)
            self._opened_at = time.monotonic()
            self._process = git.start(
                self._root, *_CAT_FILE, stdin=subprocess.PIPE, options=("--no-replace-objects",)
            )
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # why it ended is told where its answer is missed
            self._process.stdin.write(requests)
            self._process.stdin.flush()

    def _answer(self, verb: str) -> tuple[int | None, bytes | None] | None:
        """Read one answer; None when git ended because the object is promised but not here."""
        header = self._until_newline()
        if header is None:
            self._died()
            return None
        fields = header.split()
        if len(fields) != 3:  # "<id> missing", which git also says of a damaged object
            if complaint := self._complaint():
                raise git.GitFailed(self._root, _CAT_FILE, -1, complaint)
            return None, None
        kind, size = fields[1], int(fields[2])
        content = None
        if verb == "contents":
            content = self._exactly(size + 1)[:size]
        return (size, content) if kind == b"blob" else (None, None)

    def _complaint(self) -> str:
        """Read what git has complained of so far."""
        assert self._process is not None and self._process.stderr is not None  # noqa: PT018
        descriptor = self._process.stderr.fileno()
        ready = select.select([descriptor], [], [], 0)[0]
        said = os.fsdecode(os.read(descriptor, _READ_SIZE)) if ready else ""
        return "\n".join(line for line in said.splitlines() if line.startswith(("error: ", "fatal: ")))

    def _until_newline(self) -> bytes | None:
        while (end := self._buffer.find(b"\n")) < 0:
            if not self._fill():
                return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            if not self._fill():
                raise self._failure("ended in the middle of an object")
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data

    def _fill(self) -> bool:
        assert self._process is not None and self._process.stdout is not None  # noqa: PT018
        descriptor = self._process.stdout.fileno()
        if not select.select([descriptor], [], [], git.TIMEOUT_S)[0]:
            self.close()
            raise git.TimedOut(self._root, _CAT_FILE, -1, f"no answer in {git.TIMEOUT_S:g} s")
        data = os.read(descriptor, _READ_SIZE)
        self._buffer += data
        return bool(data)

    def _died(self) -> None:
        """Tell a promised object that is not here from any other failure, which is raised."""
        failure = self._failure("ended without an answer")
        if "promisor" not in failure.stderr:
            raise failure

    def _failure(self, what: str) -> git.GitFailed:
        process = self._process
        assert process is not None and process.stderr is not None  # noqa: PT018
        stderr = os.fsdecode(process.stderr.read()) or what
        code = process.wait()
        self.close()
        return git.GitFailed(self._root, _CAT_FILE, code, stderr)


def _packs(common_dir: str) -> object:
    """Sum up what an open handle would not notice: packs that came or went, grafts, alternates."""
    return tuple(
        gitdir.signature(f"{common_dir}/{name}")
        for name in ("objects/pack", "shallow", "objects/info/alternates")
    )
