"""Everything a command or a route does: on the database, and with the daemon's help where one runs."""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import Any, Protocol

import psutil
from psycopg_pool import ConnectionPool, PoolTimeout

from headwatch import __version__, status
from headwatch.config import Config
from headwatch.database import Opened, open_database
from headwatch.locate import worktree_of
from headwatch.protocol import Answer, SearchRequest
from headwatch_indexer import languages, registry, retrieval, store
from headwatch_indexer.errors import HeadwatchError, NotFresh, Unreachable, WrongUsage
from headwatch_indexer.models import model_info
from headwatch_indexer.records import KINDS
from headwatch_indexer.rules import load_rules
from headwatch_indexer.store import WorktreeRow

_PACKED = 6  # results in a packed context, unless the caller chose k
_CHARACTERS_A_TOKEN = 3.6


class Engine(Protocol):
    """What a running daemon adds to the database."""

    def embed_query(self, text: str, *, patient: bool) -> list[float] | None:
        """Embed a query; None when the model is not ready within a reader's patience."""

    def embed(self, texts: list[str], kind: str) -> list[list[float]]: ...
    def add(self, path: str, name: str | None) -> list[int]: ...
    def remove(self, worktree: int, purge: bool) -> None: ...
    def wait(self, worktree: WorktreeRow, timeout_s: float, vectors: bool) -> bool: ...
    def look(self, worktree: int) -> int: ...
    def problem(self, worktree: int) -> str | None: ...
    def discover(self) -> None: ...
    def state(self) -> Mapping[str, Any]:
        """The daemon's own parts of the status document: daemon, model, queues, schedule, counters."""
        ...

    def follow(self) -> Iterator[None]:
        """Yield whenever something happened that the journal may tell."""
        ...


class DatabaseActions:
    """The actions, straight on the database; with an engine, those of a daemon."""

    def __init__(self, config: Config, opened: Opened, engine: Engine | None = None) -> None:
        self._config = config
        self._opened = opened
        self._engine = engine
        self._pool: ConnectionPool[store.Connection] = ConnectionPool(
            opened.dsn,
            min_size=1,
            max_size=8 if engine else 2,
            kwargs={"autocommit": True, "application_name": "headwatch reader", "prepare_threshold": 3},
            configure=_configure,
            check=ConnectionPool.check_connection,  # a server that was started again left dead ones behind
            open=True,
            timeout=15,
            num_workers=1,
            name="readers",
        )

    def close(self) -> None:
        self._pool.close(timeout=2)

    def status(self, repo: str | None) -> Answer:
        with self._connection() as conn:
            rows = store.worktrees(conn, host=host())
            if repo is not None:
                rows = [worktree_of(repo, rows)]
            waiting = status.pending_vectors(conn)
            transitions = store.transitions(conn)
            entries = []
            for row in rows:
                now = status.live(row)
                state, reason = (
                    status.with_daemon(row, now[0]) if self._engine else status.without_daemon(row)
                )
                entry = status.worktree(
                    row, state, reason, now, waiting.get(row.id, 0), transitions.get(row.id)
                )
                if (problem := load_rules(row.root).problem) is not None:
                    entry["reason"] = problem if reason is None else f"{reason}; {problem}"
                entries.append((row.repository_id, entry))
            owners = {owner for owner, _ in entries}
            repositories = [r for r in store.repositories(conn) if r.id in owners]
            answer: Answer = {
                "version": __version__,
                "daemon": {"running": False},
                "state": status.overall(entries),
                "database": status.database(conn, embedded=self._opened.embedded),
                "model": self._model(),
                "repositories": status.by_repository(repositories, entries),
                "queues": {"hints": 0, "jobs": 0, "vectors": 0, "dead_letters": 0},
                "schedule": [],
                "freshness": dict.fromkeys(("facts", "current", "stale", "unresolved", "unchecked"), 0),
                "counters": dict.fromkeys(status.COUNTERS, 0),
            }
            if self._engine:
                answer |= self._engine.state()
            answer["queues"]["vectors"] = status.queued_vectors(conn)
            answer["queues"]["dead_letters"] = status.dead_letters(conn)
        return answer

    def search(self, request: SearchRequest) -> Answer:
        with self._connection() as conn:
            known = store.worktrees(conn, host=host())
            if not request.repos and request.cwd is None:
                raise WrongUsage("search needs a worktree", hint=_known(known))
            _check_names(request)
            worktrees = [worktree_of(path, known) for path in request.repos or [request.cwd or ""]]
            for worktree in worktrees:
                retrieval.require_indexed(worktree)
            vector, note = self._vector(request)
            question = retrieval.Question(
                text=request.query,
                k=request.k,
                mode=request.mode,
                path=request.path,
                language=request.language,
                kind=request.kind,
                tests={True: "equal", False: "exclude", None: "demote"}[request.tests],
                explain=request.explain,
            )
            results: list[dict[str, Any]] = []
            for worktree in worktrees:
                found = retrieval.search(conn, worktree, question, vector, load_rules(worktree.root))
                if len(worktrees) > 1:
                    found = [result | {"root": worktree.root} for result in found]
                results += found
                if self._engine and not all(result["verified"] for result in found):
                    self._engine.look(worktree.id)
            results.sort(key=lambda result: -result["score"])
            results = [result | {"rank": n} for n, result in enumerate(results[: request.k], start=1)]
            waiting = {w.id: status.pending_vectors(conn, w.id).get(w.id, 0) for w in worktrees}
            proofs = [self._proof(worktree, waiting) for worktree in worktrees]
        answer: Answer = {
            "query": request.query,
            "mode": request.mode,
            "worktree": proofs[0],
            "results": results,
            "context": None,
            "note": note,
        }
        if len(proofs) > 1:
            answer["worktrees"] = proofs
        if request.budget is not None:
            limit = request.k if request.k_given else _PACKED
            answer["context"] = retrieval.pack(results, request.budget, _counter(request.tokenizer), limit)
        return answer

    def show(self, symbol: str, repo: str | None, cwd: str) -> Answer:
        path, _, qualname = symbol.partition("#")
        if not path or not qualname:
            raise WrongUsage(f"{symbol!r} is not PATH#QUALNAME", hint="for example: src/app.py#Flask.run")
        with self._connection() as conn:
            worktree = worktree_of(repo or cwd, store.worktrees(conn, host=host()))
            retrieval.require_indexed(worktree)
            found = retrieval.show(conn, worktree, path, qualname, load_rules(worktree.root))
            if found is None:
                near = retrieval.similar_names(conn, worktree, path, qualname)
                hint = "did you mean " + ", ".join(near) if near else "try: headwatch search " + qualname
                raise HeadwatchError(f"no symbol {symbol} is live in {worktree.root}", hint=hint)
            proof = self._proof(worktree, status.pending_vectors(conn, worktree.id))
        return found | {"worktree": proof}

    def add(self, paths: list[str], name: str | None) -> Answer:
        if name is not None and len(paths) != 1:
            raise WrongUsage("--name names one repository", hint="give one path with --name")
        ids: list[int] = []
        for path in paths:
            if self._engine:
                ids += self._engine.add(path, name)
            else:
                with self._connection() as conn:
                    user_home = self._config.user_home
                    rows = registry.add(conn, path, host=host(), user_home=user_home, name=name)
                    ids += [row.id for row in rows]
        return self._listing(set(ids))

    def remove(self, path: str, purge: bool) -> Answer:
        with self._connection() as conn:
            known = store.worktrees(conn, host=host())
            asked = os.path.abspath(path)
            worktree = next((w for w in known if w.root == asked), None) or worktree_of(path, known)
            if self._engine:
                self._engine.remove(worktree.id, purge)
            else:
                store.forget_worktree(conn, worktree.id, purge=purge, by_hand=True)
        return {"removed": worktree.root}

    def list_(self) -> Answer:
        return self._listing(None)

    def skipped(self, repo: str | None, cwd: str) -> Answer:
        from headwatch_indexer.snapshot import ignored_listing

        with self._connection() as conn:
            worktree = worktree_of(repo or cwd, store.worktrees(conn, host=host()))
            rows = [*store.skipped(conn, worktree.id).values(), *ignored_listing(worktree.location)]
        return {
            "skipped": [
                {"path": row.path.decode(errors="backslashreplace"), "reason": row.reason, "size": row.size}
                for row in sorted(rows, key=lambda row: row.path)
            ]
        }

    def wait(self, repo: str | None, timeout_s: float, vectors: bool, cwd: str) -> Answer:
        engine = self._require_engine()
        end = time.monotonic() + timeout_s
        with self._connection() as conn:
            known = store.worktrees(conn, host=host())
        try:
            worktree = worktree_of(repo or cwd, known)
        except WrongUsage:  # it may be a linked worktree that was made a moment ago
            engine.discover()
            with self._connection() as conn:
                worktree = worktree_of(repo or cwd, store.worktrees(conn, host=host()))
        done = engine.wait(worktree, max(0.0, end - time.monotonic()), vectors)
        entry: Answer = next(w for r in self.status(worktree.root)["repositories"] for w in r["worktrees"])
        if not done:
            raise NotFresh(
                f"{worktree.root} is not fresh after {timeout_s:g} s: "
                f"{engine.problem(worktree.id) or entry['reason'] or entry['state']}, "
                f"{entry['pending_vectors']} vectors pending",
                hint="give it more time: --timeout, or see: headwatch status",
            )
        return entry

    def reconcile(self, repo: str | None) -> Answer:
        engine = self._require_engine()
        with self._connection() as conn:
            known = store.worktrees(conn, host=host())
        chosen = [worktree_of(repo, known)] if repo else known
        for worktree in chosen:
            engine.look(worktree.id)
        return {"requested": [worktree.root for worktree in chosen]}

    def events(self, follow: bool) -> Iterator[Answer]:
        if follow:
            self._require_engine()
        cursor = (0, 0)
        for _ in self._engine.follow() if follow and self._engine else [None]:
            with self._connection() as conn:
                found = store.events(conn, after=cursor)
            for event in found:
                cursor = event.pop("cursor")
                yield event

    def embed(self, texts: list[str], kind: str) -> Answer:
        vectors = self._require_engine().embed(texts, kind)
        return {"model": self._model()["name"], "dim": self._model()["dim"], "vectors": vectors}

    def health(self) -> Answer:
        return {"ok": True, "pid": os.getpid(), "home": self._config.home, "version": __version__}

    def metrics(self) -> str:
        answer = self.status(None)
        lines = []
        for name, value in answer["counters"].items():
            lines += [f"# TYPE headwatch_{name}_total counter", f"headwatch_{name}_total {value}"]
        for name, value in answer["queues"].items():
            lines += [f"# TYPE headwatch_queue_{name} gauge", f"headwatch_queue_{name} {value}"]
        return "\n".join(lines) + "\n"

    def _listing(self, only: set[int] | None) -> Answer:
        with self._connection() as conn:
            rows = store.worktrees(conn, host=host())
            repositories = store.repositories(conn)
        rows = [row for row in rows if only is None or row.id in only]
        entries = [
            (row.repository_id, {"root": row.root, "branch": row.branch or status.live(row)[1]})
            for row in rows
        ]
        owners = {owner for owner, _ in entries}
        return {"repositories": status.by_repository([r for r in repositories if r.id in owners], entries)}

    def _proof(self, worktree: WorktreeRow, waiting: Mapping[int, int]) -> dict[str, Any]:
        live_head, _ = status.live(worktree)
        state, _ = (
            status.with_daemon(worktree, live_head) if self._engine else status.without_daemon(worktree)
        )
        return retrieval.worktree_proof(worktree, state, live_head, waiting.get(worktree.id, 0))

    def _vector(self, request: SearchRequest) -> tuple[list[float] | None, str | None]:
        """The query's vector, or why there is none."""
        if request.mode == "lexical":
            return None, None
        patient = request.mode == "dense"
        if self._engine:
            vector = self._engine.embed_query(request.query, patient=patient)
            if vector is None and patient:
                raise Unreachable(
                    "the model is not ready", hint="try again, or --mode lexical; see: headwatch doctor"
                )
            return vector, None if vector else "lexical answer: the model is not loaded yet"
        if not patient:
            return None, "lexical answer: no daemon runs, so no model is loaded"
        from headwatch_indexer.embed import load

        return [float(x) for x in load(self._config.model).encode_query(request.query)], None

    def _model(self) -> dict[str, Any]:
        info = model_info(self._config.model)
        return {"name": info.name, "dim": info.dim, "device": None, "loaded": False}

    def _require_engine(self) -> Engine:
        if self._engine is None:
            raise Unreachable("no headwatch daemon runs", hint="start one: headwatch run")
        return self._engine

    @contextmanager
    def _connection(self) -> Iterator[store.Connection]:
        try:
            with self._pool.connection() as conn, store.translate():
                yield conn
        except PoolTimeout as exc:
            raise store.Unavailable(
                "the database does not answer", hint="is Postgres running? try: headwatch doctor"
            ) from exc


@contextmanager
def open_local(config: Config) -> Iterator[DatabaseActions]:
    """The actions without a daemon; a server that was started for this is stopped again."""
    with ExitStack() as stack:
        opened = stack.enter_context(open_database(config))
        local = DatabaseActions(config, opened)
        stack.callback(local.close)
        yield local


def host() -> str:
    """The name under which this machine's clones are kept."""
    return platform.node() or "localhost"


def process_state(started_at: float, others: Sequence[int]) -> dict[str, Any]:
    """The daemon's part of the status document; memory and CPU are summed over its processes."""
    rss, cpu = 0, 0.0
    for pid in (os.getpid(), *others):
        try:
            process = psutil.Process(pid)
            with process.oneshot():
                rss += process.memory_info().rss
                cpu += sum(process.cpu_times()[:2])
        except psutil.Error:
            continue
    return {
        "running": True,
        "pid": os.getpid(),
        "started_at": datetime.fromtimestamp(started_at, UTC).isoformat(),
        "rss_bytes": rss,
        "cpu_s": round(cpu, 2),
    }


def _configure(conn: store.Connection) -> None:
    conn.execute("select set_config('search_path', 'headwatch, public', false)")


def _check_names(request: SearchRequest) -> None:
    """Refuse a kind or language that nothing can have: an empty answer would say that there is no such code."""
    if request.kind is not None and request.kind not in KINDS:
        raise WrongUsage(f"there is no kind {request.kind!r}", hint=f"kinds: {', '.join(KINDS)}")
    if request.language is not None and request.language not in languages.KNOWN:
        raise WrongUsage(
            f"there is no language {request.language!r}",
            hint=f"languages: {', '.join(sorted(languages.KNOWN))}",
        )


def _known(worktrees: Sequence[WorktreeRow]) -> str:
    roots = ", ".join(worktree.root for worktree in worktrees) or "none yet; headwatch add PATH"
    return f"say which with --repo PATH; registered: {roots}"


def _counter(tokenizer: str | None) -> Callable[[str], int]:
    if tokenizer is None:
        return lambda text: math.ceil(len(text) / _CHARACTERS_A_TOKEN)
    from tokenizers import Tokenizer

    try:
        loaded = (
            Tokenizer.from_file(tokenizer)
            if os.path.isfile(tokenizer)
            else Tokenizer.from_pretrained(tokenizer)
        )
    except Exception as exc:  # the library raises bare Exception
        raise WrongUsage(
            f"cannot load the tokenizer {tokenizer}: {str(exc).splitlines()[0]}",
            hint="give a tokenizer.json or a name that the tokenizers library can load, or leave --tokenizer out",
        ) from None
    return lambda text: len(loaded.encode(text, add_special_tokens=False).ids)
