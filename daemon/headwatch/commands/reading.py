"""Commands that ask: status, wait, search, show, skipped, doctor, events."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from headwatch.commands.context import (
    Json,
    Repo,
    absolute,
    actions,
    configuration,
    daemon,
    example,
    here,
    put,
    warn_of_version,
)
from headwatch_indexer.errors import Unreachable

if TYPE_CHECKING:
    from rich.text import Text

    from headwatch.protocol import Answer

_WATCH_INTERVAL_S = 1.0


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.command(epilog=example("headwatch status", "headwatch status --json | jq .state"))(status)
    app.command(epilog=example("headwatch wait && headwatch search 'retry with backoff'"))(wait)
    app.command(
        epilog=example(
            "headwatch search 'parse a url rule'",
            "headwatch search add_url_rule -k 3 --path 'src/**' --json",
            "headwatch search 'session cookie' --budget 2000",
        )
    )(search)
    app.command(epilog=example("headwatch show src/flask/app.py#Flask.dispatch_request"))(show)
    app.command(epilog=example("headwatch skipped --repo ~/src/project"))(skipped)
    app.command(
        epilog=example("headwatch doctor", "headwatch doctor --json | jq '.checks[] | select(.ok|not)'")
    )(doctor)
    app.command(epilog=example("headwatch events --follow | jq -c .event"))(events)


def status(
    path: Annotated[str | None, typer.Argument(help="Only this worktree.", metavar="[PATH]")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh every second until Ctrl-C.")] = False,
    as_json: Json = False,
) -> None:
    """Show the daemon, the database and how fresh each worktree is."""
    from headwatch import render

    if watch and as_json:
        raise typer.BadParameter("does not go with --json", param_hint="--watch")
    with actions(configuration()) as act:
        if not watch:
            put(act.status(absolute(path)), as_json, render.status)
            return
        render.follow(_every(_WATCH_INTERVAL_S, lambda: render.status(act.status(absolute(path)))))


def _every(seconds: float, look: Callable[[], Iterable[Text]]) -> Iterator[Iterable[Text]]:
    while True:
        yield look()
        time.sleep(seconds)


def wait(
    path: Annotated[str | None, typer.Argument(help="The worktree; default: here.", metavar="[PATH]")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds.", metavar="S", min=0)] = 120.0,
    vectors: Annotated[bool, typer.Option("--vectors", help="Wait for the vectors too.")] = False,
    as_json: Json = False,
) -> None:
    """Wait until a worktree's rows match the disk as of now; exit 3 when they do not in time."""
    from headwatch import render

    client = daemon(configuration())
    put(client.wait(absolute(path), timeout, vectors, here()), as_json, render.waited)
    warn_of_version(client)


def search(
    query: Annotated[str, typer.Argument(help="Words, a name, or a sentence.")],
    repo: Annotated[
        list[str] | None,
        typer.Option(
            "--repo", help="A path in the worktree; default: here. May be repeated.", metavar="PATH"
        ),
    ] = None,
    k: Annotated[int | None, typer.Option("-k", help="Number of results (10).", metavar="N")] = None,
    path: Annotated[str | None, typer.Option(help="Only files that match.", metavar="GLOB")] = None,
    language: Annotated[str | None, typer.Option(help="Only this language.", metavar="L")] = None,
    kind: Annotated[str | None, typer.Option(help="Only this kind: function, class, …", metavar="K")] = None,
    mode: Annotated[str | None, typer.Option(help="hybrid, lexical or dense.", metavar="MODE")] = None,
    tests: Annotated[
        bool | None,
        typer.Option("--tests/--no-tests", help="Do not demote tests / leave them out.", show_default=False),
    ] = None,
    budget: Annotated[
        int | None, typer.Option(help="Print one packed context of so many tokens.", metavar="TOKENS")
    ] = None,
    tokenizer: Annotated[str | None, typer.Option(help="Count tokens with this one.", metavar="NAME")] = None,
    explain: Annotated[bool | None, typer.Option("--explain", help="Show how each score came about.")] = None,
    as_json: Json = False,
) -> None:
    """Search the live code of a worktree by words and by meaning."""
    from headwatch import render
    from headwatch.protocol import SearchRequest

    given = {
        "query": query,
        "repo": [absolute(one) for one in repo] if repo else None,
        "k": k,
        "path": path,
        "language": language,
        "kind": kind,
        "mode": mode,
        "tests": tests,
        "budget": budget,
        "tokenizer": tokenizer,
        "explain": explain,
        "cwd": here(),
    }
    request = SearchRequest.parse({key: value for key, value in given.items() if value is not None})
    with actions(configuration()) as act:
        put(act.search(request), as_json, render.search)


def show(
    symbol: Annotated[str, typer.Argument(help="PATH#QUALNAME", metavar="PATH#QUALNAME")],
    repo: Repo = None,
    as_json: Json = False,
) -> None:
    """Show one symbol as it is now, with the proof that it is."""
    from headwatch import render

    with actions(configuration()) as act:
        put(act.show(symbol, absolute(repo), here()), as_json, render.symbol)


def skipped(repo: Repo = None, as_json: Json = False) -> None:
    """List the files that are not indexed, each with the reason."""
    from headwatch import render

    with actions(configuration()) as act:
        put(act.skipped(absolute(repo), here()), as_json, render.skipped)


def doctor(as_json: Json = False) -> int:
    """Check every part and name a fix for what is broken; exit 1 if something is."""
    from headwatch import doctor, render

    answer = doctor.examine(configuration())
    put(answer, as_json, render.checks)
    return 0 if answer["ok"] else 1


def events(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="The output is always one JSON object a line.")
    ] = False,
) -> None:
    """Print what the daemon did, one JSON object a line."""
    config = configuration()
    if follow:
        _print_lines(daemon(config).events(follow=True))
        raise Unreachable("the daemon stopped", hint="start it again: headwatch run")
    with actions(config) as act:
        _print_lines(act.events(follow=False))


def _print_lines(items: Iterable[Answer]) -> None:
    for item in items:
        sys.stdout.write(json.dumps(item, ensure_ascii=False) + "\n")
        sys.stdout.flush()
