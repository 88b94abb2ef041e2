"""The process: opens its parts in order, says when it is ready, and closes them in reverse."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import structlog

from headwatch import __version__, home, systemd
from headwatch.actions import DatabaseActions
from headwatch.config import Config
from headwatch.database import open_database
from headwatch.endpoint import Claim
from headwatch.engine import Engine
from headwatch.hints import Target
from headwatch.protocol import Answer, Progress
from headwatch.schedule import Schedule
from headwatch.server import ApiServer
from headwatch.watch import Watcher
from headwatch_indexer import git
from headwatch_indexer.errors import HeadwatchError
from headwatch_indexer.records import Location

log = structlog.get_logger()

_HEARTBEAT_S = 10.0
_ONCE_S = 86_400.0


def run_daemon(config: Config, paths: Sequence[str], vectors: bool) -> int:
    """Run until a signal or a failed part ends it; returns the exit code.

    Raises SocketTaken when another daemon runs, and whatever opening the database or a path raises.
    """
    ended = threading.Event()
    failures: list[BaseException] = []

    def failed(error: BaseException) -> None:
        failures.append(error)
        ended.set()

    with _signals(ended), ExitStack() as stack:
        claim = stack.enter_context(Claim(config.socket, config.home))
        stack.enter_context(home.claim(config.home, config.socket))
        opened = stack.enter_context(open_database(config, claimed=True))
        engine = stack.enter_context(Engine(config, opened, vectors=vectors))
        engine.dispatcher.failed = failed
        engine.watcher = Watcher(
            engine.offer,
            _ignored_directories,
            ignored_files=_ignored_files,
            polling=config.watch.polling,
            failed=failed,
        )
        stack.callback(engine.watcher.stop)
        engine.watcher.start()
        actions = DatabaseActions(config, opened, engine)
        stack.callback(actions.close)
        engine.load()
        for path in paths:
            engine.add(path, None)
        engine.schedule = stack.enter_context(_scheduled(config, engine))
        stack.enter_context(ApiServer(actions, claim, failed))
        engine.dispatcher.start()
        if vectors:
            engine.embedder.ensure_started()
        engine.tell("started", None, version=__version__, pid=os.getpid())
        log.info("ready", socket=config.socket, home=config.home, worktrees=len(engine.worktrees()))
        if not engine.worktrees():
            log.info("nothing is registered", hint="headwatch add PATH")
        systemd.notify("READY=1")
        while not ended.wait(_watchdog_s()):
            systemd.notify("WATCHDOG=1")
        systemd.notify("STOPPING=1")
        engine.tell("stopped", None)
        log.info("stopping")
    if failures:
        raise failures[0]
    return 0


def run_once(config: Config, paths: Sequence[str], vectors: bool, progress: Progress) -> Answer:
    """Bring everything up to date with the parts that the daemon has too, and report."""
    with ExitStack() as stack:
        stack.enter_context(Claim(config.socket, config.home))
        stack.enter_context(home.claim(config.home, config.socket))
        opened = stack.enter_context(open_database(config, claimed=True))
        engine = stack.enter_context(Engine(config, opened, vectors=vectors))
        chosen = {id_ for path in paths for id_ in engine.add(path, None)}
        if not paths:
            engine.load()
            engine.discover()
        engine.dispatcher.start()
        rows = [row for row in engine.worktrees() if not chosen or row.id in chosen]
        progress.task("reading worktrees", len(rows))
        problems = {row.root: problem for row in rows if (problem := _read(engine, row.id, progress))}
        if vectors:
            for row in rows:
                if row.root not in problems:
                    _embed(engine, row.id, progress)
        actions = DatabaseActions(config, opened, engine)
        stack.callback(actions.close)
        answer = actions.status(None)
        if problems:
            raise HeadwatchError(
                f"{len(problems)} of {len(rows)} worktrees could not be read: "
                + "; ".join(f"{root}: {problem}" for root, problem in problems.items()),
                hint="mend or remove them (headwatch remove PATH); all others are up to date",
            )
        return {"repositories": answer["repositories"], "counters": answer["counters"]}


def _read(engine: Engine, worktree: int, progress: Progress) -> str | None:
    """Wait for a pass over one worktree, saying what it waits for; returns why there can be none."""
    told = None
    end = time.monotonic() + _ONCE_S
    while True:
        try:
            if engine.dispatcher.wait(worktree, 0, 1.0):
                progress.advance()
                return None
        except HeadwatchError as exc:
            return exc.message
        if (problem := engine.dispatcher.gives_up(worktree)) is not None:
            return problem
        if time.monotonic() > end:
            return "no pass within a day"
        waits_for = engine.dispatcher.problem(worktree)
        if waits_for is not None and waits_for != told:
            progress.note(f"headwatch: waiting: {waits_for}")
        told = waits_for


def _embed(engine: Engine, worktree: int, progress: Progress) -> None:
    """Drain the vector queue of a worktree, showing how far it has come."""
    total = left = engine.waiting(worktree)
    if not total:
        return
    progress.task("embedding", total)
    while not engine.wait_vectors(worktree, time.monotonic() + 1.0):
        now = engine.waiting(worktree)
        progress.advance(left - now)
        left = now
    progress.advance(left)


@contextmanager
def _scheduled(config: Config, engine: Engine) -> Iterator[Schedule]:
    schedule = Schedule()
    schedule.every(_HEARTBEAT_S, "heartbeat", engine.beat)
    schedule.every(config.watch.token_s, "tokens", engine.check_tokens)
    schedule.every(config.watch.stat_s, "reconcile", engine.look_at_all)
    schedule.every(config.watch.hash_s, "hash", lambda: engine.look_at_all(full=True))
    schedule.every(60.0, "embed", engine.embed_leftovers)
    schedule.every(86_400.0, "trim", engine.trim)
    schedule.start()
    try:
        yield schedule
    finally:
        schedule.stop()


@contextmanager
def _signals(ended: threading.Event) -> Iterator[None]:
    """The first SIGTERM or SIGINT drains, the second interrupts."""

    def stop(number: int, _frame: object) -> None:
        if ended.is_set():
            raise KeyboardInterrupt
        ended.set()

    old = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def _watchdog_s() -> float | None:
    """How often systemd wants to hear from this process; never, outside of it."""
    micros = os.environ.get("WATCHDOG_USEC")
    return int(micros) / 2_000_000 if micros and micros.isdigit() else None


def _ignored_directories(target: Target, directories: Sequence[bytes]) -> set[bytes]:
    return git.ignored(_location(target), directories, directories=True)


def _ignored_files(target: Target, files: Sequence[bytes]) -> set[bytes]:
    return git.ignored(_location(target), files, directories=False)


def _location(target: Target) -> Location:
    return Location(target.root, target.git_dir, target.common_dir, object_format="sha1")
